"""`make flakes`: run tests again and again beside CPU hogs, and report which of them failed and how often.

A test that passes on a quiet machine and fails on a busy one depends on how fast the machine is. This finds it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

LOGS = Path("build/flakes")
MOST_RUNS, MOST_HOGS = 10_000, 1_000
# It ends with us even if we are killed and can't end it.
HOG = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(1_000_000))"


@dataclass(frozen=True)
class Run:
    """One run of all tests."""

    passed: int
    failed: tuple[str, ...]
    """The names of the tests that failed; or what went wrong, where no test can be blamed."""
    seconds: float


def main(words: Sequence[str] | None = None) -> int:
    asked = _arguments(words)
    print(f"{asked.runs} runs beside {asked.hogs} CPU hogs: pytest {' '.join(asked.pytest)}", flush=True)
    runs: list[Run] = []
    with _hogs(asked.hogs):
        for number in range(1, asked.runs + 1):
            log = LOGS / f"run-{number}.txt"
            runs.append(_run(asked.pytest, log))
            for line in progress(number, asked.runs, runs[-1], log):
                print(line, flush=True)
    print(*report(runs), sep="\n")
    return 1 if any(run.failed for run in runs) else 0


def progress(number: int, of: int, run: Run, log: Path) -> Iterator[str]:
    """What one run came to."""
    yield f"run {number} of {of}: {run.passed} passed, {len(run.failed)} failed in {run.seconds:.0f} s"
    for name in run.failed:
        yield f"  {name}"
    if run.failed:
        yield f"  its output is in {log}"


def report(runs: Sequence[Run]) -> Iterator[str]:
    """Which tests failed and how often, those that fail most often first."""
    failures = Counter(name for run in runs for name in run.failed)
    if not failures:
        yield f"no test failed in {len(runs)} runs"
        return
    some = "1 test" if len(failures) == 1 else f"{len(failures)} tests"
    yield f"{some} failed in {sum(bool(run.failed) for run in runs)} of {len(runs)} runs:"
    width = len(f"{max(failures.values())} of {len(runs)}")
    for name, count in sorted(failures.items(), key=lambda each: (-each[1], each[0])):
        yield f"  {f'{count} of {len(runs)}':>{width}}  {name}"


def outcome(junit: str) -> tuple[int, tuple[str, ...]]:
    """How many tests passed, and the names of those that failed, from what pytest has written for JUnit."""
    passed, failed = 0, []
    for case in ElementTree.fromstring(junit).iter("testcase"):  # noqa: S314 (pytest has written it)
        told = {part.tag for part in case}
        if told & {"failure", "error"}:
            failed.append(_name(case))
        elif "skipped" not in told:
            passed += 1
    return passed, tuple(dict.fromkeys(failed))


def _name(case: ElementTree.Element) -> str:
    """As pytest takes it: file, class and test."""
    file, test = case.get("file", ""), case.get("name", "")
    module = file.removesuffix(".py").replace("/", ".")
    classes = case.get("classname", "").removeprefix(module).strip(".")
    return "::".join(filter(None, (file, *classes.split("."), test)))


def _run(words: Sequence[str], log: Path) -> Run:
    log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, log.open("wb") as output:
        junit = Path(folder) / "junit.xml"
        command = [sys.executable, "-m", "pytest", *words, f"--junit-xml={junit}", "-o", "junit_family=xunit1"]
        code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
        passed, failed = outcome(junit.read_text()) if junit.exists() else (0, ())
    if code not in (0, 1) or (code == 1 and not failed):
        failed = (*failed, f"(pytest itself: exit code {code})")
    return Run(passed, failed, time.monotonic() - began)


@contextmanager
def _hogs(count: int) -> Iterator[None]:
    hogs: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            hogs.append(subprocess.Popen([sys.executable, "-c", HOG]))
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


class _Parser(argparse.ArgumentParser):
    """One line for a mistake; `--help` has the rest."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def _number(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {least} to {most}")
        return number

    return read


def _arguments(words: Iterable[str] | None) -> argparse.Namespace:
    cores = os.cpu_count() or 1
    parser = _Parser(prog="make flakes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=_number(1, MOST_RUNS), default=20, help="how often all tests run (20)")
    parser.add_argument(
        "--hogs", type=_number(0, MOST_HOGS), default=cores, help=f"how many CPU hogs (one per core: {cores})"
    )
    parser.add_argument("pytest", nargs="+", help="what pytest gets, behind --")
    return parser.parse_args(None if words is None else list(words))


if __name__ == "__main__":
    sys.exit(main())
