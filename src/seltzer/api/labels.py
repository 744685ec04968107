"""The labels, annotations and finalizer of our objects, shared by the code that decides and the code that builds."""

from __future__ import annotations

from typing import Final

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
NAME: Final = "app.kubernetes.io/name"
INSTANCE: Final = "app.kubernetes.io/instance"
COMPONENT: Final = "app.kubernetes.io/component"
CLUSTER: Final = "seltzer.dev/cluster"
CLUSTER_NAMESPACE: Final = "seltzer.dev/cluster-namespace"
NODESET: Final = "seltzer.dev/nodeset"

TEMPLATE: Final = "seltzer.dev/template"
"""On a slurmd pod: the digest of the template that it was made from."""
CONFIG: Final = "seltzer.dev/config"
"""The digest of a configuration: on the ConfigMap that is rolled out, on slurmctld's pod, and on its Lease."""
CONTROLLER_POD: Final = "seltzer.dev/pod"
"""On the controller's Deployment: the ID of the pod that it makes."""
TRIAL: Final = "seltzer.dev/trial"
"""On a trial: the ID of the configuration and the controller pod that it tries."""
CHECKSUM: Final = "seltzer.dev/checksum"
LOGIN_CONFIG: Final = "seltzer.dev/login-config"
"""On a login pod: the digest of its ConfigMap, which contains people's keys."""

FINALIZER: Final = "seltzer.dev/drain"

# What the guard tells, as annotations of the controller's Lease.
EPOCH: Final = "seltzer.dev/epoch"
PHASE: Final = "seltzer.dev/phase"
MESSAGE: Final = "seltzer.dev/message"
STARTED: Final = "seltzer.dev/started"
SLURM_VERSION: Final = "seltzer.dev/slurm-version"
RESTARTS: Final = "seltzer.dev/restarts"
VOLUME: Final = "seltzer.dev/volume"
CRASH: Final = "seltzer.dev/crash"
RECOVERED: Final = "seltzer.dev/recovered"
NEWS: Final = "seltzer.dev/news"

# What the guard is told by others, as annotations of the same Lease.
HOLD: Final = "seltzer.dev/hold"

# Slurm's view of a slurmd pod, on the pod.
BUSY: Final = "seltzer.dev/busy"
"""A label: jobs are on its node. The disruption budget protects pods with this label."""
FREE_AT: Final = "seltzer.dev/free-at"
"""When the last of its jobs reaches its time limit, or UNLIMITED."""
UNLIMITED: Final = "unlimited"
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SLURM_READY: Final = "seltzer.dev/SlurmReady"
"""A condition: its Slurm node takes jobs, or is full of them."""
SLURM_BUSY: Final = "seltzer.dev/SlurmBusy"
"""A condition: jobs are on its node."""
