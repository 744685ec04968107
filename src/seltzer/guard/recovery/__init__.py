"""Recovers jobs that Slurm acknowledged but had not saved when it was killed, and ensures that none of them runs twice.

1. `find`, before slurmctld starts: secures job directories that are newer than the last saved state, and reads what
   slurmctld's log says since then.
2. If anything was found, slurmctld starts with `SCHEDULING_OFF`: it accepts jobs but starts none, and gives out no
   ID twice.
3. `repair`, beside it: holds, cancels or completes jobs that slurmctld knows wrongly; puts back or keeps jobs that it
   doesn't know.
4. slurmctld ends, which saves all of that, and is restarted to schedule again. Only then `mark_repaired` discards what
   was found.

A crash anywhere in between leaves what was found for the next start.
"""

from __future__ import annotations

from seltzer.guard.recovery.common import RepairReport
from seltzer.guard.recovery.findings import Findings, find, mark_clean_exit, mark_repaired, mark_started
from seltzer.guard.recovery.repair import emergency, repair

__all__ = [
    "SCHEDULING_OFF",
    "Findings",
    "RepairReport",
    "emergency",
    "find",
    "mark_clean_exit",
    "mark_repaired",
    "mark_started",
    "repair",
]

SCHEDULING_OFF = "SchedulerType=sched/builtin\nSchedulerParameters=defer,sched_interval=-1\n"
"""Jobs are accepted, and none is started. No other option leaves partitions, nodes and running jobs as they are."""
