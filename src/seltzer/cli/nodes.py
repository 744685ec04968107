"""`seltzer nodes`: each node as Slurm and Kubernetes see it, side by side."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Annotated

from cyclopts import Parameter

from seltzer.cli import gather, kube, nodes_table, show
from seltzer.cli.options import Context, Namespace, Output, OutputFlag
from seltzer.errors import SeltzerError
from seltzer.view import nodes as view
from seltzer.view.nodes import STATES
from seltzer.view.text import suggestion


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

    Includes nodes that only one side knows. Unknown values are shown as ?, with a note on stderr.
    """
    wanted = states(state)
    place = kube.locate(namespace, context)
    known = kube.talk(place, lambda client: gather.facts(client, place, name, happened=False))
    if nodeset is not None and nodeset not in (there := [each.metadata.name for each in known.nodesets]):
        raise SeltzerError(f"{name} has no NodeSet {nodeset!r}; {suggestion(nodeset, there)}")
    for gap in known.gaps:
        print(f"note: {gap}", file=sys.stderr)
    found = [each for each in view.rows(known) if nodeset in (None, each.nodeset) and each.kind in wanted]
    if output is Output.text:
        nodes_table.print_rows(show.console(), found, len(known.names))
    else:
        show.data(view.as_data(known, [each.name for each in found]), output)


def states(words: str | None) -> Collection[str]:
    """The states in a list such as `drained,down`; `drain` stands for draining and drained."""
    if words is None:
        return STATES
    asked = [word.strip().lower() for word in words.split(",") if word.strip()]
    for word in asked:
        if word not in (*STATES, "drain"):
            raise SeltzerError(f"{word!r} is no state of a node; {suggestion(word, STATES)}")
    return {*asked, *(("draining", "drained") if "drain" in asked else ())}
