"""Plans with one mistake each: what the model is good for is to tell them from the true one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from seltzer.plan import recheck, slurm_state
from seltzer.plan.actions import DeletePods, DeleteRecords, SetFinalizer
from seltzer.plan.nodeset import (
    deletion,
    drain_causes,
    drain_resume,
    node_records,
    nodeset_plan,
    places,
    pod_conditions,
    pod_roles,
    pod_selection,
    removal,
    support,
    unreachable_pods,
    unregistered_pods,
)
from seltzer.plan.nodeset.nodeset_plan import NodeSetDecision
from seltzer.plan.nodeset.observation import NodeSetObservation
from seltzer.plan.nodeset.support import SupportNeeds
from seltzer.plan.recheck import Facts

Mutant = Callable[[], AbstractContextManager[object]]

_decide, _free_names, _is_over, _needs, _outdated, _still_due = (
    nodeset_plan.decide,
    nodeset_plan._free_names,
    drain_causes.is_over,
    support.needs,
    pod_selection.outdated,
    recheck.still_due,
)


def _instead(module: Any, **functions: Any) -> Mutant:
    return lambda: mock.patch.multiple(module, **functions)


def _both(*mutants: Mutant) -> Mutant:
    @contextmanager
    def all_of_them() -> Any:
        with ExitStack() as stack:
            for mutant in mutants:
                stack.enter_context(mutant())
            yield

    return all_of_them


def _silent_machine(pod: Any, seen: NodeSetObservation, _: Mapping[str, str]) -> bool:
    machine = seen.machines.get(pod.spec.node_name)
    return machine is not None and machine.is_silent


def _silent_slurmd(pod: Any, seen: NodeSetObservation, _: Mapping[str, str]) -> bool:
    return seen.answers.get(pod.metadata.name) is False


def _unknown_is_silent(pod: Any, seen: NodeSetObservation, _: Mapping[str, str]) -> bool:
    return _silent_machine(pod, seen, _) and seen.answers.get(pod.metadata.name) is not True


def _names_of_the_living(seen: NodeSetObservation, count: int) -> list[str]:
    alive = tuple(pod for pod in seen.pods if pod.metadata.deletion_timestamp is None)
    return _free_names(replace(seen, pods=alive), count)


def _asks_nobody(pods: Any, ask: bool) -> DeletePods:
    return DeletePods(pods, ask=False)


def _over_for_its_machine(pod: Any, node: Any, seen: NodeSetObservation) -> bool:
    return _is_over(node, seen.machine(pod))


def _protects_the_busy(*about: Any) -> SupportNeeds | None:
    needs = _needs(*about)
    return needs and replace(needs, protects="busy")


def _ignores_waiting_jobs(action: Any, facts: Facts) -> Any:
    return action if isinstance(action, DeleteRecords | SetFinalizer) else _still_due(action, facts)


def _never_wakes(seen: NodeSetObservation) -> NodeSetDecision:
    return replace(_decide(seen), wakeups=())


MUTANTS: dict[str, Mutant] = {
    # People.
    "takes every drain for its own": _instead(slurm_state, drained_by_us=lambda node: node.drained),
    "overwrites what people say": _both(
        _instead(slurm_state, kept_reason=lambda _, ours: ours), _instead(recheck, is_due=lambda *_: True)
    ),
    "doesn't look again before it writes": _instead(recheck, is_due=lambda *_: True),
    "doesn't respect who set a node down": _instead(slurm_state, down_by_others=lambda _: False),
    # Jobs.
    "takes a silent kubelet for a dead machine": _instead(unreachable_pods, is_lost=_silent_machine),
    "takes a silent slurmd for a dead pod": _instead(unreachable_pods, is_lost=_silent_slurmd),
    "takes unknown for silent": _instead(unreachable_pods, is_lost=_unknown_is_silent),
    "believes a kubelet that is late": _instead(drain_causes, _is_newer=lambda *_: False),
    "takes a deletion for consent": _instead(deletion, consent=lambda _: True),
    "forgets the jobs of who is lost": _instead(unreachable_pods, steps=lambda *_: []),
    # Names.
    "takes the name of a pod that is going": _instead(nodeset_plan, _free_names=_names_of_the_living),
    # Machines.
    "doesn't look at machines": _instead(drain_causes, of_machine=lambda *_: ""),
    "takes an unknown machine for a well one": _instead(
        drain_causes, is_over=lambda node, machine: machine is None or _is_over(node, machine)
    ),
    "leaves a reason that isn't true any more": _instead(drain_causes, tells=lambda *_: True),
    "never gives a node back": _instead(drain_causes, is_over=lambda *_: False),
    "takes an unready pod for a well one until it has seen it for long": _instead(
        drain_resume, _is_over=_over_for_its_machine
    ),
    # Rest.
    "drains again and again": _instead(removal, is_cause=lambda _: True),
    "never looks again": _instead(nodeset_plan, decide=_never_wakes),
    # Slurm.
    "leaves down what an outage set down": _instead(slurm_state, down_by_outage=lambda _: False),
    "leaves stale addresses": _instead(drain_resume, _is_elsewhere=lambda *_: False),
    "leaves pods that slurmctld forgot": _instead(unregistered_pods, steps=lambda *_: []),
    "takes a lost pod's name for free": _instead(unreachable_pods, is_stuck=lambda *_: False),
    # Updates.
    "takes one too many away for an update": _instead(
        pod_selection, outdated=lambda pool, template, budget, missing: _outdated(pool, template, budget + 1, missing)
    ),
    # Evictions.
    "protects only those that were busy when Slurm was last heard of": _instead(support, needs=_protects_the_busy),
    # What pods tell.
    "tells nothing": _instead(pod_conditions, changes=lambda *_: ()),
    "goes on telling what nobody knows": _instead(pod_conditions, unknown=lambda *_: ()),
    "doesn't tell who is busy": _instead(pod_conditions, _is_busy=lambda *_: False),
}

PER_NODE: dict[str, Mutant] = {
    "forgets a person's drain when the label goes": _instead(node_records, _lasting=lambda _: ()),
    "leaves nodes where none is selected": _instead(pod_roles, _is_unselected=lambda *_: False),
    "takes an unselected pod for one that is to stay": _instead(places.Places, wants=lambda *_: True),
}

SELDOM: dict[str, Mutant] = {
    "asks nobody before it deletes": _instead(removal, DeletePods=_asks_nobody),
    "trusts an old answer on waiting jobs": _instead(recheck, still_due=_ignores_waiting_jobs),
}
"""What it takes to find these comes together on no tape in thousands."""
