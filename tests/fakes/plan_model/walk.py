"""Ways through the model world: a state machine, whose failures read well, and tapes of bytes, which are faster."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from hashlib import shake_256
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.builders.plan import part_of
from tests.fakes.plan_model import world
from tests.fakes.plan_model.operator import Operator
from tests.fakes.plan_model.world import Peace, World

from seltzer.api.nodeset import Drain

DRAINS = [
    Drain(),
    Drain(timeout="30s", on_timeout="wait"),
    Drain(timeout="30s", on_timeout="requeue"),
    Drain(timeout="30s", on_timeout="kill"),
]
BUDGETS: list[int | str] = [1, 2, "25%", "50%"]
TIMES = [1.0, 5.0, 20.0, 60.0, 150.0]
SOON = 20.0
POD_EVENTS = [
    *("start", "report", "register", "vanish", "unready", "evict", "delete"),
    *("crash", "crash_and_start", "start", "report", "register", "go_deaf", "hear_again"),
]
NODE_EVENTS = [
    *("run_job", "run_job", "end_job", "notice", "forget", "person_drains", "person_resumes", "run_job"),
    *("hear", "delete_record", "move", "person_drains_and_says_nothing", "person_downs"),
]
MACHINE_EVENTS = [
    *("cordon", "uncordon", "gets_a_taint", "loses_its_taint", "unwell", "well", "cut", "lose_kubelet", "switch_off"),
    *("go_unheard", "go_unheard", "be_removed", "mend"),
    *("comes_under_pressure", "is_relieved", "is_about_to_be_removed", "drive_out"),
]
MACHINES = sorted(world.MACHINES)
PEACES = [
    Peace(),
    Peace(mended=False),
    Peace(jobs_end=False),
    Peace(mended=False, jobs_end=False),
    Peace(mended=False, jobs_end=False, notices=False),
]


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

    @rule(looks=st.integers(0, 7), crash=st.integers(0, 6), order=st.integers(0, 13))
    def operate(self, looks: int, crash: int, order: int) -> None:
        """A pass of which any part is done, in any order, after a look that may be old."""
        if self.world.exists:
            self._look(looks)
            seen, decision = self.operator.decide()
            self.operator.do(part_of([*decision.actions, *decision.pod_updates], order, crash), seen, decision)

    @rule(looks=st.integers(0, 7))
    def think(self, looks: int) -> None:
        """A pass that is slow to act."""
        if self.world.exists:
            self._look(looks)
            self.operator.think()

    @rule(crash=st.integers(0, 6), order=st.integers(0, 13))
    def act_late(self, crash: int, order: int) -> None:
        self.operator.act_late(order, crash)

    @rule()
    def restart_operator(self) -> None:
        self.operator.restart()

    def _look(self, looks: int) -> None:
        if looks & 1:
            self.operator.watch()
        if looks & 2:
            self.operator.poll()
        if looks & 4:
            self.operator.survey()

    # --- Kubernetes -----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.pods)
    @rule(which=st.integers(0, 11), what=st.sampled_from(POD_EVENTS))
    def pod(self, which: int, what: str) -> None:
        name = _pick(self.world.pods, which)
        if what == "unready":
            self.world.report(name, ready=False)
        else:
            getattr(self.world, what)(name)

    @rule(name=st.sampled_from(MACHINES), what=st.sampled_from(MACHINE_EVENTS))
    def machine(self, name: str, what: str) -> None:
        if what in ("well", "unwell"):
            self.world.machines[name].tell(ready=what == "well")
        elif what in ("switch_off", "mend", "drive_out"):
            getattr(self.world, what)(name)
        else:
            getattr(self.world.machines[name], what)()

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
    @rule(reachable=st.booleans(), pings=st.booleans())
    def slurm_answers(self, reachable: bool, pings: bool) -> None:
        self.world.reachable, self.world.pings = reachable, pings

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
        """No watch of the operator's is late for so long."""
        self.world.pass_time(seconds)
        if seconds >= SOON:
            self.operator.survey()

    # --- and then there is peace ----------------------------------------------------------------------------------

    @rule(peace=st.sampled_from(PEACES))
    def comes_to_rest(self, peace: Peace) -> None:
        """If nothing happened any more but what should."""
        copy.deepcopy(self.operator).settle(peace)

    @rule()
    def would_end(self) -> None:
        """If it were deleted now."""
        operator = copy.deepcopy(self.operator)
        operator.world.delete_nodeset()
        operator.settle()

    def teardown(self) -> None:
        self.operator.settle()


class PerNodeMachine(NodeSetMachine):
    """The same with placement perNode: machines get and lose the label that is selected."""

    @initialize(replicas=st.integers(0, 3), passes=st.integers(0, 3))
    def begin(self, replicas: int, passes: int) -> None:
        self.world.want(per_node=True)
        for machine in MACHINES[replicas:]:
            self.world.machines[machine].loses_its_label()
        for _ in range(passes):
            self.operator.work()
            self.pods_come_up()

    @rule(name=st.sampled_from(MACHINES), has=st.booleans())
    def label(self, name: str, has: bool) -> None:
        machine = self.world.machines[name]
        (machine.gets_its_label if has else machine.loses_its_label)()

    @rule(name=st.sampled_from(["cpu--n0", "cpu--n1"]), waits=st.booleans(), queued=st.integers(0, 1))
    def queue(self, name: str, waits: bool, queued: int) -> None:
        super().queue(name, waits, queued)


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


def _machine(machine: NodeSetMachine, byte: int) -> None:
    machine.machine(MACHINES[byte // len(MACHINE_EVENTS) % len(MACHINES)], MACHINE_EVENTS[byte % len(MACHINE_EVENTS)])


def _end(machine: NodeSetMachine, byte: int) -> None:
    """Seldom, or nothing else would ever happen."""
    if byte < 8:
        machine.delete_nodeset()
    elif byte < 16:
        machine.delete_cluster()
    elif byte < 64 and machine.world.wish.closing:
        machine.lose_slurm()


def _queue(machine: NodeSetMachine, byte: int) -> None:
    machine.queue(f"cpu-{byte % 2}", byte & 4 > 0, byte // 8 % 2)


# What comes twice happens twice as often.
EVENTS: list[Event] = [
    *[lambda machine, byte: machine.operate_well()] * 6,
    *[lambda machine, byte: machine.operate(byte % 8, byte // 8 % 7, byte // 8 % 14)] * 5,
    lambda machine, byte: machine.think(byte | 3),
    lambda machine, byte: machine.act_late(byte % 7, byte // 7 % 14),
    lambda machine, byte: machine.restart_operator(),
    *[_pod] * 5,
    *[lambda machine, byte: machine.pods_come_up()] * 3,
    *[_node] * 6,
    *[_machine] * 3,
    lambda machine, byte: machine.slurm_answers(byte % 3 > 0 and not machine.world.gone, byte & 8 > 0),
    _queue,
    lambda machine, byte: machine.scale(byte % 5),
    lambda machine, byte: machine.change_template(byte % 4 == 0),
    _change,
    *[lambda machine, byte: machine.time_passes(TIMES[byte % len(TIMES)])] * 2,
    _end,
]


def _label(machine: NodeSetMachine, byte: int) -> None:
    assert isinstance(machine, PerNodeMachine)
    machine.label(MACHINES[byte // 2 % len(MACHINES)], byte % 2 > 0)


PER_NODE_EVENTS: list[Event] = [
    *[event for event in EVENTS if event is not _queue],
    lambda machine, byte: machine.queue(f"cpu--n{byte % 2}", byte & 4 > 0, byte // 8 % 2),
    *[_label] * 5,
]


def walk(tape: bytes, per_node: bool = False) -> None:
    """Two bytes are one event; the first two say how it begins and ends."""
    machine, events = (PerNodeMachine(), PER_NODE_EVENTS) if per_node else (NodeSetMachine(), EVENTS)
    machine.begin(tape[0] % 4, tape[1] % 4)
    for what, byte in zip(tape[2::2], tape[3::2], strict=True):
        events[what % len(events)](machine, byte)
    if machine.world.exists:
        machine.comes_to_rest(PEACES[tape[1] // 4 % len(PEACES)])
    machine.teardown()


def noise(number: int, length: int = 140) -> bytes:
    """A tape, always the same."""
    return shake_256(str(number).encode()).digest(length)


def shortened(tape: bytes, per_node: bool = False) -> bytes:
    """What is left of a tape that breaks a promise when every event that doesn't matter is cut out."""
    for place in range(len(tape) - 2, 0, -2):
        less = tape[:place] + tape[place + 2 :]
        try:
            walk(less, per_node)
        except Exception:
            tape = less
    return tape
