"""One repeat: a fault, what was felt of it, and what became of the jobs."""

from __future__ import annotations

import json
import random
import signal
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness import until

from . import account, actions, measure, processes, state
from .account import Fate
from .actions import Scene
from .rig import Rig
from .table import Fault, pick_two

PATIENCE = 90.0
_FULL_DEADLINE = 90.0
_QUIET = 1.5
_RETURN_WATCH = 3.0
_WARM_UP = 3.0


@dataclass
class Outcome:
    """What one repeat showed. Without seconds it failed, and `failure` says how."""

    did: str
    operator: bool
    answer_s: float | None = None
    job_s: float | None = None
    slowest_s: float = 0.0
    unanswered: int = 0
    fault_time: float = 0.0
    interactive: int = 0
    """How many srun ran or waited when the fault came, and how many of them failed or hung."""
    interactive_broken: int = 0
    drained: list[str] = field(default_factory=list)
    acknowledged: int = 0
    refused: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    ghosts: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    checks: dict[str, str] = field(default_factory=dict)
    failure: str = ""


class Book:
    """Who was accounted for already: a job is told of once, in the repeat that it happened in."""

    def __init__(self) -> None:
        self._closed: set[str] = set()
        self._twice: set[str] = set()
        self._ghosts: set[str] = set()

    def close(self, rig: Rig, outcome: Outcome) -> int:
        """Account for every job that is open; how many are left in the queue."""
        acks = [ack for ack in rig.load.acks().values() if ack.key not in self._closed]
        queue = rig.load.queue()
        runs = rig.load.runs()
        found = account.fates(acks, runs, queue, _named(rig))
        by_fate = {fate: [key for key, its in found.items() if its is fate] for fate in Fate}
        ids = {ack.key: ack.job for ack in acks}
        outcome.lost += [f"{key} ({ids[key]})" for key in by_fate[Fate.LOST]]
        outcome.killed += by_fate[Fate.KILLED]
        outcome.kept += by_fate[Fate.KEPT]
        outcome.held += by_fate[Fate.HELD]
        new = account.twice(runs) - self._twice
        outcome.twice += sorted(new)
        self._twice |= new
        self._closed |= found.keys() - set(by_fate[Fate.QUEUED])
        rig.load.recount(queue)
        ghosts = account.ghosts(runs, queue, time.time())
        outcome.ghosts += sorted({one.key for one in ghosts} - self._ghosts)
        self._ghosts |= {one.key for one in ghosts}
        self._closed |= self._ghosts
        done = [*(ids[key] for key in by_fate[Fate.HELD]), *(one.job for one in ghosts)]
        if done:  # a person has seen them now
            rig.load.command("scancel", *done)
        return len(set(by_fate[Fate.QUEUED]) - self._ghosts)


def _named(rig: Rig) -> dict[str, str]:
    """The jobs of which the guard has told, by ID, with what became of them."""
    try:
        told = json.loads(rig.annotation("recovered") or "{}")
        return {str(job["id"]): str(job["outcome"]) for job in told.get("jobs", [])}
    except (ValueError, KeyError, TypeError):
        return {}


class Row:
    """All repeats of one fault."""

    def __init__(self, rig: Rig, book: Book, fault: Fault, seed: int, evidence: Path) -> None:
        self._rig, self._book, self._fault, self._evidence = rig, book, fault, evidence
        self._seed = seed
        self._logs = ""
        self._slug = "".join(letter if letter.isalnum() else "-" for letter in fault.name.lower())

    def repeat(self, number: int, operator: bool) -> Outcome:
        """Never raises for what goes wrong in the cluster: that is what the outcome tells."""
        chance = random.Random(f"{self._seed} {self._fault.name} {number}")  # noqa: S311
        fault, did = pick_two(chance) if self._fault.pair else (self._fault, self._fault.name)
        outcome = Outcome(did, operator)
        prefix = f"{self._slug}.{number}"
        try:
            self._rig.make_whole(fault.standby)
            with self._rig.without_operator(not operator):
                self._hit(fault, prefix, chance, outcome)
        except Exception as error:
            outcome.failure = f"{type(error).__name__}: {error}"[:2000]
            self._keep(f"{self._slug}-{number}", traceback.format_exc(), outcome)
        else:
            if any((outcome.lost, outcome.twice, outcome.ghosts, outcome.drained, outcome.failure)):
                self._keep(f"{self._slug}-{number}", "", outcome)
        return outcome

    def _hit(self, fault: Fault, prefix: str, chance: random.Random, outcome: Outcome) -> None:
        rig = self._rig
        before = len(rig.load.acks())
        refused = rig.load.refused
        with rig.load.submitting(prefix):
            until("enough jobs are in flight", lambda: rig.load.in_flight() >= rig.load.most * 0.9, _FULL_DEADLINE)
            scene = Scene(rig, rig.target(), prefix, chance)
            try:
                with rig.load.watching(prefix, fault.interactive):
                    began = time.time()
                    until("those who watch are at work", lambda: time.time() - began > _WARM_UP)
                    for action in fault.before:
                        action(scene)
                    self._suffer(fault, scene, outcome)
                if fault.returns:
                    outcome.checks["returned"] = self._comes_back(scene)
            finally:
                self._logs = self._slurmctld_logs()
                for action in fault.undo:
                    action(scene)
        outcome.drained = rig.make_whole(fault.standby)
        self._book.close(rig, outcome)
        interactive = rig.load.interactive(outcome.fault_time - _WARM_UP, outcome.fault_time)
        outcome.interactive, outcome.interactive_broken = len(interactive), interactive.count(False)
        outcome.acknowledged = len(rig.load.acks()) - before
        outcome.refused = rig.load.refused - refused
        outcome.checks["stamps"] = self._stamps()
        bad = [f"{name}: {said}" for name, said in outcome.checks.items() if not said.startswith(("ok", "none"))]
        if bad:
            outcome.failure = "; ".join(bad)[:2000]

    def drain(self, outcome: Outcome, deadline: float = 150.0) -> None:
        """Let all that is in the queue run to its end, and account for it: only then a second run of a job shows."""
        before = len(outcome.twice)
        end = time.monotonic() + deadline
        while self._book.close(self._rig, outcome) and time.monotonic() < end:
            time.sleep(1.0)
        if len(outcome.twice) > before:
            self._keep(f"{self._slug}-drained", "", outcome)

    def _suffer(self, fault: Fault, scene: Scene, outcome: Outcome) -> None:
        """Do it, and wait until nothing is felt of it any more."""
        load = scene.rig.load
        began = outcome.fault_time = time.time()
        for number, action in enumerate(fault.does):
            if number and fault.pair:
                time.sleep(scene.chance.uniform(0, 2))  # how far apart they come is part of the fault
            action(scene)
        ended = False

        def over() -> bool:
            nonlocal ended
            if not ended and time.time() - began >= fault.lasts:
                ended = True
                for action in fault.ends:
                    action(scene)
            asks = [ask for ask in load.asks() if ask.begun >= began]
            outcome.answer_s = measure.answer_seconds(asks, began)
            outcome.job_s = measure.job_seconds(asks, load.acks().values(), load.runs(), began)
            last = measure.outage(asks, began).last or began
            calm = time.time() - last > _QUIET + 2  # an ask that hangs is known to have failed only two seconds later
            return ended and calm and outcome.answer_s is not None and outcome.job_s is not None

        try:
            until("slurmctld answers and a new job runs", over, fault.lasts + PATIENCE)
        finally:
            if not ended:
                for action in fault.ends:
                    action(scene)
        outcome.unanswered = measure.unanswered(load.asks(), began)
        outcome.slowest_s = measure.slowest_start(
            (ack for ack in load.acks().values() if ".probe." in ack.key), load.runs(), began
        )

    def _comes_back(self, scene: Scene) -> str:
        """Wake the lost node while the slurmctld that leads now stands still: nothing of its state may change."""
        now = self._rig.target()
        if now.uid == scene.target.uid:
            return "the slurmctld on the lost node still leads"
        volume = self._rig.state()
        folder = state.epoch(volume)
        if not folder:
            return f"not one epoch directory: {sorted(path.name for path in volume.iterdir())}"
        now.slurmctld.signal(signal.SIGSTOP)
        try:
            before = state.checksums(folder)
            actions.node("heal")(scene)
            deadline = time.monotonic() + _RETURN_WATCH
            while time.monotonic() < deadline and processes.slurmctld(scene.target.uid):
                time.sleep(0.1)
            alive = processes.slurmctld(scene.target.uid)
            after = state.checksums(folder) if folder.exists() else {}
        finally:
            now.slurmctld.signal(signal.SIGCONT)
        differ = state.changed(before, after)
        if differ:
            return f"the node that came back changed {differ[:5]}"
        return f"ok, {len(before)} files unchanged" + (", its slurmctld still ran after 3 s" if alive else "")

    def _stamps(self) -> str:
        folder = state.epoch(self._rig.state())
        file = folder / state.STAMPS if folder else None
        if not file or not file.exists():
            return "none yet"
        wrong = state.out_of_order(file.read_text(errors="replace"))
        return f"{len(wrong)} out of order: {wrong[:3]}" if wrong else "ok"

    def _keep(self, name: str, trace: str, outcome: Outcome) -> None:
        """What a person needs to see what went wrong."""
        folder = self._evidence / name
        folder.mkdir(parents=True, exist_ok=True)
        rig = self._rig
        (folder / "outcome.json").write_text(json.dumps(outcome.__dict__, indent=1, default=str) + "\n")
        (folder / "traceback.txt").write_text(trace)
        keys = {line.split()[0] for line in (*outcome.lost, *outcome.twice, *outcome.killed, *outcome.ghosts)}
        acks = [vars(ack) for ack in rig.load.acks().values() if ack.key in keys]
        runs = [vars(run) for run in rig.load.runs() if run.key in keys]
        (folder / "jobs.json").write_text(json.dumps({"acks": acks, "runs": runs}, indent=1) + "\n")
        asks = [f"{ask.begun:.3f} {ask.ended:.3f} {ask.answered}\n" for ask in rig.load.asks()[-600:]]
        (folder / "asks.txt").write_text("".join(asks))
        self._ask(folder / "pods.txt", "get", "pods,lease", "--output=wide")
        self._ask(folder / "lease.yaml", "get", f"lease/{rig.cluster.name}-slurmctld", "--output=yaml")
        self._ask(folder / "events.txt", "get", "events", "--sort-by=.lastTimestamp")
        (folder / "slurmctld.txt").write_text(self._logs)

    def _slurmctld_logs(self) -> str:
        """What slurmctld and its guard said; read before the pod is replaced."""
        selector = "--selector=app.kubernetes.io/component=slurmctld"
        return self._kubectl("logs", selector, "--tail=3000", "--prefix")

    def _ask(self, file: Path, *words: str) -> None:
        file.write_text(self._kubectl(*words))

    def _kubectl(self, *words: str) -> str:
        try:
            answer = self._rig.cluster.kubectl("--request-timeout=10s", *words, check=False)
        except Exception as error:  # a report that fails must not hide what it is about
            return f"{error}\n"
        return answer.stdout + answer.stderr
