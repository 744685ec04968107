"""What a NodeSet says about its nodes' limits, where the SlurmCluster has `cgroups: v2`."""

from __future__ import annotations

import msgspec
import pytest
from tests.builders.objects import NOW, pod, time_at
from tests.builders.plan import seen, slurm
from tests.builders.slurm import node

from seltzer.api.common import Condition
from seltzer.api.core import ContainerState, ContainerStatus, Pod, Terminated, Waiting
from seltzer.plan import conditions
from seltzer.plan.nodeset import limits
from seltzer.plan.nodeset.nodeset_plan import decide
from seltzer.plan.nodeset.nodeset_status import events, status
from seltzer.plan.nodeset.observation import NodeSetObservation

READ_ONLY = "seltzer: cgroups: ReadOnly: /sys/fs/cgroup is read-only"
WAITS = ContainerState(waiting=Waiting(reason="CrashLoopBackOff"))


def ended(words: str) -> ContainerState:
    return ContainerState(terminated=Terminated(exit_code=1, reason="Error", message=words))


def container(item: Pod, **status: object) -> Pod:
    """The pod with this state of its slurmd container."""
    own = ContainerStatus(name="slurmd", **status)  # type: ignore[arg-type]
    return msgspec.structs.replace(item, status=msgspec.structs.replace(item.status, container_statuses=(own,)))


def failed(name: str, words: str = READ_ONLY) -> Pod:
    return container(pod(name, state="starting"), state=WAITS, last_state=ended(words))


def told(observation: NodeSetObservation) -> dict[str, Condition]:
    found = status(observation, decide(observation), (), time_at(NOW)).conditions
    return {condition.type: condition for condition in found}


def test_there_is_no_condition_without_cgroups() -> None:
    assert limits.TYPE not in told(seen(None, pod("cpu-0"), slurm=slurm(node("cpu-0"))))


def test_nodes_that_run_limit_their_jobs() -> None:
    found = told(seen(None, pod("cpu-0"), slurm=slurm(node("cpu-0")), limited=True))[limits.TYPE]
    assert (found.status, found.reason) == ("True", "Enforced")


def test_nothing_is_known_before_a_node_has_started() -> None:
    for pods in ((), (pod("cpu-0", state="starting"),)):
        assert limits.finding(pods).status == "Unknown"


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        ("Version1", "unified_cgroup_hierarchy=1"),
        ("ReadOnly", "cgroup_writable = true"),
        ("ReadOnly", "runtimeClassName"),
        ("ReadOnly", "writableCgroups: {enabled: true}"),
        ("NoDelegation", "mount -o remount,nsdelegate /sys/fs/cgroup"),
        ("NoControllers", "cgroup.subtree_control"),
        ("SomethingNew", "seltzer logs"),
    ],
)
def test_the_condition_says_which_lines_to_set(reason: str, line: str) -> None:
    found = limits.finding((failed("cpu-0", f"slurmd: noise\nseltzer: cgroups: {reason}: the fact\n"),))
    assert (found.type, found.status, found.reason) == (limits.TYPE, "False", reason)
    assert line in found.message
    assert found.message.startswith("cpu-0 can't limit jobs and takes none: the fact; ")


def test_ready_says_the_same_and_there_is_one_event() -> None:
    observation = seen(None, failed("cpu-0"), slurm=slurm(), limited=True)
    found = told(observation)
    assert found["Ready"].message == found[limits.TYPE].message
    decision = decide(observation)
    after = status(observation, decision, (), time_at(NOW))
    told_ = [each for each in events(observation.nodeset, after, ()) if each.reason == "ReadOnly"]
    assert [(each.kind, each.message) for each in told_] == [("Warning", found["Ready"].message)]


def test_nodes_with_the_same_trouble_are_named_together() -> None:
    other = failed("cpu-5", "seltzer: cgroups: Version1: it is old")
    found = limits.finding((pod("cpu-9"), other, failed("cpu-2"), failed("cpu-1")))
    assert found.message.startswith("cpu-[1-2] can't limit jobs"), "of several reasons, the one of the first node"


def test_one_bad_node_is_told_although_others_are_well() -> None:
    assert limits.finding((pod("cpu-0"), failed("cpu-1"))).status == "False"


def test_between_two_starts_the_reason_stays() -> None:
    """The container is started again and again: the condition must not flap."""
    again = container(pod("cpu-0", state="starting"), state=ContainerState(), last_state=ended(READ_ONLY))
    now = container(pod("cpu-0", state="starting"), state=ended(READ_ONLY))
    for each in (again, now):
        assert limits.finding((each,)).reason == "ReadOnly"


def test_a_node_that_started_later_has_no_trouble_any_more() -> None:
    well = container(pod("cpu-0"), ready=True, last_state=ended(READ_ONLY))
    assert limits.failure(well) is None


def test_other_last_words_are_not_about_limits() -> None:
    assert limits.failure(failed("cpu-0", "slurmd: fatal: seltzer: cgroups: nothing")) is None
    assert limits.failure(failed("cpu-0", "")) is None


def test_a_pod_that_goes_says_nothing() -> None:
    assert limits.failure(container(pod("cpu-0", deleting=True), state=WAITS, last_state=ended(READ_ONLY))) is None


def test_the_longest_condition_is_short_enough_for_kubernetes() -> None:
    for reason in limits._ADVICE:
        message = limits.finding((failed("cpu-0", f"seltzer: cgroups: {reason}: fact"),)).message
        assert len(message) < conditions._MOST_MESSAGE
