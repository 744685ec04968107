"""Reads and changes a Slurm cluster over slurmrestd.

How slurmrestd handles many nodes at once (found with 26.05; `tests/contract/test_slurm_rest.py` verifies it):

- `POST /nodes/` goes through the nodes in order and returns one error for all. It stops at the first node that doesn't
  exist; a node that it can't change doesn't stop it.
- `DELETE /node/{name}` takes a percent-encoded hostlist, removes every node that it can, then returns one error for
  all: only a missing or busy node is left. There is no other way to delete, and a path has to be short.
- `POST /new/node/` creates all of them or, if one exists, none.

After an error, reading the nodes again shows which ones it was about, and a second call does what the first left
undone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from seltzer.slurm import hostlist
from seltzer.slurm.errors import Rejected, Unavailable, Unsupported
from seltzer.slurm.http import DEADLINE, Http
from seltzer.slurm.models import (
    Config,
    Node,
    NodeList,
    Partition,
    Ping,
    Reservation,
    Statistics,
    Wrapped,
    plain,
)
from seltzer.slurm.rest import VERSIONS, Envelope, Rest
from seltzer.slurm.token import TokenSource

# slurmrestd accepts about 32 kB; proxies in front of it often only 8.
LONGEST_PATH = 7_500
NODE_EXISTS = 2168
CREATE_SINCE = "v0.0.44"
CONFIG_SINCE = "v0.0.45"
TOPOLOGY_SINCE = "v0.0.45"

# Slurm takes `all`, in any case, for every node. It also takes a NodeSet's name for all nodes of that NodeSet, which
# can't be detected here: names of NodeSets must differ from all node names.
_NAME = re.compile(r"(?!all$)[a-z0-9][a-z0-9_.-]*", re.IGNORECASE)
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[!-~]+")

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """The result for each node of a bulk write: every name that was given is in one of the two."""

    done: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict)

    def __or__(self, other: Outcome) -> Outcome:
        return Outcome(self.done | other.done, {**self.failed, **other.failed})


class _Nodes(Envelope, frozen=True):
    nodes: tuple[Node, ...] | None = None
    last_update: Wrapped = None


class _Partitions(Envelope, frozen=True):
    partitions: tuple[Partition, ...] | None = None


class _Diag(Envelope, frozen=True):
    statistics: Statistics | None = None


class _Pings(Envelope, frozen=True):
    pings: tuple[Ping, ...] | None = None


class _Reservations(Envelope, frozen=True):
    reservations: tuple[Reservation, ...] | None = None


class _ConfigMeta(msgspec.Struct, frozen=True):
    BOOT_TIME: int = 0
    SLURM_VERSION: str = ""


class _Config(Envelope, frozen=True):
    slurm_conf: dict[str, Any] | None = None
    slurm_conf_meta: _ConfigMeta = _ConfigMeta()


class SlurmClient:
    """One cluster. Every call ends by its deadline, with a complete answer or a SlurmError; no answer is empty because
    something failed. Writes are sent once; Unavailable then means that they may have been carried out."""

    def __init__(self, http: Http, tokens: TokenSource, *, deadline: float = DEADLINE) -> None:
        self._rest = Rest(http, tokens, deadline=deadline)

    async def version(self) -> str:
        """The data_parser version in use."""
        return await self._rest.version()

    async def nodes(self, update_time: int | None = None, *, future: bool = False) -> NodeList | None:
        """All nodes; None if nothing changed since `update_time`, which is that of an earlier answer.

        Slurm can't return only the changed ones. A change in the same second as the earlier answer is never missed, but
        may be returned twice. FUTURE nodes are left out unless requested.
        """
        query = [f"update_time={update_time}"] if update_time is not None else []
        query += ["flags=FUTURE"] if future else []
        answer = await self._rest.read_changed("nodes/" + ("?" + "&".join(query) if query else ""), _Nodes)
        if answer is None and update_time is not None:
            return None
        answered = _required(answer, "nodes")
        return NodeList(_required(answered.nodes, "nodes"), plain(answered.last_update) or 0)

    async def partitions(self) -> tuple[Partition, ...]:
        answer = await self._rest.read("partitions/", _Partitions)
        return _required(answer.partitions, "partitions")

    async def diag(self) -> Statistics:
        answer = await self._rest.read("diag/", _Diag)
        return _required(answer.statistics, "statistics")

    async def ping(self) -> tuple[Ping, ...]:
        """Whether slurmctld answers slurmrestd. Returns at once, where other calls wait 10 s for slurmctld."""
        answer = await self._rest.read("ping/", _Pings)
        return _required(answer.pings, "pings")

    async def reservations(self) -> tuple[Reservation, ...]:
        answer = await self._rest.read("reservations/", _Reservations)
        return _required(answer.reservations, "reservations")

    async def config(self) -> Config:
        """slurmctld's configuration. Slurm 26.05 and newer."""
        await self._needs(CONFIG_SINCE, "return its configuration")
        answer = await self._rest.read("conf", _Config)
        meta = answer.slurm_conf_meta
        return Config(_required(answer.slurm_conf, "slurm_conf"), meta.BOOT_TIME, meta.SLURM_VERSION)

    async def reconfigure(self) -> None:
        """Make all daemons read their configuration again. Jobs aren't affected."""
        await self._rest.write("GET", "reconfigure/")

    async def drain(self, names: Iterable[str], reason: str) -> Outcome:
        """Keep new jobs off these nodes. A node is done if it is drained with this reason."""
        if not reason.strip():
            raise ValueError("a drain needs a reason")
        body = {"state": ["DRAIN"], "reason": reason}
        return await self._update(names, body, lambda node: node.drained and node.reason == reason)

    async def resume(self, names: Iterable[str]) -> Outcome:
        """Let jobs start on these nodes again. A node is done if it is neither drained nor down, even if it was
        neither before (which Slurm calls an error)."""
        body = {"state": ["RESUME"]}
        return await self._update(names, body, lambda node: not {"DRAIN", "FAIL", "DOWN"} & set(node.state))

    async def down(self, names: Iterable[str], reason: str) -> Outcome:
        """Take the jobs off these nodes: jobs that may be requeued are, the others end."""
        if not reason.strip():
            raise ValueError("a node that is set down needs a reason")
        return await self._update(names, {"state": ["DOWN"], "reason": reason}, lambda node: node.base == "DOWN")

    async def comment(self, names: Iterable[str], comment: str) -> Outcome:
        """Write a comment into these records. Slurm saves a changed record with the next state."""
        return await self._update(names, {"comment": comment}, lambda node: node.comment == comment)

    async def set_address(self, names: Iterable[str], address: str) -> Outcome:
        """Set the address at which slurmctld reaches these nodes' slurmds."""
        return await self._update(names, {"address": [address]}, lambda node: node.address == address)

    async def set_topology(self, names: Iterable[str], topology: str) -> Outcome:
        """Set where in the topology these nodes are, such as `default:root:leaf`; empty: nowhere. Slurm 26.05 and
        newer."""
        await self._needs(TOPOLOGY_SINCE, "set the topology of nodes")
        return await self._update(names, {"topology_str": topology}, lambda node: node.topology == topology)

    async def set_features(self, names: Iterable[str], features: Sequence[str]) -> Outcome:
        """Replace the features of these nodes. Slurm refuses to change the available ones without the active ones."""
        wanted = set(features)
        body = {"features": list(features), "features_act": list(features)}
        return await self._update(names, body, lambda node: wanted == set(node.features) == set(node.active_features))

    async def kill_jobs(self, names: Iterable[str]) -> None:
        """End all jobs that are on any of these nodes, including on their other nodes."""
        wanted = _checked(names)
        if wanted:
            await self._rest.write("DELETE", "jobs/", {"nodes": [hostlist.fold(wanted)]})

    async def create(self, names: Iterable[str], settings: Mapping[str, str]) -> Outcome:
        """Create nodes with these settings of a NodeName line. Nodes that exist stay as they are, and fail.
        Slurm 25.11 and newer."""
        wanted = _checked(names)
        words = " ".join(f"{key}={value}" for key, value in settings.items())
        for key, value in settings.items():
            if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value) or set(value) & set("\"'#\\"):
                raise ValueError(f"{key}={value!r} can't be in a node's line")
        if not wanted:
            return Outcome()
        await self._needs(CREATE_SINCE, "create nodes")
        try:
            return await self._create(wanted, words)
        except Rejected as rejection:
            there = await self._there(future=True) if NODE_EXISTS in rejection.numbers else {}
            existing = {name: str(rejection) for name in wanted if name in there}
            rest = wanted - existing.keys()
            if not existing or not rest:
                return Outcome(failed={name: str(rejection) for name in wanted})
        try:
            return await self._create(rest, words) | Outcome(failed=existing)
        except Rejected as rejection:
            return Outcome(failed={**existing, **{name: str(rejection) for name in rest}})

    async def delete(self, names: Iterable[str]) -> Outcome:
        """Remove these nodes from Slurm. A node is done if it no longer exists, or never did; a busy node stays.

        Slurm doesn't check further: it deletes idle nodes with running slurmds, and nodes that pending jobs name.
        """
        outcome = Outcome()
        for part, path in _paths(_checked(names)):
            try:
                await self._rest.write("DELETE", path)
                outcome |= Outcome(part)
            except Rejected as rejection:
                there = await self._there(future=True)
                failed = {name: str(rejection) for name in part if name in there}
                outcome |= Outcome(part - failed.keys(), failed)
        return outcome

    async def _update(self, names: Iterable[str], change: dict[str, Any], done: Callable[[Node], bool]) -> Outcome:
        """Change these nodes. Where Slurm may not have changed one, `done` says whether it is as wanted."""
        wanted = _checked(names)
        if not wanted:
            return Outcome()
        try:
            await self._post(wanted, change)
            return Outcome(wanted)
        except Rejected as rejection:
            there, words = await self._there(), str(rejection)
        failed = {name: "Slurm has no such node" for name in wanted - there.keys()}
        left = frozenset(name for name in wanted & there.keys() if not done(there[name]))
        if failed and left:
            try:
                await self._post(left, change)
                left = frozenset()
            except Rejected as rejection:
                there, words = await self._there(), str(rejection)
                left = frozenset(name for name in left if name not in there or not done(there[name]))
        failed |= dict.fromkeys(left, words)
        return Outcome(wanted - failed.keys(), failed)

    async def _post(self, names: frozenset[str], change: dict[str, Any]) -> None:
        await self._rest.write("POST", "nodes/", {"name": [hostlist.fold(names)], **change})

    async def _create(self, names: frozenset[str], words: str) -> Outcome:
        await self._rest.write("POST", "new/node/", {"node_conf": f"NodeName={hostlist.fold(names)} {words}".rstrip()})
        return Outcome(names)

    async def _there(self, *, future: bool = False) -> dict[str, Node]:
        listed = await self.nodes(future=future)
        return {node.name: node for node in _required(listed, "nodes").nodes}

    async def _needs(self, version: str, what: str) -> None:
        spoken = await self.version()
        if VERSIONS.index(spoken) > VERSIONS.index(version):
            raise Unsupported(f"slurmrestd speaks {spoken} and can't {what}; {version} can")


def _required(value: T | None, what: str) -> T:
    """A missing part is an error, never an empty answer."""
    if value is None:
        raise Unavailable(f"slurmrestd's answer has no {what}")
    return value


def _checked(names: Iterable[str]) -> frozenset[str]:
    """The names, provided that Slurm can take each of them for one node only."""
    checked = frozenset(names)
    for name in checked:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} can't be a node's name")
    return checked


def _paths(names: frozenset[str]) -> Iterator[tuple[frozenset[str], str]]:
    """Paths that together name all of these nodes: one, unless it would be longer than slurmrestd accepts."""
    path = f"node/{quote(hostlist.fold(names), safe='')}"
    if not names:
        return
    if len(path) <= LONGEST_PATH or len(names) == 1:
        yield names, path
        return
    ordered = sorted(names)
    yield from _paths(frozenset(ordered[: len(ordered) // 2]))
    yield from _paths(frozenset(ordered[len(ordered) // 2 :]))
