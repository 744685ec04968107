"""NodeSet: a pool of interchangeable slurmd pods.

Every field here has an effect. These names are reserved for later, so that the shape stays the same:

- `spec.autoscale`: replicas that follow the queue.
- `spec.gres`: GPUs, if they can't be detected in the pod.
- `spec.health`: custom checks that drain a node.
- `spec.network`: macvlan and ipvlan addresses.
- `spec.update.partition`, `.order`: finer steps of a roll-out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from .common import (
    API_VERSION,
    NAME_RULE,
    Conditions,
    Duration,
    Image,
    LabelKey,
    Namespace,
    NodeCounts,
    ObjectName,
    Part,
    Percent,
    PodTemplate,
    Report,
    Resources,
    Rule,
    text,
)
from .core import ObjectMeta
from .volumes import MOUNTS_RULE, Mounts, NodeSetHome

Feature = Annotated[
    str,
    text(
        r"^[a-zA-Z0-9_][-a-zA-Z0-9_.:+]*\Z",
        "not a feature that jobs can ask for: use letters, digits and _ . : + -",
        63,
    ),
]
PartitionName = Annotated[
    str,
    text(
        r"^[a-zA-Z][-a-zA-Z0-9_.]*\Z",
        "not the name of a partition: use letters, digits and _ . - with a letter first",
        63,
    ),
]
# Values can't contain a blank, quote, backslash or #: they could break out of their line of slurm.conf.
PartitionOptions = Annotated[
    str,
    text(
        r"^([a-zA-Z]+=[!$-&(-\[\]-~]+( +[a-zA-Z]+=[!$-&(-\[\]-~]+)*)?\Z",
        "options aren't Key=Value pairs as in a PartitionName line: write them like MaxTime=1-00:00:00 Default=YES, "
        "without quotes",
        4096,
    ),
]
MaxUnavailable = Annotated[int, Meta(ge=0)] | Percent
DEFAULT_REPLICAS = 1
Placement = Literal["spread", "onePerNode", "perNode"]


class ClusterRef(Part, frozen=True, kw_only=True):
    """A SlurmCluster."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self == oldSelf",
            "nodes can't move to another cluster: set clusterRef to what it was, or create a new NodeSet",
        ),
    )

    name: ObjectName
    """The name of the SlurmCluster."""

    namespace: Namespace | None = None
    """Its namespace; by default the NodeSet's own. A cluster in another namespace must allow it in its
    spec.nodeSets.namespaces."""


class Partition(Part, frozen=True, kw_only=True):
    """The partition that the nodes are in."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.enabled || (!has(self.name) && !has(self.options))",
            "there is no partition to name: remove name and options, or set enabled to true",
        ),
        Rule(
            "!has(self.name) || self.name.lowerAscii() != 'default'",
            "Slurm takes a partition called default for the defaults of all others: choose another name",
            ".name",
        ),
        Rule(
            "!has(self.options) || !self.options.matches('(?i)(^| )(PartitionName|Nodes)=')",
            "Seltzer sets PartitionName and Nodes: remove them from options, and set name instead",
            ".options",
        ),
    )

    enabled: bool = True
    """Whether the nodes have a partition of their own. If not, add them to partitions that the cluster's spec.config
    defines: there, Nodes= accepts set_ followed by the NodeSet's name, such as set_cpu."""

    name: PartitionName | None = None
    """The partition's name; by default the NodeSet's. NodeSets with the same name share the partition."""

    options: PartitionOptions | None = None
    """More options for the partition's line in slurm.conf, such as `Default=YES MaxTime=1-00:00:00`."""


class Drain(Part, frozen=True, kw_only=True):
    """How a node is drained before its pod is removed: when the set shrinks, is updated or is deleted."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.onTimeout == 'wait' || has(self.timeout)",
            "onTimeout has no effect without a timeout: set drain.timeout, such as 1h",
            ".timeout",
        ),
    )

    timeout: Duration | None = None
    """How long jobs may take to end, such as 90s or 1h30m; by default as long as they need."""

    on_timeout: Literal["wait", "requeue", "kill"] = "wait"
    """What happens to jobs that take longer: wait for them and report it, requeue them, or kill them."""


class Update(Part, frozen=True, kw_only=True):
    """How a changed NodeSet replaces its pods. A pod's node is always drained first."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(string(self.maxUnavailable) in ['0', '0%'])",
            "an update with maxUnavailable 0 never begins: set it to at least 1, or set paused to true",
            ".maxUnavailable",
        ),
    )

    max_unavailable: MaxUnavailable = "25%"
    """How many nodes may be drained or missing at the same time, as a number or a percentage of all nodes; at least
    one."""

    paused: bool = False
    """Keep the pods as they are for now; a changed template takes effect once this is false."""


class NodeSetSpec(Part, frozen=True, kw_only=True):
    """The desired state of the pool."""

    rules: ClassVar[tuple[Rule, ...]] = (
        MOUNTS_RULE,
        Rule(
            "self.placement != 'perNode' || !has(self.replicas)",
            "placement perNode makes one node on each matching Kubernetes node, so it can't be scaled: remove "
            "replicas, and choose Kubernetes nodes with podTemplate.spec.nodeSelector",
            ".replicas",
        ),
        Rule(
            "(self.placement == 'perNode') == (oldSelf.placement == 'perNode')",
            "nodes of placement perNode have other names: set placement to what it was, or create a new NodeSet",
            ".placement",
        ),
    )

    cluster_ref: ClusterRef
    """The cluster that the nodes belong to. Immutable."""

    replicas: Annotated[int, Meta(ge=0, le=65536)] | None = None
    """How many nodes there are; by default 1. `kubectl scale` and autoscalers set this. Nodes are drained before they
    are removed. All NodeSets of a cluster together can't exceed Slurm's MaxNodeCount. Not with placement perNode."""

    placement: Placement = "spread"
    """Which Kubernetes nodes the pods are on. spread: on different ones as far as possible. onePerNode: never two on
    one. perNode: one on each Kubernetes node that podTemplate's nodeSelector and required node affinity match, like a
    DaemonSet; its name is that of the Kubernetes node. Pods without a limit on CPU or memory report a whole machine to
    Slurm: two of these never share one, whatever NodeSet or cluster they belong to. perNode is immutable."""

    image: Image | None = None
    """The image to run; by default the one released with the operator."""

    resources: Resources = Resources()
    """CPU and memory of each node. Slurm sees the limits; without limits the requests; without both, the resources of
    the Kubernetes node."""

    features: Annotated[
        tuple[Feature, ...], Meta(max_length=64, extra_json_schema={"x-kubernetes-list-type": "set"})
    ] = ()
    """Features that jobs can request with --constraint. The NodeSet's name is always one."""

    features_from_labels: Annotated[
        tuple[LabelKey, ...], Meta(max_length=32, extra_json_schema={"x-kubernetes-list-type": "set"})
    ] = ()
    """Labels of Kubernetes nodes that become features, such as node.kubernetes.io/instance-type: the value is the
    feature or, where it is true or empty, the part of the label's name behind the slash. A changed label changes
    the features of the running node; its jobs go on."""

    weight: Annotated[int, Meta(ge=1, le=4294967280)] = 1
    """Slurm's weight of the nodes: all else being equal, jobs go to the nodes with the lowest weight."""

    partition: Partition = Partition()

    home: NodeSetHome | None = None
    """The home directories; by default those of the cluster. A NodeSet in another namespace than its cluster needs a
    claim of its own, since claims can't be used across namespaces."""

    mounts: Mounts = ()
    """More volumes for the nodes, beside the cluster's spec.mounts. One with the same name or path replaces the
    cluster's."""

    drain: Drain = Drain()

    update: Update = Update()

    pod_template: PodTemplate = PodTemplate()
    """Changes to the pods. The main container is called slurmd."""


class NodeSetStatus(Report, frozen=True, kw_only=True):
    """The observed state of the pool."""

    observed_generation: int = 0
    """The metadata.generation that this status is based on. If the object's is newer, the status is outdated."""

    conditions: Conditions = ()
    """The conditions of the pool. Ready says whether all nodes accept jobs."""

    desired_replicas: int = 0
    """How many nodes there should be: replicas or, with placement perNode, the matching Kubernetes nodes."""

    replicas: int = 0
    """How many pods there are."""

    ready_replicas: int = 0
    """How many pods are ready and registered with Slurm."""

    updated_replicas: int = 0
    """How many pods are made from the current NodeSet."""

    selector: str = ""
    """The label selector of the pods, for `kubectl scale` and autoscalers."""

    nodes: NodeCounts = NodeCounts()


class NodeSet(Report, frozen=True, kw_only=True):
    """A pool of interchangeable Slurm nodes, each a pod that runs slurmd."""

    rules: ClassVar[tuple[Rule, ...]] = (
        NAME_RULE,
        Rule(
            "!(self.metadata.name in ['all', 'default'])",
            "all and default mean something else in slurm.conf: choose another name",
            ".metadata.name",
        ),
    )

    api_version: Literal["seltzer.dev/v1alpha1"] = API_VERSION
    kind: Literal["NodeSet"] = "NodeSet"
    metadata: ObjectMeta
    spec: NodeSetSpec

    status: NodeSetStatus = NodeSetStatus()

    @property
    def per_node(self) -> bool:
        """Whether it has one node on each matching Kubernetes node."""
        return self.spec.placement == "perNode"

    @property
    def size(self) -> int:
        """How many nodes it should have; with placement perNode as many as the operator last counted."""
        if self.per_node:
            return self.status.desired_replicas
        return DEFAULT_REPLICAS if self.spec.replicas is None else self.spec.replicas


def oldest_first(nodesets: Iterable[NodeSet]) -> list[NodeSet]:
    """NodeSets by age, whatever order they come in; the namespace and the name decide between two of one age.

    A NodeSet that the API server hasn't created yet is the youngest.
    """
    return sorted(
        nodesets, key=lambda one: (one.metadata.creation_timestamp or "9", one.metadata.namespace, one.metadata.name)
    )
