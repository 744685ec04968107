"""Slurm can't be asked for a while: what the whole operator makes of it, on the fakes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.fakes.apiserver.things import NODESETS
from tests.fakes.operator_rig import Rig, rigged

from seltzer.api.labels import BUSY, SLURM_BUSY, SLURM_READY
from seltzer.kube.backoff import Backoff


@asynccontextmanager
async def well(replicas: int) -> AsyncIterator[Rig]:
    """A cluster without any job."""
    async with rigged() as found:
        await found.cluster()
        await found.nodeset(replicas=replicas)
        await found.until(
            "all is well", lambda: found.ready("nodesets", "cpu") and found.ready("slurmclusters", "demo")
        )
        await found.until("nothing is left to be written", found.is_quiet)
        asked = len(found.slurm.requests)
        await found.until("what was written is read", lambda: len(found.slurm.requests) > asked + 4)
        yield found


async def test_a_drain_that_was_refused_is_done_as_soon_as_slurm_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals: list[Backoff] = []

    def next_day(backoff: Backoff) -> float:
        refusals.append(backoff)
        return 86400.0

    async with well(replicas=1) as rig:
        monkeypatch.setattr(Backoff, "next", next_day)
        await rig.slurm.stop()
        rig.cordon("cpu-0")
        await rig.until("the drain is refused", lambda: "Slurm can't be asked" in rig.why_refused())
        await rig.until("again, since the status is news too, and then nobody tries", lambda: len(refusals) > 1)
        await rig.slurm.start()
        await rig.until("it is drained", lambda: "DRAIN" in rig.slurm.nodes["cpu-0"]["state"])


async def test_while_nobody_knows_who_has_jobs_no_pod_may_be_evicted() -> None:
    async with well(replicas=3) as rig:
        everyone = {"cpu-0", "cpu-1", "cpu-2"}
        told = [{SLURM_READY: "True", SLURM_BUSY: "False"}] * 3
        await rig.until("the pods tell", lambda: [rig.told(name) for name in sorted(everyone)] == told)
        assert rig.protected() == set()
        before = len(rig.written())
        await rig.slurm.stop()
        await rig.until("all are protected", lambda: rig.protected() == everyone)
        doubts = [{SLURM_READY: "Unknown", SLURM_BUSY: "Unknown"}] * 3
        await rig.until("the pods say so", lambda: [rig.told(name) for name in sorted(everyone)] == doubts)
        await rig.nodeset(replicas=0)
        rig.slurm.change("cpu-1", state=["MIXED", "DYNAMIC_NORM"], alloc_cpus=1)
        await rig.slurm.start()
        await rig.until("who has a job is waited for", lambda: set(rig.pods()) == {"cpu-1"})
        await rig.until("and is protected", lambda: rig.told("cpu-1")[SLURM_BUSY] == "True")
        assert rig.protected() == {"cpu-1"}
        budgets = [write for write in rig.written()[before:] if write.path.endswith("/cpu-busy")]
        assert [BUSY in write.body["spec"]["selector"]["matchLabels"] for write in budgets] == [False, True]


async def test_a_nodeset_that_is_deleted_while_nobody_knows_keeps_its_pods_and_writes_no_budget() -> None:
    async with well(replicas=1) as rig:
        await rig.slurm.stop()
        await rig.delete(NODESETS, "cpu")
        await rig.until("its pod says that nobody knows", lambda: rig.told("cpu-0").get(SLURM_READY) == "Unknown")
        assert rig.protected() == set(), "as it was"
        await rig.slurm.start()
        await rig.until("it is gone", lambda: not rig.pods() and "nodesets/cpu" not in rig.kinds())
