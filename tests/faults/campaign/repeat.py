"""One repeat: a fault, what was felt of it, and what became of the jobs."""

from __future__ import annotations

import json
import random
import signal
import time
import traceback
from pathlib import Path

from tests.harness import until

from . import actions, measure, processes, state
from .actions import Scene
from .book import Book, Outcome
from .rig import SYSTEM, Rig
from .table import Fault, pick_two

PATIENCE = 240.0
_FULL_DEADLINE = 240.0
_QUIET = 1.5
_RETURN_WATCH = 3.0
_WARM_UP = 3.0
_THEN = 12.0
"""Within how many seconds after the fault the second one comes: until the first has been dealt with."""


class Row:
    """All repeats of one fault."""

    def __init__(self, rig: Rig, book: Book, fault: Fault, seed: int, evidence: Path) -> None:
        self._rig, self._book, self._fault, self._evidence = rig, book, fault, evidence
        self._seed = seed
        self._logs = ""
        self._looks = 0
        self._slug = "".join(letter if letter.isalnum() else "-" for letter in fault.name.lower())

    def repeat(self, number: int, operator: bool) -> Outcome:
        """Never raises for what goes wrong in the cluster: that is what the outcome tells."""
        chance = random.Random(f"{self._seed} {self._fault.name} {number}")  # noqa: S311
        fault, did = pick_two(chance) if self._fault.pair else (self._fault, self._fault.name)
        outcome = Outcome(did, operator)
        prefix = f"{self._slug}.{number}"
        try:
            self._rig.make_whole(fault.standby, evenly=True)
            with self._rig.without_operator(not operator):
                self._hit(fault, prefix, chance, outcome)
        except Exception as error:
            outcome.failure = f"{type(error).__name__}: {error}"[:2000]
            self._keep(f"{self._slug}-{number}", traceback.format_exc(), outcome)
        else:
            late = [name for name, most in fault.expected.items() if (getattr(outcome, name) or 0.0) > most]
            if any((outcome.lost, outcome.twice, outcome.ghosts, outcome.drained, outcome.failure, late)):
                self._keep(f"{self._slug}-{number}", "", outcome)
        return outcome

    def _hit(self, fault: Fault, prefix: str, chance: random.Random, outcome: Outcome) -> None:
        rig = self._rig
        before = len(rig.load.acks())
        refused = rig.load.refused
        with rig.load.submitting(prefix):
            until("enough jobs are in flight", lambda: rig.load.in_flight() >= rig.load.most * 0.9, _FULL_DEADLINE)
            scene = self._scene(prefix, chance)
            try:
                with rig.load.watching(prefix, fault.interactive, looking=fault.whole is not None):
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

    def _scene(self, prefix: str, chance: random.Random) -> Scene:
        rig = self._rig
        if not rig.shape.pool_dies:
            return Scene(rig, rig.target(), prefix, chance)
        machines = tuple(chance.sample(rig.mortal, len(rig.mortal)))
        return Scene(rig, rig.target(), prefix, chance, machines, rig.pool())

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
        began = felt = outcome.fault_time = time.time()
        for number, action in enumerate(fault.does):
            if number and fault.pair:
                time.sleep(scene.chance.uniform(0, 2))  # how far apart they come is part of the fault
            action(scene)
        coming = {"end": (fault.lasts, fault.ends)}
        if fault.then:
            coming["then"] = (scene.chance.uniform(0, _THEN), fault.then)
            felt += coming["then"][0]

        def come(name: str) -> None:
            for action in coming.pop(name)[1]:
                action(scene)

        def over() -> bool:
            for name, (at, _) in sorted(coming.items(), key=lambda each: each[1][0]):
                if time.time() - began >= at:
                    come(name)
            asks = [ask for ask in load.asks() if ask.begun >= felt]
            outcome.answer_s = measure.answer_seconds(asks, felt)
            outcome.job_s = measure.job_seconds(asks, load.acks().values(), load.runs(), felt)
            last = measure.outage(asks, felt).last or felt
            calm = time.time() - last > _QUIET + 2  # an ask that hangs is known to have failed only two seconds later
            answers = calm and outcome.answer_s is not None and outcome.job_s is not None
            watched = time.time() - began > fault.lasts + fault.afterwards
            return self._is_whole(fault, outcome) and answers and watched and not coming

        what = "slurmctld answers and a new job runs" + ("" if fault.whole is None else ", and the pool is whole")
        try:
            until(what, over, fault.lasts + fault.afterwards + PATIENCE)
        finally:
            if "end" in coming:
                come("end")
        outcome.unanswered = measure.unanswered(load.asks(), began)
        outcome.slowest_s = measure.slowest_start(
            (ack for ack in load.acks().values() if ".probe." in ack.key), load.runs(), began, time.time()
        )

    def _is_whole(self, fault: Fault, outcome: Outcome) -> bool:
        """Whether the pool has as many nodes that take jobs as it should, and keeps them; yes where it wasn't hit."""
        if fault.whole is None:
            return True
        rig, began = self._rig, outcome.fault_time
        looks = [look for look in rig.load.looks() if look.begun >= began]
        if len(looks) != self._looks:
            self._looks = len(looks)
            alive_twice = rig.namesakes()
            if alive_twice:
                outcome.checks["names"] = f"two slurmds at once are {', '.join(alive_twice)}"
            outcome.checks.setdefault("names", "ok")
        asks = measure.whole(looks, rig.shape.replicas, rig.away)
        outcome.whole_s = measure.answer_seconds(asks, began)
        last = measure.outage(asks, began).last or began
        return outcome.whole_s is not None and time.time() - last > _QUIET

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
        asks = [f"{ask.begun:.3f} {ask.ended:.3f} {ask.answered} {ask.said}\n" for ask in rig.load.asks()[-600:]]
        (folder / "asks.txt").write_text("".join(asks))
        looks = [f"{look.begun:.3f} {look.ended:.3f} {sorted(look.taking or ())}\n" for look in rig.load.looks()[-600:]]
        (folder / "looks.txt").write_text("".join(looks))
        (folder / "away.txt").write_text("".join(f"{each}\n" for each in rig.away))
        self._ask(folder / "pods.txt", "get", "pods,lease", "--output=wide")
        self._ask(folder / "lease.yaml", "get", f"lease/{rig.cluster.name}-slurmctld", "--output=yaml")
        self._ask(folder / "events.txt", "get", "events", "--sort-by=.lastTimestamp")
        operator = (
            "logs",
            "deployment/seltzer-operator",
            "--all-pods",
            "--namespace",
            SYSTEM,
            "--tail=3000",
            "--prefix",
        )
        self._ask(folder / "operator.txt", *operator)
        nodes = rig.load.command("scontrol", "--oneliner", "show", "nodes")
        (folder / "nodes.txt").write_text("".join(nodes[1:]))
        (folder / "slurmctld.txt").write_text(self._logs)

    def _slurmctld_logs(self) -> str:
        """What slurmctld and its guard said; read before the pod is replaced."""
        selector = "--selector=app.kubernetes.io/component=slurmctld"
        return self._kubectl("logs", selector, "--tail=30000", "--prefix")

    def _ask(self, file: Path, *words: str) -> None:
        file.write_text(self._kubectl(*words))

    def _kubectl(self, *words: str) -> str:
        try:
            answer = self._rig.cluster.kubectl("--request-timeout=10s", *words, check=False)
        except Exception as error:  # a report that fails must not hide what it is about
            return f"{error}\n"
        return answer.stdout + answer.stderr
