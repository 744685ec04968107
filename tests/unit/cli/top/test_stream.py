"""One command answers again and again, and is gone when nobody asks any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from seltzer.cli.top.stream import Answer, Loop, NoAnswer, Pace, StreamEnded, answers

QUICK = Pace(interval=0.0, share=0.0)


@asynccontextmanager
async def asked(*command: str, pace: Pace = QUICK, start: tuple[str, ...] = ()) -> AsyncIterator[AsyncIterator[Answer]]:
    async with aclosing(answers(start, Loop(command), pace)) as rounds:
        yield aiter(rounds)


async def test_each_question_is_answered_by_a_new_run_of_one_command(tmp_path: Path) -> None:
    script = f'echo "$PPID $1" >>{tmp_path}/runs; cat {tmp_path}/runs'
    async with asked("sh", "-c", script, "sh", "a b") as rounds:
        first, second = await anext(rounds), await anext(rounds)
    assert second.checked().splitlines() == [first.checked().strip()] * 2  # the same parent


async def test_whatever_a_command_prints_is_one_answer() -> None:
    text = "a\n\n\x1e0\n\x1f\x00%s \\n'\"$0 `x` ü\n\n"
    async with asked("printf", "%b", text.replace("\\", "\\\\").replace("\x00", "\\0000")) as rounds:
        for _ in range(2):
            assert (await anext(rounds)).checked() == text


async def test_a_long_answer_comes_whole() -> None:
    async with asked("sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x") as rounds:
        assert (await anext(rounds)).checked() == "x" * 3_000_000


async def test_a_round_that_fails_tells_why_and_the_next_may_not(tmp_path: Path) -> None:
    command = f"ls {tmp_path}/there >/dev/null || {{ echo 'can not >&2'; echo too bad >&2; exit 3; }}; echo good"
    async with asked("sh", "-c", command) as rounds:
        failed = await anext(rounds)
        assert failed.code == 3
        with pytest.raises(NoAnswer, match=r"^too bad$"):
            failed.checked()
        (tmp_path / "there").touch()
        assert (await anext(rounds)).checked() == "good\n"


async def test_what_a_command_only_remarks_is_no_part_of_its_answer() -> None:
    async with asked("sh", "-c", "echo note >&2; echo answer") as rounds:
        assert (await anext(rounds)).checked() == "answer\n"


async def test_a_command_that_ends_tells_its_last_words() -> None:
    with pytest.raises(StreamEnded, match="no such pod"):
        async with asked("true", start=("sh", "-c", "echo 'no such pod' >&2; exit 1")) as rounds:
            await anext(rounds)


async def test_a_command_that_is_not_there_is_reported_too() -> None:
    async with asked("/nowhere/at/all") as rounds:
        assert (await anext(rounds)).code == 127


@pytest.mark.real_time
async def test_silence_ends_it() -> None:
    with pytest.raises(StreamEnded, match="no answer in 0 s"):
        async with asked("sleep", "60", pace=Pace(0.0, deadline=0.2)) as rounds:
            await anext(rounds)


async def test_it_ends_with_its_input(tmp_path: Path) -> None:
    """As in a container, where nobody kills what `kubectl exec` has started: its input ends, and no more."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*Loop(["echo", "x"], separator="|").words, stdin=pipe, stdout=pipe)
    said, _ = await process.communicate(b"\n\n")
    assert (process.returncode, said) == (0, b"x\n|0 |x\n|0 |")


@pytest.mark.real_time
async def test_what_it_has_started_is_ended_with_it(tmp_path: Path) -> None:
    script = f"echo $$ >{tmp_path}/new && mv {tmp_path}/new {tmp_path}/pid; sleep 3600"
    async with asked("sh", "-c", script) as rounds:
        asking = asyncio.create_task(_next(rounds))
        while not (tmp_path / "pid").exists():
            await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    while _runs(int((tmp_path / "pid").read_text())):
        await asyncio.sleep(0.01)


async def _next(rounds: AsyncIterator[Answer]) -> Answer:
    return await anext(rounds)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_hurry_ends_the_pause() -> None:
    pace = Pace(interval=3600.0)
    async with asked("echo", "x", pace=pace) as rounds:
        await anext(rounds)
        asking = asyncio.create_task(_next(rounds))
        await asyncio.sleep(0)
        assert not asking.done()
        pace.hurry.set()
        assert (await asking).checked() == "x\n"


def test_a_slow_answer_makes_it_ask_less_often() -> None:
    """slurmctld isn't asked more often than it can easily answer."""
    pace = Pace(interval=1.0, share=4.0)
    assert [pace.pause(took) for took in (0.05, 0.25, 2.0)] == [1.0, 1.0, 8.0]
