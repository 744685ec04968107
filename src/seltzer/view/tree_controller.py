"""The controller's part of a cluster's tree: who is in charge, its volume, its last crash, jobs that it found again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import UNSET, to_builtins
from rich.text import Text
from rich.tree import Tree

from seltzer.api.slurmcluster import SlurmCluster
from seltzer.api.status import Crash, RecoveredJobs, Recovery
from seltzer.cli import show
from seltzer.plan.cluster.controller_events import ALL, by_outcome
from seltzer.plan.cluster.controller_status import size
from seltzer.wire import job_ids

# For this long somebody may still wonder about it.
RECENT = timedelta(hours=24)
_MOST_USERS = 60  # characters
_LINES, _FRAMES = 3, 5

_OUTCOMES = {
    "put-back": "back in the queue",
    "kept": "couldn't be put back; script and environment are in lost/ on the state volume",
    "ran": "had ended; nothing to do",
    "lost": "interactive, or without a script on the state volume; their users have to start them again",
    "cancelled": "had been cancelled; nothing to do",
}


def add_details(branch: Tree, cluster: SlurmCluster, now: datetime) -> None:
    """Below the controller's line."""
    status, rows = cluster.status, list[tuple[Text, Text]]()
    told = status.controller or None
    if told and told.pod:
        epoch = f", epoch {told.epoch}" if told.epoch else ""
        role = "active" if told.phase else "was"
        rows.append((Text(role), Text(f"{_where(told.pod, told.node)}{epoch}")))
        rows += [(Text("standby"), Text(_where(each.pod, each.node))) for each in told.standbys]
    if cluster.spec.controller.hold:
        words = f"spec.controller.hold is true; 'seltzer debug {cluster.metadata.name} --release' lets it go"
        rows.append((Text("hold"), Text(words, "yellow")))
    if volume := status.volume or None:
        style = "red" if volume.low else ""
        rows.append((Text("volume"), Text(f"{size(volume.free)} of {size(volume.size)} free", style)))
    for row in show.aligned(rows) if rows else ():
        branch.add(row)
    if (crash := status.crash or None) and is_recent(crash.time, now):
        _add_crash(branch, crash, now)


def _where(pod: str, node: str) -> str:
    return f"{pod} on {node}" if node else pod


def _add_crash(branch: Tree, crash: Crash, now: datetime) -> None:
    words = f"{show.age(crash.time, now)} ago: slurmctld {crash.how or 'ended'}"
    top = branch.add(Text.assemble(("crash", "yellow"), f"  {words}" + (f", core {crash.core}" if crash.core else "")))
    for line in crash.lines.splitlines()[-_LINES:]:
        top.add(Text(line))
    for frame in crash.backtrace.splitlines()[:_FRAMES]:
        top.add(Text(frame, "dim"))


def add_recovered(top: Tree, cluster: SlurmCluster, now: datetime) -> None:
    """Jobs that were found again, all of them, with what to do about those that wait for a person."""
    found = cluster.status.recovered or None
    for recovery in reversed(found.recoveries) if found else ():
        if is_recent(recovery.time, now) and (recovery.groups or recovery.more):
            _add_recovery(top, recovery, cluster.metadata.name, now)


def _add_recovery(top: Tree, recovery: Recovery, cluster: str, now: datetime) -> None:
    branch = top.add(Text.assemble(("recovered jobs", "bold"), f"  after a crash {show.age(recovery.time, now)} ago"))
    for outcome, groups in by_outcome(recovery).items():
        count = sum(group.count for group in groups)
        words = _choices(cluster, groups) if outcome == "held" else _OUTCOMES.get(outcome, outcome)
        style = "yellow" if outcome == "held" else ""
        below = branch.add(Text.assemble((outcome, style), f"  {count} job{'s' * (count != 1)}: {words}"))
        for group in groups:
            below.add(_group(group))
    if recovery.more:
        branch.add(Text(f"{recovery.more} more, which {ALL} in slurmctld's container names", "yellow"))


def _choices(cluster: str, held: Sequence[RecoveredJobs]) -> str:
    job = held[0].jobs if sum(group.count for group in held) == 1 else "ID"
    run, drop = (
        f"'seltzer scontrol --user root {cluster} release {job}'",
        f"'seltzer scancel --user root {cluster} {job}'",
    )
    return f"in the queue, for a person to decide; {run} lets it run, {drop} drops it"


def _group(group: RecoveredJobs) -> Text:
    users = f" (user{'s' * (not group.users.isdecimal())} {job_ids.shown(group.users)})"
    whose = users if group.users and len(users) <= _MOST_USERS else ""
    return Text(f"{group.why.rstrip('.') or 'no reason given'}{whose}: {job_ids.shown(group.jobs)}")


def is_recent(time: str, now: datetime) -> bool:
    when = show.parse(time)
    return when is not None and now - when <= RECENT


def as_data(cluster: SlurmCluster) -> dict[str, object]:
    """The same for programs, however old."""
    status = cluster.status
    parts: dict[str, object] = {
        "controller": status.controller,
        "volume": status.volume,
        "crash": status.crash,
        "recovered": status.recovered,
    }
    told = {name: None if part is UNSET else to_builtins(part) for name, part in parts.items()}
    return {"hold": cluster.spec.controller.hold, "wantedStandbys": cluster.spec.controller.standby, **told}
