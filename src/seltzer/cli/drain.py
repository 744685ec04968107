"""`seltzer drain` and `seltzer resume`: take nodes out of service, and bring them back."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from seltzer.api.core import Pod
from seltzer.api.nodeset import NodeSet
from seltzer.build.names import CLUSTER, CLUSTER_NAMESPACE, COMPONENT
from seltzer.cli import gather, kube, kubectl
from seltzer.cli.kube import Place
from seltzer.cli.options import Context, Namespace
from seltzer.errors import SeltzerError
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.events import Recorder
from seltzer.plan import pod_state, slurm_state
from seltzer.slurm import hostlist
from seltzer.slurm.models import Node
from seltzer.view import facts
from seltzer.view.facts import Facts
from seltzer.view.nodes import is_shut
from seltzer.view.text import natural, suggestion

OPERATORS = "seltzer:"
"""The prefix of the operator's own reasons. It never undoes a drain with another reason."""

_NOTHING_TO_RESUME = "Invalid node state transition"
_NEITHER = "{} is neither drained nor down"

Nodes = Annotated[str, Parameter(help="The node, a hostlist such as cpu-[0-3], or a NodeSet for all of its nodes.")]


@dataclass(frozen=True)
class Target:
    """The nodes of a command: some by name, or all of a NodeSet."""

    place: Place
    """The place of their cluster."""
    facts: Facts
    names: Sequence[str]
    nodeset: str = ""

    @property
    def word(self) -> str:
        return self.nodeset or hostlist.fold(self.names)


def drain(
    node: Nodes,
    /,
    *,
    reason: Annotated[str | None, Parameter(help="The reason that Slurm shows.")] = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Stop new jobs from starting on nodes; running jobs continue. Seltzer never undoes this by itself."""
    words = checked_reason(reason)
    place = kube.locate(namespace, context)
    target = kube.talk(place, lambda client: find(client, place, node))
    known, notes = drainable(target)
    _print_notes(notes)
    if known:
        update(target.place, target.facts, known, ("State=DRAIN", f"Reason={sign(words)}"))
        cluster = target.facts.cluster.metadata.name
        undo = target.nodeset if target.nodeset and not notes else hostlist.fold(known)
        print(f"{hostlist.fold(known)} of {cluster} takes no new jobs ({words}); 'seltzer resume {undo}' undoes it")


def resume(
    node: Nodes,
    /,
    *,
    reason: Annotated[str | None, Parameter(help="What was done about it, for an Event of the cluster.")] = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Return drained or down nodes to service; for a NodeSet, all of its nodes that are drained or down."""
    place = kube.locate(namespace, context)
    target = kube.talk(place, lambda client: find(client, place, node))
    shut, notes = resumable(target)
    _print_notes(notes)
    _print_notes(warnings(target.facts, shut))
    try:
        update(target.place, target.facts, shut, ("State=RESUME",))
    except SeltzerError as error:
        if _NOTHING_TO_RESUME in str(error):
            raise SeltzerError(f"{_NEITHER.format(target.word)}, so there is nothing to resume") from None
        raise
    print(f"{hostlist.fold(shut)} of {target.facts.cluster.metadata.name} takes jobs again")
    if words := " ".join((reason or "").split()):
        # Slurm keeps no reason for a node that is in service.
        kube.talk(target.place, lambda client: _record(client, target, f"{hostlist.fold(shut)} resumed: {sign(words)}"))


async def _record(client: Client, target: Target, message: str) -> None:
    recorder = Recorder(client, "seltzer")
    await recorder.record(kinds.CLUSTERS, target.facts.cluster, "Normal", "Resumed", message)


def checked_reason(reason: str | None) -> str:
    """The reason on one line. Raises SeltzerError if it could be taken for the operator's."""
    words = " ".join((reason if reason is not None else f"seltzer drain by {_user()}").split())
    if not words:
        raise SeltzerError("Slurm wants a reason for a drain; leave --reason out, or put some words into it")
    if words.lower().startswith(OPERATORS):
        raise SeltzerError(
            f"a reason that begins with {OPERATORS!r} is the operator's, which would undo it; use another"
        )
    return words


def sign(words: str) -> str:
    """The reason with its author: for Slurm, its own user runs all our commands."""
    return words if words == checked_reason(None) else facts.signed(words, _user())


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"


def _print_notes(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, file=sys.stderr)


def update(place: Place, known: Facts, names: Sequence[str], changes: Sequence[str]) -> None:
    """Changes these nodes in Slurm with one call. `place` is that of their cluster."""
    command = ("scontrol", "update", f"NodeName={hostlist.fold(names)}", *changes)
    kubectl.output(place, known.slurmctld, "slurmctld", command)


# --- which nodes -----------------------------------------------------------------------------------------------------


async def find(client: Client, place: Place, word: str) -> Target:
    """The nodes of that name, or else the NodeSet, with the facts of their cluster."""
    wanted = hostlist.expand(word)
    nodesets = await kube.every(client, kinds.NODESETS, place.namespace)  # fails if Seltzer isn't installed
    pods = await slurmds(client, place)
    named = next((each for each in nodesets if each.metadata.name == word), None)
    if named and word not in {pod.metadata.name for pod in pods}:
        cluster, home = _cluster(named)
    else:
        named = None
        cluster, home = cluster_of(wanted, pods, place.namespace, [each.metadata.name for each in nodesets])
    there = Place(place.config, home, place.flags)
    known = await gather.facts(client, there, cluster, happened=False)
    if known.slurm is None:
        raise SeltzerError(known.silence)
    if named is None:
        return Target(there, known, wanted)
    names = [name for name in known.names if known.nodeset(name) == word]
    if not names:
        raise SeltzerError(f"NodeSet {word!r} has no nodes; see 'seltzer status {cluster}'")
    return Target(there, known, names, word)


def _cluster(nodeset: NodeSet) -> tuple[str, str]:
    ref = nodeset.spec.cluster_ref
    return ref.name, ref.namespace or nodeset.metadata.namespace


async def slurmds(client: Client, place: Place) -> list[Pod]:
    """All slurmd pods of the namespace, of any cluster."""
    params = {"labelSelector": f"{CLUSTER},{COMPONENT}=slurmd"}
    return (await client.list_all(kinds.PODS, place.namespace, params=params)).items


def cluster_of(
    wanted: Sequence[str], pods: Iterable[Pod], namespace: str, nodesets: Sequence[str] = ()
) -> tuple[str, str]:
    """The cluster of all these nodes, and its namespace. Raises SeltzerError if there is more than one."""
    labels = {pod.metadata.name: pod.metadata.labels for pod in pods}
    unknown = [name for name in wanted if name not in labels]
    if unknown:
        also = list(nodesets) if len(wanted) == 1 else []
        known = [*also, *sorted(labels, key=natural)]
        raise SeltzerError(
            f"there is no node {unknown[0]!r} in namespace {namespace!r}{', nor a NodeSet' if also else ''}; "
            f"{suggestion(unknown[0], known) if known else 'no NodeSet has any there'}"
        )
    homes = {(labels[name][CLUSTER], labels[name].get(CLUSTER_NAMESPACE, namespace)) for name in wanted}
    if len(homes) != 1:
        raise SeltzerError(f"these nodes belong to {len(homes)} clusters; name those of one at a time")
    return homes.pop()


def drainable(target: Target) -> tuple[list[str], list[str]]:
    """The nodes to drain, and notes about the others.

    A node that is named is always drained. A NodeSet's drain keeps the reasons that others gave for single nodes.
    """
    known, notes = _known(target)
    others = [each for each in known if target.nodeset and slurm_state.drained_by_others(each)]
    notes += [
        f"{each.name} is drained already, and stays so ({facts.blame(each) or 'no reason given'})" for each in others
    ]
    return [each.name for each in known if each not in others], notes


def resumable(target: Target) -> tuple[list[str], list[str]]:
    """The nodes that are drained or down, and notes about the others. Raises SeltzerError if none is."""
    known, notes = _known(target)
    shut = [each.name for each in known if is_shut(each)]
    fine = [each.name for each in known if not is_shut(each)]
    if not shut:
        none = f"no node of {target.nodeset} is drained or down" if target.nodeset else _NEITHER.format(target.word)
        raise SeltzerError(f"{none}, so there is nothing to resume")
    if fine:
        notes.append(f"{_NEITHER.format(hostlist.fold(fine))}: nothing to resume there")
    return shut, notes


def _known(target: Target) -> tuple[list[Node], list[str]]:
    """Slurm's records of the nodes. A missing record is an error for a named node, and a note for one of a NodeSet."""
    unknown = [name for name in target.names if target.facts.node(name) is None]
    if unknown and not target.nodeset:
        raise SeltzerError(f"Slurm doesn't know {unknown[0]}{_missing(target.facts, unknown[0])}")
    notes = [f"Slurm doesn't know {hostlist.fold(unknown)} yet: nothing to do there"] if unknown else []
    return [node for name in target.names if (node := target.facts.node(name))], notes


def _missing(known: Facts, name: str) -> str:
    pod = known.pod(name)
    trouble = pod_state.trouble(pod) if pod else None
    return f": {trouble.message}" if trouble else f" yet; see 'seltzer explain {name}'"


def warnings(known: Facts, names: Iterable[str]) -> list[str]:
    """Notes about nodes that Seltzer will drain again at once, since the cause of their drain persists."""
    again: dict[str, list[str]] = {}
    for name in names:
        node, pod, ailment = known.node(name), known.pod(name), known.ailment(name)
        if ailment and pod:
            again.setdefault(f"Kubernetes node {pod.spec.node_name} {ailment}", []).append(name)
        elif node and facts.who(node) == facts.SELTZER:
            again.setdefault(facts.why(node), []).append(name)
    return [
        f"note: Seltzer drains {hostlist.fold(each)} again for as long as this is so: {cause}"
        for cause, each in again.items()
    ]
