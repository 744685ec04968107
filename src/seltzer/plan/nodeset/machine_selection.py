"""Which machines a pod's spec selects: its nodeSelector, its required node affinity and its tolerations.

As the scheduler and DaemonSets do. The spec is a user's, and the API server hasn't validated it yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from seltzer.api.core import Node
from seltzer.errors import SeltzerError
from seltzer.plan.nodeset import drain_causes

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_WHERE: Final = f"podTemplate.spec.affinity.nodeAffinity.{_REQUIRED}"
_REPELS: Final = ("NoSchedule", "NoExecute")
Requirement = Callable[[str | None, Sequence[str]], bool]


class SelectionRefused(SeltzerError):
    """A selection that can't be understood. Its text says what is wrong and what to do."""


def matches(spec: Mapping[str, Any], machine: Node) -> bool:
    """Whether a machine's labels and name are what the spec asks for. Raises SelectionRefused."""
    labels = machine.metadata.labels
    wanted = _map(spec.get("nodeSelector"), "podTemplate.spec.nodeSelector")
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    required = _map(_map(spec.get("affinity"), "affinity").get("nodeAffinity"), "nodeAffinity").get(_REQUIRED)
    if required is None:
        return True
    terms = _list(_map(required, _WHERE).get("nodeSelectorTerms"), f"{_WHERE}.nodeSelectorTerms")
    # All are read, whether or not an earlier one matches: an error must not depend on the machine.
    return any([_matches_term(_map(term, f"{_WHERE}.nodeSelectorTerms"), machine) for term in terms])


def takes(spec: Mapping[str, Any], machine: Node) -> bool:
    """Whether a new pod could run on a machine: it isn't about to go, and the pod tolerates its taints."""
    tolerations = _list(spec.get("tolerations"), "podTemplate.spec.tolerations")
    repelling = (taint for taint in machine.spec.taints if taint.effect in _REPELS)
    return machine.metadata.deletion_timestamp is None and all(
        drain_causes.tolerates(tolerations, taint) for taint in repelling
    )


def _matches_term(term: Mapping[str, Any], machine: Node) -> bool:
    """A term without a requirement matches nothing."""
    expressions = _list(term.get("matchExpressions"), f"{_WHERE}: matchExpressions")
    fields = _list(term.get("matchFields"), f"{_WHERE}: matchFields")
    labels = machine.metadata.labels
    found = [_meets(_map(each, _WHERE), labels) for each in expressions]
    found += [_meets(_map(each, _WHERE), {"metadata.name": machine.metadata.name}) for each in fields]
    return bool(found) and all(found)


def _meets(requirement: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    operator, key = str(requirement.get("operator")), requirement.get("key")
    listed = [str(each) for each in _list(requirement.get("values"), f"{_WHERE}: values")]
    if operator not in _OPERATORS or not isinstance(key, str):
        raise SelectionRefused(
            f"{_WHERE}: has a requirement with key {key!r} and operator {operator!r}: write a key and one of "
            f"{', '.join(_OPERATORS)}"
        )
    return _OPERATORS[operator](values.get(key), listed)


def _is_number(value: str | None, listed: Sequence[str], compare: Callable[[int, int], bool]) -> bool:
    try:
        return value is not None and len(listed) == 1 and compare(int(value), int(listed[0]))
    except ValueError:
        return False


_OPERATORS: Mapping[str, Requirement] = {
    "In": lambda value, listed: value in listed,
    "NotIn": lambda value, listed: value not in listed,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, listed: _is_number(value, listed, lambda one, other: one > other),
    "Lt": lambda value, listed: _is_number(value, listed, lambda one, other: one < other),
}


def _map(value: Any, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise SelectionRefused(f"{where}: isn't a map; see 'kubectl explain pod.spec'")
    return value


def _list(value: Any, where: str) -> Sequence[Any]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise SelectionRefused(f"{where}: isn't a list; see 'kubectl explain pod.spec'")
    return value
