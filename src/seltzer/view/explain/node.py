"""Explains a node: why it accepts no jobs, what both sides know about it, and what would bring it back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seltzer.api.core import Pod, Terminated
from seltzer.api.nodeset import NodeSet
from seltzer.errors import SeltzerError
from seltzer.plan import pod_state, slurm_state
from seltzer.plan.nodeset.pod_selection import SCALE_IN, UNSELECTED, UPDATE
from seltzer.slurm.models import Node
from seltzer.view import facts, nodes, times
from seltzer.view.facts import SELTZER, SLURM, Facts
from seltzer.view.text import suggestion

_OURS = {
    UPDATE: "its NodeSet was changed, and it is to be replaced",
    UNSELECTED: "its NodeSet has a node on each selected Kubernetes node, and its own is gone or not selected any more",
    "deleted": "its NodeSet is being deleted",
    "cluster deleted": "its cluster is being deleted",
}
_MOST_JOBS = 5


@dataclass(frozen=True)
class NodeExplanation:
    """The sentences about a node, and the facts behind them."""

    known: Facts
    name: str
    sentences: Sequence[str]

    def data(self) -> dict[str, object]:
        """For programs."""
        return {
            "kind": "node",
            "explanation": " ".join(self.sentences),
            "node": nodes.node_data(self.known, self.name),
        }


def explain(known: Facts, name: str) -> NodeExplanation:
    """Raises SeltzerError if neither side knows the node."""
    if name not in known.names:
        hint = known.silence or (suggestion(name, known.names) if known.names else "it has no nodes")
        raise SeltzerError(f"{known.cluster.metadata.name} has no node {name!r} that is known; {hint}")
    sentences = [_what(known, name), *_why(known, name), *_pod(known, name), *_machine(known, name)]
    return NodeExplanation(known, name, [*sentences, *_cure(known, name), *unknown(known)])


def unknown(known: Facts) -> list[str]:
    """A sentence for each gap in the facts."""
    return [f"{gap[:1].upper()}{gap[1:].rstrip('.')}." for gap in known.gaps]


def _what(known: Facts, name: str) -> str:
    node = known.node(name)
    where = f"{name} of {known.cluster.metadata.name}"
    if known.slurm is None:
        state, reason = known.last_known(name)
        before = f"; when Slurm last answered it was {state.lower()}{f' ({reason})' if reason else ''}" if state else ""
        return f"{where} is in a state that isn't known{before}."
    if node is None:
        return f"{where} isn't registered with slurmctld, so no job can run on it."
    state = nodes.state_words(node)
    if slurm_state.is_available(node):
        free = node.cpus - node.alloc_cpus
        has = f"{free} of {node.cpus} CPUs are free" if free else "all its CPUs are in use"
        return f"{where} is {state}: {has}{_jobs(known, name)}."
    none = ", and what was on it is being cleaned up" if node.occupied else ", and none is on it"
    return f"{where} is {state}: it takes no new jobs{_jobs(known, name) or none}."


def _jobs(known: Facts, name: str) -> str:
    jobs, at = known.jobs_on(name), known.free_at(name)
    if not jobs:
        return ""
    ids = ", ".join(job.id for job in jobs[:_MOST_JOBS])
    more = f" and {len(jobs) - _MOST_JOBS} more" if len(jobs) > _MOST_JOBS else ""
    ends = f"ends {nodes.deadline(known, at)}" if isinstance(at, int) else ""
    if len(jobs) == 1:
        return f", and on it is job {ids}, which {ends or 'has no time limit'}"
    last = f"the last of which {ends}" if ends else "not all of which have a time limit"
    return f", and on it are jobs {ids}{more}, {last}"


def _why(known: Facts, name: str) -> list[str]:
    node = known.node(name)
    if node is None or not node.reason or slurm_state.is_available(node):
        return []
    who, why = facts.who(node), facts.why(node)
    ago = f" {times.span(known.slurm.now - node.reason_time)} ago" if known.slurm and node.reason_time else ""
    did = "drained it" if node.drained else "set it down"
    if who == SELTZER:
        return [f"Seltzer {did}{ago}: {_removal(known, name) if why == SCALE_IN else _OURS.get(why, why)}."]
    return [f"{'Slurm itself' if who == SLURM else who} {did}{ago}{f', and says: {why}' if why else ''}."]


def _removal(known: Facts, name: str) -> str:
    nodeset = _nodeset(known, name)
    if nodeset is None:
        return "its NodeSet is gone, and so it goes too"
    return f"NodeSet {nodeset.metadata.name} is to have {nodeset.size} nodes, and this one is too many"


def _nodeset(known: Facts, name: str) -> NodeSet | None:
    return next((each for each in known.nodesets if each.metadata.name == known.nodeset(name)), None)


def _pod(known: Facts, name: str) -> list[str]:
    pod = known.pod(name)
    if known.pods is None:
        return []
    if pod is None:
        if not known.nodeset(name):
            return ["It isn't one of Seltzer's nodes: it is in slurm.conf, or registered by itself."]
        return ["It has no pod."]
    if pod_state.deleting(pod):
        return ["Its pod is being deleted."]
    if trouble := pod_state.trouble(pod):
        unplaced = trouble.reason in ("Unschedulable", "VolumePending")
        waits = "Kubernetes can't place its pod" if unplaced else f"Its pod is {trouble.reason}"
        return [f"{waits}: {nodes.trouble_words(trouble, name)}."]
    ended = _last_end(pod)
    again = f" since slurmd ended ({ended.reason or f'exit code {ended.exit_code}'})" if ended else ""
    if pod.status.phase in ("", "Pending"):
        return ["Its pod is still starting."]
    if not pod_state.ready(pod):
        return [f"Its pod is {pod.status.phase}, but not ready{again}."]
    return [f"Its pod was restarted{again}."] if ended and not _is_fine(known, name) else []


def _last_end(pod: Pod) -> Terminated | None:
    return next(
        (each.last_state.terminated for each in pod.status.container_statuses if each.last_state.terminated), None
    )


def _is_fine(known: Facts, name: str) -> bool:
    node = known.node(name)
    return node is not None and slurm_state.is_available(node)


def _machine(known: Facts, name: str) -> list[str]:
    """What is wrong with its Kubernetes node, unless Seltzer's reason already says it."""
    pod, node = known.pod(name), known.node(name)
    if pod is None or not pod.spec.node_name or known.machines is None:
        return []
    where, ailment = pod.spec.node_name, known.ailment(name)
    if ailment:
        said = node is not None and node.reason.endswith(f"{where} {ailment}")
        return [] if said else [f"Its Kubernetes node {where} {ailment}."]
    return [] if _is_fine(known, name) else [f"Nothing is wrong with its Kubernetes node {where}."]


# --- what would bring it back ----------------------------------------------------------------------------------------


def _cure(known: Facts, name: str) -> list[str]:
    node, pod = known.node(name), known.pod(name)
    if known.slurm is None or (node and slurm_state.is_available(node)):
        return []
    if node is None:
        return [_registration(known, name)]
    if facts.who(node) == SELTZER:
        return [_by_itself(known, name, node)]
    if known.pods is not None and pod is None:
        return (
            ["Seltzer makes it a new pod, or removes the record, as its NodeSet wants."] if known.nodeset(name) else []
        )
    if nodes.is_shut(node):
        return [_resume(known, name, node)]
    if pod and known.ailment(name):
        return [f"It comes back when {pod.spec.node_name} does."]
    return [_logs(known, name)]


def _logs(known: Facts, name: str) -> str:
    return f"'seltzer logs {known.cluster.metadata.name} {name}' shows what its slurmd says."


def _registration(known: Facts, name: str) -> str:
    pod = known.pod(name)
    if pod and pod_state.deleting(pod):
        return "It doesn't come back, unless its NodeSet is given more nodes."
    return _logs(known, name) if pod and pod_state.ready(pod) else "It registers by itself when its pod runs."


def _by_itself(known: Facts, name: str, node: Node) -> str:
    nodeset, machine, why = _nodeset(known, name), known.machine(name), facts.why(node)
    when = "when its jobs have ended" if node.occupied else "now"
    if why == SCALE_IN:
        more = f"; 'seltzer scale {nodeset.metadata.name} N' with a larger N keeps it" if nodeset else ""
        return f"Its pod goes {when}{more}."
    if why in _OURS:
        return f"{'A new pod takes its place' if why == UPDATE else 'It goes'} {when}."
    if machine and why.startswith("Kubernetes node ") and not known.ailment(name):
        return "That is over: Seltzer resumes it by itself when it has been so for some seconds."
    how = f": 'kubectl uncordon {machine.metadata.name}'" if machine and machine.spec.unschedulable else ""
    return f"Seltzer resumes it by itself when that is over{how}."


def _resume(known: Facts, name: str, node: Node) -> str:
    pod, ailment = known.pod(name), known.ailment(name)
    if slurm_state.down_by_outage(node):
        return f"Seltzer resumes it by itself when its slurmd answers. {_logs(known, name)}"
    person = facts.who(node) not in (SLURM, "")
    resume = f"{'Seltzer never undoes what a person did: ' if person else ''}'seltzer resume {name}' brings it back"
    if ailment and pod:
        return f"{resume}, but Seltzer drains it again for as long as {pod.spec.node_name} {ailment}."
    return f"{resume}{'' if person else ' when it is well'}."
