"""SlurmCluster: the control plane of one Slurm cluster in one object.

Every field here has an effect. These names are reserved for later, so that the shape stays the same:

- `spec.accounting`: slurmdbd and its database: single, Galera or external.
- `spec.auth`: custom keys, their rotation, munge.
- `spec.controller.storage.claim`: an existing claim.
- `spec.configFrom`: configuration from ConfigMaps and Secrets in addition to `spec.config`.
- `spec.rest.proxy`: slurmrestd behind an authenticating proxy.
- `spec.suspend`, `spec.timeToLive`: a cluster that is suspended, or ends by itself.
- `spec.backup`, `spec.upgrade`, `spec.external`: backup and restore, ordered upgrades, daemons outside Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from .common import (
    API_VERSION,
    NAME_RULE,
    Duration,
    Image,
    LabelKey,
    Namespace,
    ObjectName,
    Part,
    PodTemplate,
    Quantity,
    Report,
    Resources,
    Rule,
    text,
)
from .config import CONFIG_RULES, ConfigFile
from .core import ObjectMeta
from .login import LOGINS_RULE, SCALAR_SET, Login, LoginSet
from .status import JobCounts, SlurmClusterStatus
from .users import Users
from .volumes import MOUNTS_RULE, Home, Mounts

__all__ = ["JobCounts", "SlurmCluster", "SlurmClusterSpec", "SlurmClusterStatus"]

# Used in names of SQL tables, files and environment variables. Slurm's own limit is 40 characters, in lower case.
ClusterName = Annotated[
    str,
    text(
        r"^[a-z]([-_a-z0-9]*[a-z0-9])?\Z",
        "not a cluster name that Slurm's database can hold: use at most 40 lower-case letters, digits, hyphens and "
        "underscores, with a letter first and a letter or a digit last",
        40,
    ),
]
_BY_NAME = Meta(extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]})


class Storage(Part, frozen=True, kw_only=True):
    """The volume that holds slurmctld's state: the queue, the nodes' states, the reservations."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0",
            "a volume can't shrink: set size to what it was, or to more",
            ".size",
        ),
        Rule(
            "has(self.className) == has(oldSelf.className)"
            " && (!has(self.className) || self.className == oldSelf.className)",
            "a volume can't move to another storage class: set className to what it was, or create a new cluster",
        ),
        Rule(
            "self.accessMode == oldSelf.accessMode",
            "a volume can't change its access mode: set accessMode to what it was, or create a new cluster",
            ".accessMode",
        ),
    )

    size: Quantity = "4Gi"
    """The size to claim. It can grow later if the storage class allows it, but never shrink."""

    class_name: ObjectName | None = None
    """The storage class to claim from; by default the default class of Kubernetes. Immutable."""

    access_mode: Literal["ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"] = "ReadWriteOnce"
    """Who may mount the volume at the same time: one Kubernetes node, one pod, or many nodes. Immutable."""

    on_delete: Literal["retain", "delete"] = "retain"
    """What happens to the volume claim when the cluster is deleted: keep the queue and the job IDs in it, or delete it,
    too."""


class Controller(Part, frozen=True, kw_only=True):
    """slurmctld, the daemon that manages the queue and schedules jobs. At most one is active at any time."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.standby == 0 || self.storage.accessMode == 'ReadWriteMany'",
            "a standby mounts the same volume from another Kubernetes node: set storage.accessMode to ReadWriteMany "
            "when you create a cluster, or set standby to 0",
            ".standby",
        ),
        Rule(
            # A value that isn't a duration violates its own rule; here it would only make this rule fail to evaluate.
            "!self.leaseDuration.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$')"
            " || self.leaseDuration.size() < 2"
            " || (duration(self.leaseDuration) >= duration('2s') && duration(self.leaseDuration) <= duration('5m'))",
            "a Lease under 2s is lost whenever the API server is slow, and one over 5m keeps the cluster waiting for a "
            "dead controller: set leaseDuration to between 2s and 5m",
            ".leaseDuration",
        ),
    )

    image: Image | None = None
    """The image to run; by default the one released with the operator."""

    storage: Storage = Storage()

    standby: Annotated[int, Meta(ge=0, le=4)] = 0
    """How many standby pods wait beside the active one, to take over within seconds when it is lost. Needs a
    ReadWriteMany volume."""

    lease_duration: Duration = "3s"
    """How long an unresponsive controller keeps its place before another takes over, such as 5s; from 2s to 5m. A
    change restarts slurmctld."""

    keep_jobs: bool = True
    """Whether jobs that Slurm acknowledged but forgot in a crash are put back into the queue. A change restarts
    slurmctld."""

    hold: bool = False
    """Whether slurmctld stays down for debugging. Its container, cores and logs stay available, and no standby takes
    over. Running jobs go on, and no job can be submitted; see `seltzer debug`."""

    resources: Resources = Resources()
    """CPU and memory of the slurmctld container."""

    pod_template: PodTemplate = PodTemplate()
    """Changes to the controller's pod, on top of spec.podTemplate. The main container is called slurmctld."""


class Rest(Part, frozen=True, kw_only=True):
    """slurmrestd, the REST API of Slurm. Seltzer needs it, too, so there is at least one."""

    replicas: Annotated[int, Meta(ge=1, le=16)] = 1
    """How many pods serve the API."""

    image: Image | None = None
    """The image to run; by default the one released with the operator."""

    resources: Resources = Resources()
    """CPU and memory of the slurmrestd container."""

    pod_template: PodTemplate = PodTemplate()
    """Changes to the pods, on top of spec.podTemplate. The main container is called slurmrestd."""


class Topology(Part, frozen=True, kw_only=True):
    """Where nodes are in the network, so that the nodes of a job are close to each other."""

    labels: Annotated[
        tuple[LabelKey, ...], Meta(min_length=1, max_length=6, extra_json_schema={"x-kubernetes-list-type": "set"})
    ]
    """Labels of Kubernetes nodes, the outermost first and the leaf last, such as topology.kubernetes.io/zone and
    example.com/rack. Nodes whose Kubernetes nodes have the same values are at one switch of Slurm's tree, also when
    labels change. A missing label counts as the value unknown."""


class NodeSetAccess(Part, frozen=True, kw_only=True):
    """Which NodeSets may join the cluster."""

    namespaces: Annotated[tuple[Namespace, ...], Meta(max_length=256), SCALAR_SET] = ()
    """Other namespaces whose NodeSets may join. NodeSets in the cluster's own namespace always may. All pods of the
    cluster search these for the names of nodes: at most 23, and a change replaces the pods, nodes drained first."""


class SlurmClusterSpec(Part, frozen=True, kw_only=True):
    """The desired state of the cluster. An empty spec is a working cluster."""

    rules: ClassVar[tuple[Rule, ...]] = (*CONFIG_RULES, MOUNTS_RULE, LOGINS_RULE)

    cluster_name: ClusterName | None = None
    """Slurm's name of the cluster, in accounting and on the command line; by default metadata.name. Immutable."""

    controller: Controller = Controller()

    rest: Rest = Rest()

    login: Login = Login()

    logins: Annotated[tuple[LoginSet, ...], Meta(max_length=16), _BY_NAME] = ()
    """More sets of login pods, for example for one group, or with another image."""

    users: Users = Users()

    home: Home | None = None
    """A shared volume with people's home directories, mounted at /home on the login pods and all nodes; {} creates one.
    Without it a home directory is on the pod alone, and ends with it. While its volume is missing, the condition
    HomeReady says why, and the cluster runs without."""

    mounts: Mounts = ()
    """More volumes for the login pods and all nodes, such as scratch space and datasets. NodeSets in other namespaces
    get those of them that need no claim; see the NodeSet's own mounts."""

    node_sets: NodeSetAccess = NodeSetAccess()

    topology: Topology | None = None
    """Slurm's topology/tree from labels of Kubernetes nodes. Jobs can ask for it with --switches."""

    config: Annotated[Mapping[str, ConfigFile], Meta(max_length=32)] = {}
    """Configuration on top of Seltzer's, by file: slurm.conf, cgroup.conf, gres.conf, job_submit.lua and so on. A
    change is first tried in a scratch slurmctld. If that doesn't start, the change isn't rolled out, and the condition
    ConfigValid says why."""

    pod_template: PodTemplate = PodTemplate()
    """Changes to all pods of the control plane: controller, rest and login. NodeSets have their own."""


class SlurmCluster(Report, frozen=True, kw_only=True):
    """A Slurm cluster: its controller, REST API and login pods. Its compute nodes are NodeSets."""

    rules: ClassVar[tuple[Rule, ...]] = (
        NAME_RULE,
        Rule(
            "(has(self.spec.clusterName) ? self.spec.clusterName : self.metadata.name)"
            " == (has(oldSelf.spec.clusterName) ? oldSelf.spec.clusterName : oldSelf.metadata.name)",
            "jobs are accounted under the cluster's name, so it can't change: set clusterName to what it was, or "
            "create a new cluster",
            ".spec.clusterName",
        ),
    )

    api_version: Literal["seltzer.dev/v1alpha1"] = API_VERSION
    kind: Literal["SlurmCluster"] = "SlurmCluster"
    metadata: ObjectMeta
    spec: SlurmClusterSpec = SlurmClusterSpec()

    status: SlurmClusterStatus = SlurmClusterStatus()
