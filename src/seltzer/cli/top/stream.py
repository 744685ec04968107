"""Slurm's answers from one command that keeps running in slurmctld's container.

A new `kubectl exec` per second would cost the API server, the kubelet and slurmctld's pod a process each. This command
answers each line of its input, which limits the rate of questions, and ends with its input: a killed caller leaves
nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from seltzer.errors import SeltzerError

_MOST = 64 << 20
# $0 follows each part of an answer: the command's output, then its exit code with its error output.
_LOOP = r"""
while read -r _; do
    { said=$("$@" 2>&1 >&3); } 3>&1
    printf "%s%s %s%s" "$0" "$?" "$said" "$0" || exit
done
"""


class StreamEnded(SeltzerError):
    """There are no more answers: the command ended or timed out, or its pod is gone."""


class NoAnswer(SeltzerError):
    """One round failed, with the command's error message. The next may succeed."""


@dataclass(frozen=True)
class Answer:
    """The output and exit code of one round."""

    text: str
    code: int
    complaint: str = ""

    def checked(self) -> str:
        """The text. Raises NoAnswer if the command failed."""
        if self.code:
            lines = [line.strip() for line in self.complaint.splitlines() if line.strip()]
            raise NoAnswer(lines[-1] if lines else f"exit code {self.code}")
        return self.text


@dataclass(frozen=True)
class Pace:
    """The interval between questions and the deadline of an answer, in seconds. Setting `hurry` asks at once."""

    interval: float = 1.0
    share: float = 4.0
    """The pause after an answer, as a multiple of the time that it took."""
    deadline: float = 75.0
    hurry: asyncio.Event = field(default_factory=asyncio.Event)

    def pause(self, took: float) -> float:
        """The pause after an answer that took so long. It limits the load on slurmctld."""
        return max(self.interval, self.share * took)


@dataclass(frozen=True)
class Loop:
    """A command that runs once for each line of its input. Its separator is random and can't occur in its output."""

    command: Sequence[str]
    separator: str = field(default_factory=lambda: f"\x1e{secrets.token_hex(8)}\x1e")

    @property
    def words(self) -> list[str]:
        return ["sh", "-c", _LOOP, self.separator, *self.command]


async def answers(start: Sequence[str], loop: Loop, pace: Pace) -> AsyncGenerator[Answer, None]:
    """Starts the loop with these words in front and yields its answers. Its end raises StreamEnded."""
    process = await asyncio.create_subprocess_exec(
        *start,
        *loop.words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=_MOST,
        start_new_session=True,  # a Ctrl-C in the terminal must not reach it
    )
    try:
        while True:
            pace.hurry.clear()
            started = time.monotonic()
            yield await _ask(process, loop.separator.encode(), pace.deadline)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(pace.hurry.wait(), pace.pause(time.monotonic() - started))
    finally:
        await end(process)


async def end(process: asyncio.subprocess.Process) -> None:
    """Kills a process that has its own session, and all its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def _ask(process: asyncio.subprocess.Process, separator: bytes, deadline: float) -> Answer:
    assert process.stdin and process.stdout
    try:
        async with asyncio.timeout(deadline):
            process.stdin.write(b"\n")
            await process.stdin.drain()
            text, end = [await process.stdout.readuntil(separator) for _ in range(2)]
    except TimeoutError:
        raise StreamEnded(f"no answer in {deadline:.0f} s") from None
    except asyncio.LimitOverrunError:
        raise StreamEnded(f"an answer of more than {_MOST >> 20} MiB") from None
    except (asyncio.IncompleteReadError, ConnectionError):
        raise StreamEnded(await _last_words(process)) from None
    code, _, complaint = _text(end, separator).partition(" ")
    return Answer(_text(text, separator), int(code), complaint)


def _text(part: bytes, separator: bytes) -> str:
    return part.removesuffix(separator).decode(errors="replace")


async def _last_words(process: asyncio.subprocess.Process) -> str:
    assert process.stderr
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            said = (await process.stderr.read(4096)).decode(errors="replace")
            lines = [line.strip() for line in said.splitlines() if line.strip()]
            return lines[-1] if lines else "the command in slurmctld's pod ended"
    return "the command in slurmctld's pod ended"
