"""The order in which actions are done."""

from __future__ import annotations

from collections.abc import Iterable

from seltzer.plan.actions import Action, Apply, Create, SetFinalizer

# A pod waits for what it mounts, and longer each time it doesn't find it: inputs come first. The API server refuses a
# binding to a role that doesn't exist yet.
_NEED_INPUTS = frozenset({"Deployment", "Pod", "RoleBinding"})


def stages(actions: Iterable[Action]) -> list[list[Action]]:
    """Inputs, then what needs them. The finalizer is removed last. Actions of one stage may run side by side."""
    inputs: list[Action] = []
    later: list[Action] = []
    last: list[Action] = []
    for action in actions:
        if isinstance(action, SetFinalizer) and not action.present:
            last.append(action)
        elif isinstance(action, Apply | Create) and action.manifest["kind"] in _NEED_INPUTS:
            later.append(action)
        else:
            inputs.append(action)
    return [stage for stage in (inputs, later, last) if stage]
