"""`seltzer top`: a cluster live and full-screen."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import Annotated

from cyclopts import CycloptsError, Parameter

from seltzer.cli import gather, kube, kubectl
from seltzer.cli.kube import Place
from seltzer.cli.options import Context, Namespace
from seltzer.errors import SeltzerError

_SHORTEST, _LONGEST = 0.2, 3600.0


def top(
    name: Annotated[str, Parameter(help="The cluster.")],
    /,
    *,
    interval: Annotated[float, Parameter(help="How many seconds to wait between two questions to Slurm.")] = 1.0,
    once: Annotated[bool, Parameter(negative="", help="Print what there is as text, and end.")] = False,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Watch a cluster live: its nodes, its queue, what happens to it. Keys drain, resume, cancel and open logs.

    `?` shows the keys, `q` ends it.
    """
    if not _SHORTEST <= interval <= _LONGEST:
        raise SeltzerError(f"--interval is between {_SHORTEST} and {_LONGEST:.0f} seconds")
    if not once and not (sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"):
        raise CycloptsError(msg=f"seltzer top needs a terminal; 'seltzer top {name} --once' prints the same as text")
    place = kube.locate(namespace, context)
    if once:
        from seltzer.cli.top import text

        text.show(kube.talk(place, lambda client: gather.facts(client, place, name)), datetime.now(UTC))
        return
    kubectl.find()  # fails before the screen opens
    cluster = kube.talk(place, lambda client: kube.cluster(client, place, name))

    from seltzer.cli.top.actions import KubectlActions
    from seltzer.cli.top.app import Top
    from seltzer.cli.top.feed import ClusterFeed

    home = Place(place.config, cluster.metadata.namespace, place.flags)
    app = Top(name, ClusterFeed(home, cluster, interval), KubectlActions(home))
    app.run()
    if app.failure:
        raise app.failure
