"""The lines above the tables of a dashboard: the cluster, its controller, its nodes by state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from seltzer.plan import pod_state
from seltzer.view import colours, tree
from seltzer.view.facts import Facts
from seltzer.view.panes import NodeRow
from seltzer.view.text import Cell, Line, joined, line
from seltzer.view.times import parse, span

_BAR = 24
_GAP = "  "


def lines(known: Facts, rows: Sequence[NodeRow], now: datetime) -> list[Line]:
    """Two lines: the cluster with its controller, and the numbers of nodes and jobs."""
    return [_who(known, now), joined([_nodes(rows), _jobs(known)], _GAP * 2)]


def _who(known: Facts, now: datetime) -> Line:
    cluster, report = known.cluster, known.controller.report
    parts = [Cell(cluster.metadata.name, colours.TITLE), tree.readiness(cluster)]
    if version := report.version or cluster.status.slurm_version or "":
        parts.append(Cell(f"Slurm {version}"))
    if report.holder:
        since = _in_charge_since(known)
        long = f" for {span(int(now.timestamp() - since))}" if since else ""
        parts.append(Cell(known.controller.where(report.holder) + long))
    else:
        parts.append(Cell("no slurmctld", colours.BAD))
    parts += [_often(report.failovers, "failover"), _often(report.restarts, "restart")]
    return joined(map(line, parts), _GAP)


def _in_charge_since(known: Facts) -> float:
    """When the pod in charge took over, or became ready; 0 if that is unknown."""
    failover = parse(known.cluster.status.last_failover_time or None)
    if failover:
        return failover.timestamp()
    return pod_state.ready_since(known.controller.active) if known.controller.active else 0.0


def _often(times: int, what: str) -> Cell:
    return Cell(f"{times} {what}{'' if times == 1 else 's'}", colours.WARNING if times else colours.MINOR)


def _nodes(rows: Sequence[NodeRow]) -> Line:
    counts = Counter(each.row.kind for each in rows)
    states = [(state, style) for state, style in colours.STATES.items() if counts[state]]
    parts = [line(Cell("nodes ", colours.TITLE), str(len(rows)))]
    if states:
        shares = bar([counts[state] for state, _ in states], _BAR)
        parts.append(line(*(Cell("█" * share, style) for share, (_, style) in zip(shares, states, strict=True))))
    parts += [line(Cell(f"{counts[state]} {state}", style)) for state, style in states]
    return joined(parts, _GAP)


def bar(counts: Sequence[int], width: int) -> list[int]:
    """The cells of a bar of that width, in proportion to the counts. Each count gets at least one."""
    total = sum(counts)
    shares = [max(1, round(width * count / total)) for count in counts]
    while sum(shares) > max(width, len(shares)):
        shares[shares.index(max(shares))] -= 1
    while sum(shares) < width:
        shares[shares.index(max(shares))] += 1
    return shares


def _jobs(known: Facts) -> Line:
    if known.slurm is None:
        counts = known.cluster.status.jobs
        running, pending = counts.running, counts.pending
    else:
        running = sum(job.active for job in known.slurm.jobs)
        pending = sum(job.pending for job in known.slurm.jobs)
    parts = [
        Cell("jobs", colours.TITLE),
        Cell(f"{running} running", colours.job("RUNNING") if running else colours.MINOR),
        Cell(f"{pending} pending", colours.job("PENDING") if pending else colours.MINOR),
    ]
    return joined(map(line, parts), _GAP)
