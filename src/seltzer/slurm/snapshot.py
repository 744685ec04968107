"""The nodes, jobs and partitions that slurmctld knows, read by one command that runs in its pod. No I/O here.

Nodes and partitions come as JSON from scontrol: sinfo leaves out nodes that are in no partition. Jobs come as text from
squeue: its JSON is ten times as long and as slow.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from seltzer.slurm import jobs as slurm_jobs
from seltzer.slurm.errors import Unavailable
from seltzer.slurm.models import Node, PartitionNodes, PartitionState, Wrapped, plain
from seltzer.wire import squeue

PATIENCE = 20
"""The deadline of each command, in seconds."""

_NOTHING = ("", "N/A", "NONE", "None", "(null)", "Unknown")
_ACTIVE = ("RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
_FAILED = ("BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
# It prints nothing before it has all answers: a failure prints only error messages.
_SCRIPT = f"""\
export SLURM_TIME_FORMAT=%s SLURM_BITSTR_LEN=0
separator=$1
shift
no() {{ [ "$1" != 124 ] || echo "slurmctld didn't answer in {PATIENCE} s" >&2; exit 1; }}
nodes=$(timeout {PATIENCE} scontrol --json show nodes) || no $?
partitions=$(timeout {PATIENCE} scontrol --json show partitions) || no $?
jobs=$(timeout {PATIENCE} squeue "$@") || no $?
now=$(date +%s)
printf "%s$separator" "$now" "$nodes" "$partitions" "$jobs"
"""

T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """One job, one task of an array, or the pending tasks of one. Times are seconds by slurmctld's clock."""

    id: str
    """As Slurm writes it: 42, 42_7 for a task of an array, 42_[8-99] for its pending tasks, 42+1 for a component."""
    number: int
    """Its numeric ID, which a task of an array has too."""
    user: str
    name: str
    state: str
    reason: str
    """Slurm's reason why it is pending; empty if there is none."""
    partition: str
    """The partition, or several with commas in between, of which Slurm picks one."""
    nodes: tuple[str, ...] = ()
    """The nodes that it is on."""
    wants: tuple[str, ...] = ()
    """The nodes that it asks for by name."""
    start: int | None = None
    """When it started; for a pending job, when Slurm expects it to."""
    end: int | None = None
    """When it ended, or reaches its time limit; None if it has none."""
    submit: int | None = None
    eligible: int | None = None
    limit: int | None = None
    """Its time limit in seconds; None if it has none."""
    requeue: bool = False
    """Whether Slurm requeues it when its node fails."""
    cpus: int = 0
    node_count: int = 0
    features: str = ""
    dependency: str = ""
    priority: int = 0
    note: str = ""
    """The administrator's comment. For a job that was found again after a crash: why it is held."""

    @property
    def pending(self) -> bool:
        return self.state == "PENDING"

    @property
    def active(self) -> bool:
        """Whether it is on its nodes."""
        return self.state in _ACTIVE

    @property
    def over(self) -> bool:
        return self.state == "COMPLETED" or self.state in _FAILED


class _Maximums(msgspec.Struct, frozen=True):
    time: Wrapped = None
    nodes: Wrapped = None


class Partition(msgspec.Struct, frozen=True):
    """One partition, as scontrol shows it."""

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
        """The longest time limit that a job may have; None if there is no maximum."""
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
    """What slurmctld knew at one moment of its clock."""

    now: int
    nodes: Mapping[str, Node]
    jobs: Sequence[Job]
    partitions: Mapping[str, Partition]


@dataclass(frozen=True)
class Question:
    """The command, and the parser of its output."""

    separator: str
    ended: bool = False
    """Includes completed jobs, as long as Slurm remembers them."""

    @property
    def command(self) -> list[str]:
        return ["sh", "-c", _SCRIPT, "sh", self.separator, *squeue.snapshot(self.separator, ended=self.ended)]

    def read(self, output: str) -> Snapshot:
        """Parses what the command printed. Raises Unavailable for any other text: half a list is no list."""
        now, nodes, partitions, jobs = self._parts(output)
        if not now.isdigit():
            raise Unavailable(f"slurmctld's clock makes no sense: {now[:200]!r}")
        found = _decode(nodes, _Nodes).nodes
        return Snapshot(
            int(now),
            {node.name: _tidy(node) for node in found},
            tuple(map(_job, jobs)),
            {each.name: each for each in _decode(partitions, _Partitions).partitions},
        )

    def _parts(self, output: str) -> tuple[str, str, str, list[squeue.Fields]]:
        parts = output.split(self.separator)
        if len(parts) < 5:
            raise Unavailable("what Slurm's commands printed was cut off")
        # Behind the jobs' last field is our separator, and behind that what others print, such as kubectl on stderr.
        now, nodes, partitions, *values, _, _ = parts
        try:
            return now, nodes, partitions, squeue.parse_snapshot(values)
        except squeue.SqueueError as error:
            raise Unavailable(str(error)) from None


def question(*, ended: bool = False) -> Question:
    """A new question, with a separator that nobody can have put into a job's name."""
    return Question(f"\x1f{secrets.token_hex(8)}\x1f", ended)


def ask(run: Callable[[Sequence[str]], str], *, ended: bool = False) -> Snapshot:
    """The snapshot, where `run` runs a command in slurmctld's pod."""
    asked = question(ended=ended)
    return asked.read(run(asked.command))


def _job(fields: squeue.Fields) -> Job:
    return Job(
        id=fields["JobArrayID"],
        number=_number(fields["JobID"]),
        user=tidy(fields["UserName"]),
        name=tidy(fields["Name"]),
        state=fields["State"],
        reason=_said(fields["Reason"]),
        partition=fields["Partition"],
        nodes=_hosts(fields["NodeList"]),
        wants=_hosts(fields["ReqNodes"]),
        start=_time(fields["StartTime"]),
        end=_time(fields["EndTime"]),
        submit=_time(fields["SubmitTime"]),
        eligible=_time(fields["EligibleTime"]),
        limit=squeue.seconds(fields["TimeLimit"]),
        requeue=fields["Requeue"] == "1",
        cpus=_number(fields["NumCPUs"]),
        node_count=_number(fields["NumNodes"]),
        features=_said(fields["Feature"]),
        dependency=_said(fields["Dependency"]),
        priority=_number(fields["PriorityLong"]),
        note=_said(fields["admin_comment"]),
    )


def _said(word: str) -> str:
    return "" if word in _NOTHING else tidy(word)


def _number(word: str) -> int:
    """`7`; the lower bound of a range such as `2-4`."""
    digits = word.partition("-")[0]
    if not digits.isdigit():
        raise Unavailable(f"squeue printed a number that makes no sense: {word[:200]!r}")
    return int(digits)


def _time(word: str) -> int | None:
    return None if word in _NOTHING else _number(word)


def _hosts(word: str) -> tuple[str, ...]:
    return slurm_jobs.hosts(word) if word not in _NOTHING else ()


def _decode(text: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Unavailable(f"scontrol printed what makes no sense: {error}") from None


def _tidy(node: Node) -> Node:
    return node if node.reason.isprintable() else msgspec.structs.replace(node, reason=tidy(node.reason))


def tidy(text: str) -> str:
    """The text on one line and without control characters: anybody may name a job, and this goes to a terminal."""
    if text.isprintable():
        return text
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())
