"""The condition of a component, from its Deployment and its pods."""

from __future__ import annotations

from seltzer.plan import pod_state
from seltzer.plan.cluster.cluster_plan import ClusterObservation
from seltzer.plan.conditions import Finding


def ready(seen: ClusterObservation, component: str, type_: str, well: str) -> Finding:
    """True, with the message `well`, while a pod of the Deployment is ready."""
    deployment = seen.deployments.get(component)
    if deployment and deployment.status.ready_replicas:
        return Finding(type_, "True", "Running", well)
    return not_ready(seen, component, type_)


def not_ready(seen: ClusterObservation, component: str, type_: str) -> Finding:
    """False, with the reason: a pod's trouble, or why the Deployment can't create pods."""
    if found := pod_state.first_trouble(seen.pods.get(component, ())):
        return Finding(type_, "False", found.reason, found.message)
    deployment = seen.deployments.get(component)
    for condition in deployment.status.conditions if deployment else ():
        if condition.type == "ReplicaFailure" and condition.status == "True":
            return Finding(type_, "False", condition.reason, condition.message)
    return Finding(type_, "False", "Starting", f"{component} is starting")
