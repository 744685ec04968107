"""The order of actions."""

from __future__ import annotations

from seltzer.plan.actions import Apply, Create, DrainNodes, SetFinalizer
from seltzer.plan.stages import stages


def test_inputs_come_before_what_needs_them_and_a_finalizer_goes_last() -> None:
    secret, pod, drain = Apply({"kind": "Secret"}), Create({"kind": "Pod"}), DrainNodes(("cpu-0",), "seltzer: x")
    assert stages([SetFinalizer(False), pod, drain, secret]) == [[drain, secret], [pod], [SetFinalizer(False)]]
    assert stages([SetFinalizer(True)]) == [[SetFinalizer(True)]]
    assert stages([]) == []
