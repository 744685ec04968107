"""kill, cut, freeze and heal do what they say, and Kubernetes notices by itself: all seen through the API server."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.harness import Sandbox, claim, mounted, pod, until

# When it ran.
BEAT = "while true; do date +%s >> /data/beat; sleep 0.5; done"
MOVES_AT_ONCE = [
    {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
    for state in ("unreachable", "not-ready")
]


@pytest.fixture
def beating(sandbox: Sandbox) -> Iterator[str]:
    """A pod on n3 that stays there whatever happens, and keeps a record of when it ran."""
    stays = [{"operator": "Exists"}]
    try:
        sandbox.apply(claim("beat"), pod("beating", BEAT, "n3", tolerations=stays, **mounted("beat")))
        sandbox.wait_for_pods("test=beating")
        yield "beating"
    finally:
        sandbox.command("node", "heal", "n3")
        sandbox.wait_for_node("n3", "True")
        sandbox.delete("pod/beating", "pvc/beat")


def container(sandbox: Sandbox, name: str) -> str:
    """The container's id: another one after every restart."""
    return str(sandbox.get("pod", name)["status"]["containerStatuses"][0]["containerID"])


def beats_between(sandbox: Sandbox, name: str, begin: float, end: float) -> int:
    """How often it beat then. A beat is a whole second."""
    beats = [int(line) for line in sandbox.exec(name, "cat", "/data/beat").stdout.split()]
    return sum(begin <= beat and beat + 1 <= end for beat in beats)


def test_a_deployments_pod_moves_off_a_killed_node(sandbox: Sandbox) -> None:
    spec = pod("mover", "sleep 600", tolerations=MOVES_AT_ONCE)["spec"]
    labels = {"test": "mover"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "mover"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }
    try:
        sandbox.apply(deployment)
        (before,) = sandbox.wait_for_pods("test=mover")
        node = before["spec"]["nodeName"]
        sandbox.command("node", "kill", node)
        sandbox.wait_for_node(node, "Unknown")

        def moved() -> bool:
            pods = sandbox.pods("test=mover")
            return any(p["spec"].get("nodeName") not in (node, None) and is_ready(p) for p in pods)

        until("the pod runs on another node", moved)
        sandbox.command("node", "heal", node)
        sandbox.wait_for_node(node, "True")
        until("the old pod is gone", lambda: len(sandbox.get("pods", "--selector", "test=mover")["items"]) == 1)
    finally:
        sandbox.delete("deployment/mover")


def is_ready(found: dict[str, Any]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in found["status"].get("conditions", []))


def test_a_killed_nodes_containers_are_gone_when_it_heals(sandbox: Sandbox, beating: str) -> None:
    before = container(sandbox, beating)
    sandbox.command("node", "kill", "n3")
    assert "killed" in sandbox.command("status")
    sandbox.wait_for_node("n3", "Unknown")
    sandbox.command("node", "heal", "n3")
    sandbox.wait_for_node("n3", "True")
    until("another container runs", lambda: container(sandbox, beating) != before)


def test_a_cut_nodes_containers_are_still_running_when_it_heals(sandbox: Sandbox, beating: str) -> None:
    before = container(sandbox, beating)
    sandbox.command("node", "cut", "n3")
    began = time.time()
    assert "cut" in sandbox.command("status")
    sandbox.wait_for_node("n3", "Unknown")
    ended = time.time()
    sandbox.command("node", "heal", "n3")
    sandbox.wait_for_node("n3", "True")
    assert container(sandbox, beating) == before
    assert beats_between(sandbox, beating, began, ended), "it went on running while it was cut off"


def test_a_frozen_nodes_containers_stop_and_go_on_when_it_heals(sandbox: Sandbox, beating: str) -> None:
    before = container(sandbox, beating)
    sandbox.command("node", "freeze", "n3")
    began = time.time()
    assert "frozen" in sandbox.command("status")
    sandbox.wait_for_node("n3", "Unknown")
    ended = time.time()
    sandbox.command("node", "heal", "n3")
    sandbox.wait_for_node("n3", "True")
    assert container(sandbox, beating) == before
    assert not beats_between(sandbox, beating, began, ended), "it stood still"
    until("it beats again", lambda: beats_between(sandbox, beating, ended, math.inf))
