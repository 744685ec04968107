"""What slurmctld knows of nodes, jobs and partitions, asked beside it by one command. No I/O: words out, text in.

Nodes and partitions come as JSON, since sinfo leaves out nodes that are in no partition. Jobs come from squeue, whose
JSON is ten times as long and slow. A job's name may hold any byte, line ends too; so what separates the fields has a
part that nobody can guess.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from seltzer.errors import SeltzerError
from seltzer.slurm import hostlist
from seltzer.slurm.errors import Unavailable
from seltzer.slurm.models import Node, PartitionNodes, PartitionState, Wrapped, plain

PATIENCE = 20
"""How many seconds each command may take."""

_FIELDS = (
    "JobArrayID",
    "JobID",
    "UserName",
    "Name",
    "State",
    "Reason",
    "Partition",
    "NodeList",
    "ReqNodes",
    "StartTime",
    "EndTime",
    "SubmitTime",
    "EligibleTime",
    "TimeLimit",
    "Requeue",
    "NumCPUs",
    "NumNodes",
    "Feature",
    "Dependency",
    "PriorityLong",
    "admin_comment",
)
_ID = re.compile(r"\d+(?:[_+]\S+)?")
_DURATION = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)")
_NOTHING = ("", "N/A", "NONE", "None", "(null)", "Unknown")
_ACTIVE = ("RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
_FAILED = ("BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
# Nothing is printed before all has been answered, so that what is printed on failure are only words of failure.
_SCRIPT = f"""\
export SLURM_TIME_FORMAT=%s SLURM_BITSTR_LEN=0
no() {{ [ "$1" != 124 ] || echo "slurmctld didn't answer in {PATIENCE} s" >&2; exit 1; }}
nodes=$(timeout {PATIENCE} scontrol --json show nodes) || no $?
partitions=$(timeout {PATIENCE} scontrol --json show partitions) || no $?
jobs=$(timeout {PATIENCE} squeue --noheader --all --Format="$2" $3) || no $?
now=$(date +%s)
printf "%s$1" "$now" "$nodes" "$partitions" "$jobs"
"""

T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """One job, one task of an array, or those tasks of one that still wait. Times are seconds by slurmctld's clock."""

    id: str
    """As Slurm writes it: 42, 42_7 for a task of an array, 42_[8-99] for those that wait, 42+1 for a part."""
    number: int
    """The one that it has however it is written."""
    user: str
    name: str
    state: str
    reason: str
    """Slurm's word for why it waits; empty if it doesn't say."""
    partition: str
    """The partition; several with commas in between, where any will do."""
    nodes: tuple[str, ...] = ()
    """Where it is."""
    wants: tuple[str, ...] = ()
    """Nodes that it asks for by name."""
    start: int | None = None
    """When it started; of a job that waits, when Slurm expects it to."""
    end: int | None = None
    """When it ended, or reaches its time limit; None where it has none."""
    submit: int | None = None
    eligible: int | None = None
    limit: int | None = None
    """Its time limit in seconds; None where it has none."""
    requeue: bool = False
    """Whether Slurm puts it back into the queue when its node fails."""
    cpus: int = 0
    node_count: int = 0
    features: str = ""
    dependency: str = ""
    priority: int = 0
    note: str = ""
    """An administrator's comment; where a job was found again after a crash, why it is held."""

    @property
    def pending(self) -> bool:
        return self.state == "PENDING"

    @property
    def active(self) -> bool:
        """It is on its nodes."""
        return self.state in _ACTIVE

    @property
    def over(self) -> bool:
        return self.state == "COMPLETED" or self.state in _FAILED


class _Maximums(msgspec.Struct, frozen=True):
    time: Wrapped = None
    nodes: Wrapped = None


class Partition(msgspec.Struct, frozen=True):
    """One partition, as scontrol tells it."""

    name: str
    nodes: PartitionNodes = PartitionNodes()
    partition: PartitionState = PartitionState()
    maximums: _Maximums = _Maximums()

    @property
    def state(self) -> str:
        """UP, DOWN, INACTIVE or DRAIN."""
        return " ".join(self.partition.state)

    @property
    def most_seconds(self) -> int | None:
        """The longest that a job may ask for; None: any time."""
        minutes = plain(self.maximums.time)
        return None if minutes is None else 60 * minutes

    @property
    def most_nodes(self) -> int | None:
        return plain(self.maximums.nodes)


class _Nodes(msgspec.Struct):
    nodes: tuple[Node, ...]


class _Partitions(msgspec.Struct):
    partitions: tuple[Partition, ...]


@dataclass(frozen=True)
class Snapshot:
    """All of it, at a moment of slurmctld's clock."""

    now: int
    nodes: Mapping[str, Node]
    jobs: Sequence[Job]
    partitions: Mapping[str, Partition]


@dataclass(frozen=True)
class Question:
    """The command, and how to read what it prints."""

    mark: str
    ended: bool = False
    """Jobs that are over too, as long as Slurm remembers them."""

    @property
    def command(self) -> list[str]:
        format_ = ",".join(f"{name}:{self.mark}" for name in _FIELDS)
        return ["sh", "-c", _SCRIPT, "sh", self.mark, format_, "--states=all" if self.ended else ""]

    def read(self, output: str) -> Snapshot:
        """What the command printed. Raises Unavailable for anything that isn't that: half a list is no list."""
        now, nodes, partitions, jobs = self._parts(output)
        if not now.isdigit():
            raise Unavailable(f"slurmctld's clock makes no sense: {now[:200]!r}")
        found = _decode(nodes, _Nodes).nodes
        return Snapshot(
            int(now),
            {node.name: _tidy(node) for node in found},
            tuple(_jobs(jobs)),
            {each.name: each for each in _decode(partitions, _Partitions).partitions},
        )

    def _parts(self, output: str) -> tuple[str, str, str, list[str]]:
        parts = output.split(self.mark)
        count = len(_FIELDS)
        # Behind the last mark is what others had to say, such as kubectl on stderr.
        fields = parts[3:-1]
        if len(parts) < 5 or len(fields) % count != 1:
            raise Unavailable("what Slurm's commands printed was cut off")
        return parts[0], parts[1], parts[2], fields[:-1]


def question(*, ended: bool = False) -> Question:
    """A new one, with a mark that nobody can have put into a job's name."""
    return Question(f"\x1f{secrets.token_hex(8)}\x1f", ended)


def ask(run: Callable[[Sequence[str]], str], *, ended: bool = False) -> Snapshot:
    """What Slurm knows, where `run` runs a command beside slurmctld."""
    asked = question(ended=ended)
    return asked.read(run(asked.command))


def _jobs(fields: Sequence[str]) -> list[Job]:
    count = len(_FIELDS)
    # The line's end comes before the first field of the next.
    return [_job([field.strip() for field in fields[at : at + count]]) for at in range(0, len(fields), count)]


def _job(fields: Sequence[str]) -> Job:
    told = dict(zip(_FIELDS, fields, strict=True))
    if not _ID.fullmatch(told["JobArrayID"]):
        raise Unavailable(f"squeue printed a job that makes no sense: {told['JobArrayID'][:200]!r}")
    return Job(
        id=told["JobArrayID"],
        number=_number(told["JobID"]),
        user=tidy(told["UserName"]),
        name=tidy(told["Name"]),
        state=told["State"],
        reason=_said(told["Reason"]),
        partition=told["Partition"],
        nodes=_hosts(told["NodeList"]),
        wants=_hosts(told["ReqNodes"]),
        start=_time(told["StartTime"]),
        end=_time(told["EndTime"]),
        submit=_time(told["SubmitTime"]),
        eligible=_time(told["EligibleTime"]),
        limit=_duration(told["TimeLimit"]),
        requeue=told["Requeue"] == "1",
        cpus=_number(told["NumCPUs"]),
        node_count=_number(told["NumNodes"]),
        features=_said(told["Feature"]),
        dependency=_said(told["Dependency"]),
        priority=_number(told["PriorityLong"]),
        note=_said(told["admin_comment"]),
    )


def _said(word: str) -> str:
    return "" if word in _NOTHING else tidy(word)


def _number(word: str) -> int:
    """`7`; of a range such as `2-4` that a job leaves open, the least."""
    digits = word.partition("-")[0]
    if not digits.isdigit():
        raise Unavailable(f"squeue printed a number that makes no sense: {word[:200]!r}")
    return int(digits)


def _time(word: str) -> int | None:
    return None if word in _NOTHING else _number(word)


def _duration(word: str) -> int | None:
    """`1-02:03:04`, `02:03:04` or `03:04`; None for UNLIMITED and what isn't set."""
    match = _DURATION.fullmatch(word)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(group or 0) for group in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _hosts(word: str) -> tuple[str, ...]:
    try:
        return tuple(hostlist.expand(word)) if word not in _NOTHING else ()
    except SeltzerError as error:
        raise Unavailable(f"squeue printed nodes that make no sense: {error}") from None


def _decode(text: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Unavailable(f"scontrol printed what makes no sense: {error}") from None


def _tidy(node: Node) -> Node:
    return node if node.reason.isprintable() else msgspec.structs.replace(node, reason=tidy(node.reason))


def tidy(text: str) -> str:
    """On one line and without what would move a terminal's cursor: anybody may name a job."""
    if text.isprintable():
        return text
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())
