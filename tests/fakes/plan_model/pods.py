"""Pods in the model world."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from tests.builders import objects

from seltzer.api.core import ObjectCondition, Pod
from seltzer.api.labels import DELETION_COST, MACHINE, SAFE_TO_EVICT
from seltzer.plan.actions import PodPatch


@dataclass
class ModelPod:
    """A pod. `runs`: its slurmd does. `shown` is what its status says, which comes a moment later."""

    name: str
    uid: str
    template: str
    created: float
    since: float = 0.0
    machine: str = ""
    # With placement perNode: the machine that it is for.
    pin: str = ""
    runs: bool = False
    # For good; a container that only crashed starts again.
    ended: bool = False
    deleting: float | None = None
    deaf: bool = False
    shown: str = "created"
    version: int = 1
    # slurmd registers once, when it starts.
    registered: bool = False
    changed: float = 0.0
    starts: int = 0
    address: str = ""
    # What its status said last: how often it was started, and where it is.
    shown_starts: int = 0
    shown_finished: float = 0.0
    shown_address: str = ""
    # What the operator tells by it.
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=lambda: {DELETION_COST: "0", SAFE_TO_EVICT: "true"})
    told: dict[str, ObjectCondition] = field(default_factory=dict)

    @property
    def life(self) -> str:
        """Of its container: what an earlier one ran has ended with it."""
        return f"{self.uid}.{self.starts}"

    @property
    def alive(self) -> bool:
        return not self.deleting and not self.ended

    @property
    def is_told(self) -> bool:
        """Whether its status is true."""
        return self.shown_starts == self.starts and self.runs == (self.shown in ("ready", "unready"))

    def start(self, now: float, address: str) -> None:
        self.runs, self.changed, self.registered, self.deaf = True, now, False, False
        self.starts += 1
        self.address = self.address or address

    def crash(self, now: float) -> None:
        if self.runs:
            self.runs, self.changed = False, now

    def report(self, ready: bool, now: float, *, no_image: bool) -> None:
        if self.ended:
            state = "Failed"
        elif self.runs:
            state = "ready" if ready else "unready"
        elif self.starts:
            state, self.shown_finished = "ended", self.changed
        else:
            state = "ImagePullBackOff" if no_image else "waiting"
        self.shown_starts, self.shown_address = self.starts, self.address
        self.show(state, now)

    def show(self, state: str, now: float) -> None:
        if self.shown != state:
            self.shown, self.since = state, now
            self.version += 1

    def patch(self, patch: PodPatch) -> None:
        if patch.uid != self.uid:
            return
        self.version += 1
        for old, new in ((self.labels, patch.labels), (self.annotations, patch.annotations)):
            old.update({key: value for key, value in new.items() if value is not None})
            for key in [key for key, value in new.items() if value is None]:
                old.pop(key, None)
        self.told.update({each.type: each for each in patch.conditions})

    def _annotations(self) -> dict[str, str]:
        return {**self.annotations, **({MACHINE: self.pin} if self.pin else {})}

    def seen(self) -> Pod:
        item = objects.pod(
            self.name,
            state=self.shown,
            template=self.template,
            deleting=self.deleting is not None,
            deleted=self.deleting or 0.0,
            since=self.since,
            created=self.created,
            uid=self.uid,
            version=str(self.version),
            machine=self.machine,
            address=self.shown_address,
            restarts=max(0, self.shown_starts - 1),
            finished=self.shown_finished,
        )
        metadata = msgspec.structs.replace(
            item.metadata, labels={**item.metadata.labels, **self.labels}, annotations=self._annotations()
        )
        conditions = (*item.status.conditions, *self.told.values())
        status = msgspec.structs.replace(item.status, conditions=conditions)
        return msgspec.structs.replace(item, metadata=metadata, status=status)
