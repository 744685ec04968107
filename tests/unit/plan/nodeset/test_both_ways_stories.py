"""What goes wrong between Kubernetes and Slurm, as short stories in the model world: what it costs, and how it ends."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from tests.fakes.plan_model.operator import Operator
from tests.fakes.plan_model.pods import ModelPod
from tests.fakes.plan_model.records import Record
from tests.fakes.plan_model.world import MACHINES, Peace, World

from seltzer.api.labels import BUSY, FREE_AT, SLURM_READY
from seltzer.plan.actions import DownNodes, DrainNodes, ResumeNodes, SetAddress

AS_IT_IS = Peace(mended=False, jobs_end=False, notices=False)
QUICK = [1, 3, 5, 7, 15]


class Story:
    """A NodeSet with a node on each machine. Every second everybody does what should be done, the operator too."""

    def __init__(self, replicas: int = 3) -> None:
        self.world = World()
        self.operator = Operator(self.world)
        self.world.want(replicas=replicas)
        self.seconds(5)
        assert {pod.machine for pod in self.world.pods.values()} == set(list(MACHINES)[:replicas])
        assert all(self.takes_jobs(name) for name in self.world.pods)
        self.operator.calls.clear()

    def seconds(self, count: int = 1) -> None:
        """Time passes, second by second; jobs run, and nobody does anything unusual."""
        world = self.world
        for _ in range(count):
            for name in list(world.pods):
                world.vanish(name)
            for name in world.pods:
                world.start(name)
                world.report(name, ready=world.pods[name].shown != "unready")
                world.register(name)
            self.operator.work()
            world.now += 1

    def kinds(self) -> list[str]:
        """The calls to Slurm."""
        return [type(call).__name__.removesuffix("Nodes") for call in self.operator.calls]

    def record(self, name: str = "cpu-0") -> Record:
        return self.world.records[name]

    def pod(self, name: str = "cpu-0") -> ModelPod:
        return self.world.pods[name]

    def takes_jobs(self, name: str = "cpu-0") -> bool:
        record = self.record(name)
        return not record.drained and not record.down

    def ends_well(self) -> None:
        """Whatever comes now, it comes to rest."""
        for peace in (Peace(), AS_IT_IS):
            copy.deepcopy(self.operator).settle(peace)


# --- who can't make up its mind --------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", QUICK)
def test_a_flapping_machine_is_drained_a_few_times_and_calms_down(every: int) -> None:
    story = Story()
    story.world.run_job("cpu-0")
    machine = story.world.machines["n0"]
    for number in range(240 // every):
        machine.tell(ready=number % 2 > 0)
        story.seconds(every)
    assert len(story.kinds()) <= 6, "however long it goes on"
    assert every > 5 or story.kinds() == ["Drain"]
    machine.tell(ready=False)
    story.seconds(3)
    assert not story.takes_jobs()
    machine.tell(ready=True)
    story.operator.calls.clear()
    story.seconds(29)
    assert story.kinds() == []
    story.seconds(2)
    assert story.kinds() == ["Resume"]
    assert story.record().jobs, "its job never noticed"
    assert all(story.takes_jobs(name) for name in story.world.pods)
    story.ends_well()


@pytest.mark.parametrize("every", QUICK)
def test_two_controllers_that_cordon_and_uncordon_cost_a_few_calls(every: int) -> None:
    story = Story()
    machine = story.world.machines["n0"]
    for number in range(240 // every):
        (machine.cordon if number % 2 == 0 else machine.uncordon)()
        story.seconds(every)
    assert len(story.kinds()) <= 6
    machine.cordon()
    story.seconds(2)
    assert not story.takes_jobs()
    machine.uncordon()
    story.seconds(31)
    assert story.takes_jobs()
    story.ends_well()


@pytest.mark.parametrize("every", QUICK)
def test_a_cordoned_machine_that_flaps_costs_a_few_calls_and_then_says_what_is_the_matter(every: int) -> None:
    story = Story()
    machine = story.world.machines["n0"]
    machine.cordon()
    for number in range(240 // every):
        machine.tell(ready=number % 2 > 0)
        story.seconds(every)
        assert not story.takes_jobs()
    assert len(story.kinds()) <= 7, "however long it goes on"
    assert every > 5 or len(story.kinds()) <= 2
    machine.tell(ready=True)
    story.seconds(31)
    assert story.record().reason == "seltzer: Kubernetes node n0 is cordoned"
    story.ends_well()


def test_a_cordoned_machine_that_was_unwell_is_waited_for_as_any_that_was() -> None:
    story = Story()
    machine = story.world.machines["n0"]
    machine.cordon()
    story.seconds(2)
    machine.tell(ready=False)
    story.seconds(2)
    assert story.record().reason == "seltzer: Kubernetes node n0 is not ready"
    machine.tell(ready=True)
    machine.uncordon()
    story.seconds(5)
    assert not story.takes_jobs(), "it may change its mind"
    story.seconds(1)
    assert story.takes_jobs()
    assert story.kinds() == ["Drain", "Drain", "Resume"]
    story.ends_well()


def test_a_taint_that_comes_and_goes_during_a_drain_disturbs_no_job() -> None:
    story = Story()
    story.world.run_job("cpu-0")
    machine = story.world.machines["n0"]
    for _ in range(2):
        machine.gets_a_taint()
        story.seconds(2)
        assert story.record().reason == "seltzer: Kubernetes node n0 has taint maintenance=soon:NoSchedule"
        machine.loses_its_taint()
        story.seconds(2)
        assert story.takes_jobs()
    assert story.kinds() == ["Drain", "Resume"] * 2
    assert story.record().jobs
    # And once more, while it is removed for something else.
    story.world.want(replicas=0)
    machine.gets_a_taint()
    story.seconds(2)
    machine.loses_its_taint()
    story.seconds(2)
    assert story.record().reason == "seltzer: scale-in"
    assert list(story.world.pods) == ["cpu-0"], "whose job is waited for"
    story.ends_well()


def test_who_resumes_what_we_drain_gets_one_answer_each_time() -> None:
    story = Story()
    story.world.machines["n0"].cordon()
    for _ in range(20):
        story.seconds(3)
        assert not story.takes_jobs()
        story.world.person_resumes("cpu-0")
    assert story.kinds() == ["Drain"] * 20
    story.ends_well()


def test_a_restarted_operator_doesnt_restart_the_count_of_a_flapping_machine() -> None:
    story = Story()
    machine = story.world.machines["n0"]
    for number in range(60):
        machine.tell(ready=number % 2 > 0)
        if number % 10 == 0:
            story.operator.restart()
        story.seconds(3)
    assert story.kinds() == ["Drain"]
    story.ends_well()


# --- people ----------------------------------------------------------------------------------------------------------

Step = Callable[[Story], None]


def cordon(story: Story) -> None:
    story.world.machines["n0"].cordon()


def uncordon(story: Story) -> None:
    story.world.machines["n0"].uncordon()


def a_person_drains(story: Story) -> None:
    story.world.person_drains("cpu-0")


def a_person_sets_it_down(story: Story) -> None:
    story.world.person_downs("cpu-0")


def the_operator_starts_anew(story: Story) -> None:
    story.operator.restart()


def somebody_deletes_its_pod(story: Story) -> None:
    story.world.delete("cpu-0")


def its_container_crashes(story: Story) -> None:
    story.world.crash("cpu-0")
    story.world.report("cpu-0")


@pytest.mark.parametrize("persons", [a_person_drains, a_person_sets_it_down])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], [cordon, uncordon]),
        ([cordon], [uncordon]),
        ([cordon, uncordon], [cordon]),
        ([cordon], [the_operator_starts_anew, uncordon]),
        ([], [cordon, the_operator_starts_anew, uncordon]),
    ],
)
@pytest.mark.parametrize("pause", [0, 2])
def test_what_a_person_decides_in_slurm_is_never_undone_by_what_kubernetes_does(
    persons: Step, before: list[Step], after: list[Step], pause: int
) -> None:
    story = Story()
    for step in (*before, persons, *after):
        step(story)
        if pause or step is persons:
            story.seconds(pause or 1)
    story.seconds(60)
    assert story.record().held
    assert story.record().reason in ("disk is full", "fan is loud")
    story.world.person_resumes("cpu-0")
    story.world.machines["n0"].uncordon()
    story.seconds(2)
    assert story.takes_jobs(), "it is theirs to undo"
    story.ends_well()


@pytest.mark.parametrize("step", [its_container_crashes, somebody_deletes_its_pod])
def test_a_persons_drain_outlives_container_and_pod(step: Step) -> None:
    story = Story()
    story.world.run_job("cpu-0")
    story.world.person_drains("cpu-0")
    story.seconds(2)
    step(story)
    story.seconds(10)
    assert story.record().held
    assert story.record().reason == "disk is full"
    assert not story.record().jobs, "they are back in the queue"
    story.ends_well()


def test_a_person_who_is_faster_than_a_decision_that_was_made_wins() -> None:
    story = Story()
    cordon(story)
    story.seconds(2)
    uncordon(story)
    story.operator.survey()
    story.operator.think()
    a_person_drains(story)
    story.operator.act_late(0, 6)
    assert story.record().reason == "disk is full"
    story.ends_well()


# --- Slurm is away, or forgets ---------------------------------------------------------------------------------------


def test_nothing_is_done_while_slurm_is_away_and_everything_when_it_is_back() -> None:
    story = Story()
    story.world.run_job("cpu-1")
    story.world.reachable = False
    story.world.machines["n0"].cordon()
    story.world.machines["n1"].cut()
    story.world.machines["n1"].go_unheard()
    story.world.want(replicas=2)
    story.seconds(30)
    assert story.kinds() == []
    assert set(story.world.pods) == {"cpu-0", "cpu-1", "cpu-2"}
    assert not any(pod.deleting for pod in story.world.pods.values())
    story.world.reachable = True
    story.seconds(1)
    assert story.record("cpu-0").reason == "seltzer: Kubernetes node n0 is cordoned"
    assert story.record("cpu-1").reason == "seltzer: Kubernetes node n1 is not heard of"
    assert story.record("cpu-1").down
    story.ends_well()


def test_a_cordon_that_came_and_went_while_slurm_was_away_costs_nothing() -> None:
    story = Story()
    story.world.reachable = False
    cordon(story)
    story.seconds(5)
    uncordon(story)
    story.seconds(5)
    story.world.reachable = True
    story.seconds(5)
    assert story.kinds() == []
    story.ends_well()


def test_a_record_that_somebody_deleted_comes_back_with_a_new_pod() -> None:
    story = Story()
    old = story.pod().uid
    story.world.delete_record("cpu-0")
    story.seconds(2)
    assert story.pod().told[SLURM_READY].reason == "Forgotten"
    story.seconds(20)
    assert story.pod().uid != old
    assert story.takes_jobs()
    assert story.kinds() == ["Mark"], "of the new record: nobody else was touched"
    story.ends_well()


def test_a_slurmctld_that_forgot_a_record_gets_it_back_in_seconds() -> None:
    story = Story()
    story.record().comment = ""
    story.world.forget("cpu-0")
    story.seconds(30)
    assert story.takes_jobs()
    story.ends_well()


@pytest.mark.parametrize("ahead", [0.0, 30.0, 3600.0])
@pytest.mark.parametrize("skew", [0.0, -30.0, -3600.0])
def test_a_pod_that_slurm_never_took_isnt_made_again_and_again(skew: float, ahead: float) -> None:
    """Not even if its machine's clock says that it was there before slurmctld, or if slurmctld's does."""
    story = Story()
    story.world.machines["n0"].skew = skew
    story.world.controller_started = story.world.now - 20 + ahead
    story.seconds(1)
    story.world.delete("cpu-0")
    story.seconds(4)
    story.world.go_deaf("cpu-0")
    story.world.records.pop("cpu-0", None)
    story.pod().registered = False
    story.pod().told.clear()
    uid = story.pod().uid
    story.seconds(60)
    assert story.pod().uid == uid
    assert story.pod().told[SLURM_READY].reason == "NotRegistered"


def test_a_node_that_was_down_by_an_outage_comes_back_and_a_stale_address_is_corrected() -> None:
    story = Story()
    story.world.machines["n0"].cut()
    story.world.notice("cpu-0")
    story.seconds(3)
    assert story.record().down, "its machine is heard of, as far as Kubernetes knows"
    story.world.machines["n0"].cable = True
    story.world.move("cpu-0")
    story.seconds(1)
    assert story.takes_jobs()
    assert story.kinds() == ["Resume", "SetAddress"]
    assert story.operator.calls[1] == SetAddress(("cpu-0",), story.pod().address)
    story.ends_well()


# --- machines die ----------------------------------------------------------------------------------------------------


def test_a_pod_whose_machine_died_is_replaced_elsewhere_in_seconds_and_its_job_is_back_in_the_queue() -> None:
    story = Story()
    story.world.run_job("cpu-0")
    story.world.switch_off("n0")
    story.seconds(10)
    assert story.kinds() == [], "nobody knows yet"
    story.world.machines["n0"].go_unheard()
    story.seconds(1)
    assert not story.record().jobs
    story.seconds(3)
    assert story.takes_jobs("cpu-3")
    assert story.pod().deleting, "but its name is taken until its machine is back"
    assert story.kinds() == ["Down", "Drain", "Mark"]
    story.seconds(100)
    assert set(story.world.pods) == {"cpu-0", "cpu-1", "cpu-2", "cpu-3"}
    story.ends_well()
    story.world.mend("n0")
    story.seconds(5)
    assert set(story.world.pods) == {"cpu-1", "cpu-2", "cpu-3"}
    assert set(story.world.records) == set(story.world.pods)
    story.ends_well()


def test_half_of_the_machines_die_at_once() -> None:
    story = Story()
    for name in ("n0", "n1"):
        story.world.switch_off(name)
        story.world.machines[name].go_unheard()
    story.seconds(6)
    live = [name for name, pod in story.world.pods.items() if pod.alive]
    assert live == ["cpu-2", "cpu-3", "cpu-4"]
    assert all(story.takes_jobs(name) for name in live)
    story.ends_well()


def test_a_kubelet_that_is_away_costs_no_job_and_no_pod() -> None:
    """It restarts, or the API server can't hear it: slurmd answers."""
    story = Story()
    story.world.run_job("cpu-0")
    story.world.machines["n0"].lose_kubelet()
    story.world.machines["n0"].go_unheard()
    story.seconds(100)
    assert story.record().jobs
    assert set(story.world.pods) == {"cpu-0", "cpu-1", "cpu-2"}
    story.world.mend("n0")
    story.seconds(7)
    assert story.kinds() == ["Drain", "Resume"]
    story.ends_well()


def test_a_machine_that_was_cut_off_and_comes_back_runs_nothing_twice() -> None:
    story = Story()
    story.world.run_job("cpu-0")
    story.world.machines["n0"].cut()
    story.world.machines["n0"].go_unheard()
    story.seconds(5)
    assert not story.record().jobs
    story.world.mend("n0")
    story.world.hear("cpu-0")
    story.seconds(1)
    assert "cpu-0" not in story.world.pods, "its kubelet ends it first of all"
    story.seconds(5)
    assert set(story.world.pods) == {"cpu-1", "cpu-2", "cpu-3"}
    story.ends_well()


def test_one_that_is_back_before_it_was_given_up_stays() -> None:
    story = Story()
    story.world.machines["n0"].cut()
    story.seconds(5)
    story.world.machines["n0"].cable = True
    story.seconds(5)
    assert story.kinds() == []
    story.ends_well()


def test_a_container_that_crashes_again_and_again_costs_two_calls_each_time() -> None:
    story = Story()
    for number in range(5):
        story.world.run_job("cpu-0")
        story.seconds(2)
        story.world.crash("cpu-0")
        story.world.report("cpu-0")
        story.operator.work()
        assert not story.record().jobs
        assert story.record().reason.startswith("seltzer: slurmd's container ended with exit code 137 (OOMKilled)")
        assert (", " in story.record().reason) == (number > 0), "how often is told"
        story.seconds(2)
        assert story.takes_jobs()
    assert story.kinds() == ["Down"] * 5, "and its slurmd registers by itself"
    story.ends_well()


def test_a_pod_that_fails_its_check_is_drained_once_and_resumed_once() -> None:
    story = Story()
    story.world.run_job("cpu-0")
    story.world.report("cpu-0", ready=False)
    story.seconds(120)
    assert story.kinds() == ["Drain"]
    assert story.record().reason == "seltzer: its pod is not ready"
    story.world.report("cpu-0")
    story.seconds(3)
    assert story.kinds() == ["Drain", "Resume"]
    assert story.record().jobs
    story.ends_well()


# --- clocks, and pods made by hand -----------------------------------------------------------------------------------


@pytest.mark.parametrize("skew", [-3600.0, -30.0, 30.0, 3600.0])
def test_whatever_time_it_is_on_a_machine_its_pods_come_up_and_its_jobs_are_safe(skew: float) -> None:
    story = Story()
    story.world.machines["n0"].skew = skew
    story.world.delete("cpu-0")
    story.seconds(4)
    assert story.pod().machine == "n0"
    assert story.takes_jobs()
    story.operator.calls.clear()
    story.world.run_job("cpu-0")
    cordon(story)
    story.seconds(2)
    uncordon(story)
    story.seconds(2)
    story.world.crash_and_start("cpu-0")
    story.world.run_job("cpu-0")
    story.seconds(20)
    assert story.record().jobs
    story.world.machines["n0"].tell(ready=False)
    story.seconds(2)
    story.world.mend("n0")
    story.seconds(7)
    assert story.kinds() == ["Drain", "Resume", "Drain", "Resume"]
    assert story.takes_jobs()
    story.world.want(replicas=2)
    story.seconds(10)
    assert story.record().jobs, "it isn't the one that goes"


@pytest.mark.parametrize("skew", [-3600.0, 0.0, 3600.0])
def test_whatever_time_it_is_on_a_machine_a_pod_that_fails_its_check_there_has_some_seconds_and_no_more(
    skew: float,
) -> None:
    story = Story()
    story.world.machines["n0"].skew = skew
    story.world.report("cpu-0", ready=False)
    story.seconds(5)
    assert story.takes_jobs(), "it may pass the next one"
    story.seconds(1)
    assert story.record().reason == "seltzer: its pod is not ready"
    story.operator.restart()
    story.seconds(20)
    assert story.kinds() == ["Drain"], "an operator that begins anew waits, and undoes nothing"
    story.world.report("cpu-0")
    story.seconds(1)
    assert story.takes_jobs()
    # One that comes and goes.
    for _ in range(5):
        story.world.report("cpu-0", ready=False)
        story.seconds(3)
        story.world.report("cpu-0")
        story.seconds(3)
    assert story.kinds() == ["Drain", "Resume"]
    story.ends_well()


@pytest.mark.parametrize("skew", [-3600.0, 0.0, 3600.0])
def test_whatever_time_it_is_on_slurmctlds_machine_what_it_forgot_comes_back_in_seconds(skew: float) -> None:
    story = Story()
    story.record().comment = ""
    story.world.forget("cpu-0")
    story.world.controller_started += skew
    story.seconds(7)
    assert "cpu-0" not in story.world.records, "it may be about to register"
    story.seconds(8)
    assert story.takes_jobs()
    story.ends_well()


def test_a_pod_that_somebody_made_by_hand_under_one_of_our_names_is_drained_and_goes() -> None:
    story = Story()
    story.world.pods["cpu-7"] = ModelPod("cpu-7", "by-hand", "none of ours", story.world.now)
    story.world.start("cpu-7")
    story.world.register("cpu-7")
    story.world.run_job("cpu-7")
    story.seconds(20)
    assert story.record("cpu-7").jobs, "which is waited for"
    assert story.record("cpu-7").reason == "seltzer: update", "as of any pod that isn't as it should be"
    story.world.end_job("cpu-7")
    story.seconds(5)
    assert set(story.world.pods) == {"cpu-0", "cpu-1", "cpu-2"}
    assert set(story.world.records) == {"cpu-0", "cpu-1", "cpu-2"}
    story.ends_well()


# --- Slurm to Kubernetes ---------------------------------------------------------------------------------------------


def test_a_job_shows_on_its_pod_at_once_and_its_end_a_little_later() -> None:
    story = Story()
    story.world.run_job("cpu-0")
    story.seconds(1)
    assert story.pod().labels == {BUSY: "true"}
    assert FREE_AT in story.pod().annotations
    story.world.end_job("cpu-0")
    story.seconds(1)
    assert story.pod().labels == {BUSY: "true"}
    story.seconds(5)
    assert story.pod().labels == {}
    assert FREE_AT not in story.pod().annotations
    assert story.kinds() == []


def test_a_persons_drain_shows_on_the_pod_with_their_reason() -> None:
    story = Story()
    story.world.person_drains("cpu-0")
    story.seconds(1)
    told = story.pod().told[SLURM_READY]
    assert (told.status, told.reason, told.message) == ("False", "Drained", "disk is full")


def test_while_only_slurmrestd_is_away_no_pod_says_yes_for_longer_than_a_minute() -> None:
    story = Story()
    story.world.reachable = False
    story.world.run_job("cpu-0")
    story.seconds(60)
    assert {pod.told[SLURM_READY].status for pod in story.world.pods.values()} == {"True"}, "no flapping"
    story.seconds(2)
    assert {each.status for pod in story.world.pods.values() for each in pod.told.values()} == {"Unknown"}
    versions = [pod.version for pod in story.world.pods.values()]
    story.seconds(60)
    assert versions == [pod.version for pod in story.world.pods.values()], "written once"
    story.world.reachable = True
    story.seconds(1)
    assert story.pod().labels == {BUSY: "true"}
    assert {pod.told[SLURM_READY].status for pod in story.world.pods.values()} == {"True"}
    assert story.kinds() == [], "nobody lost anything"
    story.ends_well()


def test_a_new_leader_takes_nothing_back_before_slurm_had_its_time_to_answer() -> None:
    story = Story()
    story.world.reachable = False
    story.operator.restart()
    story.seconds(60)
    assert story.pod().told[SLURM_READY].status == "True"
    story.seconds(2)
    assert story.pod().told[SLURM_READY].status == "Unknown"
    story.world.delete_nodeset()
    story.seconds(60)
    assert len(story.world.pods) == 3, "as ever, who may have jobs stays"
    story.ends_well()


def test_each_call_says_which_nodes_and_why() -> None:
    story = Story()
    story.world.switch_off("n0")
    story.world.machines["n0"].go_unheard()
    story.seconds(3)
    reason = "seltzer: Kubernetes node n0 is not heard of"
    assert story.operator.calls[:2] == [DownNodes(("cpu-0",), reason), DrainNodes(("cpu-0",), reason)]
    story.world.machines["n1"].cordon()
    story.seconds(2)
    story.world.machines["n1"].uncordon()
    story.seconds(2)
    assert story.operator.calls[-1] == ResumeNodes(("cpu-1", "cpu-3")), "which came to that machine"
