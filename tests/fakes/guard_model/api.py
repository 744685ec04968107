"""An API server with one Lease, and lines to it on which requests and answers get lost, doubled and late."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any, Literal

from tests.fakes.apiserver.patch import merge
from tests.fakes.guard_model.stage import Stage

from seltzer.guard.kube.client import ApiError, Conflict

Mode = Literal["fine", "away", "mute", "slow", "twice"]
MODES: tuple[Mode, ...] = ("fine", "away", "mute", "slow", "twice")
Json = dict[str, Any]


class Server:
    """What was done to a Lease counts from the moment in which it was done, whoever hears of it."""

    def __init__(self) -> None:
        self.version = 1
        self.lease: Json | None = {}
        self.holders: set[str] = set()
        """All who have held it since this was last emptied."""
        self.late: list[tuple[str, Json]] = []
        """Patches that are on their way for longer than their senders waited."""
        self.make()

    def make(self) -> None:
        """As the operator does where there is none."""
        self.version += 1
        self.lease = {"metadata": {"resourceVersion": str(self.version)}, "spec": {}}

    @property
    def holder(self) -> str:
        return str((self.lease or {}).get("spec", {}).get("holderIdentity") or "")

    def get(self, path: str) -> Json:
        if "endpointslices" in path:
            return {"endpoints": []}
        if self.lease is None:
            raise ApiError("404 not found")
        return copy.deepcopy(self.lease)

    def patch(self, path: str, patch: Json) -> Json:
        found = self.get(path)
        if "endpointslices" in path:
            return found
        wanted = patch.get("metadata", {}).get("resourceVersion")
        if wanted not in (None, found["metadata"]["resourceVersion"]):
            raise Conflict("the object has been modified")
        self.version += 1
        self.lease = merge(found, patch)
        assert self.lease
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        self.holders.add(self.holder)
        return copy.deepcopy(self.lease)

    def annotate(self, name: str, value: str | None) -> None:
        """As a person or the operator does."""
        if self.lease is not None:
            self.patch("lease", {"metadata": {"annotations": {f"seltzer.dev/{name}": value}}})

    def arrive(self, which: int) -> None:
        """One of those that are late."""
        path, patch = self.late.pop(which)
        with suppress(ApiError):
            self.patch(path, patch)


class Line:
    """Api for one guard: `mode` is what happens to what it sends from now on."""

    def __init__(self, stage: Stage, server: Server, deadline: float) -> None:
        self._stage, self._server, self._deadline = stage, server, deadline
        self.mode: Mode = "fine"

    def get(self, path: str) -> Json:
        return self._call("get", path, None)

    def patch(self, path: str, patch: Json) -> Json:
        return self._call("patch", path, patch)

    def _call(self, verb: str, path: str, patch: Json | None) -> Json:
        me = self._stage.me()
        me.pause(verb)
        mode = self.mode
        if mode == "away":
            raise ApiError("connection refused")
        if mode == "slow" and patch is not None:
            self._server.late.append((path, patch))
        if mode != "slow":
            answer = self._serve(path, patch)
            if mode == "twice":  # the connection broke before the answer to the first
                answer = self._serve(path, patch)
        if mode in ("slow", "mute"):
            me.pause("no answer", lambda: False, self._deadline)
            raise ApiError("timed out")
        me.pause("answer")
        if isinstance(answer, ApiError):
            raise answer
        return answer

    def _serve(self, path: str, patch: Json | None) -> Json | ApiError:
        try:
            return self._server.get(path) if patch is None else self._server.patch(path, patch)
        except ApiError as error:
            return error
