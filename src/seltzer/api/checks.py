"""Health checks of nodes: commands that the pods of a NodeSet run, and what follows if one fails."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from .common import Duration, Part, Rule, text

CheckName = Annotated[
    str,
    text(
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z",
        "not the name of a check: use at most 40 lower-case letters, digits and hyphens",
        40,
    ),
]
CheckArgument = Annotated[
    str,
    text(r"^[-_.:%/@+=a-zA-Z0-9]+\Z", "not an argument of a check: use letters, digits and - _ . : % / @ + =", 512),
]


class Check(Part, frozen=True, kw_only=True):
    """A health check that each pod runs as root in slurmd's container. It fails if its exit code isn't 0, or if it
    takes longer than its timeout."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.command) != has(self.use)",
            "a check needs something to run: set either command, or use such as disk",
        ),
        Rule(
            "!has(self.args) || has(self.use)",
            "args are for the checks that use names: write them into the command, or remove them",
            ".args",
        ),
        Rule(
            "duration(self.interval) >= duration('10s') && duration(self.interval) <= duration('24h')",
            "the interval is out of bounds: set it between 10s and 24h",
            ".interval",
        ),
        Rule(
            "duration(self.timeout) >= duration('1s') && duration(self.timeout) <= duration('10m')",
            "the timeout is out of bounds: set it between 1s and 10m",
            ".timeout",
        ),
        Rule(
            "!(self.when in ['before', 'after']) || duration(self.timeout) <= duration('60s')",
            "each job would wait too long for a check that hangs: set a timeout of at most 60s",
            ".timeout",
        ),
    )

    name: CheckName
    """The name of the check, unique in the list. A drain names it."""

    use: Literal["clock", "disk", "gpu", "mounts", "network"] | None = None
    """A check of Seltzer's. clock: it differs from slurmctld's by at most 5 s. disk: / and /tmp have 5% of their space
    and inodes left. gpu: there is one, and nvidia-smi, if there is one, finds nothing wrong. mounts: all network file
    systems answer. network: slurmctld's name is known and slurmctld accepts connections."""

    args: Annotated[
        tuple[CheckArgument, ...], Meta(max_length=16, extra_json_schema={"x-kubernetes-list-type": "set"})
    ] = ()
    """Arguments for `use`. clock: seconds. disk: paths, each with what has to be free, such as /scratch=10% or
    /tmp=20G. gpu: how many. mounts: paths that have to be mounted and to answer, instead of all. network: more names,
    or names with a port such as files:2049."""

    command: Annotated[str, Meta(min_length=1, max_length=8192)] | None = None
    """A command for bash, of one or more lines, such as `test -d /scratch/models`. The first two lines that it prints
    are the reason of a drain. The functions check_disk, check_mounts and so on are what `use` runs. Processes that it
    leaves behind are ended."""

    when: Literal["start", "interval", "before", "after"] = "interval"
    """When it runs: at the start of the container, before the node takes jobs; every `interval`; before each job (it
    delays the job, and the job is put back into the queue if it fails); or after each job. A check that has failed is
    repeated until it passes, at least once a minute, also without a job."""

    on_fail: Literal["drain", "comment", "replace"] = "drain"
    """What happens while it fails. drain: the node takes no new jobs, with a reason that names the check and what it
    printed, until the same check passes. comment: only the node's comment in Slurm and the pod's conditions say so.
    replace: drain, and ask for another Kubernetes node with an annotation of the pod and an Event."""

    interval: Duration = "1m"
    """How often it runs, between 10s and 24h. Each node begins at another moment."""

    timeout: Duration = "30s"
    """How long it may take, at most 10m; 60s before and after jobs."""


Checks = Annotated[
    tuple[Check, ...],
    Meta(
        max_length=32,
        extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    ),
]
