"""Checks on the fakes: the operator mounts the list, follows what nodes report, and gives them back."""

from __future__ import annotations

import json
from typing import Any

from tests.fakes.operator_rig import Rig, rigged

DISK = {"name": "disk", "use": "disk"}
GPU = {"name": "gpu", "use": "gpu", "onFail": "replace"}
REASON = "seltzer: check disk: /tmp is full"


def mounted(rig: Rig) -> dict[str, str]:
    for id_, item in rig._server.state.items("", "configmaps"):
        if id_.name == "cpu.checks":
            return dict(item["data"])
    return {}


def marks(rig: Rig, name: str) -> dict[str, str]:
    found: dict[str, str] = rig.pods()["cpu-0"]["metadata"]["annotations"]
    return {key: value for key, value in found.items() if key == f"seltzer.dev/{name}"}


def uids(rig: Rig) -> set[str]:
    return {pod["metadata"]["uid"] for pod in rig.pods().values()}


def told(rig: Rig) -> dict[str, str]:
    return {
        str(item["reason"]): str(item.get("note", item.get("message", "")))
        for id_, item in rig._server.state.everything()
        if id_.plural == "events"
    }


def report(rig: Rig, reason: str = "", **failing: str) -> None:
    """The runner in cpu-0 reports, and drains its node."""
    more: dict[str, Any] = {"reason": reason, "state": ["IDLE", "DRAIN", "DYNAMIC_NORM"]} if reason else {}
    rig.slurm.change("cpu-0", extra=json.dumps({"seltzer-checks": failing}), **more)


def drained(rig: Rig) -> bool:
    return "DRAIN" in rig.slurm.nodes["cpu-0"]["state"]


async def begin(rig: Rig) -> None:
    await rig.cluster()
    await rig.nodeset(replicas=2, checks=[DISK, GPU])
    await rig.until("both are ready", lambda: rig.ready("nodesets", "cpu") and rig.is_quiet())


async def test_a_node_is_given_back_when_the_same_check_passes() -> None:
    async with rigged() as rig:
        await begin(rig)
        report(rig, REASON, disk="/tmp is full")
        await rig.until("its pod says so", lambda: marks(rig, "failed-checks") == {"seltzer.dev/failed-checks": "disk"})
        await rig.until(
            "there is an Event", lambda: told(rig).get("CheckFailed") == "check disk fails on cpu-0: /tmp is full"
        )
        assert drained(rig)
        assert rig.told("cpu-0")["seltzer.dev/ChecksPassed"] == "False"
        report(rig)
        await rig.until("it takes jobs", lambda: not drained(rig))
        await rig.until("its pod says so", lambda: not marks(rig, "failed-checks"))
        await rig.until("there is an Event", lambda: told(rig).get("CheckPassed") == "check disk passes again on cpu-0")


async def test_a_node_that_nobody_has_drained_is() -> None:
    async with rigged() as rig:
        await begin(rig)
        report(rig, gpu="lost")
        await rig.until("it is drained", lambda: drained(rig))
        assert rig.slurm.nodes["cpu-0"]["reason"] == "seltzer: check gpu: lost"
        await rig.until("it asks for another machine", lambda: bool(marks(rig, "replace-machine")))
        await rig.until("there is an Event", lambda: "ReplaceMachine" in told(rig))


async def test_a_changed_list_reaches_the_pods_and_replaces_none() -> None:
    async with rigged() as rig:
        await begin(rig)
        before, old = uids(rig), marks(rig, "checks")
        report(rig, REASON, disk="/tmp is full")
        await rig.nodeset(replicas=2, checks=[GPU])
        await rig.until("the list is another", lambda: "check.disk" not in mounted(rig))
        await rig.until("the pods are told", lambda: marks(rig, "checks") not in ({}, old))
        await rig.until("what it drained takes jobs", lambda: not drained(rig))
        assert uids(rig) == before


async def test_the_first_check_replaces_the_pods_and_the_last_one_too() -> None:
    async with rigged() as rig:
        await rig.cluster()
        await rig.nodeset(replicas=2)
        await rig.until("both are ready", lambda: rig.ready("nodesets", "cpu") and rig.is_quiet())
        assert not mounted(rig), "nobody needs it"
        for wanted in ([DISK], []):
            before = uids(rig)
            await rig.nodeset(replicas=2, checks=wanted)
            await rig.until(
                "they are others",
                lambda before=before: not uids(rig) & before and rig.ready("nodesets", "cpu"),  # type: ignore[misc]
            )
        assert mounted(rig)["list"] == "", "pods that are still there run none"
