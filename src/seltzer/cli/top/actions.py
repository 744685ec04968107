"""The actions of `seltzer top`. Each returns a sentence for the user."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from seltzer.cli import drain, kubectl
from seltzer.cli.drain import Target
from seltzer.cli.kube import Place
from seltzer.errors import SeltzerError
from seltzer.slurm.snapshot import Job
from seltzer.view.facts import Facts

_TAIL = 1000


class Actions(Protocol):
    """The possible actions. They raise SeltzerError if they fail, and never block the event loop."""

    async def drain(self, known: Facts, node: str, reason: str) -> str: ...

    async def resume(self, known: Facts, node: str) -> str: ...

    async def cancel(self, known: Facts, job: Job) -> str: ...

    def logs(self, known: Facts, node: str | None) -> Sequence[str]:
        """The command that prints and follows the log of a node's slurmd, or of slurmctld."""


@dataclass(frozen=True)
class KubectlActions:
    """Actions by kubectl, in the pod of the slurmctld in charge. `place` is that of the cluster."""

    place: Place

    async def drain(self, known: Facts, node: str, reason: str) -> str:
        words = drain.checked_reason(reason)
        names, _ = drain.drainable(Target(self.place, known, [node]))
        await self._update(known, names, "State=DRAIN", f"Reason={drain.sign(words)}")
        return f"{node} takes no new jobs ({words})"

    async def resume(self, known: Facts, node: str) -> str:
        names, _ = drain.resumable(Target(self.place, known, [node]))
        await self._update(known, names, "State=RESUME")
        return "; ".join([f"{node} takes jobs again", *drain.warnings(known, names)])

    async def _update(self, known: Facts, names: Sequence[str], *changes: str) -> None:
        await asyncio.to_thread(drain.update, self.place, known, names, changes)

    async def cancel(self, known: Facts, job: Job) -> str:
        words = cancelling(job)
        await asyncio.to_thread(kubectl.output, self.place, known.slurmctld, "slurmctld", words)
        return f"job {job.id} is cancelled"

    def logs(self, known: Facts, node: str | None) -> Sequence[str]:
        pod = known.pod(node) if node else None
        if node and pod is None:
            raise SeltzerError(f"{node} has no pod, so there is no log")
        place = Place(self.place.config, pod.metadata.namespace, self.place.flags) if pod else self.place
        what = (f"pod/{node}", "slurmd") if pod else (known.slurmctld, "slurmctld")
        flags = ("--container", what[1], "--follow", f"--tail={_TAIL}")
        return [kubectl.find(), *place.kubectl_flags, "logs", what[0], *flags]


def cancelling(job: Job) -> list[str]:
    """The command that cancels a job. Pending tasks of an array are one row: its running tasks go on."""
    if "[" in job.id:
        return ["scancel", "--state=PENDING", job.id.partition("_")[0]]
    return ["scancel", job.id]
