"""A cluster's plan under any order of changes, trials and crashes: what wasn't tried isn't rolled out."""

from __future__ import annotations

import copy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.builders.objects import NOW
from tests.builders.plan import part_of
from tests.fakes.plan_model.cluster_world import ClusterWorld, trial_of

from seltzer.plan.cluster.cluster_plan import decide

PASSES = 20


class ClusterMachine(RuleBasedStateMachine):
    """The user, the trials and the operator take turns."""

    def __init__(self) -> None:
        super().__init__()
        self.world = ClusterWorld()

    @rule(crash=st.integers(0, 6), order=st.integers(0, 13))
    def operate(self, crash: int, order: int) -> None:
        """A pass of which any part is done, in any order."""
        if self.world.exists:
            self.world.do(part_of(decide(self.world.observe()).actions, order, crash))

    @rule(config=st.sampled_from(["own", "good", "fine", "bad"]))
    def configure(self, config: str) -> None:
        self.world.config = config

    @rule(pod=st.sampled_from(["v1", "v2", "bad-image"]))
    def change_pod(self, pod: str) -> None:
        self.world.pod = pod

    @rule(refused=st.booleans())
    def refuse(self, refused: bool) -> None:
        self.world.refused = refused

    @precondition(lambda self: self.world.trials)
    @rule(which=st.integers(0, 5), what=st.sampled_from(["run_trial", "run_trial", "interrupt_trial", "vanish"]))
    def trial(self, which: int, what: str) -> None:
        names = sorted(self.world.trials)
        getattr(self.world, what)(names[which % len(names)])

    @rule(count=st.integers(0, 2), records=st.integers(0, 2), reachable=st.booleans())
    def nodes_come_and_go(self, count: int, records: int, reachable: bool) -> None:
        self.world.slurmds, self.world.records, self.world.reachable = count, records, reachable

    @rule(hold=st.booleans())
    def hold(self, hold: bool) -> None:
        self.world.hold = hold

    @rule(
        node=st.sampled_from(["True", "False", "Unknown", ""]),
        speaks=st.booleans(),
        left=st.integers(-60, 60) | st.none(),
        patient=st.booleans(),
    )
    def a_controllers_pod_goes_or_is_lost(self, node: str, speaks: bool, left: int | None, patient: bool) -> None:
        self.world.node, self.world.speaks, self.world.patient = node, speaks, patient
        self.world.leaving, self.world.evicted = NOW + (left or 0), left is not None

    @precondition(lambda self: self.world.finalizer)
    @rule(sure=st.integers(0, 9))
    def delete(self, sure: int) -> None:
        self.world.deleted = self.world.deleted or sure == 0

    @invariant()
    def comes_to_rest(self) -> None:
        """If nothing changed any more: with what is wanted, if that is any good."""
        self._settle(copy.deepcopy(self.world))

    @rule()
    def would_end(self) -> None:
        """If it were deleted now."""
        world = copy.deepcopy(self.world)
        world.deleted = True
        world.exists = world.finalizer
        self._settle(world)

    def _settle(self, world: ClusterWorld) -> None:
        before = world.active
        for _ in range(PASSES):
            world.calm()
            if not world.exists or (not world.pass_() and not any(each.deleting for each in world.trials.values())):
                break
        else:
            raise AssertionError("it doesn't come to rest")
        if world.deleted:
            assert not world.exists
            return
        assert world.leaving is None, "a pod that should go is stuck"
        assert world.held == world.hold
        if "bad" in trial_of(world.config, world.pod) or world.refused:
            assert world.active in (before, "own"), "a bad one is rolled out"
        else:
            assert (world.active, world.active_pod) == (world.config, world.pod)
            assert world.annotation == world.active
            assert not world.trials
            assert not world.config_maps


TestCluster = ClusterMachine.TestCase
TestCluster.settings = settings(max_examples=80, stateful_step_count=25)
