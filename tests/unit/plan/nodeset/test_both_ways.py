"""What is done about a NodeSet when Kubernetes or Slurm knows more than the other: one look at a time."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.objects import NOW, nodeset, patched, pod, time_at
from tests.builders.plan import GONE, UNKNOWN, machine, seen, slurm
from tests.builders.slurm import node

from seltzer.api.core import ObjectCondition, Pod
from seltzer.api.labels import SLURM_READY
from seltzer.plan.actions import (
    Action,
    CreatePods,
    DeletePods,
    DownNodes,
    DrainNodes,
    PatchPods,
    PodPatch,
    PodRef,
    ResumeNodes,
    SetAddress,
)
from seltzer.plan.nodeset import aging
from seltzer.plan.nodeset import unregistered_pods as oblivion
from seltzer.plan.nodeset.drain_causes import Machine
from seltzer.plan.nodeset.nodeset_plan import NodeSetDecision, decide
from seltzer.plan.nodeset.observation import NodeSetObservation
from seltzer.plan.nodeset.unreachable_pods import suspects
from seltzer.plan.slurm_presence import SlurmState
from seltzer.slurm.models import Node, Number

OURS = "seltzer: Kubernetes node worker"
WELL, CORDONED, SILENT = machine(), machine(cordoned=True), machine("Unknown")
GONER = PodRef("cpu-0", "uid-cpu-0")


def look(known: Node | SlurmState | None, item: Machine | None = WELL, *pods: Pod, **more: Any) -> NodeSetObservation:
    """A NodeSet of one node, on one machine."""
    found = known if isinstance(known, SlurmState) else slurm(*[known] if known else [])
    machines = {"worker": item} if item else {}
    return seen(nodeset(1), *pods or (pod(address="10.0.0.1"),), slurm=found, machines=machines, **more)


def plan(*args: Any, **more: Any) -> NodeSetDecision:
    return decide(look(*args, **more))


def actions(*args: Any, **more: Any) -> tuple[Action, ...]:
    return plan(*args, **more).actions


# --- machines that are cordoned, tainted, unwell or leaving ----------------------------------------------------------


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "ALLOCATED", "IDLE NOT_RESPONDING"])
@pytest.mark.parametrize(
    ("item", "words"),
    [
        (CORDONED, "is cordoned"),
        (machine("False"), "is not ready"),
        (SILENT, "is not heard of"),
        (Machine(None), "is gone"),
        (machine("True", "a=b:NoSchedule"), "has taint a=b:NoSchedule"),
        (machine(MemoryPressure="True"), "is under memory pressure"),
    ],
)
def test_a_node_takes_no_new_jobs_while_its_machine(item: Machine, words: str, state: str) -> None:
    assert actions(node(state=state), item, answers=THERE) == (DrainNodes(("cpu-0",), f"{OURS} {words}"),)


def test_any_number_of_nodes_is_one_call_for_each_machine() -> None:
    pods = [pod(f"cpu-{number}", machine=f"n{number % 2}") for number in range(6)]
    known = slurm(*(node(each.metadata.name) for each in pods))
    machines = {"n0": machine(cordoned=True, name="n0"), "n1": machine(cordoned=True, name="n1")}
    assert decide(seen(nodeset(6), *pods, slurm=known, machines=machines)).actions == (
        DrainNodes(("cpu-0", "cpu-2", "cpu-4"), "seltzer: Kubernetes node n0 is cordoned"),
        DrainNodes(("cpu-1", "cpu-3", "cpu-5"), "seltzer: Kubernetes node n1 is cordoned"),
    )


def test_a_taint_that_the_pods_tolerate_drains_nobody() -> None:
    item = nodeset(1, tolerations=[{"key": "a", "operator": "Exists"}])
    machines = {"worker": machine("True", "a:NoSchedule")}
    assert decide(seen(item, pod(), slurm=slurm(node()), machines=machines)).actions == ()


@pytest.mark.parametrize(
    ("why", "known", "item"),
    [
        ("it is drained for that already", node(state="IDLE DRAIN", reason=f"{OURS} is cordoned"), CORDONED),
        ("slurmctld added its words", node(state="DOWN DRAIN", reason=f"{OURS} is cordoned : Not resp"), CORDONED),
        ("a person drained it", node(state="IDLE DRAIN", reason="disk"), CORDONED),
        ("somebody drained it and said nothing", node(state="MIXED DRAIN"), CORDONED),
        ("a person set it down", node(state="DOWN", reason="fan is loud"), CORDONED),
        ("Slurm is unknown", UNKNOWN, CORDONED),
        ("Slurm is gone", GONE, CORDONED),
        ("Slurm doesn't know it", None, CORDONED),
        ("nothing is known of its machine", node(), None),
        ("a person drained it, and its machine is well", node(state="IDLE DRAIN", reason="disk"), WELL),
        ("a person set it down, and its machine is well", node(state="DOWN", reason="fan is loud"), WELL),
    ],
)
def test_nothing_is_done_if(why: str, known: Node | SlurmState | None, item: Machine | None) -> None:
    assert actions(known, item) == (), why


@pytest.mark.parametrize(
    ("item", "resumes", "timed"),
    [
        (machine(calm=0.0), True, False),
        (machine(calm=0.0, changes=99), False, True),
        (machine(calm=30.0, changes=99), True, False),
        (None, False, True),
    ],
)
def test_a_cordon_that_is_over_is_undone_unless_it_comes_and_goes(
    item: Machine | None, resumes: bool, timed: bool
) -> None:
    found = plan(node(state="IDLE DRAIN", reason=f"{OURS} is cordoned"), item)
    assert found.actions == ((ResumeNodes(("cpu-0",)),) if resumes else ())
    assert bool(found.wakeups) == timed


@pytest.mark.parametrize(
    ("reason", "item", "words"),
    [
        # It was unwell: not before it has been better for as long as a resume would wait.
        ("is not ready", machine(cordoned=True, calm=5.0), "is cordoned"),
        ("is not ready", machine(cordoned=True, calm=4.9), ""),
        ("is not ready : Not responding", machine(cordoned=True, calm=5.0), "is cordoned"),
        # It gets worse, or somebody has decided: at once, so that a resume waits as it should.
        ("is cordoned", machine("False", calm=0.0), "is not ready"),
        ("is cordoned : Not responding", machine("False", calm=0.0), "is not ready"),
        (
            "is cordoned",
            machine("True", "karpenter.sh/disrupted:NoSchedule", cordoned=True, calm=0.0),
            "is about to be removed (taint karpenter.sh/disrupted)",
        ),
        # It can't make up its mind.
        ("is cordoned", machine("False", calm=29.9, changes=6), ""),
        ("is cordoned", machine("False", calm=30.0, changes=6), "is not ready"),
    ],
)
def test_a_cause_that_has_become_another_is_reported_once_its_machine_is_calm(
    reason: str, item: Machine, words: str
) -> None:
    """The first cause once stayed for ever: people looked for what was over, and a resume didn't wait for what came."""
    found = plan(node(state="MIXED DRAIN", reason=f"{OURS} {reason}"), item)
    assert found.actions == ((DrainNodes(("cpu-0",), f"{OURS} {words}"),) if words else ())
    assert bool(found.wakeups) == (not words)


def test_a_cause_of_the_pod_and_one_of_its_machine_take_turns_too() -> None:
    unready = node(state="IDLE DRAIN", reason="seltzer: its pod is not ready")
    assert actions(unready, CORDONED) == (DrainNodes(("cpu-0",), f"{OURS} is cordoned"),)
    cordoned = node(state="IDLE DRAIN", reason=f"{OURS} is cordoned")
    drain = DrainNodes(("cpu-0",), "seltzer: its pod is not ready")
    assert actions(cordoned, WELL, pod(state="unready")) == (drain,)
    found = plan(cordoned, None, pod(state="unready"))
    assert found.actions == (), "nothing is known of its machine"
    assert found.wakeups


def test_one_that_leaves_is_drained_for_that_and_if_it_stays_after_all_for_its_machine_again() -> None:
    leaving = look(node(state="MIXED DRAIN", reason=f"{OURS} is cordoned"), CORDONED)
    gone = decide(seen(nodeset(0), *leaving.pods, slurm=leaving.slurm, machines=leaving.machines))
    assert gone.actions == (DrainNodes(("cpu-0",), "seltzer: scale-in"),)
    known = node(state="MIXED DRAIN", reason="seltzer: scale-in")
    assert actions(known, CORDONED) == (DrainNodes(("cpu-0",), f"{OURS} is cordoned"),)
    assert actions(known, WELL) == (ResumeNodes(("cpu-0",)),)


def test_a_cordon_never_ends_a_job_whatever_its_timeout() -> None:
    """`drain.timeout` is about removals."""
    known = slurm(node(state="MIXED DRAIN", reason=f"{OURS} is cordoned", since=1))
    item = nodeset(1, drain=nodeset().spec.drain.__class__(timeout="1s", on_timeout="kill"))
    assert decide(seen(item, pod(), slurm=known, machines={"worker": CORDONED})).actions == ()


# --- pods that fail, end or are deleted ------------------------------------------------------------------------------


def test_a_pod_that_fails_its_check_takes_no_jobs_until_it_passes_again() -> None:
    reason = "seltzer: its pod is not ready"
    unready = pod(state="unready")
    assert actions(node(), WELL, unready, age=5.0) == (DrainNodes(("cpu-0",), reason),)
    assert actions(node(state="IDLE DRAIN", reason=reason), WELL, unready) == ()
    assert actions(node(state="IDLE DRAIN", reason=reason), WELL, pod(since=NOW)) == (ResumeNodes(("cpu-0",)),)
    soon = plan(node(), WELL, unready, age=4.9)
    assert soon.actions == ()
    assert soon.wakeups, "it will be time"


@pytest.mark.parametrize("reason", ["seltzer: its pod is not ready", f"{OURS} is cordoned", "seltzer: scale-in"])
def test_who_has_just_begun_to_look_at_an_unready_pod_resumes_nothing(reason: str) -> None:
    found = plan(node(state="IDLE DRAIN", reason=reason), WELL, pod(state="unready"), age=0.0)
    assert found.actions == ()
    assert found.wakeups


def test_the_report_of_it_is_no_news_of_its_check() -> None:
    """Or it would begin anew with every word."""
    known = node(state="IDLE DRAIN", reason="seltzer: its pod is not ready")
    item = pod(state="unready")
    (told,) = plan(known, WELL, item).pod_updates
    before, after = look(known, WELL, item), look(known, WELL, patched(item, told.patches[0]))
    assert aging.things(after) == aging.things(before)
    assert len(aging.things(before)) == 1


@pytest.mark.parametrize("item", [pod(state="ended", finished=NOW - 1), pod(state="CrashLoopBackOff", restarts=3)])
def test_the_jobs_of_a_container_that_ended_go_back_to_the_queue(item: Pod) -> None:
    old = Number(set=True, number=int(NOW) - 1000)
    (down,) = actions(node(state="MIXED", started=old), WELL, item)
    assert isinstance(down, DownNodes)
    assert down.reason.startswith("seltzer: slurmd's container ended with exit code 137 (OOMKilled)")
    known = node(state="MIXED DRAIN", reason="disk", started=old)
    assert actions(known, WELL, item) == (DownNodes(("cpu-0",), "disk"),), "a person's reason stays"
    for state, reason in (("DOWN", "seltzer: x"), ("DOWN DRAIN", "disk"), ("MIXED DRAIN", "")):
        assert actions(node(state=state, reason=reason, started=old), WELL, item) == ()


def test_why_it_is_down_stays_while_its_next_container_is_not_ready_yet() -> None:
    known = node(state="DOWN", reason="seltzer: slurmd's container ended (Error)")
    assert actions(known, WELL, pod(state="unready"), age=60.0) == ()
    (drain,) = actions(known, machine(cordoned=True), pod(state="unready"), age=60.0)
    assert drain == DrainNodes(("cpu-0",), f"{OURS} is cordoned"), "what is true of its machine will outlast that"


def test_but_not_those_of_the_next_one_that_its_kubelet_hasnt_reported_yet() -> None:
    item = pod(state="ended", since=NOW - 3, finished=NOW - 3)
    assert actions(node(state="MIXED", started=Number(set=True, number=int(NOW) - 2)), WELL, item, age=0.0) == ()


def test_a_node_that_we_set_down_comes_back_with_its_pod() -> None:
    known = node(state="DOWN", reason="seltzer: slurmd's container ended (Error)")
    assert actions(known, WELL, pod()) == (ResumeNodes(("cpu-0",)),)
    assert actions(known, WELL, pod(state="unready"), age=0.0) == ()
    unheard = node(state="DOWN", reason=f"{OURS} is not heard of")
    assert actions(unheard, machine(calm=5.0), pod()) == (ResumeNodes(("cpu-0",)),)
    for item in (machine(calm=4.0), None):
        found = plan(unheard, item, pod())
        assert found.actions == ()
        assert found.wakeups


def test_a_pod_that_somebody_deletes_takes_no_new_jobs() -> None:
    item = pod(deleting=True)
    drain = DrainNodes(("cpu-0",), "seltzer: its pod is being deleted")
    assert actions(node(state="MIXED"), WELL, item) == (drain,)
    for state, reason in (("MIXED DRAIN", "disk"), ("IDLE DRAIN", "seltzer: scale-in"), ("DOWN", "x")):
        assert actions(node(state=state, reason=reason), WELL, item) == ()


# --- pods that are lost ----------------------------------------------------------------------------------------------

THERE, AWAY = {"cpu-0": True}, {"cpu-0": False}
LOST = {"answers": AWAY}
UNHEARD = f"{OURS} is not heard of"


def test_a_lost_pod_is_set_down_drained_and_deleted_and_another_one_comes_at_once() -> None:
    create = CreatePods(("cpu-1",))
    for known, expected in (
        (node(state="MIXED"), DownNodes(("cpu-0",), UNHEARD)),
        (node(state="MIXED DRAIN", reason=f"{OURS} is cordoned"), DownNodes(("cpu-0",), UNHEARD)),
        (node(state="DOWN", reason=UNHEARD), DrainNodes(("cpu-0",), UNHEARD)),
        (node(state="DOWN", reason="Not responding"), DrainNodes(("cpu-0",), UNHEARD)),
        (node(state="DOWN DRAIN", reason=UNHEARD), DeletePods((GONER,), ask=True)),
        (None, DeletePods((GONER,), ask=True)),
        # A person's reason stays.
        (node(state="MIXED DRAIN", reason="disk"), DownNodes(("cpu-0",), "disk")),
        (node(state="DOWN", reason="fan is loud"), DrainNodes(("cpu-0",), "fan is loud")),
        (node(state="DOWN DRAIN", reason="disk"), DeletePods((GONER,), ask=True)),
    ):
        assert actions(known, SILENT, **LOST) == (expected, create)
        assert plan(known, SILENT, **LOST).wakeups


@pytest.mark.parametrize("gone", [SILENT, Machine(None), machine("")])
def test_jobs_that_are_still_being_taken_off_are_waited_for(gone: Machine) -> None:
    known = node(state="DOWN DRAIN COMPLETING", reason=UNHEARD)
    assert actions(known, gone, **LOST) == (CreatePods(("cpu-1",)),)


@pytest.mark.parametrize(
    ("why", "item", "answers"),
    [
        ("its slurmd answers", SILENT, THERE),
        ("nobody knows whether its slurmd answers", SILENT, {}),
        ("its kubelet is heard of", machine("False"), AWAY),
        ("nothing is known of its machine", None, AWAY),
    ],
)
def test_a_pod_isnt_lost_if(why: str, item: Machine | None, answers: dict[str, bool]) -> None:
    found = actions(node(state="MIXED"), item, answers=answers)
    assert not any(isinstance(each, DownNodes | DeletePods | CreatePods) for each in found), why


@pytest.mark.parametrize("known", [node(), None])
@pytest.mark.parametrize("state", ["ready", "waiting"])
def test_a_pod_whose_machine_isnt_known_yet_is_left_alone_and_looked_at_again(known: Node | None, state: str) -> None:
    found = plan(known, None, pod(state=state))
    assert found.actions == ()
    assert found.wakeups


def test_nothing_is_done_about_a_lost_pod_while_slurm_is_unknown() -> None:
    assert actions(UNKNOWN, SILENT, **LOST) == ()


def test_a_pod_whose_machine_dies_before_it_has_an_address_is_lost_too() -> None:
    waiting = pod(state="waiting")
    assert suspects(look(None, SILENT, waiting)) == {}
    expected = (DeletePods((GONER,), ask=True), CreatePods(("cpu-1",)))
    assert actions(None, SILENT, waiting, answers={}) == expected, "there is nobody to ask"
    assert actions(UNKNOWN, SILENT, waiting, answers={}) == ()
    assert actions(None, machine("False"), waiting, answers={}) == ()
    # Its kubelet was cut off before it could tell that it runs: Slurm knows where.
    known = node(state="MIXED", address="10.0.0.7")
    assert suspects(look(known, SILENT, waiting)) == {"cpu-0": "10.0.0.7"}
    assert actions(known, SILENT, waiting, answers=THERE) == (DrainNodes(("cpu-0",), UNHEARD),)


def test_a_pod_of_which_only_a_name_is_known_isnt_asked_and_isnt_lost() -> None:
    """The guard takes addresses alone, and one name would be no answer about all others."""
    waiting = pod(state="waiting")
    known = node(state="MIXED", address="cpu-0")
    assert suspects(look(known, SILENT, waiting)) == {}
    for answers in ({}, THERE, AWAY):
        assert actions(known, SILENT, waiting, answers=answers) == (DrainNodes(("cpu-0",), UNHEARD),)


def test_the_jobs_of_a_lost_pod_that_somebody_deleted_before_dont_hang() -> None:
    item = pod(deleting=True, address="10.0.0.1")
    known = node(state="MIXED DRAIN", reason="seltzer: its pod is being deleted")
    assert suspects(look(known, SILENT, item)) == {"cpu-0": "10.0.0.1"}
    assert actions(known, SILENT, item, **LOST) == (DownNodes(("cpu-0",), UNHEARD), CreatePods(("cpu-1",)))
    over = node(state="DOWN DRAIN", reason=UNHEARD)
    assert suspects(look(over, SILENT, item)) == {}, "or it would be asked for ever"


def test_its_name_isnt_used_while_its_object_is_there() -> None:
    """It may wake up on its machine."""
    going = pod(deleting=True)
    known = node(state="DOWN DRAIN", reason=UNHEARD)
    assert actions(known, SILENT, going) == (CreatePods(("cpu-1",)),)
    assert actions(known, WELL, going) == (), "its kubelet is there: it will be gone in a moment"


def test_a_pod_that_is_given_up_as_lost_is_reported_with_where_to_ask_once_more() -> None:
    (down,) = actions(node(state="MIXED"), SILENT, **LOST)[:1]
    assert isinstance(down, DownNodes)
    assert down.silent == {"cpu-0": "10.0.0.1"}


@pytest.mark.parametrize("state", ["created", "Unschedulable", "waiting", "ImagePullBackOff", "unready"])
@pytest.mark.parametrize("drained", ["IDLE DRAIN", "DOWN"])
def test_a_node_gets_no_jobs_before_the_slurmd_of_its_new_pod_is_there(state: str, drained: str) -> None:
    """A waiting job names it, so its record has outlived its last pod, whose address it still has."""
    known = node(state=drained, reason="seltzer: its pod is being deleted", address="10.0.0.9")
    found = plan(known, WELL, pod(state=state), named=frozenset({"cpu-0"}), age=0.0)
    assert not [each for each in found.actions if isinstance(each, ResumeNodes)]
    ready = actions(known, WELL, pod(address="10.0.0.1"), named=frozenset({"cpu-0"}))
    assert ResumeNodes(("cpu-0",)) in ready


@pytest.mark.parametrize(
    ("added", "undone"),
    [
        ("", True),
        (" : Not responding", True),
        (" : Kill task failed", False),
        (" : Not responding : gres/gpu count reported lower than configured (1 < 2)", False),
    ],
)
def test_what_slurmctld_has_added_to_our_reason_is_not_undone_with_it(added: str, undone: bool) -> None:
    known = node(state="IDLE DRAIN", reason=f"{OURS} is cordoned{added}")
    assert actions(known) == ((ResumeNodes(("cpu-0",)),) if undone else ())


# --- what slurmctld lost, forgot or believes -------------------------------------------------------------------------


def test_a_node_that_slurmctld_gave_up_in_an_outage_comes_back_when_its_slurmd_answers() -> None:
    known = node(state="DOWN NOT_RESPONDING", reason="Not responding")
    assert suspects(look(known)) == {"cpu-0": "10.0.0.1"}
    assert actions(known, answers=THERE) == (ResumeNodes(("cpu-0",)),)
    for answers in (AWAY, {}):
        found = plan(known, answers=answers)
        assert found.actions == ()
        assert found.wakeups
    unready = pod(state="unready", address="10.0.0.1")
    assert actions(known, WELL, unready, answers=THERE, age=0.0) == ()


@pytest.mark.parametrize(
    ("state", "reason"), [("DOWN", "Node unexpectedly rebooted"), ("DOWN DRAIN", "Not responding")]
)
def test_one_that_is_down_for_another_reason_doesnt(state: str, reason: str) -> None:
    known = node(state=state, reason=reason)
    assert suspects(look(known)) == {}
    assert actions(known, answers=THERE) == ()


def forgotten(since: float = NOW - 100) -> Pod:
    told = ObjectCondition(type=SLURM_READY, status="False", reason="Forgotten", last_transition_time=time_at(since))
    return patched(pod(since=NOW - 500), PodPatch("cpu-0", "uid-cpu-0", {}, {}, (told,)))


@pytest.mark.parametrize(("age", "goes"), [(8.0, True), (7.9, False)])
@pytest.mark.parametrize("skew", [-3600.0, 0.0, 3600.0])
def test_a_pod_whose_record_somebody_deleted_is_made_again(age: float, goes: bool, skew: float) -> None:
    """Long after slurmctld started, and before the pod became ready: only what it says itself proves it. What time it
    was for whoever wrote that doesn't matter."""
    found = plan(None, WELL, forgotten(NOW + skew), controller_started=NOW - 1000 + skew, age=age)
    assert found.actions == ((DeletePods((GONER,), ask=True),) if goes else ())
    assert found.wakeups
    assert plan(None, WELL, forgotten(), controller_started=None).actions == (), "slurmctld may just have begun"


def test_a_forgotten_pod_is_another_thing_when_it_is_forgotten_again() -> None:
    first, second = look(None, WELL, forgotten()), look(None, WELL, forgotten(NOW - 50))
    begun, again = oblivion.aging(first), oblivion.aging(second)
    assert begun and again and begun != again
    assert oblivion.aging(look(None, WELL, pod())) == [], "of one that was never known nothing is waited for"


@pytest.mark.parametrize(
    ("address", "moves"),
    [("10.9.9.9", True), ("10.0.0.1", False), ("", False), ("cpu-0", False), ("cpu-0-host", False)],
)
def test_an_address_that_isnt_true_any_more_is_corrected(address: str, moves: bool) -> None:
    known = node(address=address, hostname="cpu-0-host")
    assert actions(known) == ((SetAddress(("cpu-0",), "10.0.0.1"),) if moves else ())
    assert actions(known, WELL, pod(state="unready", address="10.0.0.1"), age=0.0) == ()
    assert actions(known, WELL, pod(address="")) == ()


# --- Slurm to Kubernetes ---------------------------------------------------------------------------------------------


def test_what_slurm_knows_is_reported_and_pods_that_go_tell_nothing_more() -> None:
    (told,) = plan(node(state="MIXED"), free_at={"cpu-0": None}).pod_updates
    assert isinstance(told, PatchPods)
    assert [patch.name for patch in told.patches] == ["cpu-0"]
    assert plan(node(state="MIXED"), WELL, pod(deleting=True)).pod_updates == ()
    assert plan(UNKNOWN).pod_updates == ()


def test_it_is_looked_at_again_until_a_node_counts_as_idle() -> None:
    busy = node(state="MIXED")
    item = patched(pod(), plan(busy, WELL, pod()).pod_updates[0].patches[0])
    assert plan(node(busy_until=Number(set=True, number=int(NOW) - 1)), WELL, item).wakeups
    assert not plan(node(busy_until=Number(set=True, number=int(NOW) - 60)), WELL, item).wakeups
