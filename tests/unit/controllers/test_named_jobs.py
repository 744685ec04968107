"""Every job that slurmctld had acknowledged and not saved is named: by Events, and by `seltzer status`."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from tests.unit.cli.test_controller import NOW, drawn
from tests.unit.plan.cluster.test_cluster_plan import cluster

from seltzer.api.core import Lease, ObjectMeta
from seltzer.api.labels import RECOVERED
from seltzer.api.slurmcluster import SlurmCluster, SlurmClusterStatus
from seltzer.guard.recovery import recoveries
from seltzer.guard.recovery.common import RepairReport
from seltzer.guard.recovery.verdicts import Outcome
from seltzer.plan.cluster import controller_events
from seltzer.plan.cluster.guard_report import GuardReport
from seltzer.view import tree
from seltzer.wire import job_ids

FATES: tuple[tuple[Outcome, str, str], ...] = (
    ("held", "JobsHeld", "it had started on n%s"),
    ("cancelled", "JobsCancelled", "it had been cancelled"),
    ("ran", "JobsRan", "it had ended with exit code %s"),
    ("put-back", "JobsPutBack", "it had not started"),
)
JOBS = range(1_234_000, 1_235_500)


def told(folder: Path, monkeypatch: pytest.MonkeyPatch, fate: Callable[[int], int]) -> SlurmClusterStatus:
    """What the operator makes of what the guard tells of 1,500 jobs."""
    monkeypatch.setattr(recoveries, "now", lambda: NOW.isoformat())
    epoch = folder / "epoch-1"
    epoch.mkdir()
    recovered = RepairReport()
    for job in JOBS:
        outcome, _, why = FATES[fate(job)]
        recovered.add(str(job), 1000 + job % 7, outcome, why % (job % 3) if "%" in why else why)
    recovered.write(epoch)
    lease = Lease(metadata=ObjectMeta(annotations={RECOVERED: recovered.as_json(epoch)}))
    return SlurmClusterStatus(recovered=GuardReport(lease).recovered)


def names(text: str) -> set[str]:
    """The jobs that a text for people names."""
    found = re.findall(r"\b\d{7}(?:-\d{7})?\b", text)
    return {job for each in found for job in job_ids.expand(each)}


@pytest.mark.parametrize(
    "fate",
    [lambda job: job % 4, lambda job: (job - JOBS[0]) // 375, lambda job: 3 if job % 50 else job // 50 % 3],
    ids=["in turns", "in a row", "here and there"],
)
def test_each_of_1500_jobs_is_named_with_what_became_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fate: Callable[[int], int]
) -> None:
    status = told(tmp_path, monkeypatch, fate)
    events = controller_events.events(cluster(), status)
    item = cluster()
    lines = drawn(SlurmCluster(metadata=item.metadata, spec=item.spec, status=status))
    starts = [at for at, line in enumerate(lines) if re.search(r"[├└]── [a-z-]+  \d+ jobs?: ", line)]
    assert len(starts) == 4
    sections = {lines[a].split()[2]: "\n".join(lines[a:b]) for a, b in pairwise([*starts, len(lines)])}
    for number, (outcome, reason, why) in enumerate(FATES):
        expected = {str(job) for job in JOBS if fate(job) == number}
        messages = [each.message for each in events if each.reason == reason]
        assert set().union(*map(names, messages)) == expected
        assert names(sections[outcome]) == expected
        words = why.partition(" on ")[0].partition("%")[0]
        assert words in sections[outcome] and all(words in message for message in messages)
    assert all(len(each.message.encode()) <= 1024 for each in events)
    assert len(events) < 25


def test_programs_get_the_jobs_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = told(tmp_path, monkeypatch, lambda job: (job - JOBS[0]) // 375)
    item = cluster()
    picture = tree.Picture(SlurmCluster(metadata=item.metadata, spec=item.spec, status=status))
    found = tree.as_data(picture, NOW)["recovered"]
    assert isinstance(found, dict)
    assert found["groups"][-1] == {
        "outcome": "put-back",
        "why": "it had not started",
        "jobs": "1235125-1235499",
        "count": 375,
        "users": "1000-1006",
    }
