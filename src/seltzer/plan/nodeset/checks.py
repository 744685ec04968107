"""What follows from the health checks of nodes: which drains they cause, and when these are over.

The runner in a pod (build/check_runner.sh) writes into the Extra of its node's record which checks fail. While nothing
is written there, nothing is known, and a node that a check has drained stays drained. A check that isn't in the NodeSet
any more causes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from seltzer.api.checks import Check
from seltzer.plan.slurm_state import ADDED, OURS
from seltzer.slurm.models import Node

REASON = f"{OURS}check "
_BEGINS = '{"seltzer-checks":'


@dataclass(frozen=True)
class Failure:
    """A check that fails on a node, and what it printed when that began."""

    check: Check
    output: str

    @property
    def words(self) -> str:
        return f"check {self.check.name}: {self.output}"


class _Report(msgspec.Struct, frozen=True, rename={"failed": "seltzer-checks"}):
    failed: Mapping[str, str]


def failures(node: Node, checks: Sequence[Check]) -> tuple[Failure, ...] | None:
    """The checks that fail, in the order of the NodeSet; None: unknown."""
    report = _report(node)
    if report is None:
        return None
    return tuple(Failure(check, _one_line(report[check.name])) for check in checks if check.name in report)


def cause(node: Node, checks: Sequence[Check]) -> str:
    """Why it should take no new jobs, as a reason for Slurm; empty if no check says so."""
    found = (each for each in failures(node, checks) or () if each.check.on_fail != "comment")
    first = next(found, None)
    return f"{OURS}{first.words}" if first else ""


def note(node: Node, checks: Sequence[Check]) -> str | None:
    """What its comment says about checks that drain nothing; None: unknown."""
    found = failures(node, checks)
    if found is None:
        return None if checks else ""
    return "; ".join(each.words for each in found if each.check.on_fail == "comment")


def drained_by(node: Node) -> str:
    """The check that a drain of ours names; empty if it names none."""
    return node.reason.removeprefix(REASON).partition(": ")[0] if node.reason.startswith(REASON) else ""


def is_over(node: Node, checks: Sequence[Check]) -> bool:
    """Whether nothing of a check's drain is left, for a node without a `cause`: the same check has passed, or drains
    nothing any more. True of all other drains."""
    drains = {check.name for check in checks if check.on_fail != "comment"}
    return drained_by(node) not in drains or _report(node) is not None


def _one_line(output: str) -> str:
    """It goes to terminals and into reasons, where slurmctld separates what it adds."""
    words = "".join(each if each.isprintable() else " " for each in output).split()
    return " ".join(each for each in words if each != ADDED.strip()) or "it failed"


def _report(node: Node) -> Mapping[str, str] | None:
    if not node.extra.startswith(_BEGINS):
        return None
    try:
        return msgspec.json.decode(node.extra, type=_Report).failed
    except (msgspec.MsgspecError, UnicodeError):  # somebody else's
        return None
