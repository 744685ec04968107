"""How a pod goes without taking a job with it, and which pods go."""

from __future__ import annotations

import pytest
from tests.builders.objects import NOW, pod
from tests.builders.plan import GONE, UNKNOWN, slurm
from tests.builders.slurm import node

from seltzer.api.core import Pod
from seltzer.api.nodeset import Drain
from seltzer.plan.actions import Action, DeletePods, DownNodes, DrainNodes, KillJobs, PodRef
from seltzer.plan.nodeset import pod_selection
from seltzer.plan.nodeset.pod_selection import Candidates
from seltzer.plan.nodeset.removal import RemovalSteps, steps
from seltzer.plan.slurm_presence import SlurmState
from seltzer.slurm.models import Node

OVERDUE = int(NOW) - 60
WAIT = Drain()
GONER = PodRef("cpu-0", "uid-cpu-0")
# This very state of it, and no other.
AS_IT_IS = PodRef("cpu-0", "uid-cpu-0", "1")


def step(
    item: Pod, known: SlurmState, drain: Drain = WAIT, consent: bool = False, seen_for: float = 1000.0
) -> RemovalSteps:
    return steps([item], known, drain, "scale-in", NOW, consent=consent, seen_for={"cpu-0": seen_for})


def drained(state: str = "IDLE", reason: str = "seltzer: scale-in", since: int = OVERDUE) -> SlurmState:
    return slurm(node(state=f"{state} DRAIN", reason=reason, since=since))


@pytest.mark.parametrize(
    ("why", "item", "known", "expected"),
    [
        ("it has ended", pod(state="Failed"), UNKNOWN, DeletePods((GONER,), ask=False)),
        ("there is no Slurm any more", pod(), GONE, DeletePods((GONER,), ask=False)),
        ("no kubelet has it", pod(state="created"), UNKNOWN, DeletePods((AS_IT_IS,), ask=False)),
        (
            "it waits for its image",
            pod(state="ErrImagePull", since=NOW - 120),
            UNKNOWN,
            DeletePods((AS_IT_IS,), ask=False),
        ),
        ("it never started", pod(state="waiting", since=NOW), slurm(), DeletePods((AS_IT_IS,), ask=True)),
        ("it doesn't register", pod(since=NOW - 15), slurm(), DeletePods((GONER,), ask=True)),
        ("it is empty", pod(), drained(), DeletePods((GONER,), ask=True)),
        ("a person has emptied it", pod(), drained(reason="disk"), DeletePods((GONER,), ask=True)),
    ],
)
def test_a_pod_goes_because(why: str, item: Pod, known: SlurmState, expected: Action) -> None:
    assert step(item, known).actions == (expected,), why


@pytest.mark.parametrize(
    ("item", "known", "seconds"),
    [(pod(since=NOW - 3600), slurm(), 15.0), (pod(state="ErrImagePull", since=NOW - 3600), UNKNOWN, 120.0)],
)
def test_a_kubelet_whose_clock_is_behind_hastens_nothing(item: Pod, known: SlurmState, seconds: float) -> None:
    """It became ready this moment, and is about to register."""
    assert step(item, known, seen_for=seconds - 0.1) == RemovalSteps(unknown=("cpu-0",))
    assert step(item, known, seen_for=seconds).actions


@pytest.mark.parametrize(
    ("why", "item", "known"),
    [
        ("Slurm can't be asked", pod(), UNKNOWN),
        ("its kubelet may be late to tell", pod(state="waiting", since=NOW - 1), UNKNOWN),
        ("its kubelet may have been cut off", pod(state="waiting", since=NOW - 119), UNKNOWN),
        ("it may be about to register", pod(since=NOW - 14), slurm()),
    ],
)
def test_nothing_happens_to_a_pod_while(why: str, item: Pod, known: SlurmState) -> None:
    assert step(item, known) == RemovalSteps(unknown=("cpu-0",)), why


def test_nor_while_its_kubelet_isnt_heard_of() -> None:
    """It may have started it, and been cut off before it could tell."""
    item = pod(state="waiting", since=NOW - 9999)
    found = steps([item], UNKNOWN, WAIT, "scale-in", NOW, consent=False, unheard={"cpu-0"})
    assert found == RemovalSteps(unknown=("cpu-0",))


def test_a_node_that_takes_jobs_is_drained_first_idle_or_not() -> None:
    for state in ("IDLE", "MIXED", "ALLOCATED", "DOWN", "IDLE NOT_RESPONDING"):
        assert step(pod(), slurm(node(state=state))).actions == (DrainNodes(("cpu-0",), "seltzer: scale-in"),)


@pytest.mark.parametrize("state", ["IDLE", "MIXED"])
def test_a_node_that_was_drained_for_a_cause_is_drained_once_more_so_that_its_time_begins_and_who_looks_sees_why(
    state: str,
) -> None:
    for cause in ("Kubernetes node n1 is cordoned", "its pod is not ready"):
        assert step(pod(), drained(state, f"seltzer: {cause}")).actions == (
            DrainNodes(("cpu-0",), "seltzer: scale-in"),
        )
    assert not any(isinstance(each, DrainNodes) for each in step(pod(), drained(state)).actions), "but only once"


def test_what_somebody_set_down_keeps_their_reason_when_it_is_drained() -> None:
    known = slurm(node("cpu-0", "DOWN", reason="fan is loud"), node("cpu-1"), node("cpu-2", "DOWN", reason="Not resp"))
    items = [pod(name) for name in ("cpu-0", "cpu-1")]
    assert steps(items, known, WAIT, "scale-in", NOW, consent=False).actions == (
        DrainNodes(("cpu-0",), "fan is loud"),
        DrainNodes(("cpu-1",), "seltzer: scale-in"),
    )
    for reason in ("Not responding", "seltzer: its pod is gone", ""):
        known = slurm(node(state="DOWN", reason=reason))
        assert step(pod(), known).actions == (DrainNodes(("cpu-0",), "seltzer: scale-in"),)


def test_a_node_that_registered_is_believed_more_than_a_status_that_says_it_never_started() -> None:
    late = pod(state="waiting")
    assert step(late, slurm(node(state="MIXED"))).actions == (DrainNodes(("cpu-0",), "seltzer: scale-in"),)
    assert step(late, drained("MIXED")).busy == ("cpu-0",)


def test_a_pod_that_is_going_already_needs_nothing() -> None:
    assert step(pod(deleting=True), drained()) == RemovalSteps()


@pytest.mark.parametrize("state", ["MIXED", "ALLOCATED", "IDLE COMPLETING", "MIXED COMPLETING"])
def test_jobs_are_waited_for(state: str) -> None:
    assert step(pod(), drained(state)) == RemovalSteps(busy=("cpu-0",))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("wait", ()),
        ("requeue", (DownNodes(("cpu-0",), "seltzer: scale-in"),)),
        ("kill", (KillJobs(("cpu-0",)),)),
    ],
)
def test_when_the_time_is_over_the_user_is_obeyed(policy: str, expected: tuple[Action, ...]) -> None:
    drain = Drain(timeout="1m", on_timeout=policy)  # type: ignore[arg-type]
    assert step(pod(), drained("MIXED"), drain) == RemovalSteps(expected, busy=("cpu-0",), overdue=("cpu-0",))
    assert step(pod(), drained("MIXED", since=OVERDUE + 1), drain) == RemovalSteps(busy=("cpu-0",))


@pytest.mark.parametrize(
    ("why", "known"),
    [
        ("a person drained it", drained("MIXED", reason="disk")),
        ("nobody knows since when", slurm(node(state="MIXED DRAIN", reason="seltzer: x", reasoned=None))),
        ("slurmctld's clock is unknown", slurm(node(state="MIXED DRAIN", reason="seltzer: x", since=1), now=None)),
    ],
)
def test_no_job_is_killed_if(why: str, known: SlurmState) -> None:
    assert step(pod(), known, Drain(timeout="1s", on_timeout="kill")) == RemovalSteps(busy=("cpu-0",)), why


def test_consent_counts_only_where_slurm_cant_be_asked() -> None:
    assert step(pod(), UNKNOWN, consent=True).actions == (DeletePods((GONER,), ask=False),)
    assert step(pod(), drained("MIXED"), consent=True).actions == ()


def test_any_number_of_nodes_is_one_call() -> None:
    items = [pod(f"cpu-{number}") for number in (2, 0, 1)]
    found = steps(items, slurm(*(node(f"cpu-{number}") for number in range(3))), WAIT, "update", NOW, consent=False)
    assert found.actions == (DrainNodes(("cpu-0", "cpu-1", "cpu-2"), "seltzer: update"),)


# --- who goes --------------------------------------------------------------------------------------------------------


def pool(*pairs: tuple[Pod, Node | None], free_at: dict[str, float | None] | None = None) -> Candidates:
    return Candidates([item for item, _ in pairs], {each.name: each for _, each in pairs if each}, free_at or {})


def named(pods: list[Pod]) -> list[str]:
    return [item.metadata.name for item in pods]


def both(
    number: int, state: str = "IDLE", *, reason: str = "", template: str = "new", ready: bool = True
) -> tuple[Pod, Node]:
    name = f"cpu-{number}"
    return pod(name, template=template, state="ready" if ready else "unready"), node(name, state, reason=reason)


def test_the_cheapest_go_first() -> None:
    found = pod_selection.surplus(
        pool(
            both(0, "ALLOCATED"),
            both(1, "MIXED"),
            both(2),
            both(3, "IDLE DRAIN", reason="disk"),
            both(4, ready=False),
            (pod("cpu-5"), None),
            both(6, "MIXED DRAIN", reason="seltzer: scale-in"),
            (pod("cpu-7", state="waiting"), None),
            both(8, "IDLE DRAIN", reason="seltzer: Kubernetes node n1 is cordoned"),
            both(9, "DOWN", reason="fan is loud"),
            free_at={"cpu-0": NOW + 60, "cpu-1": NOW + 3600},
        ),
        11,
        "new",
    )
    assert named(found) == [f"cpu-{number}" for number in (7, 6, 5, 4, 8, 2, 9, 3, 0, 1)]


def test_of_equals_the_outdated_and_then_the_youngest_go_first() -> None:
    found = pod_selection.surplus(pool(both(0), both(1, template="old"), both(2)), 3, "new")
    assert named(found) == ["cpu-1", "cpu-2", "cpu-0"]


@pytest.mark.parametrize("count", [0, -3])
def test_nobody_goes_if_nobody_is_too_many(count: int) -> None:
    assert pod_selection.surplus(pool(both(0)), count, "new") == []


def test_an_update_takes_as_many_as_may_be_away() -> None:
    old = [both(number, template="old") for number in range(4)]
    assert named(pod_selection.outdated(pool(*old), "new", 2, 0)) == ["cpu-3", "cpu-2"]


@pytest.mark.parametrize(
    ("why", "first", "missing"),
    [
        ("a pod is missing", None, 1),
        ("a new one isn't ready", both(9, ready=False), 0),
        ("a new one is drained", both(9, "IDLE DRAIN", reason="disk"), 0),
        ("an old one is held by a person", both(9, "IDLE DRAIN", reason="disk", template="old"), 0),
        ("an old one was set down by a person", both(9, "DOWN", reason="fan is loud", template="old"), 0),
    ],
)
def test_an_update_waits_while(why: str, first: tuple[Pod, Node] | None, missing: int) -> None:
    others = [both(number, template="old") for number in range(2)]
    assert pod_selection.outdated(pool(*([first] if first else []), *others), "new", 1, missing) == [], why


def test_who_doesnt_take_jobs_is_replaced_before_who_does() -> None:
    found = pod_selection.outdated(pool(both(0, "DOWN", template="old"), both(1, template="old")), "new", 1, 0)
    assert named(found) == ["cpu-0"]


def test_who_was_taken_is_taken_again_whatever_else_fails_meanwhile() -> None:
    # slurmctld may add its own words.
    taken = both(0, "MIXED DRAIN", reason="seltzer: update : Not responding", template="old")
    found = pod_selection.outdated(pool(taken, both(1, template="old"), both(2, ready=False)), "new", 1, 0)
    assert named(found) == ["cpu-0"]


def test_no_more_than_the_budget_goes_on_when_the_user_lowers_it() -> None:
    taken = [both(number, "MIXED DRAIN", reason="seltzer: update", template="old") for number in range(2)]
    assert len(pod_selection.outdated(pool(*taken), "new", 1, 0)) == 1


def test_pods_that_never_started_are_replaced_at_once() -> None:
    waiting = [(pod(f"cpu-{number}", state="ErrImagePull", template="old"), None) for number in range(3)]
    assert len(pod_selection.outdated(pool(*waiting), "new", 1, 0)) == 3


def test_but_not_if_slurm_knows_that_they_have_started() -> None:
    late = [(pod(f"cpu-{number}", state="waiting", template="old"), node(f"cpu-{number}")) for number in range(3)]
    assert len(pod_selection.outdated(pool(*late), "new", 1, 0)) == 1


def test_without_a_template_nobody_is_out_of_date() -> None:
    assert pod_selection.outdated(pool(both(0, template="old")), None, 1, 0) == []


@pytest.mark.parametrize(
    ("setting", "replicas", "expected"),
    [
        (1, 10, 1),
        (0, 10, 1),
        (20, 10, 20),
        ("25%", 10, 2),
        ("25%", 3, 1),
        ("0%", 10, 1),
        ("100%", 10, 10),
        ("50%", 0, 1),
    ],
)
def test_max_unavailable(setting: int | str, replicas: int, expected: int) -> None:
    assert pod_selection.max_unavailable(setting, replicas) == expected
