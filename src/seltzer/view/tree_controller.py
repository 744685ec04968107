"""The controller's part of a cluster's tree: the pod in charge, its volume, its last crash, recovered jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import UNSET, to_builtins

from seltzer.api.slurmcluster import SlurmCluster
from seltzer.api.status import Crash, RecoveredJobs, Recovery
from seltzer.plan.cluster.controller_events import ALL, by_outcome
from seltzer.plan.cluster.controller_status import size
from seltzer.view import colours, times
from seltzer.view.branch import Branch
from seltzer.view.text import Cell, Line, line
from seltzer.wire import job_ids

# Crashes and recoveries are shown for this long.
RECENT = timedelta(hours=24)
_MOST_USERS = 60  # characters
_LINES, _FRAMES = 3, 5

_OUTCOMES = {
    "put-back": "back in the queue",
    "requeued": "ended by the crash and requeued",
    "kept": "couldn't be put back; script and environment are in lost/ on the state volume",
    "ran": "had ended; nothing to do",
    "lost": "interactive, or without a script on the state volume; their users have to start them again",
    "cancelled": "had been cancelled; nothing to do",
}


def details(cluster: SlurmCluster, now: datetime) -> list[Branch]:
    """The rows below the controller's line."""
    status, rows = cluster.status, list[tuple[str, Line]]()
    controller = status.controller or None
    if controller and controller.pod:
        epoch = f", epoch {controller.epoch}" if controller.epoch else ""
        role = "active" if controller.phase else "was"
        rows.append((role, line(f"{_where(controller.pod, controller.node)}{epoch}")))
        rows += [("standby", line(_where(each.pod, each.node))) for each in controller.standbys]
    if cluster.spec.controller.hold:
        words = f"spec.controller.hold is true; 'seltzer debug {cluster.metadata.name} --release' lets it go"
        rows.append(("hold", line(Cell(words, colours.WARNING))))
    if volume := status.volume or None:
        style = colours.BAD if volume.low else ""
        rows.append(("volume", line(Cell(f"{size(volume.free)} of {size(volume.size)} free", style))))
    crash = status.crash or None
    shown = [_crash(crash, now)] if crash and is_recent(crash.time, now) else []
    return [*(Branch((line(name), words)) for name, words in rows), *shown]


def _where(pod: str, node: str) -> str:
    return f"{pod} on {node}" if node else pod


def _crash(crash: Crash, now: datetime) -> Branch:
    core = f", core {crash.core}" if crash.core else ""
    words = f"  {times.age(crash.time, now)} ago: slurmctld {crash.how or 'ended'}{core}"
    below = [Branch.of(line(each)) for each in crash.lines.splitlines()[-_LINES:]]
    below += [Branch.of(line(Cell(each, colours.MINOR))) for each in crash.backtrace.splitlines()[:_FRAMES]]
    return Branch.titled("crash", below, after=words, style=colours.WARNING)


def recovered(cluster: SlurmCluster, now: datetime) -> list[Branch]:
    """All recovered jobs, with what to do about those that wait for a person. The newest recovery is first."""
    found = cluster.status.recovered or None
    return [
        _recovery(each, cluster.metadata.name, now)
        for each in (reversed(found.recoveries) if found else ())
        if is_recent(each.time, now) and (each.groups or each.more)
    ]


def _recovery(recovery: Recovery, cluster: str, now: datetime) -> Branch:
    rows = []
    for outcome, groups in by_outcome(recovery).items():
        count = sum(group.count for group in groups)
        words = _choices(cluster, groups) if outcome == "held" else _OUTCOMES.get(outcome, outcome)
        style = colours.WARNING if outcome == "held" else ""
        after = f"  {count} job{'s' * (count != 1)}: {words}"
        rows.append(
            Branch.titled(outcome, [Branch.of(line(_group(each))) for each in groups], after=after, style=style)
        )
    if recovery.more:
        more = f"{recovery.more} more, which {ALL} in slurmctld's container names"
        rows.append(Branch.of(line(Cell(more, colours.WARNING))))
    return Branch.titled("recovered jobs", rows, after=f"  after a crash {times.age(recovery.time, now)} ago")


def _choices(cluster: str, held: Sequence[RecoveredJobs]) -> str:
    job = held[0].jobs if sum(group.count for group in held) == 1 else "ID"
    run, drop = (
        f"'seltzer scontrol --user root {cluster} release {job}'",
        f"'seltzer scancel --user root {cluster} {job}'",
    )
    return f"in the queue, for a person to decide; {run} lets it run, {drop} drops it"


def _group(group: RecoveredJobs) -> str:
    users = f" (user{'s' * (not group.users.isdecimal())} {job_ids.shown(group.users)})"
    whose = users if group.users and len(users) <= _MOST_USERS else ""
    return f"{group.why.rstrip('.') or 'no reason given'}{whose}: {job_ids.shown(group.jobs)}"


def is_recent(time: str, now: datetime) -> bool:
    """Whether it is still shown."""
    when = times.parse(time)
    return when is not None and now - when <= RECENT


def as_data(cluster: SlurmCluster) -> dict[str, object]:
    """The same for programs, of any age."""
    status = cluster.status
    parts: dict[str, object] = {
        "controller": status.controller,
        "volume": status.volume,
        "crash": status.crash,
        "recovered": status.recovered,
    }
    reported = {name: None if part is UNSET else to_builtins(part) for name, part in parts.items()}
    return {"hold": cluster.spec.controller.hold, "wantedStandbys": cluster.spec.controller.standby, **reported}
