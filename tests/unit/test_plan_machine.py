"""A NodeSet's plan in a world where anything happens in any order: no promise is broken, and it comes to rest.

The promises are checked by `plan_operator`, whatever is done. Two ways lead through the world: a state machine, whose
failures read well, and tapes of bytes, which are a hundred times faster and so get much further.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from hashlib import shake_256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.fakes.plan_operator import Operator
from tests.fakes.plan_things import part_of
from tests.fakes.plan_world import World

from seltzer.api.nodeset import Drain

DRAINS = [
    Drain(),
    Drain(timeout="30s", on_timeout="wait"),
    Drain(timeout="30s", on_timeout="requeue"),
    Drain(timeout="30s", on_timeout="kill"),
]
BUDGETS: list[int | str] = [1, 2, "25%", "50%"]
TIMES = [1.0, 5.0, 20.0, 60.0]
POD_EVENTS = ["start", "report", "unready", "evict", "delete", "vanish", "register"]
NODE_EVENTS = ["run_job", "run_job", "end_job", "notice", "forget", "person_drains", "person_resumes"]


def _pick(names: Collection[str], which: int) -> str:
    return sorted(names)[which % len(names)]


class NodeSetMachine(RuleBasedStateMachine):
    """Kubernetes, Slurm, people and the operator take turns."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.operator = Operator(self.world)

    @initialize(replicas=st.integers(0, 3), passes=st.integers(0, 3))
    def begin(self, replicas: int, passes: int) -> None:
        """Some start in the middle of a NodeSet's life."""
        self.world.want(replicas=replicas)
        for _ in range(passes):
            self.operator.work()
            self.pods_come_up()

    # --- the operator ---------------------------------------------------------------------------------------------

    @rule()
    def operate_well(self) -> None:
        """A pass that nothing disturbs."""
        self.operator.work()

    @rule(watch=st.booleans(), poll=st.booleans(), crash=st.integers(0, 6), order=st.integers(0, 13))
    def operate(self, watch: bool, poll: bool, crash: int, order: int) -> None:
        """A pass of which any part is done, in any order, after a look that may be old."""
        if not self.world.exists:
            return
        if watch:
            self.operator.watch()
        if poll:
            self.operator.poll()
        seen, decision = self.operator.decide()
        self.operator.do(part_of(decision.actions, order, crash), seen, decision)

    # --- Kubernetes -----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.pods)
    @rule(which=st.integers(0, 11), what=st.sampled_from(POD_EVENTS))
    def pod(self, which: int, what: str) -> None:
        name = _pick(self.world.pods, which)
        if what == "unready":
            self.world.report(name, ready=False)
        else:
            getattr(self.world, what)(name)

    @rule()
    def pods_come_up(self) -> None:
        for name in self.world.pods:
            self.world.start(name)
            self.world.report(name)
            self.world.register(name)

    # --- Slurm ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.records)
    @rule(which=st.integers(0, 11), what=st.sampled_from(NODE_EVENTS))
    def node(self, which: int, what: str) -> None:
        name = _pick(self.world.records, which)
        getattr(self.world, what)(name)

    @precondition(lambda self: not self.world.gone)
    @rule(reachable=st.booleans())
    def slurm_answers(self, reachable: bool) -> None:
        self.world.reachable = reachable

    @rule(name=st.sampled_from(["cpu-0", "cpu-1"]), waits=st.booleans(), queued=st.integers(0, 1))
    def queue(self, name: str, waits: bool, queued: int) -> None:
        """Jobs wait, or do no longer: some name a node."""
        (self.world.named.add if waits else self.world.named.discard)(name)
        self.world.queued = queued

    # --- people ---------------------------------------------------------------------------------------------------

    @rule(replicas=st.integers(0, 4))
    def scale(self, replicas: int) -> None:
        self.world.want(replicas=replicas)

    @rule(broken=st.booleans())
    def change_template(self, broken: bool) -> None:
        self.world.want(template=self.world.wish.template + 1)
        if broken:
            self.world.broken.add(self.world.template)

    @rule(
        change=st.one_of(
            st.fixed_dictionaries({"paused": st.booleans()}),
            st.fixed_dictionaries({"max_unavailable": st.sampled_from(BUDGETS)}),
            st.fixed_dictionaries({"drain": st.sampled_from(DRAINS)}),
            st.fixed_dictionaries({"refused": st.booleans()}),
            st.fixed_dictionaries({"crowded": st.booleans()}),
        )
    )
    def change(self, change: dict[str, Any]) -> None:
        self.world.want(**change)

    @precondition(lambda self: self.world.wish.deleted is None)
    @rule()
    def delete_nodeset(self) -> None:
        self.world.delete_nodeset()

    @rule()
    def delete_cluster(self) -> None:
        self.world.want(closing=True)

    @precondition(lambda self: self.world.wish.closing)
    @rule()
    def lose_slurm(self) -> None:
        self.world.lose_slurm()

    @rule(seconds=st.sampled_from(TIMES))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    # --- and then there is peace ----------------------------------------------------------------------------------

    @rule()
    def comes_to_rest(self) -> None:
        """If nothing happened any more but what should."""
        copy.deepcopy(self.operator).settle()

    @rule()
    def would_end(self) -> None:
        """If it were deleted now."""
        operator = copy.deepcopy(self.operator)
        operator.world.delete_nodeset()
        operator.settle()

    def teardown(self) -> None:
        self.operator.settle()


TestNodeSet = NodeSetMachine.TestCase
TestNodeSet.settings = settings(max_examples=60, stateful_step_count=40)


Event = Callable[[NodeSetMachine, int], None]


def _change(machine: NodeSetMachine, byte: int) -> None:
    changes: list[dict[str, Any]] = [
        {"paused": True},
        {"paused": False},
        {"refused": True},
        {"refused": False},
        {"crowded": True},
        {"crowded": False},
        *({"drain": each} for each in DRAINS),
        *({"max_unavailable": each} for each in BUDGETS),
    ]
    machine.change(changes[byte % len(changes)])


def _pod(machine: NodeSetMachine, byte: int) -> None:
    if machine.world.pods:
        machine.pod(byte // len(POD_EVENTS), POD_EVENTS[byte % len(POD_EVENTS)])


def _node(machine: NodeSetMachine, byte: int) -> None:
    if machine.world.records:
        machine.node(byte // len(NODE_EVENTS), NODE_EVENTS[byte % len(NODE_EVENTS)])


def _end(machine: NodeSetMachine, byte: int) -> None:
    """Seldom, or nothing else would ever happen."""
    if byte < 8:
        machine.delete_nodeset()
    elif byte < 16:
        machine.delete_cluster()
    elif byte < 64 and machine.world.wish.closing:
        machine.lose_slurm()


# What comes twice happens twice as often.
EVENTS: list[Event] = [
    *[lambda machine, byte: machine.operate_well()] * 5,
    *[lambda machine, byte: machine.operate(byte & 1 > 0, byte & 2 > 0, byte // 4 % 7, byte // 28)] * 5,
    *[_pod] * 4,
    *[lambda machine, byte: machine.pods_come_up()] * 2,
    *[_node] * 5,
    lambda machine, byte: machine.slurm_answers(byte % 3 > 0 and not machine.world.gone),
    lambda machine, byte: machine.queue(f"cpu-{byte % 2}", byte & 4 > 0, byte // 8 % 2),
    lambda machine, byte: machine.scale(byte % 5),
    lambda machine, byte: machine.change_template(byte % 4 == 0),
    _change,
    lambda machine, byte: machine.time_passes(TIMES[byte % len(TIMES)]),
    _end,
]


def walk(tape: bytes) -> None:
    """Two bytes are one event; the first two say how it begins."""
    machine = NodeSetMachine()
    machine.begin(tape[0] % 4, tape[1] % 4)
    for what, byte in zip(tape[2::2], tape[3::2], strict=True):
        EVENTS[what % len(EVENTS)](machine, byte)
    machine.teardown()


@settings(max_examples=300)
@given(tape=st.binary(min_size=100, max_size=100))
def test_no_promise_is_broken_on_any_tape_of_events(tape: bytes) -> None:
    walk(tape)


@pytest.mark.parametrize("part", range(4))
def test_nor_on_a_thousand_tapes_of_noise(part: int) -> None:
    """Hypothesis is thorough, and slow: this gets to where it would need hours to get."""
    for number in range(part * 250, part * 250 + 250):
        tape = shake_256(str(number).encode()).digest(140)
        try:
            walk(tape)
        except AssertionError as broken:
            raise AssertionError(f"{broken}: {_shorter(tape).hex()}") from None


def _shorter(tape: bytes) -> bytes:
    """What is left of a tape that breaks a promise when every event that doesn't matter is cut out."""
    for place in range(len(tape) - 2, 0, -2):
        less = tape[:place] + tape[place + 2 :]
        try:
            walk(less)
        except AssertionError:
            tape = less
    return tape
