"""What SlurmCluster and NodeSet share: their group, the types of their fields, and the shape of conditions.

Each Struct's docstring, and the docstring below each field, become the descriptions of the CRD (`seltzer.api.schema`).
`kubectl explain` shows them, so they address the person who writes the manifest. Patterns end in `\\Z`, since Python's
`$` also matches before a final newline; the schema turns it into the API server's `$`, which doesn't.
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
    """How every part of a spec is encoded: default values are left out, so that we own only the fields that we mean.

    Unknown fields are dropped, not rejected: an older operator must work with a newer CRD. The API server knows the
    CRD's fields and rejects misspelt ones.
    """


class Report(Struct, frozen=True, rename="camel", gc=False):
    """How every part of a status is encoded: zeros are included, since an absent count means unknown."""


class Rule(Struct, frozen=True):
    """A CEL rule that the API server checks at admission: `self` is the object, `oldSelf` its previous state.

    The message says what is wrong, then a colon, then what to do about it.
    """

    rule: str
    message: str
    path: str = ""


def text(pattern: str, says: str, max_length: int) -> Meta:
    """A string that is validated here and by the API server; `says` is the message if it doesn't match."""
    return Meta(pattern=pattern, max_length=max_length, extra={"message": says})


# metadata.name of both kinds. Names of Services and pods begin with it (63 characters at most), and it is the default
# for names in slurm.conf and SQL (40 at most).
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
LabelKey = Annotated[
    str,
    text(
        r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?\Z",
        "not the key of a label: write it like topology.kubernetes.io/zone",
        317,
    ),
]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
ResourceList = Annotated[Mapping[str, Quantity], Meta(max_length=32)]


def seconds(duration: str) -> int:
    """The length of a `Duration` in seconds."""
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"([0-9]+)([hms])", duration))


class Resources(Part, frozen=True, kw_only=True):
    """The resources that a container requests and its limits, as in any pod."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.requests) || !has(self.limits) || self.requests.all(name, !(name in self.limits)"
            " || quantity(string(self.requests[name])).compareTo(quantity(string(self.limits[name]))) <= 0)",
            "a request is above its limit: set limits to at least what requests says",
        ),
    )

    requests: ResourceList = {}
    """The amount that the container is guaranteed, by resource: cpu, memory, and resources of device plugins."""

    limits: ResourceList = {}
    """The amount that the container can't exceed, by resource."""


class PodMetadata(Part, frozen=True, kw_only=True):
    """Labels and annotations to add to a pod."""

    labels: Mapping[str, str] = {}
    """Labels to add. Labels that Seltzer sets can't be changed."""

    annotations: Mapping[str, str] = {}
    """Annotations to add, such as k8s.v1.cni.cncf.io/networks for Multus."""


class PodTemplate(Part, frozen=True, kw_only=True):
    """Changes to a pod that Seltzer builds, applied as a strategic merge, like `kubectl patch`.

    Containers, volumes and mounts are matched by name: a new name adds one (a sidecar with sssd or munge), a known name
    changes the existing one. Node selectors, tolerations, affinity, priority and security contexts go here, too.
    """

    metadata: PodMetadata = PodMetadata()
    """Labels and annotations to add to the pod."""

    spec: Annotated[Mapping[str, Any], Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True})] = {}
    """Any part of a Kubernetes pod's spec; see `kubectl explain pod.spec`."""


class Condition(Report, frozen=True, kw_only=True):
    """One aspect of the object that is true, false or unknown, with the reason."""

    type: Annotated[str, Meta(max_length=316)]
    """The aspect, such as Ready."""

    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown."""

    reason: Annotated[str, Meta(min_length=1, max_length=1024)]
    """The reason in one word, for programs."""

    message: Annotated[str, Meta(max_length=32768)]
    """The reason in a sentence, for people; if something is wrong, what to do about it."""

    last_transition_time: Time
    """When the status last changed."""

    observed_generation: Annotated[int, Meta(ge=0)] = 0
    """The metadata.generation that this condition is based on. If the object's is newer, the condition is outdated."""


Conditions = Annotated[
    tuple[Condition, ...],
    Meta(max_length=32, extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]


class NodeCounts(Report, frozen=True, kw_only=True):
    """How many Slurm nodes are in which state. Apart from the total, each node is counted once."""

    total: int = 0
    """All nodes with a record in Slurm."""

    idle: int = 0
    """Free, and accepting jobs."""

    mixed: int = 0
    """Partly used by jobs."""

    allocated: int = 0
    """Fully used by jobs."""

    draining: int = 0
    """Accepting no new jobs, with jobs on them."""

    drained: int = 0
    """Accepting no new jobs, with none on them."""

    down: int = 0
    """Failed, or not responding."""

    other: int = 0
    """In any other state: powering up, rebooting, reserved, unknown."""
