"""Jobs, asked for with squeue beside slurmctld.

Over REST a list of 28,000 jobs takes a minute; squeue's binary protocol takes 0.7 s for the same and less for a few. So
this says which words to run, in a container that has Slurm's clients, and reads what they print. Always with a filter:
nobody needs all jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from seltzer.slurm import hostlist
from seltzer.slurm.errors import Unavailable

# A byte that no field can hold: names and reasons may have anything else in them, blanks and bars too.
_SEPARATOR = "\x1f"
_FIELDS = ("JobArrayID", "UserName", "State", "Partition", "NodeList", "TimeLeft", "Requeue", "Reason")
_TIME = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)")
_ID = re.compile(r"\d+(?:[_+]\S+)?")


class Job(msgspec.Struct, frozen=True, gc=False):
    """One job, or one task of an array."""

    id: str
    """As Slurm writes it: 42, 42_7 for a task of an array, 42_[8-99] for those that wait, 42+1 for a part."""
    user: str
    state: str
    partition: str
    nodes: tuple[str, ...]
    seconds_left: int | None
    """Until its time limit; None where it has none, or hasn't started."""
    requeue: bool
    """Whether Slurm puts it back into the queue when its node fails."""
    reason: str


def on_nodes(names: Iterable[str]) -> list[str]:
    """The command that lists the jobs on these nodes, whatever they do there."""
    folded = hostlist.fold(names)
    if not folded:
        raise ValueError("name at least one node: without one squeue would list all jobs")
    return _squeue(f"--nodelist={folded}", "--states=RUNNING,SUSPENDED,CONFIGURING,COMPLETING,STOPPED")


def with_ids(ids: Iterable[str]) -> list[str]:
    """The command that lists these jobs, as long as Slurm remembers them."""
    wanted = list(ids)
    if not wanted or not all(_ID.fullmatch(each) for each in wanted):
        raise ValueError(f"{wanted!r} are no job ids")
    return _squeue(f"--jobs={','.join(wanted)}", "--states=all")


def parse_named(output: str) -> frozenset[str]:
    """The nodes that waiting jobs ask for by name: hostlists, one per line, some of them empty."""
    named: set[str] = set()
    try:
        for line in output.splitlines():
            named.update(hostlist.expand(line.strip()) if line.strip() else ())
    except hostlist.HostlistError as error:
        raise Unavailable(f"squeue printed nodes that make no sense: {error}") from None
    return frozenset(named)


def _squeue(*filters: str) -> list[str]:
    # What comes after a field's colon is printed behind it, and the field is then as wide as it takes.
    format_ = ",".join(f"{name}:{_SEPARATOR}" for name in _FIELDS)
    return ["squeue", "--noheader", "--noconvert", f"--Format={format_}", *filters]


def parse(output: str) -> list[Job]:
    """What the command printed. Raises Unavailable for anything that isn't that: half a list is no list."""
    return [_job(line) for line in output.splitlines() if line]


def _job(line: str) -> Job:
    fields = [field.strip() for field in line.split(_SEPARATOR)]
    if len(fields) != len(_FIELDS) + 1 or not _ID.fullmatch(fields[0]):
        raise Unavailable(f"squeue printed a line that makes no sense: {line[:200]!r}")
    id_, user, state, partition, nodes, left, requeue, reason = fields[:-1]
    try:
        names = tuple(hostlist.expand(nodes)) if nodes else ()
    except hostlist.HostlistError as error:
        raise Unavailable(f"squeue printed nodes that make no sense: {error}") from None
    return Job(id_, user, state, partition, names, _seconds(left), requeue == "1", reason)


def _seconds(text: str) -> int | None:
    """`1-02:03:04`, `02:03:04` or `03:04`; None for UNLIMITED, INVALID and NOT_SET."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(group or 0) for group in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
