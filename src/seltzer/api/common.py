"""What SlurmCluster and NodeSet have in common: their group, the types of their fields, and the shape of conditions.

Each Struct's docstring and the docstring below each field become the descriptions of the CRD (`seltzer.api.schema`):
`kubectl explain` shows them, so they speak to the person who writes the manifest. Patterns end in `\\Z`, since Python's
`$` also matches before a last newline; the schema turns it into the `$` of the API server, which doesn't.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import Meta, Struct

GROUP: Final = "seltzer.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "seltzer.dev/v1alpha1"


class Part(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """How every part of a spec is encoded: what has its default is left out, so that we own only what we mean.

    Fields that aren't known are dropped, not refused: an older operator must live with a newer CRD. People's typing
    errors are refused by the API server, which knows the CRD's fields.
    """


class Report(Struct, frozen=True, rename="camel", gc=False):
    """How every part of a status is encoded: zeros too, since a count that is left out can't be told from unknown."""


class Rule(Struct, frozen=True):
    """A CEL rule that the API server checks at admission: `self` is the object, `oldSelf` what it was before.

    The message says what is wrong, then a colon, then what to do about it.
    """

    rule: str
    message: str
    path: str = ""


def text(pattern: str, says: str, max_length: int) -> Meta:
    """A string that is checked here and by the API server; `says` is what a person reads when it doesn't fit."""
    return Meta(pattern=pattern, max_length=max_length, extra={"message": says})


# metadata.name of both kinds. It begins the names of Services and pods (63 characters at most), and is the default of
# what reaches slurm.conf and SQL (40 at most).
NAME_RULE = Rule(
    "self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    "the name becomes part of host names and of slurm.conf: choose one of at most 40 lower-case letters, digits and "
    "hyphens that begins with a letter and ends with a letter or a digit",
    ".metadata.name",
)

ObjectName = Annotated[
    str,
    text(
        r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?\Z",
        "no Kubernetes object can have this name: use lower-case letters, digits, hyphens and dots",
        253,
    ),
]
Namespace = Annotated[
    str,
    text(
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z",
        "no namespace can have this name: use lower-case letters, digits and hyphens",
        63,
    ),
]
Image = Annotated[
    str,
    text(
        r"^[a-zA-Z0-9][-a-zA-Z0-9_./:@]*\Z",
        "not the name of an image: write it as registry.example/path/name:tag",
        512,
    ),
]
Quantity = (
    Annotated[int, Meta(ge=0)]
    | Annotated[
        str,
        Meta(
            pattern=r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]{1,3})?\Z",
            max_length=32,
        ),
    ]
)
Percent = Annotated[str, Meta(pattern=r"^(100|[1-9]?[0-9])%\Z", max_length=4)]
Duration = Annotated[
    str,
    text(
        r"^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?\Z",
        "not a duration: write hours, minutes and seconds in this order, such as 90s, 15m or 1h30m",
        21,
    ),
    Meta(min_length=2),
]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
ResourceList = Annotated[Mapping[str, Quantity], Meta(max_length=32)]


def seconds(duration: str) -> int:
    """How long a `Duration` is."""
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"([0-9]+)([hms])", duration))


class Resources(Part, frozen=True, kw_only=True):
    """What a container asks for and what it may use, as in any pod."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.requests) || !has(self.limits) || self.requests.all(name, !(name in self.limits)"
            " || quantity(string(self.requests[name])).compareTo(quantity(string(self.limits[name]))) <= 0)",
            "a request is above its limit: set limits to at least what requests says",
        ),
    )

    requests: ResourceList = {}
    """What the container is sure to get, by resource: cpu, memory, and what device plugins offer."""

    limits: ResourceList = {}
    """What the container can't exceed, by resource."""


class PodMetadata(Part, frozen=True, kw_only=True):
    """Labels and annotations to add to a pod."""

    labels: Mapping[str, str] = {}
    """Labels to add. Those that Seltzer sets itself can't be changed."""

    annotations: Mapping[str, str] = {}
    """Annotations to add, such as k8s.v1.cni.cncf.io/networks for Multus."""


class PodTemplate(Part, frozen=True, kw_only=True):
    """Changes to a pod that Seltzer builds, strategically merged over it as `kubectl patch` would do.

    Containers, volumes and mounts are matched by name: a new name adds one (a sidecar with sssd or munge), a known name
    changes what is there. Node selectors, tolerations, affinity, priority and security contexts go here too.
    """

    metadata: PodMetadata = PodMetadata()
    """Labels and annotations to add to the pod."""

    spec: Annotated[Mapping[str, Any], Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True})] = {}
    """Any part of a Kubernetes pod's spec; see `kubectl explain pod.spec`."""


class Condition(Report, frozen=True, kw_only=True):
    """One thing that is true, false or unknown about the object, with the reason."""

    type: Annotated[str, Meta(max_length=316)]
    """What this is about, such as Ready."""

    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown."""

    reason: Annotated[str, Meta(min_length=1, max_length=1024)]
    """Why, in one word for programs."""

    message: Annotated[str, Meta(max_length=32768)]
    """Why, in a sentence for people; where something is wrong, what to do about it."""

    last_transition_time: Time
    """When the status last changed."""

    observed_generation: Annotated[int, Meta(ge=0)] = 0
    """The metadata.generation that this was found out for; older than the object's: not up to date."""


Conditions = Annotated[
    tuple[Condition, ...],
    Meta(max_length=32, extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]


class NodeCounts(Report, frozen=True, kw_only=True):
    """How many Slurm nodes are in which state. Each node is counted once beside the total."""

    total: int = 0
    """All nodes that Slurm has a record of."""

    idle: int = 0
    """Free, and open for jobs."""

    mixed: int = 0
    """Partly used by jobs."""

    allocated: int = 0
    """Fully used by jobs."""

    draining: int = 0
    """Taking no new jobs, with jobs on them."""

    drained: int = 0
    """Taking no new jobs, with none on them."""

    down: int = 0
    """Out of order, or not responding."""

    other: int = 0
    """In any other state: powering up, rebooting, reserved, unknown."""
