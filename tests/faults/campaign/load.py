"""What goes on while the faults come: jobs are submitted, slurmctld is asked, and both are written down.

Everything runs in the namespaces of a login pod, as its user, but is started from here: no API server is needed, and
what was acknowledged is known outside of anything that a fault could reach.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from .account import QUEUE_FORMAT, Ack, Queued, Run, read_queue, read_runs
from .measure import Ask, Look, read_nodes
from .processes import run_inside
from .shape import EVIDENCE, POOL_NAME

USER = 1000
ASK_EVERY = 0.2
LOOK_EVERY = 0.5
PROBE_EVERY = 0.4
INTERACT_EVERY = 0.7
_ASK_DEADLINE = 2.0
_PROBE_DEADLINE = 3.0
_SUBMIT_DEADLINE = 30.0
_INTERACT_DEADLINE = 15.0
_SUBMITTERS = 2
_MOST_PER_SECOND = 12
# How long the jobs of the load run, in turn.
_SECONDS = (2, 8, 3, 7, 4, 6, 5)
_JOB = f"""#!/bin/sh
job="$SLURM_JOB_NAME $SLURM_JOB_ID ${{SLURM_RESTART_COUNT:-0}} $SLURMD_NODENAME"
say() {{ echo "$(date +%s.%N) $1 $job" >>{EVIDENCE}/runs; }}
say start
# Whoever ends a job may end the sleep before the shell: that is no end of the job by itself.
sleep "$1" || exit
say end
"""


class Load:
    """The users of a cluster. `evidence` is the folder, on this machine, of the volume that all jobs see.

    They keep `most` jobs in flight, half of them with --no-requeue.
    """

    def __init__(self, login: Callable[[], int], evidence: Path, most: int) -> None:
        self._login, self._evidence, self.most = login, evidence, most
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._submitting = threading.Event()
        self._numbers = itertools.count(1)
        self._prefix = "x"
        self._tag = f"{int(time.time()) % 1_000_000}"  # a key is used once, also by two campaigns on one cluster
        self._open: set[str] = set()
        self._ended: set[str] = set()
        self._acks: dict[str, Ack] = {}
        self._asks: list[Ask] = []
        self._looks: list[Look] = []
        self._interactive: dict[float, bool] = {}
        self._runs: list[Run] = []
        self.refused = 0
        evidence.chmod(0o777)
        (evidence / "runs").touch()
        (evidence / "runs").chmod(0o666)
        self._read = (evidence / "runs").stat().st_size  # what an earlier campaign left is none of our business
        (evidence / "job").write_text(_JOB)
        (evidence / "job").chmod(0o755)

    def start(self) -> None:
        for _ in range(_SUBMITTERS):
            threading.Thread(target=self._submit_all, daemon=True).start()

    def end(self) -> None:
        self._over.set()

    def command(self, *words: str, deadline: float = 10.0) -> tuple[int, str, str]:
        """Run a command on the login pod."""
        return run_inside(self._login(), USER, words, deadline)

    @contextmanager
    def submitting(self, prefix: str) -> Iterator[None]:
        """Keep so many jobs in flight; their names begin like this."""
        self._prefix = prefix
        self._submitting.set()
        try:
            yield
        finally:
            self._submitting.clear()

    @contextmanager
    def watching(self, prefix: str, interactive: bool = False, looking: bool = False) -> Iterator[None]:
        """Ask slurmctld, and submit jobs that find a free node, several times a second.

        If asked, have srun at work, or look at the nodes of the pool.
        """
        over = threading.Event()
        steady: list[tuple[float, Callable[[], None]]] = [
            (ASK_EVERY, self._ask),
            (PROBE_EVERY, lambda: self._probe(prefix)),
            *([(LOOK_EVERY, self._look)] if looking else []),
        ]
        with ThreadPoolExecutor(40) as pool:
            turns = [
                threading.Thread(target=self._repeat, args=(pool, over, every, act), daemon=True)
                for every, act in steady
            ]
            if interactive:
                turns.append(threading.Thread(target=self._interact, args=(over,), daemon=True))
            for turn in turns:
                turn.start()
            try:
                yield
            finally:
                over.set()
                for turn in turns:
                    turn.join()

    def burst(self, prefix: str, count: int) -> float:
        """Submit so many jobs at once; how many seconds that took. Fails where one is refused."""
        begun = time.time()
        with ThreadPoolExecutor(8) as pool:
            submit = partial(self._submit, f"{prefix}.burst", POOL_NAME, "1", _SUBMIT_DEADLINE)
            done = list(pool.map(lambda _: submit(), range(count)))
        assert all(done), f"{done.count(False)} of {count} submissions were refused"
        return time.time() - begun

    def acks(self) -> dict[str, Ack]:
        with self._lock:
            return dict(self._acks)

    def asks(self) -> list[Ask]:
        with self._lock:
            return list(self._asks)

    def looks(self) -> list[Look]:
        with self._lock:
            return list(self._looks)

    def runs(self) -> list[Run]:
        """All that the jobs have written by now."""
        with self._lock:
            with (self._evidence / "runs").open() as file:
                file.seek(self._read)
                text = file.read()
            whole = text[: text.rfind("\n") + 1]
            self._read += len(whole.encode())
            new = read_runs(whole)
            self._runs += new
            self._ended |= {run.key for run in new if run.what == "end"}
            self._open -= self._ended
            return list(self._runs)

    def interactive(self, since: float, until: float) -> list[bool]:
        """Those who began an srun in this time: whether it ended well, which one that hangs didn't."""
        with self._lock:
            return [well for begun, well in self._interactive.items() if since <= begun <= until]

    def queue(self, deadline: float = 60.0) -> dict[str, Queued]:
        """All jobs that slurmctld knows, asked until it answers."""
        end = time.monotonic() + deadline
        while True:
            code, said, error = self.command("squeue", "--noheader", "--states=all", f"--Format={QUEUE_FORMAT}")
            if code == 0:
                return read_queue(said)
            assert time.monotonic() < end, f"squeue: {error}"
            time.sleep(0.5)

    def in_flight(self) -> int:
        """How many jobs have been acknowledged and are neither known to have ended nor written off."""
        self.runs()
        with self._lock:
            return len(self._open)

    def recount(self, queue: dict[str, Queued]) -> None:
        """Write off what the queue doesn't have any more, so that as many are in flight as there should be."""
        with self._lock:
            self._open = {key for key in self._open if key in queue and queue[key].alive}

    def _submit_all(self) -> None:
        while not self._over.is_set():
            if not self._submitting.wait(0.5):
                continue
            begun = time.monotonic()
            if self.in_flight() < self.most:
                seconds = _SECONDS[len(self._acks) % len(_SECONDS)]
                self._submit(self._prefix, POOL_NAME, str(seconds), _SUBMIT_DEADLINE, wary=True)
            self._over.wait(max(0.01, _SUBMITTERS / _MOST_PER_SECOND - (time.monotonic() - begun)))

    def _submit(self, prefix: str, partition: str, seconds: str, deadline: float, wary: bool = False) -> bool:
        number = next(self._numbers)
        key, requeue = f"{prefix}.{self._tag}-{number}", not (wary and number % 2)
        begun = time.time()
        options = ("--parsable", f"--job-name={key}", f"--partition={partition}", "--output=/dev/null", "--chdir=/")
        more = () if requeue else ("--no-requeue",)
        code, said, _ = self.command("sbatch", *options, *more, f"{EVIDENCE}/job", seconds, deadline=deadline)
        ack = Ack(key, said.strip(), begun, time.time(), requeue)
        with self._lock:
            if code == 0 and ack.job.isdigit():
                self._acks[key] = ack
                self._open |= {key} - self._ended
                return True
            self.refused += 1
            return False

    def _probe(self, prefix: str) -> None:
        self._submit(f"{prefix}.probe", "probe", "0", _PROBE_DEADLINE)

    def _interact(self, over: threading.Event) -> None:
        """A new srun at a steady pace; nobody waits for those that hang."""
        while not over.wait(INTERACT_EVERY):
            threading.Thread(target=self._srun, daemon=True).start()

    def _srun(self) -> None:
        begun = time.time()
        with self._lock:
            self._interactive[begun] = False
        words = ("srun", "--partition=probe", "--job-name=interactive", "--chdir=/", "--quiet", "sleep", "2")
        code, _, _ = self.command(*words, deadline=_INTERACT_DEADLINE)
        with self._lock:
            self._interactive[begun] = code == 0

    def _ask(self) -> None:
        begun = time.time()
        code, said, error = self.command("scontrol", "ping", deadline=_ASK_DEADLINE)
        answered = code == 0 and "is UP" in said
        ask = Ask(begun, time.time(), answered, "" if answered else " ".join(f"{code} {said} {error}".split()))
        with self._lock:
            self._asks.append(ask)

    def _look(self) -> None:
        begun = time.time()
        code, said, _ = self.command("scontrol", "--oneliner", "show", "nodes", deadline=_ASK_DEADLINE)
        look = Look(begun, time.time(), read_nodes(said, POOL_NAME) if code == 0 else None)
        with self._lock:
            self._looks.append(look)

    def _repeat(self, pool: ThreadPoolExecutor, over: threading.Event, every: float, act: Callable[[], None]) -> None:
        """At a steady pace, however long each takes: one that hangs must not hide that the next would be answered."""
        turn = time.monotonic()
        while not over.is_set():
            pool.submit(act)
            turn = max(turn + every, time.monotonic())
            over.wait(max(0.0, turn - time.monotonic()))
