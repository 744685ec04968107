"""Each node as Slurm and Kubernetes see it, side by side: rows for people, data for programs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seltzer.api.core import Pod
from seltzer.api.labels import UNLIMITED
from seltzer.plan import pod_state, slurm_state
from seltzer.plan.pod_state import Trouble
from seltzer.slurm import snapshot
from seltzer.slurm.models import Node
from seltzer.view import colours, facts
from seltzer.view.facts import Facts
from seltzer.view.times import span, stamp, until

STATES = tuple(colours.STATES)
"""Each node is in one of them, the best first."""

# Flags that are shown beside the state.
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
_SHUT = frozenset({"DOWN", "DRAIN", "ERROR", "FAIL"})


@dataclass(frozen=True)
class Row:
    """One node, in words."""

    name: str
    nodeset: str
    pod: str
    """The state of its pod in one word; `none` if it has none."""
    machine: str
    """The Kubernetes node, and what is wrong with it."""
    kind: str
    """One of STATES."""
    state: str
    """The state in words, with its flags."""
    gpus: str
    """How many of its GPUs jobs have; empty if it has none."""
    jobs: str
    free: str
    """When no job will be on it any more."""
    by: str
    """The author of its reason, and the age."""
    reason: str
    """Why it accepts no jobs, if that is known."""


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
        gpus=f"{node.used_gpus}/{node.gpus}" if node and node.gpus else "",
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


def is_shut(node: Node) -> bool:
    """Whether there is something to resume."""
    return bool(_SHUT & set(node.state))


def state_words(node: Node | None) -> str:
    """Slurm's state for a person: `draining`, `down, drained`, `idle, not responding`."""
    if node is None:
        return "no record"
    drained = ("draining" if node.occupied else "drained") if node.drained else ""
    base = "" if drained and node.base in ("IDLE", "MIXED", "ALLOCATED") else node.base.lower()
    flags = [words for flag, words in _FLAGS.items() if flag in node.state]
    return ", ".join(word for word in (base, drained, *flags) if word)


def _last_state(known: Facts, name: str) -> str:
    """Slurm's last known state with a question mark, for when it can't be asked."""
    return f"{known.last_known(name)[0].lower()}{_UNKNOWN}"


def pod_word(pod: Pod | None) -> str:
    """The state of a pod in one word, as kubectl shows it."""
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


def deadline(known: Facts, when: int) -> str:
    """The latest time: `in 5m at most`."""
    left = when - known.slurm.now if known.slurm else 0
    return f"{until(left)} at most" if left > 0 else until(left)


def _by(known: Facts, node: Node | None) -> str:
    if node is None or not node.reason or known.slurm is None:
        return ""
    since = f" {span(known.slurm.now - node.reason_time)} ago" if node.reason_time else ""
    return facts.who(node) + since


def remark(known: Facts, name: str) -> str:
    """Slurm's reason; without one, what is wrong with the node or its pod; empty if nothing is."""
    node, pod = known.node(name), known.pod(name)
    if node and node.reason:
        return facts.why(node)
    if failing := known.failing(name):
        return failing[0]
    if pod and (trouble := pod_state.trouble(pod)):
        return trouble_words(trouble, name)
    if node and known.pods is not None and pod is None:
        return "Slurm has a record of it, but there is no pod" if known.nodeset(name) else "not one of Seltzer's"
    if pod and known.slurm is not None and node is None:
        return "its pod goes" if pod_state.deleting(pod) else "it hasn't registered with slurmctld"
    if node and pod and node.address and pod.status.pod_ip and node.address != pod.status.pod_ip:
        return f"Slurm looks for it at {node.address}, but its pod has {pod.status.pod_ip}"
    return ""


def trouble_words(trouble: Trouble, name: str) -> str:
    """A pod's trouble, without its name and without the scheduler's words about preemption."""
    words = snapshot.tidy(trouble.message.removeprefix(f"pod {name}: "))
    return _PREEMPTION.sub("", words).replace(".;", ";").rstrip(".")


def summary(found: Sequence[Row], total: int) -> str:
    """The number of nodes in each state, for the end of a long list."""
    counts = Counter(each.kind for each in found)
    parts = [f"{counts[state]} {state}" for state in STATES if counts[state]]
    of = f" of {total}" if total != len(found) else ""
    return f"{len(found)}{of} node{'s' if len(found) != 1 or of else ''}: {', '.join(parts)}"


# --- for programs -----------------------------------------------------------------------------------------------------


def as_data(known: Facts, names: Iterable[str]) -> dict[str, object]:
    """The same for programs: complete, with RFC 3339 times, and null for what is unknown."""
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
        "failedChecks": list(known.failing(name)),
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
        "gpus": node.gpus,
        "allocatedGpus": node.used_gpus,
        "reason": node.reason or None,
        "reasonSetBy": facts.who(node) or None,
        "reasonTime": stamp(node.reason_time) if node.reason else None,
    }


def _free_at(known: Facts, name: str) -> str | None:
    at = known.free_at(name)
    return at if isinstance(at, str) else stamp(at)
