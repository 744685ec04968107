"""What Slurm acknowledged and hadn't saved when it was killed is found again, and nothing of it runs twice.

1. `find`, before slurmctld starts: job directories that are newer than the last state are made safe, and what
   slurmctld's log tells since then is read.
2. If there was anything, slurmctld starts with `QUIET`: it takes jobs but starts none, and gives no ID out twice.
3. `repair`, beside it: jobs that it knows wrongly are held, cancelled or completed; jobs that it doesn't know are put
   back or kept.
4. It ends, which saves all that, and is started anew to schedule again; only then `finished` forgets what was found.

A crash anywhere in between leaves what was found for the next start.
"""

from __future__ import annotations

from seltzer.guard.recovery.common import Recovered
from seltzer.guard.recovery.found import Found, begun, ended_well, find, finished
from seltzer.guard.recovery.repair import emergency, repair

__all__ = ["QUIET", "Found", "Recovered", "begun", "emergency", "ended_well", "find", "finished", "repair"]

QUIET = "SchedulerType=sched/builtin\nSchedulerParameters=defer,sched_interval=-1\n"
"""Jobs are taken, and none is started; that of all levers leaves partitions, nodes and running jobs as they are."""
