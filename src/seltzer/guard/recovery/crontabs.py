"""Saves crontabs again: slurmctld then creates their jobs anew, each for its next time.

There is no other way to correct a job of a crontab. slurmctld refuses to hold, delay or change it, and disables its
line if it is cancelled. A job of the crontab that runs goes on. A run that the crash has ended isn't repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

from seltzer.guard import log
from seltzer.guard.recovery.common import Controller, RepairReport
from seltzer.guard.recovery.holding import Todo
from seltzer.guard.recovery.slurm import SlurmError


def save_again(todo: Sequence[Todo], slurm: Controller, recovered: RepairReport) -> None:
    """Save the crontabs of these jobs again, and report the jobs. A crontab that can't be saved affects no other."""
    failures: dict[int, str] = {}
    for user in sorted({listed.user for _, listed, _ in todo}):
        try:
            slurm.save_crontab_again(user)
        except SlurmError as error:
            log.say(f"the crontab of user {user} can't be saved again: {error}")
            failures[user] = f"{error}"
    for name, listed, verdict in todo:
        if listed.user in failures:
            why = f"{verdict.why} that can't be saved again: save it with scrontab -e; {failures[listed.user]}"
            recovered.add(name, listed.user, "kept", why)
        else:
            recovered.add(name, listed.user, verdict.outcome, f"{verdict.why}: its next run is at its next time")
