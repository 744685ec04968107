"""What `seltzer failover`, `debug` and `status` say about the controller: who, where, why not, and what to do."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console
from tests.builders import objects
from tests.builders.objects import lease

from seltzer.api.core import Lease, Pod
from seltzer.api.slurmcluster import SlurmCluster, SlurmClusterStatus
from seltzer.api.status import ControllerStatus, Crash, Recovered, RecoveredJobs, Recovery, Standby, VolumeStatus
from seltzer.cli import debug, failover, gather, show
from seltzer.kube.client import Client, Listing
from seltzer.kube.errors import NotFound
from seltzer.kube.resource import Resource
from seltzer.plan.cluster.guard_report import GuardReport
from seltzer.view import tree
from seltzer.view.controller import ControllerFacts

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
CRASH = Crash(
    time="2026-01-02T11:55:00Z",
    how="was ended by SIGSEGV",
    lines="\n".join(f"line {number}" for number in range(9)),
    backtrace="\n".join(f"#{number} f{number} ()" for number in range(20)),
    core="/run/cores/core.7",
)


def cluster(*, deleted: bool = False, status: SlurmClusterStatus | None = None, **of: Any) -> SlurmCluster:
    """With these fields of spec.controller."""
    return objects.cluster({"controller": of}, deleted="2026-01-02T11:00:00Z" if deleted else None, status=status)


def pod(name: str, node: str = "n1", **more: Any) -> Pod:
    return objects.pod(name, machine=node, **more)


def seen(*pods: Pod, holder: str = "c-a", phase: str = "running", **said: Any) -> ControllerFacts:
    return ControllerFacts(GuardReport(lease(holder, phase=phase, **said)), {each.metadata.name: each for each in pods})


A, B = pod("c-a"), pod("c-b", "n2")


# --- failover --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "now", "words"),
    [
        (cluster(), seen(A, B), ""),
        (cluster(), seen(A, phase="crashed"), ""),
        (cluster(deleted=True), seen(A), "demo is being deleted"),
        (cluster(hold=True), seen(A), "release it first with 'seltzer debug demo --release'"),
        (cluster(), seen(A, phase="held"), "release it first with 'seltzer debug demo --release'"),
        (cluster(), seen(A, holder=""), "nobody is the controller of demo right now; see 'seltzer status demo'"),
        (cluster(), seen(pod("c-a", deleting=True)), "already failing over from c-a"),
        (cluster(), seen(A, phase="stopping"), "already failing over from c-a"),
        (cluster(), seen(B), "already failing over from c-a"),
        (cluster(), seen(A, phase="starting"), "just starting on c-a; wait"),
    ],
)
def test_what_cannot_be_moved_is_reported_with_what_to_do(item: SlurmCluster, now: ControllerFacts, words: str) -> None:
    said = failover.obstacle(item, now)
    assert words in said and bool(words) == bool(said)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (seen(pod("c-a", deleting=True), B), "c-a writes its state and ends"),
        (seen(pod("c-a", deleting=True), B, holder=""), "waiting for c-b"),
        (seen(holder=""), "waiting for a new pod"),
        (seen(pod("c-b", state="Unschedulable", words="no node"), holder=""), "pod c-b: no node"),
        (seen(B, holder="c-b", phase="starting"), "c-b on n2 is starting"),
        (seen(B, holder="c-b", phase="blocked", message="full"), "c-b on n2 is blocked: full"),
        (seen(B, holder="c-b"), ""),
    ],
)
def test_it_is_told_what_a_failover_waits_for(now: ControllerFacts, words: str) -> None:
    said = failover.awaited("c-a", now)
    assert words in said and bool(words) == bool(said)


def test_only_a_ready_pod_that_is_not_in_charge_stands_by() -> None:
    assert failover.standbys(seen(A, B, pod("c-c", state="unready"))) == ["c-b"]


# --- debug -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "hold", "words"),
    [
        (seen(A), True, "the operator hasn't passed it on"),
        (seen(A, hold="true"), True, "c-a on n1 is running"),
        (seen(A, hold="true", phase="stopping"), True, "c-a on n1 is stopping"),
        (seen(hold="true", holder=""), True, "nobody is the controller"),
        (seen(A, hold="true", phase="held"), True, ""),
        (seen(A, hold="true", phase="held"), False, "the operator hasn't passed it on"),
        (seen(A, phase="held"), False, "c-a on n1 is held"),
        (seen(A, phase="blocked", message="full"), False, "c-a on n1 is blocked: full"),
        (seen(A), False, ""),
    ],
)
def test_it_is_told_what_a_hold_or_its_release_waits_for(now: ControllerFacts, hold: bool, words: str) -> None:
    said = debug.awaited(now, hold)
    assert words in said and bool(words) == bool(said)


def test_a_person_who_debugs_is_told_where_everything_is() -> None:
    lines = debug.summary(cluster(hold=True, status=SlurmClusterStatus(crash=CRASH)), seen(A, phase="held"), NOW)
    assert lines[0] == "held   slurmctld is down in c-a on n1; jobs that run go on, nobody can submit"
    assert "crash  5m ago: slurmctld was ended by SIGSEGV" in lines
    assert "said   line 4" in lines and "       line 8" in lines, "the last ones"
    assert "in     #0 f0 ()" in lines
    assert "gdb    gdb slurmctld /run/cores/core.7" in lines
    assert any("/run/slurmctld-state/slurmctld.log" in line for line in lines)
    assert lines[-1].endswith("'seltzer debug demo --release'")


def test_without_a_crash_slurmctld_can_be_run_under_gdb() -> None:
    lines = debug.summary(cluster(), seen(A, phase="held"), NOW)
    assert "crash  none is known" in lines
    assert "gdb    gdb --args slurmctld -D -f /etc/slurm/slurm.conf" in lines


# --- who is in charge ------------------------------------------------------------------------------------------------


class Server(Client):
    """An API server with a Lease, or none, and these pods."""

    def __init__(self, found: Lease | None, *pods: Pod) -> None:
        self._lease, self._pods = found, pods

    async def get(self, resource: Resource[Any], name: str, namespace: str = "", **_: Any) -> Any:
        if self._lease is None or (name, namespace) != ("demo-slurmctld", "ns"):
            raise NotFound(404, "NotFound", "no")
        return self._lease

    async def list_all(self, resource: Resource[Any], namespace: str = "", **_: Any) -> Listing[Any]:
        return Listing(list(self._pods), "1")


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (Server(lease("c-b"), A, B), "pod/c-b"),
        (Server(lease("c-b"), A), "deployment/demo-slurmctld"),
        (Server(lease(""), A), "deployment/demo-slurmctld"),
        (Server(None), "deployment/demo-slurmctld"),
    ],
)
async def test_commands_reach_the_slurmctld_in_charge_and_no_standby(server: Server, expected: str) -> None:
    seen = await gather.controller(server, "ns", "demo")
    assert seen.target("demo") == expected


# --- status ----------------------------------------------------------------------------------------------------------

RECOVERED = Recovered(
    time="2026-01-02T11:58:00Z",
    epoch=4,
    groups=(
        RecoveredJobs(outcome="held", why="it had started on n1.", jobs="8", count=1, users="1000"),
        RecoveredJobs(outcome="put-back", why="it had not started", jobs="7,9,20_[1-3]", count=5, users="1000-1001"),
    ),
    more=2,
    earlier=(
        Recovery(
            time="2026-01-02T11:57:00Z",
            groups=(
                RecoveredJobs(outcome="held", why="it had started on n2", jobs="4", count=1),
                RecoveredJobs(outcome="held", why="it had been held", jobs="3", count=1),
            ),
        ),
    ),
)
STATUS = SlurmClusterStatus(
    observed_generation=1,
    controller=ControllerStatus(
        pod="c-a", node="n1", phase="running", epoch=4, standbys=(Standby(pod="c-b", node="n2"),)
    ),
    volume=VolumeStatus(free=3 * 2**30, size=4 * 2**30),
    crash=CRASH,
    recovered=RECOVERED,
)


def drawn(item: SlurmCluster) -> list[str]:
    console = Console(file=io.StringIO(), width=1000)
    console.print(show.tree(tree.tree(tree.Picture(item), NOW)))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_status_tells_who_is_in_charge_what_crashed_and_which_jobs_wait_for_a_person() -> None:
    lines = drawn(cluster(standby=1, status=STATUS))
    at = lines.index("│   ├── slurmctld   unknown")
    assert lines[at + 1 : at + 13] == [
        "│   │   ├── active   c-a on n1, epoch 4",
        "│   │   ├── standby  c-b on n2",
        "│   │   ├── volume   3.0 GiB of 4.0 GiB free",
        "│   │   └── crash  5m ago: slurmctld was ended by SIGSEGV, core /run/cores/core.7",
        "│   │       ├── line 6",
        "│   │       ├── line 7",
        "│   │       ├── line 8",
        "│   │       ├── #0 f0 ()",
        "│   │       ├── #1 f1 ()",
        "│   │       ├── #2 f2 ()",
        "│   │       ├── #3 f3 ()",
        "│   │       └── #4 f4 ()",
    ]
    at = lines.index("├── recovered jobs  after a crash 2m ago")
    assert lines[at + 1 : at + 10] == [
        "│   ├── held  1 job: in the queue, for a person to decide; 'seltzer scontrol --user root demo release 8' "
        "lets it run, 'seltzer scancel --user root demo 8' drops it",
        "│   │   └── it had started on n1 (user 1000): 8",
        "│   ├── put-back  5 jobs: back in the queue",
        "│   │   └── it had not started (users 1000-1001): 7, 9, 20_[1-3]",
        "│   └── 2 more, which /run/slurmctld-state/seltzer.recoveries in slurmctld's container names",
        "├── recovered jobs  after a crash 3m ago",
        "│   └── held  2 jobs: in the queue, for a person to decide; 'seltzer scontrol --user root demo release ID' "
        "lets it run, 'seltzer scancel --user root demo ID' drops it",
        "│       ├── it had started on n2: 4",
        "│       └── it had been held: 3",
    ]


def test_what_is_long_ago_is_for_programs_only() -> None:
    old = SlurmClusterStatus(crash=Crash(time="2025-12-31T00:00:00Z"), recovered=Recovered(time="2025-12-31T00:00:00Z"))
    assert not [line for line in drawn(cluster(status=old)) if "crash" in line or "recovered" in line]
    assert tree.as_data(tree.Picture(cluster(status=old)), NOW)["crash"]


def test_a_held_cluster_and_one_without_a_controller_say_so() -> None:
    lines = drawn(cluster(hold=True, status=SlurmClusterStatus(controller=ControllerStatus(pod="c-a", node="n1"))))
    assert "│   │   ├── was   c-a on n1" in lines
    assert any("'seltzer debug demo --release' lets it go" in line for line in lines)


def test_programs_get_all_of_it() -> None:
    data = json.loads(json.dumps(tree.as_data(tree.Picture(cluster(standby=1, status=STATUS)), NOW)))
    assert (data["hold"], data["wantedStandbys"]) == (False, 1)
    assert data["controller"]["standbys"] == [{"pod": "c-b", "node": "n2"}]
    held = {"outcome": "held", "why": "it had started on n1.", "jobs": "8", "count": 1, "users": "1000"}
    assert data["recovered"]["groups"][0] == held and data["recovered"]["earlier"][0]["groups"][1]["jobs"] == "3"
    assert data["crash"]["core"] == "/run/cores/core.7"
    empty = tree.as_data(tree.Picture(cluster()), NOW)
    assert (empty["controller"], empty["volume"], empty["crash"]) == (None, None, None)
