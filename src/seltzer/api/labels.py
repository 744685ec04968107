"""The labels, annotations and the finalizer of our objects, shared by the code that reads them and builds them.

CONFIG is the digest of a configuration: on the ConfigMap that is rolled out, on slurmctld's pod, and on its Lease.
"""

from __future__ import annotations

from typing import Final

from seltzer.wire.annotations import CONFIG as CONFIG
from seltzer.wire.annotations import CRASH as CRASH
from seltzer.wire.annotations import EPOCH as EPOCH
from seltzer.wire.annotations import HOLD as HOLD
from seltzer.wire.annotations import MESSAGE as MESSAGE
from seltzer.wire.annotations import NAMES as NAMES
from seltzer.wire.annotations import NEWS as NEWS
from seltzer.wire.annotations import PHASE as PHASE
from seltzer.wire.annotations import RECOVERED as RECOVERED
from seltzer.wire.annotations import RESTARTS as RESTARTS
from seltzer.wire.annotations import SLURM_VERSION as SLURM_VERSION
from seltzer.wire.annotations import STARTED as STARTED
from seltzer.wire.annotations import VOLUME as VOLUME

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
NAME: Final = "app.kubernetes.io/name"
INSTANCE: Final = "app.kubernetes.io/instance"
COMPONENT: Final = "app.kubernetes.io/component"
CLUSTER: Final = "seltzer.dev/cluster"
CLUSTER_NAMESPACE: Final = "seltzer.dev/cluster-namespace"
NODESET: Final = "seltzer.dev/nodeset"

TEMPLATE: Final = "seltzer.dev/template"
"""On a slurmd pod: the digest of the template that it was made from."""
CONTROLLER_POD: Final = "seltzer.dev/pod"
"""On the controller's Deployment: the digest of the pod that it makes."""
TRIAL: Final = "seltzer.dev/trial"
"""On a trial: the ID of the configuration and the controller pod that it tries."""
CHECKSUM: Final = "seltzer.dev/checksum"
LOGIN_CONFIG: Final = "seltzer.dev/login-config"
"""On a login pod: the digest of its ConfigMap."""

WHOLE_MACHINE: Final = "seltzer.dev/whole-machine"
"""On a slurmd pod: it reports all CPUs or all memory of its machine to Slurm. No two of these share a machine."""
MACHINE: Final = "seltzer.dev/machine"
"""An annotation on a slurmd pod of placement perNode: the machine that it is for."""

USERS: Final = "seltzer.dev/users"
"""On a pod: the digest of the users that its namespace has for it."""
KEY_PARTS: Final = "seltzer.dev/key-parts"
"""On the ConfigMap with the users: how many ConfigMaps have their keys."""

FINALIZER: Final = "seltzer.dev/drain"

# Slurm's state, on slurmd's pods.
BUSY: Final = "seltzer.dev/busy"
"""A label: jobs are on its node. The disruption budget protects the pods that have it."""
FREE_AT: Final = "seltzer.dev/free-at"
"""An annotation: when the last of its jobs reaches its time limit, or UNLIMITED."""
UNLIMITED: Final = "unlimited"
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SLURM_READY: Final = "seltzer.dev/SlurmReady"
"""A condition: its Slurm node accepts jobs, or is full of them."""
SLURM_BUSY: Final = "seltzer.dev/SlurmBusy"
"""A condition: jobs are on its node."""
