"""What the deletion of a NodeSet, or of its whole cluster, allows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from seltzer.api.common import seconds
from seltzer.api.nodeset import NodeSet
from seltzer.plan.nodeset.observation import NodeSetObservation


def deleted(nodeset: NodeSet) -> bool:
    return nodeset.metadata.deletion_timestamp is not None


def partition(nodeset: NodeSet) -> str:
    """The partition of its own that the NodeSet asks for; empty: none."""
    asked = nodeset.spec.partition
    return (asked.name or nodeset.metadata.name) if asked.enabled else ""


def ending_partition(nodeset: NodeSet, members: Iterable[NodeSet]) -> str:
    """The partition that ends with this NodeSet; empty: another member of the cluster keeps it."""
    name = partition(nodeset)
    others = (each for each in members if each.metadata.uid != nodeset.metadata.uid and not deleted(each))
    return "" if any(partition(each) == name for each in others) else name


def consent(seen: NodeSetObservation) -> bool:
    """Whether the user deleted the NodeSet and allowed its jobs to be killed after a time that is over."""
    drain, since = seen.nodeset.spec.drain, seen.nodeset.metadata.deletion_timestamp
    if since is None or drain.on_timeout != "kill" or not drain.timeout:
        return False
    return seen.now - datetime.fromisoformat(since).timestamp() >= seconds(drain.timeout)


def may_lose_jobs(seen: NodeSetObservation) -> bool:
    """Whether waiting jobs may be lost: the whole cluster goes, or the user allowed jobs to be killed."""
    return seen.closing or consent(seen)
