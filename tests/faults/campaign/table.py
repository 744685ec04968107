"""The faults. The next one is a line here."""

from __future__ import annotations

import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace

from . import actions
from .actions import Action
from .shape import POOL, SLURMCTLD, Shape

UNFELT, CRASH, FAILOVER, MOVE = 1.0, 2.0, 8.0, 30.0
"""How soon slurmctld has to answer, in seconds: as ever, after a crash, with a standby, from nothing."""
KEPT, REPLACED = 3.0, 30.0
"""How soon a pool has to be whole, in seconds: it never was less, or nodes were lost and replaced."""


_DELETE_BY_FORCE = actions.delete_pod("--force", "--grace-period=0")


@dataclass(frozen=True)
class Fault:
    """What is done, how it is undone, and what is expected of it."""

    name: str
    does: tuple[Action, ...]
    undo: tuple[Action, ...] = ()
    """Done once it was measured, so that the next repeat finds everything as it was."""
    answer: float = UNFELT
    """The most seconds until slurmctld answers."""
    job: float = 5.0
    """The most seconds until a new job runs, unless slurmctld itself may take longer."""
    shape: Shape = SLURMCTLD
    """The cluster that it hits."""
    whole: float | None = None
    """The most seconds until the pool is whole again, where that is what a fault is about."""
    standby: int = 0
    before: tuple[Action, ...] = ()
    """What is done right before the fault."""
    then: tuple[Action, ...] = ()
    """What comes on top of it, some seconds later, by chance; how soon slurmctld answers then counts from there."""
    lasts: float = 3.0
    """Watched for at least so many seconds."""
    ends: tuple[Action, ...] = ()
    """What ends the fault by itself after it has lasted, while the watching goes on."""
    afterwards: float = 0.0
    """For how many more seconds it is watched then: what comes back may do harm."""
    returns: bool = False
    """The node that was lost comes back with a slurmctld that still believes in itself: it must change nothing."""
    interactive: bool = False
    """With srun at work, which can't be kept: they are counted."""
    unattended: bool = True
    """Once there is no operator. Nobody else replaces a node."""
    alone: bool = False
    """Not one of two at once."""
    pair: bool = False
    """Two others at once, by chance."""

    @property
    def expected(self) -> dict[str, float]:
        """The most seconds of each kind."""
        seconds = {"answer_s": self.answer, "job_s": max(self.answer, self.job)}
        if self.answer <= UNFELT:
            seconds["slowest_s"] = self.job  # nor may a job that is submitted later notice
        return seconds if self.whole is None else {**seconds, "whole_s": self.whole}


def _signalled(number: signal.Signals) -> Fault:
    return Fault(
        f"slurmctld {number.name}", (actions.signal_slurmctld(number),), (actions.new_controller,), answer=CRASH
    )


def _lost_node(name: str, fault: str, returns: bool) -> Fault:
    return Fault(name, (actions.node(fault),), (actions.node("heal"),), answer=MOVE, returns=returns)


def _with_standby(fault: Fault, answer: float = FAILOVER) -> Fault:
    return replace(fault, name=f"{fault.name}, with a standby", standby=1, answer=answer, alone=True)


def _lost_slurmds(name: str, fault: str, share: float = 0.0) -> Fault:
    """A Kubernetes node with slurmds is lost until the pool is whole without it."""
    does, undo = actions.lose_slurmds(fault, share), actions.heal_slurmds(share)
    return Fault(name, (does,), (undo,), shape=POOL, whole=REPLACED, unattended=False)


def _back_after(seconds: float, fault: Fault) -> Fault:
    """What was lost comes back after a while, and is watched."""
    return replace(fault, ends=fault.undo, undo=(), lasts=seconds, afterwards=6)


def _with_failover(fault: Fault) -> Fault:
    """slurmctld moves to its standby while the fault is being dealt with."""
    return replace(
        fault,
        name=f"{fault.name}, slurmctld fails over",
        then=(_DELETE_BY_FORCE,),
        answer=FAILOVER,
        job=FAILOVER + 5,  # nodes that don't answer hold up its first plan
        whole=(fault.whole or 0) + FAILOVER,
        standby=1,
    )


_KILL = actions.signal_slurmctld(signal.SIGKILL)
_FRESH = (actions.new_controller,)
_DELETED = Fault("pod deleted", (actions.delete_pod(),), answer=MOVE)
_FORCED = Fault("pod deleted by force", (_DELETE_BY_FORCE,), answer=MOVE)
_CONTAINER = Fault("container killed", (actions.kill_container,), _FRESH, answer=MOVE)
_DEAD = _lost_node("node killed", "kill", returns=False)
_CUT = _lost_node("node cut", "cut", returns=True)
_FROZEN = _lost_node("node frozen and woken", "freeze", returns=True)
_NO_API = Fault(
    "API server down for 60 s",
    (actions.stop_api_server,),
    ends=(actions.start_api_server,),
    lasts=60,
    afterwards=20,
    alone=True,
)
_KUBELET = Fault("kubelet restarted", (actions.stop_kubelet, actions.start_kubelet), lasts=15, shape=POOL, whole=KEPT)
_FULL = Fault("state volume full for 10 s", (actions.fill_volume,), ends=(actions.empty_volume,), lasts=10, job=20)

_SLURMDS: tuple[Fault, ...] = (
    _lost_slurmds("slurmd node killed", "kill"),
    _lost_slurmds("slurmd node cut", "cut"),
    _back_after(40, _lost_slurmds("slurmd node frozen and woken", "freeze")),
    _lost_slurmds("half of the slurmd nodes killed", "kill", 0.5),
    replace(_back_after(5, _lost_slurmds("slurmd node cut for 5 s", "cut")), whole=5 + KEPT, unattended=True),
    _back_after(120, _lost_slurmds("slurmd node cut for 2 minutes", "cut")),
    _KUBELET,
    replace(
        _KUBELET,
        name="kubelet down for 20 s",
        does=(actions.stop_kubelet,),
        ends=(actions.start_kubelet,),
        lasts=20,
        afterwards=6,
        whole=20 + REPLACED,
    ),
)

FAULTS: tuple[Fault, ...] = (
    Fault("nothing, for comparison", (), alone=True),
    _signalled(signal.SIGKILL),
    _signalled(signal.SIGSEGV),
    _signalled(signal.SIGTERM),
    Fault("slurmctld SIGKILL after 50 submissions", (_KILL,), _FRESH, CRASH, before=(actions.submit(50),)),
    replace(_signalled(signal.SIGKILL), name="slurmctld SIGKILL, with srun at work", interactive=True, alone=True),
    _DELETED,
    _with_standby(_DELETED),
    _FORCED,
    _CONTAINER,
    _with_standby(_CONTAINER),
    _DEAD,
    _with_standby(_DEAD),
    _CUT,
    _with_standby(_CUT),
    _FROZEN,
    _with_standby(_FROZEN),
    _NO_API,
    replace(
        _NO_API,
        name="API server down for 60 s, slurmctld SIGKILL",
        does=(*_NO_API.does, _KILL),
        undo=_FRESH,
        answer=CRASH,
    ),
    Fault("operator killed", (actions.kill_operator,)),
    Fault(
        "operator absent, slurmctld SIGKILL",
        (_KILL,),
        (actions.restore_operator, *_FRESH),
        CRASH,
        before=(actions.remove_operator,),
        alone=True,
    ),
    Fault("slurmrestd down", (actions.kill_rest,), (actions.new_rest,)),
    _FULL,
    replace(
        _FULL, name="state volume full for 10 s, slurmctld SIGKILL", does=(*_FULL.does, _KILL), undo=_FRESH, answer=20
    ),
    replace(
        _FULL,
        name="state volume full to the last byte, slurmctld SIGKILL",
        # Jobs start and end meanwhile of which nothing is written down.
        does=(actions.exhaust_volume, actions.let_pass(5), _KILL, actions.stay_down),
        lasts=15,
        undo=_FRESH,
        answer=35,
        alone=True,
    ),
    Fault("a bad config", (actions.configure("NoSuchKey=1\n"),), (actions.configure(None),), lasts=8),
    Fault("two at random", (), answer=90, alone=True, pair=True),
    *_SLURMDS,
    *map(_with_failover, _SLURMDS),
)


def pick_two(chance: random.Random, faults: Sequence[Fault] = FAULTS) -> tuple[Fault, str]:
    """Two of them in one, and its name; of what takes the leader's node or pod away at most one."""
    pool = [fault for fault in faults if not fault.alone and fault.shape is SLURMCTLD]
    first = chance.choice(pool)
    second = chance.choice(
        [fault for fault in pool if fault is not first and not (fault.answer >= MOVE <= first.answer)]
    )
    both = Fault(
        "two at random",
        (*first.does, *second.does),
        (*first.undo, *second.undo),
        answer=90,
        before=(*first.before, *second.before),
        lasts=max(first.lasts, second.lasts),
        ends=(*first.ends, *second.ends),
        returns=first.returns or second.returns,
        pair=True,
    )
    return both, f"{first.name} and {second.name}"
