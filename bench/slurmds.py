"""Simulates the slurmds that pods on KWOK nodes lack, for a real slurmctld.

A node that is created with `State=EXTERNAL` is IDLE and DYNAMIC_NORM at once and for ever, in its partition and without
a slurmd; it can be drained, commented and deleted like any other. A pod that becomes Ready gets such a record, in one
call with all pods that became Ready meanwhile.
"""

from __future__ import annotations

import asyncio
import re

from seltzer.api.core import Pod
from seltzer.kube.store import Store
from seltzer.plan import pod_state
from seltzer.slurm.client import SlurmClient
from seltzer.slurm.http import Http

PAUSE = 0.05
_COUNT = re.compile(r"^slurm_partition_nodes_(\w+)\{partition=\"([^\"]+)\"\} (\d+)", re.MULTILINE)


class Slurmds:
    """Registers the pods of a store while `run` runs. `registered` holds the names that have a record."""

    def __init__(self, pods: Store[Pod], slurm: SlurmClient, nodeset: str) -> None:
        self.registered: set[str] = set()
        self._slurm = slurm
        self._settings = {"CPUs": "1", "RealMemory": "64", "State": "EXTERNAL", "Feature": f"{nodeset},set_{nodeset}"}
        self._waiting: set[str] = set()
        self._changed = asyncio.Event()
        pods.watch(self._on_pod)

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:
        if after is None and before is not None:
            self.registered.discard(before.metadata.name)
        elif after is not None and pod_state.ready(after) and not (before and pod_state.ready(before)):
            self._waiting.add(after.metadata.name)
            self._changed.set()

    async def run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            names, self._waiting = self._waiting, set()
            outcome = await self._slurm.create(names, self._settings)
            assert not outcome.failed, next(iter(outcome.failed.items()))
            self.registered |= names
            await asyncio.sleep(PAUSE)


async def counted(slurmctld: Http, partition: str) -> dict[str, int]:
    """Nodes of a partition in each state (idle, drain …), from slurmctld's metrics, the cheapest source."""
    answer = await slurmctld.exchange("GET", "/metrics/partitions")
    assert answer.status == 200, answer.gist
    found = _COUNT.findall(answer.body.decode())
    return {state: int(count) for state, name, count in found if name == partition}
