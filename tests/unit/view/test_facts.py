"""The authors of reasons, and the order of nodes."""

from __future__ import annotations

import pytest
from tests.builders.facts import drained, known, pod
from tests.builders.slurm import node
from tests.builders.slurm import snapshot as slurm

from seltzer.view import facts


@pytest.mark.parametrize(
    ("reason", "by", "who", "why"),
    [
        ("seltzer: Kubernetes node n2 is cordoned", "root", "Seltzer", "Kubernetes node n2 is cordoned"),
        ("seltzer: scale-in", "slurm", "Seltzer", "scale-in"),
        ("seltzer: scale-in : Not responding", "slurm", "Seltzer", "scale-in : Not responding"),
        ("seltzer: scale-in : Kill task failed", "slurm", "Slurm", "scale-in : Kill task failed"),
        ("Not responding", "slurm", "Slurm", "Not responding"),
        ("gres/gpu count reported lower than configured (0 < 2)", "slurm", "Slurm", None),
        ("bad disk [ann]", "slurm", "ann", "bad disk"),
        ("seltzer drain by ann", "slurm", "ann", ""),
        ("bad disk", "root", "root", "bad disk"),
        ("bad disk [rack 7]", "bob", "bob", "bad disk [rack 7]"),
        ("", "root", "", ""),
    ],
)
def test_the_report_says_who_set_a_reason(reason: str, by: str, who: str, why: str | None) -> None:
    found = drained(reason=reason, by=by)
    assert (facts.who(found), facts.why(found)) == (who, reason if why is None else why)


def test_nodes_are_in_natural_order_whoever_knows_them() -> None:
    told = slurm(node("cpu-10"), node("cpu-2"), node("big-0"))
    assert known(told, pod("cpu-9"), pod("cpu-2")).names == ["big-0", "cpu-2", "cpu-9", "cpu-10"]
