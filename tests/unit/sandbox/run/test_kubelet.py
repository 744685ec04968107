"""A kubelet that was quicker than its containerd is started again, and not for ever."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seltzer_sandbox.run import cluster as module
from seltzer_sandbox.run import components
from seltzer_sandbox.run.cluster import Sandbox


class Rig:
    """A sandbox of which only the node's init runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.running: dict[str, Any] = {"n2": SimpleNamespace(pid=1)}
        self.started: list[str] = []
        monkeypatch.setattr(module, "_RESTART_PAUSE", 0.0)
        monkeypatch.setattr(Sandbox, "__init__", lambda _: None)
        self.sandbox = cast(Any, Sandbox)()
        self.sandbox._restarts = {}
        self.sandbox._restarting = threading.Lock()
        self.sandbox.registry = SimpleNamespace(get=self.running.get)
        self.sandbox.cgroups = SimpleNamespace(name="sandbox")
        self.sandbox.layout = None
        monkeypatch.setattr(components, "kubelet", lambda *_: SimpleNamespace(name="n2/kubelet"))
        monkeypatch.setattr(
            Sandbox, "_run_on_node", lambda _, node, name, component: self.started.append(component.name)
        )


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


def test_it_is_started_again_a_few_times(rig: Rig) -> None:
    answers = [rig.sandbox._restart_kubelet("n2/kubelet") for _ in range(7)]
    assert answers == [True] * 5 + [False] * 2
    assert rig.started == ["n2/kubelet"] * 5


def test_it_is_started_once_by_whoever_sees_it_first(rig: Rig) -> None:
    rig.running["n2/kubelet"] = SimpleNamespace(pid=2)
    assert rig.sandbox._restart_kubelet("n2/kubelet")
    assert rig.started == []


@pytest.mark.parametrize("name", ["n2/containerd", "kube-apiserver", "n3/kubelet"])
def test_others_are_not(rig: Rig, name: str) -> None:
    assert not rig.sandbox._restart_kubelet(name)
    assert rig.started == []
