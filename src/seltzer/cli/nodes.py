"""`seltzer nodes`: each node as Slurm and Kubernetes see it, side by side."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Annotated

from cyclopts import Parameter

from seltzer.api.core import Pod
from seltzer.api.labels import UNLIMITED
from seltzer.cli import facts, kube, nodes_table, show
from seltzer.cli.facts import Facts
from seltzer.cli.nodes_table import STATES, Row
from seltzer.cli.options import Context, Namespace, Output, OutputFlag
from seltzer.errors import SeltzerError
from seltzer.plan import pod_state, slurm_state
from seltzer.plan.pod_state import Trouble
from seltzer.slurm import snapshot
from seltzer.slurm.models import Node

# Flags that a person wants to know of beside the state.
_FLAGS = {
    "NOT_RESPONDING": "not responding",
    "INVALID_REG": "registration refused",
    "FAIL": "failing",
    "COMPLETING": "completing",
    "MAINTENANCE": "maintenance",
    "RESERVED": "reserved",
    "REBOOT_REQUESTED": "to be rebooted",
    "REBOOT_ISSUED": "rebooting",
    "POWERING_UP": "powering up",
    "POWERING_DOWN": "powering down",
    "POWERED_DOWN": "powered down",
}
_PREEMPTION = re.compile(r"\.? (?:no new claims to deallocate, )?preemption: [^;]*")
_MOST_JOBS = 2
_UNKNOWN = "?"


def nodes(
    name: Annotated[str, Parameter(help="The cluster.")],
    /,
    *,
    nodeset: Annotated[str | None, Parameter(help="Only the nodes of this NodeSet.")] = None,
    state: Annotated[
        str | None,
        Parameter(help=f"Only nodes in this state, or in these: drained,down. States are {', '.join(STATES)}."),
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    output: OutputFlag = Output.text,
) -> None:
    """List nodes: pod, Kubernetes node, Slurm's state, its reason and who set it, jobs, and when the node will be free.

    A node that only one of the two knows is listed too. What can't be found out is told on stderr, and shown as ?.
    """
    wanted = states(state)
    place = kube.locate(namespace, context)
    known = kube.talk(place, lambda client: facts.look(client, place, name, happened=False))
    if nodeset is not None and nodeset not in (there := [each.metadata.name for each in known.nodesets]):
        raise SeltzerError(f"{name} has no NodeSet {nodeset!r}; {kube.meant(nodeset, there)}")
    for gap in known.gaps:
        print(f"note: {gap}", file=sys.stderr)
    found = [each for each in rows(known) if nodeset in (None, each.nodeset) and each.kind in wanted]
    if output is Output.text:
        nodes_table.print_rows(show.console(), found, len(known.names))
    else:
        show.data(as_data(known, [each.name for each in found]), output)


def states(words: str | None) -> Collection[str]:
    """The states that were asked for: `drained,down`; `drain` means both kinds of it."""
    if words is None:
        return STATES
    asked = [word.strip().lower() for word in words.split(",") if word.strip()]
    for word in asked:
        if word not in (*STATES, "drain"):
            raise SeltzerError(f"{word!r} is no state of a node; {kube.meant(word, STATES)}")
    return {*asked, *(("draining", "drained") if "drain" in asked else ())}


# --- what each node is -----------------------------------------------------------------------------------------------


def rows(known: Facts) -> list[Row]:
    """All nodes, in natural order."""
    return [row(known, name) for name in known.names]


def row(known: Facts, name: str) -> Row:
    """One node."""
    node, pod = known.node(name), known.pod(name)
    jobs = known.jobs_on(name)
    more = f" +{len(jobs) - _MOST_JOBS}" if len(jobs) > _MOST_JOBS else ""
    return Row(
        name=name,
        nodeset=known.nodeset(name),
        pod=_UNKNOWN if known.pods is None else pod_word(pod),
        machine=_machine(known, name),
        kind=kind(node),
        state=_last_state(known, name) if known.slurm is None else state_words(node),
        jobs=_UNKNOWN if known.slurm is None else " ".join(job.id for job in jobs[:_MOST_JOBS]) + more,
        free=free_words(known, name),
        by=_by(known, node),
        reason=remark(known, name),
    )


def kind(node: Node | None) -> str:
    """Which of STATES it is in."""
    if node is None:
        return "unknown"
    counts = slurm_state.count([node])
    return next(state for state in STATES if getattr(counts, state, 0))


def state_words(node: Node | None) -> str:
    """Slurm's state for a person: `draining`, `down, drained`, `idle, not responding`."""
    if node is None:
        return "no record"
    drained = ("draining" if node.occupied else "drained") if node.drained else ""
    base = "" if drained and node.base in ("IDLE", "MIXED", "ALLOCATED") else node.base.lower()
    flags = [words for flag, words in _FLAGS.items() if flag in node.state]
    return ", ".join(word for word in (base, drained, *flags) if word)


def _last_state(known: Facts, name: str) -> str:
    """Where Slurm can't be asked, what it told last, with a question mark."""
    return f"{known.last_told(name)[0].lower()}{_UNKNOWN}"


def pod_word(pod: Pod | None) -> str:
    """As kubectl would say it, in one word."""
    if pod is None:
        return "none"
    if pod_state.deleting(pod):
        return "Terminating"
    if trouble := pod_state.trouble(pod):
        return trouble.reason
    if pod.status.phase == "Running" and not pod_state.ready(pod):
        return "NotReady"
    return pod.status.phase or "Pending"


def _machine(known: Facts, name: str) -> str:
    pod = known.pod(name)
    where = pod.spec.node_name if pod else ""
    ailment = known.ailment(name).partition(" (")[0]
    return f"{where} ({'tainted' if 'taint' in ailment else ailment.removeprefix('is ')})" if ailment else where


def free_words(known: Facts, name: str) -> str:
    """When the longest job on it reaches its limit: `now`, `in 5m`, `unlimited`."""
    if known.slurm is None:
        return _UNKNOWN
    if known.node(name) is None:
        return ""
    at = known.free_at(name)
    if isinstance(at, str):
        return UNLIMITED
    return "now" if at is None else until(at - known.slurm.now)


def until(seconds: int) -> str:
    """`in 5m`; a limit that is over ends the job any moment."""
    return f"in {facts.span(seconds)}" if seconds > 0 else "any moment"


def deadline(known: Facts, when: int) -> str:
    """By when at the latest: `in 5m at most`."""
    left = when - known.slurm.now if known.slurm else 0
    return f"{until(left)} at most" if left > 0 else until(left)


def _by(known: Facts, node: Node | None) -> str:
    if node is None or not node.reason or known.slurm is None:
        return ""
    since = f" {facts.span(known.slurm.now - node.reason_time)} ago" if node.reason_time else ""
    return facts.who(node) + since


def remark(known: Facts, name: str) -> str:
    """Slurm's reason; otherwise what keeps the node from being what it should be, if anything does."""
    node, pod = known.node(name), known.pod(name)
    if node and node.reason:
        return facts.why(node)
    if pod and (trouble := pod_state.trouble(pod)):
        return told(trouble, name)
    if node and known.pods is not None and pod is None:
        return "Slurm has a record of it, but there is no pod" if known.nodeset(name) else "not one of Seltzer's"
    if pod and known.slurm is not None and node is None:
        return "its pod goes" if pod_state.deleting(pod) else "it hasn't registered with slurmctld"
    if node and pod and node.address and pod.status.pod_ip and node.address != pod.status.pod_ip:
        return f"Slurm looks for it at {node.address}, but its pod has {pod.status.pod_ip}"
    return ""


def told(trouble: Trouble, name: str) -> str:
    """A pod's trouble, without its name and without what the scheduler thinks of evicting others for it."""
    words = snapshot.tidy(trouble.message.removeprefix(f"pod {name}: "))
    return _PREEMPTION.sub("", words).replace(".;", ";").rstrip(".")


# --- for programs -----------------------------------------------------------------------------------------------------


def as_data(known: Facts, names: Iterable[str]) -> dict[str, object]:
    """The same for programs: nothing is left out, times are times, and what isn't known is null."""
    metadata = known.cluster.metadata
    return {
        "namespace": metadata.namespace,
        "cluster": metadata.name,
        "time": known.now.isoformat(timespec="seconds"),
        "unknown": list(known.gaps),
        "nodes": [node_data(known, name) for name in names],
    }


def node_data(known: Facts, name: str) -> dict[str, object]:
    """One node, for programs."""
    pod, node, machine = known.pod(name), known.node(name), known.machine(name)
    return {
        "name": name,
        "nodeSet": known.nodeset(name) or None,
        "state": kind(node),
        "remark": remark(known, name),
        "pod": pod
        and {
            "namespace": pod.metadata.namespace,
            "phase": pod.status.phase,
            "status": pod_word(pod),
            "ready": pod_state.ready(pod),
            "address": pod.status.pod_ip,
            "node": pod.spec.node_name or None,
        },
        "kubernetesNode": machine
        and {
            "name": machine.metadata.name,
            "cordoned": machine.spec.unschedulable,
            "ailment": known.ailment(name) or None,
        },
        "slurm": node and _record(node),
        "jobs": None if known.slurm is None else [job.id for job in known.jobs_on(name)],
        "freeAt": _free_at(known, name),
    }


def _record(node: Node) -> dict[str, object]:
    return {
        "state": list(node.state),
        "address": node.address,
        "partitions": list(node.partitions),
        "cpus": node.cpus,
        "allocatedCpus": node.alloc_cpus,
        "reason": node.reason or None,
        "reasonSetBy": facts.who(node) or None,
        "reasonTime": stamp(node.reason_time) if node.reason else None,
    }


def _free_at(known: Facts, name: str) -> str | None:
    at = known.free_at(name)
    return at if isinstance(at, str) else stamp(at)


def stamp(seconds: int | None) -> str | None:
    """A time of Slurm's as programs like it; None for none."""
    return datetime.fromtimestamp(seconds, UTC).isoformat() if seconds else None
