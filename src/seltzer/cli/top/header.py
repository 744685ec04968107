"""The lines above the tables of `seltzer top`: the cluster, its controller, its nodes by state. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from rich.text import Text

from seltzer.cli.controller import ControllerFacts
from seltzer.cli.facts import Facts
from seltzer.cli.show import parse
from seltzer.cli.top.rows import COLOURS, NodeRow, ago
from seltzer.plan import pod_state
from seltzer.view import tree

_BAR = 24
_GAP = "  "


def lines(known: Facts, rows: Sequence[NodeRow], now: datetime) -> list[Text]:
    """Two lines: who it is and who is in charge, and how much of everything there is."""
    return [_who(known, now), Text(_GAP * 2).join([_nodes(rows), _jobs(known)])]


def trouble(name: str, seen: ControllerFacts) -> str:
    """Why what Slurm tells isn't the newest, as far as its guard and Kubernetes know; empty where nothing is wrong."""
    told, active = seen.told, seen.active
    if not told.holder:
        return "slurmctld is failing over: nobody is in charge right now"
    if active is None or pod_state.deleting(active):
        return f"slurmctld is failing over from {told.holder}"
    if told.phase == "held":
        return f"slurmctld is held on {told.holder}; 'seltzer debug {name} --release' lets it go"
    if told.phase and told.phase != "running":
        return f"slurmctld is {told.phase} on {told.holder}" + (f": {told.message}" if told.message else "")
    return ""


def _who(known: Facts, now: datetime) -> Text:
    cluster, told = known.cluster, known.controller.told
    ready = tree.condition(cluster, "Ready")
    well = ready is not None and ready.status == "True"
    word = "Ready" if well else (ready.reason if ready else "Unknown")
    parts = [Text(cluster.metadata.name, "bold"), Text(word, "green" if well else "red")]
    if version := told.version or cluster.status.slurm_version or "":
        parts.append(Text(f"Slurm {version}"))
    if told.holder:
        since = _in_charge_since(known)
        long = f" for {ago(now.timestamp() - since)}" if since else ""
        parts.append(Text(known.controller.where(told.holder) + long))
    else:
        parts.append(Text("no slurmctld", "red"))
    parts += [_often(told.failovers, "failover"), _often(told.restarts, "restart")]
    return Text(_GAP).join(parts)


def _in_charge_since(known: Facts) -> float:
    """When the pod in charge took over, or first was ready; 0 if nobody knows."""
    failover = parse(known.cluster.status.last_failover_time or None)
    if failover:
        return failover.timestamp()
    return pod_state.ready_since(known.controller.active) if known.controller.active else 0.0


def _often(times: int, what: str) -> Text:
    return Text(f"{times} {what}{'' if times == 1 else 's'}", "yellow" if times else "dim")


def _nodes(rows: Sequence[NodeRow]) -> Text:
    counts = Counter(each.row.kind for each in rows)
    states = [(state, style) for state, style in COLOURS.items() if counts[state]]
    parts = [Text.assemble(("nodes ", "bold"), str(len(rows)))]
    if states:
        shares = bar([counts[state] for state, _ in states], _BAR)
        cells = [Text("█" * share, style) for share, (_, style) in zip(shares, states, strict=True)]
        parts.append(Text.assemble(*cells))
    parts += [Text(f"{counts[state]} {state}", style) for state, style in states]
    return Text(_GAP).join(parts)


def bar(counts: Sequence[int], width: int) -> list[int]:
    """How many of so many cells each count gets: as its share is, and one at least."""
    total = sum(counts)
    shares = [max(1, round(width * count / total)) for count in counts]
    while sum(shares) > max(width, len(shares)):
        shares[shares.index(max(shares))] -= 1
    while sum(shares) < width:
        shares[shares.index(max(shares))] += 1
    return shares


def _jobs(known: Facts) -> Text:
    if known.slurm is None:
        counts = known.cluster.status.jobs
        running, pending = counts.running, counts.pending
    else:
        running = sum(job.active for job in known.slurm.jobs)
        pending = sum(job.pending for job in known.slurm.jobs)
    return Text(_GAP).join(
        [
            Text("jobs", "bold"),
            Text(f"{running} running", "cyan" if running else "dim"),
            Text(f"{pending} pending", "yellow" if pending else "dim"),
        ]
    )
