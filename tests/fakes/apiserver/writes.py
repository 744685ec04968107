"""What the operator wrote, to Kubernetes and to Slurm, and crashes right behind any of it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(frozen=True)
class Write:
    """One request that isn't a read, with what came of it."""

    server: str
    """`kubernetes` or `slurm`."""
    client: str
    """Who sent it: the bearer token, or the user of Slurm's."""
    method: str
    path: str
    body: Any
    status: int
    changed: bool
    """Whether anything is different now: an apply of what is there already changes nothing."""

    def __str__(self) -> str:
        return f"{self.method} {self.path} -> {self.status}{'' if self.changed else ' (nothing changed)'}"


Matching = Callable[[Write], bool]
Crash = Callable[[Write], None]


def changes(write: Write) -> bool:
    """It changed something, and wasn't a heartbeat or an Event: their number depends on time."""
    return write.changed and "/leases/" not in write.path and "/events" not in write.path


@dataclass
class _Plan:
    left: int
    matching: Matching
    crash: Crash | None
    lost_answer: bool


@dataclass
class Writes:
    """All writes in their order. Give one of these to several servers and their writes are counted together.

    `bystanders` are clients that belong to the test: what they do is neither listed nor hit by any fault.
    """

    bystanders: Collection[str] = ("user",)
    all: list[Write] = field(default_factory=list)
    down: bool = False
    """The operator has crashed: what it still sends is not done and not answered."""
    _plan: _Plan | None = None

    def crash_after(
        self, number: int, crash: Crash, *, lost_answer: bool = False, matching: Matching = changes
    ) -> None:
        """The operator crashes right after its number-th write from now: that one is done, and nothing more until
        `restarted`. `crash` is called at that moment, to end its tasks."""
        self._plan = _Plan(number, matching, crash, lost_answer)

    def lose_answer(self, number: int, *, matching: Matching = changes) -> None:
        """The number-th write from now is done, but its answer never arrives; the operator lives on."""
        self._plan = _Plan(number, matching, None, True)

    def restarted(self) -> None:
        """Whoever writes from now on is alive."""
        self.down = False

    @property
    def pending(self) -> bool:
        """The write that a fault waits for hasn't come yet."""
        return self._plan is not None

    # --- for the servers ------------------------------------------------------------------------------------------

    def refuses(self, client: str) -> bool:
        """Whether this client is dead."""
        return self.down and client not in self.bystanders

    def done(self, write: Write) -> _Plan | None:
        """Note a write that was just done; returns the fault that hits its answer."""
        if write.client in self.bystanders:
            return None
        self.all.append(write)
        plan = self._plan
        if plan is None or not plan.matching(write):
            return None
        plan.left -= 1
        if plan.left:
            return None
        self._plan = None
        self.down = plan.crash is not None
        return plan

    async def answer(self, request: web.Request, response: web.Response, write: Write) -> web.StreamResponse:
        """Send the answer, unless it gets lost, and crash whom it was for, if it is time."""
        plan = self.done(write)
        if plan is None:
            return response
        if plan.lost_answer:
            dropped(request)
        else:
            await response.prepare(request)
            await response.write_eof()
        if plan.crash:
            plan.crash(write)
        return response


def dropped(request: web.Request) -> web.Response:
    """End the connection without an answer."""
    if request.transport:
        request.transport.abort()
    return web.Response()
