"""What `seltzer nodes`, `drain` and `resume` make of what Slurm and Kubernetes tell, and of what they don't."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from rich.console import Console
from tests.fakes.facts_things import CLOCK, cluster, drained, job, known, machine, pod, slurm
from tests.fakes.plan_model.things import node, nodeset, patched

from seltzer.api.core import ObjectCondition, Pod
from seltzer.api.labels import SLURM_READY
from seltzer.cli import drain, facts, kubectl, nodes, nodes_table
from seltzer.cli.drain import Target
from seltzer.cli.facts import Facts
from seltzer.cli.kube import Place
from seltzer.errors import SeltzerError
from seltzer.kube.client import Client, Listing
from seltzer.kube.errors import Forbidden, NotFound
from seltzer.kube.resource import Resource
from seltzer.plan.nodeset import pod_conditions
from seltzer.slurm import snapshot
from seltzer.slurm.errors import Unavailable
from seltzer.slurm.models import Node
from seltzer.slurm.snapshot import Job, Question, Snapshot

MARK = "\x1fmark\x1f"

# --- what Slurm's commands print -------------------------------------------------------------------------------------

JOB = {
    "JobArrayID": "12_[3-5%2]",
    "JobID": "12",
    "UserName": "ann",
    "Name": "train",
    "State": "PENDING",
    "Reason": "Resources",
    "Partition": "cpu",
    "NodeList": "",
    "ReqNodes": "cpu-[0-1]",
    "StartTime": "N/A",
    "EndTime": "NONE",
    "SubmitTime": "1794811331",
    "EligibleTime": "1794811331",
    "TimeLimit": "1-02:03:04",
    "Requeue": "1",
    "NumCPUs": "4",
    "NumNodes": "2-3",
    "Feature": "(null)",
    "Dependency": "(null)",
    "PriorityLong": "77",
    "admin_comment": "",
}
NODES = '{"nodes": [{"name": "cpu-0", "state": ["IDLE"], "reason": "bad\\u001b[2J\\ndisk", "address": "10.0.0.1"}]}'
PARTITIONS = (
    '{"partitions": [{"name": "cpu", "nodes": {"configured": "cpu-0", "total": 1}, "partition": {"state": ["UP"]},'
    ' "maximums": {"time": {"set": true, "infinite": false, "number": 60},'
    ' "nodes": {"set": false, "infinite": true}}}]}'
)


def printed(*jobs: dict[str, str], now: str = str(CLOCK), told: str = NODES, mark: str = MARK) -> str:
    lines = "\n".join("".join(f"{value}{mark}" for value in each.values()) for each in jobs)
    return f"{now}{mark}{told}{mark}{PARTITIONS}{mark}{lines}{mark}"


def read(text: str) -> Snapshot:
    return Question(MARK).read(text)


def test_the_answer_of_slurms_commands_is_read() -> None:
    told = read(
        printed(JOB, {**JOB, "JobArrayID": "13", "JobID": "13", "NodeList": "cpu-[0-1]", "EndTime": "1794811399"})
    )
    waiting, running = told.jobs
    assert told.now == CLOCK
    assert (waiting.id, waiting.number, waiting.user, waiting.name) == ("12_[3-5%2]", 12, "ann", "train")
    assert (waiting.state, waiting.reason, waiting.pending) == ("PENDING", "Resources", True)
    assert (waiting.wants, waiting.nodes, waiting.features) == (("cpu-0", "cpu-1"), (), "")
    assert (waiting.start, waiting.end, waiting.submit, waiting.limit) == (None, None, 1794811331, 93784)
    assert (waiting.cpus, waiting.node_count, waiting.requeue, waiting.priority) == (4, 2, True, 77)
    assert (running.nodes, running.end) == (("cpu-0", "cpu-1"), 1794811399)
    assert (told.partitions["cpu"].most_seconds, told.partitions["cpu"].most_nodes) == (3600, None)
    assert told.partitions["cpu"].state == "UP"


def test_no_job_is_an_answer_too() -> None:
    assert read(printed()).jobs == ()


def test_what_comes_behind_the_end_is_somebody_elses() -> None:
    assert len(read(printed(JOB) + "E1116 websocket.go:296] Unknown stream id 1").jobs) == 1


def test_a_jobs_name_may_hold_anything_and_does_no_harm() -> None:
    (odd,) = read(printed({**JOB, "Name": "a\nb\x1fc \x1b[31m\u202e"})).jobs
    assert odd.name == "a b c [31m"
    assert read(printed()).nodes["cpu-0"].reason == "bad [2J disk"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing of the kind",
        printed(JOB)[:-30],
        printed(JOB).replace(f"train{MARK}", ""),
        printed({**JOB, "JobArrayID": "what"}),
        printed({**JOB, "NumCPUs": "many"}),
        printed({**JOB, "SubmitTime": "yesterday"}),
        printed({**JOB, "NodeList": "cpu-["}),
        printed(told='{"nodes": [{"name": '),
        printed(told='{"errors": []}'),
        printed(now="soon"),
    ],
)
def test_half_an_answer_is_none(text: str) -> None:
    with pytest.raises(Unavailable):
        read(text)


def test_nobody_can_guess_what_separates_the_fields() -> None:
    one, other = snapshot.question(), snapshot.question()
    assert one.mark != other.mark and len(one.mark) >= 16
    assert one.mark == one.command[4] and one.mark in one.command[-1]
    assert snapshot.question(ended=True).command[-1] == "--states=all"


# --- who and why -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "by", "who", "why"),
    [
        ("seltzer: Kubernetes node n2 is cordoned", "root", "Seltzer", "Kubernetes node n2 is cordoned"),
        ("seltzer: scale-in", "slurm", "Seltzer", "scale-in"),
        ("seltzer: scale-in : Not responding", "slurm", "Seltzer", "scale-in : Not responding"),
        ("seltzer: scale-in : Kill task failed", "slurm", "Slurm", "scale-in : Kill task failed"),
        ("Not responding", "slurm", "Slurm", "Not responding"),
        ("gres/gpu count reported lower than configured (0 < 2)", "slurm", "Slurm", None),
        ("bad disk [ann]", "slurm", "ann", "bad disk"),
        ("seltzer drain by ann", "slurm", "ann", ""),
        ("bad disk", "root", "root", "bad disk"),
        ("bad disk [rack 7]", "bob", "bob", "bad disk [rack 7]"),
        ("", "root", "", ""),
    ],
)
def test_it_is_told_who_set_a_reason(reason: str, by: str, who: str, why: str | None) -> None:
    found = drained(reason=reason, by=by)
    assert (facts.who(found), facts.why(found)) == (who, reason if why is None else why)


def test_a_drain_of_ours_is_signed_so_that_it_is_told_from_slurms_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "ann[x]")
    assert drain.sign("bad disk") == "bad disk [annx]"
    assert facts.who(drained(reason=drain.sign("bad disk"))) == "annx"
    assert drain.sign(drain.checked_reason(None)) == "seltzer drain by ann[x]"
    assert facts.who(drained(reason=drain.sign("see [ticket 7]"))) == "annx"


def test_nodes_are_in_natural_order_whoever_knows_them() -> None:
    told = slurm(node("cpu-10"), node("cpu-2"), node("big-0"))
    assert known(told, pod("cpu-9"), pod("cpu-2")).names == ["big-0", "cpu-2", "cpu-9", "cpu-10"]


# --- asking ----------------------------------------------------------------------------------------------------------


class Server(Client):
    """An API server with these objects, of which some kinds aren't for everybody."""

    def __init__(self, *items: Any, forbidden: Sequence[str] = ()) -> None:
        self._items, self._forbidden = items, forbidden

    async def list_all(self, resource: Resource[Any], namespace: str = "", **_: Any) -> Listing[Any]:
        if resource.kind in self._forbidden or f"{resource.kind} in {namespace}" in self._forbidden:
            raise Forbidden(403, "Forbidden", "not for you")
        found = [each for each in self._items if isinstance(each, resource.type)]
        return Listing([each for each in found if namespace in ("", each.metadata.namespace)], "1")

    async def get(self, resource: Resource[Any], name: str, namespace: str = "", **_: Any) -> Any:
        raise NotFound(404, "NotFound", name)


PLACE = Place(config=None, namespace="ns")  # type: ignore[arg-type]  # nobody connects
ALL = (cluster(), nodeset(2), pod("cpu-0"), machine("n1"))


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> list[str | SeltzerError]:
    """What slurmctld's commands print: change its only element. JSON stands for what scontrol tells of nodes."""
    answers: list[str | SeltzerError] = [NODES]

    def output(place: Place, pod: str, container: str, command: Sequence[str]) -> str:
        assert (place.namespace, pod, container) == ("ns", "deployment/demo-slurmctld", "slurmctld")
        if isinstance(answers[0], SeltzerError):
            raise answers[0]
        return answers[0] if answers[0] == "half" else printed(told=answers[0], mark=command[4])

    monkeypatch.setattr(kubectl, "output", output)
    return answers


async def test_both_sides_are_asked(answer: list[Any]) -> None:
    found = await facts.look(Server(*ALL), PLACE, "demo")
    assert (found.names, found.gaps, found.silence) == (["cpu-0"], (), "")
    assert found.slurm is not None and found.slurm.now == CLOCK
    assert found.machine("cpu-0") == machine("n1")


async def test_a_slurm_that_does_not_answer_is_told_and_the_rest_is_known(answer: list[Any]) -> None:
    answer[0] = SeltzerError("Unable to contact slurm controller (connect failure)")
    found = await facts.look(Server(*ALL), PLACE, "demo")
    assert found.slurm is None
    assert found.gaps == ("Slurm can't be asked: Unable to contact slurm controller (connect failure)",)
    assert found.names == ["cpu-0"]


async def test_half_a_list_of_slurms_is_none(answer: list[Any]) -> None:
    answer[0] = "half"
    assert "cut off" in (await facts.look(Server(*ALL), PLACE, "demo")).silence


async def test_what_one_may_not_see_is_unknown_and_not_none(answer: list[Any]) -> None:
    answer[0] = SeltzerError("Error from server (Forbidden): pods is forbidden")
    found = await facts.look(Server(*ALL, forbidden=["Node", "Pod", "Event"]), PLACE, "demo")
    assert (found.machines, found.pods, found.slurm) == (None, None, None)
    assert found.silence == "Slurm can't be asked: you may not run commands in slurmctld's pod"
    assert set(found.gaps[1:]) == {
        "you may not see Kubernetes' nodes",
        "you may not see the pods in namespace ns",
        "you may not see slurmctld's Lease and pods",
        "you may not see Events",
    }


async def test_pods_of_a_guest_that_can_not_be_seen_make_all_pods_unknown(answer: list[Any]) -> None:
    home = cluster(nodeSets={"namespaces": ["guest"]})
    found = await facts.look(Server(home, *ALL[1:], forbidden=["Pod in guest"]), PLACE, "demo", happened=False)
    assert (found.pods, found.gaps) == (None, ("you may not see the pods in namespace guest",))
    assert [each.pod for each in nodes.rows(found)] == ["?"], "it has a pod or none: nobody knows"


# --- rows ------------------------------------------------------------------------------------------------------------


def row(found: Facts, name: str = "cpu-0") -> nodes_table.Row:
    (one,) = [each for each in nodes.rows(found) if each.name == name]
    return one


def test_a_node_is_told_as_both_sides_see_it() -> None:
    told = slurm(
        drained(state="MIXED DRAIN"),
        job("7", "RUNNING", "cpu-0"),
        job("8", "RUNNING", "cpu-0", "cpu-1", end=CLOCK + 7200),
    )
    one = row(known(told, pod("cpu-0", "n2"), machines=[machine("n2", cordoned=True)]))
    assert (one.nodeset, one.pod, one.machine) == ("cpu", "Running", "n2 (cordoned)")
    assert (one.kind, one.state, one.jobs, one.free) == ("draining", "draining", "7 8", "in 2h")
    assert (one.by, one.reason) == ("ann 5m ago", "bad disk")


@pytest.mark.parametrize(
    ("record", "kind", "words"),
    [
        (node(state="IDLE"), "idle", "idle"),
        (node(state="IDLE DRAIN"), "drained", "drained"),
        (node(state="MIXED DRAIN"), "draining", "draining"),
        (node(state="DOWN"), "down", "down"),
        (node(state="DOWN DRAIN"), "down", "down, drained"),
        (node(state="IDLE NOT_RESPONDING"), "down", "idle, not responding"),
        (node(state="IDLE RESERVED"), "idle", "idle, reserved"),
        (node(state="UNKNOWN"), "other", "unknown"),
        (None, "unknown", "no record"),
    ],
)
def test_every_state_has_words(record: Node | None, kind: str, words: str) -> None:
    assert (nodes.kind(record), nodes.state_words(record)) == (kind, words)


@pytest.mark.parametrize(
    ("jobs", "free"),
    [
        ([], "now"),
        ([job("7", "RUNNING", "cpu-0"), job("8", "RUNNING", "cpu-0", end=None)], "unlimited"),
        ([job("7", "RUNNING", "cpu-0", end=CLOCK - 5)], "any moment"),
        ([job("7", "COMPLETED", "cpu-0", end=CLOCK + 900)], "now"),
        ([job("7", "RUNNING", "cpu-1")], "now"),
    ],
)
def test_a_node_is_free_when_its_longest_job_reaches_its_limit(jobs: list[Job], free: str) -> None:
    assert row(known(slurm(node(), *jobs), pod("cpu-0"))).free == free


def test_many_jobs_are_counted() -> None:
    jobs = [job(str(each), "RUNNING", "cpu-0") for each in range(1, 6)]
    assert row(known(slurm(node(), *jobs), pod("cpu-0"))).jobs == "1 2 +3"


@pytest.mark.parametrize(
    ("found", "pod_word", "state", "words"),
    [
        (known(slurm(node())), "none", "idle", "Slurm has a record of it, but there is no pod"),
        (known(slurm(node(comment="mine"))), "none", "idle", "not one of Seltzer's"),
        (known(slurm(), pod("cpu-0")), "Running", "no record", "it hasn't registered with slurmctld"),
        (known(slurm(), pod("cpu-0", deleting=True)), "Terminating", "no record", "its pod goes"),
        (known(slurm(node()), pod("cpu-0", state="unready")), "NotReady", "idle", ""),
        (
            known(slurm(node(address="10.0.0.1")), pod("cpu-0", address="10.0.0.2")),
            "Running",
            "idle",
            "Slurm looks for it at 10.0.0.1, but its pod has 10.0.0.2",
        ),
        (
            known(slurm(), pod("cpu-0", state="Unschedulable", words="0/2 nodes fit. preemption: 0/2 nodes help.")),
            "Unschedulable",
            "no record",
            "0/2 nodes fit; add Kubernetes nodes, or ask for less",
        ),
    ],
)
def test_what_only_one_side_knows_is_a_row_and_says_so(found: Facts, pod_word: str, state: str, words: str) -> None:
    one = row(found)
    assert (one.pod, one.state, one.reason) == (pod_word, state, words)


def test_where_slurm_can_not_be_asked_what_it_told_last_has_a_question_mark() -> None:
    silent = pod("cpu-1")
    told = ObjectCondition(type=SLURM_READY, status="False", reason="Drained", message="bad disk")
    status = msgspec.structs.replace(silent.status, conditions=(*silent.status.conditions, told))
    silent = msgspec.structs.replace(silent, status=status)
    found = known(None, pod("cpu-0"), silent)
    assert (row(found).kind, row(found).state, row(found).jobs, row(found).free) == ("unknown", "?", "?", "?")
    assert row(found, "cpu-1").state == "drained?"
    (taken_back,) = pod_conditions.unknown([silent], "2027-01-15T08:00:00Z")
    later = known(None, pod("cpu-0"), patched(silent, taken_back.patches[0]))
    assert row(later, "cpu-1").state == "drained?", "also when the pod says that nobody knows"


def test_a_machine_that_is_gone_or_unknown_is_told_apart() -> None:
    assert row(known(slurm(node()), pod("cpu-0"), machines=[])).machine == "n1 (gone)"
    assert row(replace(known(slurm(node()), pod("cpu-0")), machines=None)).machine == "n1"
    assert row(known(slurm(node()), pod("cpu-0"), machines=[machine("n1", "Unknown")])).machine == "n1 (not heard of)"


def test_states_are_asked_for_by_name() -> None:
    assert set(nodes.states(None)) == set(nodes_table.STATES)
    assert set(nodes.states("Drained, down")) == {"drained", "down"}
    assert {"draining", "drained"} <= set(nodes.states("drain"))
    with pytest.raises(SeltzerError, match="'drainde' is no state of a node; did you mean 'drained'"):
        nodes.states("drainde")


# --- the table -------------------------------------------------------------------------------------------------------


def shown(found: Facts, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    nodes_table.print_rows(console, nodes.rows(found), len(found.names))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


POOL = known(
    slurm(drained(), node("cpu-1", "MIXED"), job("7", "RUNNING", "cpu-1")), pod("cpu-0"), pod("cpu-1", "n2")
)  # fmt: skip


def test_a_pipe_gets_one_whole_line_per_node() -> None:
    long = known(slurm(drained(reason=f"{'long ' * 100}story")), pod("cpu-0"))
    assert shown(POOL, 100_000) == [
        "NODE   POD      ON  STATE    JOBS  FREE   REASON",
        "cpu-0  Running  n1  drained  -     now    ann 5m ago: bad disk",
        "cpu-1  Running  n2  mixed    7     in 5m",
    ]
    assert shown(long, 100_000)[1].endswith("story")


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 120])
def test_a_table_fits_and_never_loses_a_node_its_state_or_a_reason(width: int) -> None:
    lines = shown(POOL, width)
    assert all(len(line) <= max(width, 48) for line in lines)
    for name, state in (("cpu-0", "drained"), ("cpu-1", "mixed")):
        assert any(line.startswith(name) and state in line for line in lines)
    assert any("bad disk" in line for line in lines)


def test_where_there_is_no_room_beside_a_node_the_reason_comes_below_it() -> None:
    assert shown(POOL, 45)[1:3] == ["cpu-0  Running  n1  drained  -     now", "  ann 5m ago: bad disk"]


def test_the_end_of_a_long_list_counts() -> None:
    rows = nodes.rows(POOL)
    assert nodes_table.summary(rows, 2) == "2 nodes: 1 mixed, 1 drained"
    assert nodes_table.summary(rows[:1], 2) == "1 of 2 nodes: 1 drained"


def test_programs_get_everything_and_null_for_what_nobody_knows() -> None:
    data = json.loads(json.dumps(nodes.as_data(POOL, POOL.names)))
    first, second = data["nodes"]
    assert (data["cluster"], data["unknown"], first["name"], first["nodeSet"]) == ("demo", [], "cpu-0", "cpu")
    assert (first["state"], first["slurm"]["reasonSetBy"], first["slurm"]["reasonTime"]) == (
        "drained",
        "ann",
        "2001-09-09T01:42:40+00:00",
    )
    assert (second["jobs"], second["freeAt"], second["kubernetesNode"]["cordoned"]) == (
        ["7"],
        "2001-09-09T01:52:40+00:00",
        False,
    )
    (blind,) = json.loads(json.dumps(nodes.as_data(known(None, pod("cpu-0")), ["cpu-0"])))["nodes"]
    assert (blind["slurm"], blind["jobs"], blind["state"]) == (None, None, "unknown")


# --- drain and resume ------------------------------------------------------------------------------------------------


def target(found: Facts, *names: str, nodeset: str = "") -> Target:
    return Target(PLACE, found, names or found.names, nodeset)


async def test_a_nodesets_name_stands_for_all_of_its_nodes_but_a_nodes_name_wins(answer: list[Any]) -> None:
    records = [{"name": name, "state": ["IDLE"], "comment": "seltzer ns/cpu"} for name in ("cpu-0", "cpu-1", "cpu-2")]
    answer[0] = json.dumps({"nodes": records})

    async def find(word: str, *pods: Pod, sets: Sequence[str] = ("cpu",)) -> Target:
        server = Server(cluster(), *(nodeset(2, name=each) for each in sets), *pods)
        return await drain.find(server, PLACE, word)

    pool = await find("cpu", pod("cpu-0"), pod("cpu-1"))
    assert (pool.names, pool.nodeset, pool.word) == (["cpu-0", "cpu-1", "cpu-2"], "cpu", "cpu")
    one = await find("cpu-1", pod("cpu-0"), pod("cpu-1"), sets=("cpu", "cpu-1"))
    assert (one.names, one.nodeset) == (["cpu-1"], "")
    with pytest.raises(SeltzerError, match="no node 'gpu' in namespace 'ns', nor a NodeSet; did you mean 'cpu'"):
        await find("gpu", pod("cpu-0"))
    with pytest.raises(SeltzerError, match="NodeSet 'big' has no nodes"):
        await find("big", pod("cpu-0"), sets=("cpu", "big"))


async def test_nothing_is_drained_where_slurm_can_not_be_asked(answer: list[Any]) -> None:
    answer[0] = SeltzerError("no answer")
    with pytest.raises(SeltzerError, match="Slurm can't be asked: no answer"):
        await drain.find(Server(*ALL), PLACE, "cpu-0")


def test_the_drain_of_a_nodeset_leaves_what_others_said_about_its_nodes() -> None:
    found = known(
        slurm(node("cpu-0"), drained("cpu-1"), drained("cpu-2", "seltzer: Kubernetes node n2 is cordoned")),
        pod("cpu-3"),
    )
    names, notes = drain.drainable(target(found, nodeset="cpu"))
    assert names == ["cpu-0", "cpu-2"]
    assert notes == [
        "Slurm doesn't know cpu-3 yet: nothing to do there",
        "cpu-1 is drained already, and stays so (ann: bad disk)",
    ]
    assert drain.drainable(target(found, "cpu-1")) == (["cpu-1"], []), "who names a node means it"


def test_the_resume_of_a_nodeset_resumes_what_is_drained_or_down_and_tells_the_rest() -> None:
    found = known(slurm(node("cpu-0"), drained("cpu-1"), node("cpu-2", "DOWN"), node("cpu-3", "IDLE NOT_RESPONDING")))
    names, notes = drain.resumable(target(found, nodeset="cpu"))
    assert names == ["cpu-1", "cpu-2"]
    assert notes == ["cpu-[0,3] is neither drained nor down: nothing to resume there"]
    with pytest.raises(SeltzerError, match="cpu-0 is neither drained nor down, so there is nothing to resume"):
        drain.resumable(target(found, "cpu-0"))
    with pytest.raises(SeltzerError, match="no node of cpu is drained or down, so there is nothing to resume"):
        drain.resumable(target(known(slurm(node("cpu-0"))), nodeset="cpu"))


def test_a_node_that_slurm_does_not_know_is_told_with_what_keeps_it() -> None:
    stuck = known(slurm(), pod("cpu-0", state="Unschedulable", words="0/2 nodes fit"))
    with pytest.raises(SeltzerError, match="Slurm doesn't know cpu-0: pod cpu-0: 0/2 nodes fit"):
        drain.drainable(target(stuck, "cpu-0"))
    with pytest.raises(SeltzerError, match="Slurm doesn't know cpu-0 yet; see 'seltzer explain cpu-0'"):
        drain.drainable(target(known(slurm(), pod("cpu-0")), "cpu-0"))


def test_a_resume_of_what_seltzer_will_drain_again_says_so() -> None:
    found = known(
        slurm(
            drained("cpu-0", "seltzer: Kubernetes node n2 is cordoned"),
            drained("cpu-1"),
            drained("cpu-2", "seltzer: scale-in"),
            drained("cpu-3"),
        ),
        pod("cpu-0", "n2"),
        pod("cpu-1", "n2"),
        pod("cpu-2"),
        pod("cpu-3"),
        machines=[machine("n1"), machine("n2", cordoned=True)],
    )
    assert drain.warnings(found, found.names) == [
        "note: Seltzer drains cpu-[0-1] again for as long as this is so: Kubernetes node n2 is cordoned",
        "note: Seltzer drains cpu-2 again for as long as this is so: scale-in",
    ]


def test_all_nodes_are_changed_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, Sequence[str]]] = []
    monkeypatch.setattr(kubectl, "output", lambda place, pod, container, command: calls.append((pod, command)))
    drain.update(PLACE, POOL, ["cpu-0", "cpu-1", "cpu-10"], ("State=RESUME",))
    assert calls == [("deployment/demo-slurmctld", ("scontrol", "update", "NodeName=cpu-[0-1,10]", "State=RESUME"))]
