"""`seltzer top` in a terminal that only exists in memory: what is on the screen, and what keys do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from cyclopts import CycloptsError
from tests.fakes.top_world import HandFeed, ToldActions, event, facts, job, lease, node
from textual.events import Key, MouseScrollDown, MouseScrollUp
from textual.pilot import Pilot
from textual.scrollbar import ScrollTo

from seltzer.cli.top import command
from seltzer.cli.top.app import Top
from seltzer.cli.top.table import Table, Tables
from seltzer.errors import SeltzerError
from seltzer.view.facts import Facts
from seltzer.view.frame import Update

DRAINED = node("cpu-1", "IDLE", "DRAIN", reason="bad fan", by="grace")
DEMO = facts(
    [node("cpu-0", jobs=True), DRAINED],
    [job(7, "cpu-0", name="train"), job(8, reason="Resources", name="wait")],
    [event("Created", "created cpu-[0-1]", ago=60), event("Crashed", "slurmctld crashed", warns=True, ago=5)],
)

CHARACTERS = {"space": " ", "colon": ":", "slash": "/", "question_mark": "?"}
NAMES = {character: name for name, character in CHARACTERS.items()}


class Seen:
    """A running `seltzer top`, as somebody in front of it sees it."""

    def __init__(self, pilot: Pilot[None], app: Top, feed: HandFeed, actions: ToldActions) -> None:
        self.pilot, self.app, self.feed, self.actions = pilot, app, feed, actions

    @property
    def screen(self) -> str:
        """All that can be read."""
        width, height = self.app.size
        strips = self.app.screen._compositor.render_strips()
        assert (len(strips), width > 0) == (height, True)
        return "\n".join(strip.text.rstrip() for strip in strips)

    def line(self, word: str) -> str:
        """The first line with that word."""
        return next((each for each in self.screen.splitlines() if word in each), "")

    async def until(self, what: Callable[[], Any]) -> None:
        while not what():
            await self.pilot.pause(0.01)

    async def sees(self, *words: str) -> None:
        await self.until(lambda: all(word in self.screen for word in words))

    async def sees_no(self, word: str) -> None:
        await self.until(lambda: word not in self.screen)

    async def press(self, *keys: str) -> None:
        """One after the other, and until nothing more comes of them."""
        for key in keys:
            self.hurry(key)
            await self.pilot.pause(0)
        await self.pilot.pause()

    def hurry(self, *keys: str) -> None:
        """Faster than anybody looks."""
        for key in keys:
            self.app.post_message(Key(key, CHARACTERS.get(key, key if len(key) == 1 else None)))

    async def type(self, words: str) -> None:
        await self.press(*(NAMES.get(each, each) for each in words))

    async def tell(self, known: Facts, trouble: str = "") -> None:
        self.feed.tell(Update(known, trouble))
        await self.pilot.pause()

    @property
    def is_laid_out(self) -> bool:
        """The tables fill what is between the header and the keys."""
        tables = self.app.screen_stack[0].query(Table)
        return sum(each.outer_size.height for each in tables) == self.app.query_one(Tables).size.height

    @property
    def selected(self) -> str:
        """The node under the cursor."""
        row = self.table("nodes").selected
        return row.name if row else ""

    @property
    def is_grey(self) -> bool:
        style = next(iter(self.table("nodes").render_line(1))).style
        return bool(style and style.dim)

    def table(self, name: str) -> Table[Any]:
        found: Table[Any] = self.app.screen_stack[0].query_one(f"#{name}", Table)
        return found


@asynccontextmanager
async def opened(known: Facts = DEMO, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Seen]:
    feed, actions = HandFeed(Update(known)), ToldActions()
    app = Top("demo", feed, actions)
    async with app.run_test(size=size, notifications=True) as pilot:
        seen = Seen(pilot, app, feed, actions)
        await seen.sees("by trouble")
        await seen.until(lambda: seen.is_laid_out)
        yield seen


async def test_everything_is_on_the_screen() -> None:
    async with opened() as seen:
        await seen.sees("cpu-0", "cpu-1", "train", "wait", "created cpu-[0-1]")
        assert "Slurm 26.05.5" in seen.line("demo")
        assert "1 mixed  1 drained" in seen.line("nodes 2")
        assert "1 running  1 pending" in seen.line("nodes 2")
        assert seen.line("cpu-0").split()[:3] == ["cpu-0", "mixed", "7"]
        assert "grace 1m ago: bad fan" in seen.line("cpu-1")
        assert "running" in seen.line("train")
        assert "Resources" in seen.line("wait")
        assert "!" in seen.line("slurmctld crashed")
        assert seen.screen.index("slurmctld crashed") < seen.screen.index("created cpu-[0-1]")


async def test_what_changes_is_seen() -> None:
    async with opened() as seen:
        await seen.tell(facts([node("cpu-0"), node("cpu-2")], [job(9, name="other")]))
        await seen.sees("cpu-2", "other")
        assert "train" not in seen.screen
        assert "idle" in seen.line("cpu-0")


async def test_only_the_lines_that_changed_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [node(f"cpu-{at}") for at in range(1000)]
    jobs = [job(at) for at in range(5000)]
    async with opened(facts(many, jobs)) as seen:
        await seen.until(lambda: seen.table("queue").rows)
        table, drawn = seen.table("nodes"), list[int]()
        before = Table.render_line

        def counted(self: Table[Any], y: int) -> Any:
            if self is table:
                drawn.append(y)
            return before(self, y)

        monkeypatch.setattr(Table, "render_line", counted)
        many[2] = node("cpu-2", "DOWN")
        await seen.press("s")  # by name, so that nothing moves
        await seen.sees("by name")
        drawn.append(0)
        while drawn:  # until all is drawn that had to be
            drawn.clear()
            await seen.pilot.pause(0.2)
        await seen.tell(facts(many, jobs))
        await seen.until(lambda: "down" in seen.line("cpu-2 "))
        assert set(drawn) <= {3}
        assert "999 idle  1 down" in seen.screen


async def test_the_last_of_a_thousand_nodes_is_a_key_away() -> None:
    async with opened(facts([node(f"cpu-{at}") for at in range(1000)])) as seen:
        await seen.press("end")
        await seen.sees("cpu-999")
        await seen.press("r")
        await seen.until(lambda: seen.actions.asked)
        assert seen.actions.asked == [("resume", "cpu-999")]
        await seen.press("home")
        await seen.sees("cpu-0 ")


async def test_the_cursor_stays_on_its_row_when_rows_come_and_go() -> None:
    async with opened(facts([node("cpu-1"), node("cpu-2"), node("cpu-3")])) as seen:
        await seen.press("down")
        assert seen.selected == "cpu-2"
        await seen.tell(facts([node("cpu-0"), node("cpu-1"), node("cpu-2")]))
        await seen.until(lambda: len(seen.table("nodes").rows) == 3 and "cpu-0" in seen.screen)
        assert seen.selected == "cpu-2"
        await seen.tell(facts([node("cpu-0")]))
        await seen.until(lambda: seen.selected == "cpu-0")
        await seen.tell(facts([]))
        await seen.sees("no nodes")
        assert seen.selected == ""


async def test_a_click_and_the_wheel_move_the_cursor() -> None:
    async with opened(facts([node(f"cpu-{at}") for at in range(100)])) as seen:
        await seen.sees("cpu-3 ")
        while seen.selected != "cpu-3":  # the lines may still move
            lines = seen.screen.splitlines()
            await seen.pilot.click(offset=(2, next(at for at, line in enumerate(lines) if "cpu-3 " in line)))
        nodes = seen.table("nodes")
        nodes.post_message(MouseScrollDown(nodes, 1, 1, 0, 1, 0, False, False, False))
        await seen.until(lambda: seen.selected == "cpu-6")
        nodes.post_message(MouseScrollUp(nodes, 1, 1, 0, -1, 0, False, False, False))
        await seen.until(lambda: seen.selected == "cpu-3")


async def test_who_looks_elsewhere_is_not_called_back_by_news() -> None:
    many = facts([node(f"cpu-{at}") for at in range(1000)])
    async with opened(many) as seen:
        await seen.sees("cpu-3 ")
        while "cpu-500" not in seen.screen:  # it can't scroll before it has been laid out
            seen.table("nodes").post_message(ScrollTo(y=500, animate=False))
            await seen.pilot.pause(0.05)
        await seen.tell(many, "trouble")
        await seen.sees("trouble", "cpu-500")
        assert seen.selected == "cpu-0"
        await seen.press("down")
        await seen.sees("cpu-1 ")


# --- keys ------------------------------------------------------------------------------------------------------------


async def test_d_drains_the_node_under_the_cursor_with_a_reason() -> None:
    async with opened() as seen:
        await seen.press("down", "d")
        await seen.sees("Why shall cpu-0 take no new jobs?")
        await seen.type("bad fan")
        await seen.press("enter")
        await seen.sees("drain cpu-0 bad fan")  # told when it is done
        assert seen.actions.asked == [("drain", "cpu-0", "bad fan")]
        assert seen.feed.hurried == 1


async def test_keys_that_are_pressed_in_a_hurry_act_in_their_order() -> None:
    async with opened() as seen:
        seen.hurry("d", *"crqls", "enter")  # the reason is no keys
        await seen.until(lambda: seen.actions.asked)
        assert seen.actions.asked == [("drain", "cpu-1", "crqls")]
        seen.hurry("down", "r")  # the row below, and not the one above
        await seen.until(lambda: len(seen.actions.asked) > 1)
        assert seen.actions.asked[1:] == [("resume", "cpu-0")]
        seen.hurry("tab", "down", "c", "y")  # a job, and not a node
        await seen.until(lambda: len(seen.actions.asked) > 2)
        assert seen.actions.asked[2:] == [("cancel", "8")]


async def test_a_reason_that_will_not_do_is_refused() -> None:
    refusals = {"": "Slurm wants a reason", "  ": "Slurm wants a reason", "Seltzer: x": "the operator's"}
    async with opened() as seen:
        for reason, says in refusals.items():
            await seen.press("d")
            await seen.type(reason)
            await seen.press("enter")
            await seen.sees(says)
            assert "Why shall" in seen.screen
            await seen.press("escape")
            await seen.sees_no("Why shall")
        assert seen.actions.asked == []


async def test_r_resumes() -> None:
    async with opened() as seen:
        await seen.press("r")
        await seen.sees("resume cpu-1")
        assert seen.actions.asked == [("resume", "cpu-1")]


async def test_what_fails_is_reported() -> None:
    async with opened() as seen:
        seen.actions.refusal = "cpu-1 is neither drained nor down"
        await seen.press("r")
        await seen.sees("cpu-1 is neither drained nor down")


async def test_c_cancels_a_job_after_a_yes() -> None:
    async with opened() as seen:
        await seen.press("tab", "c")
        await seen.sees("Cancel job 7 of ada (train)?")
        await seen.press("n")
        await seen.sees_no("Cancel job")
        await seen.press("down", "c")
        await seen.sees("Cancel job 8 of ada (wait)?")
        await seen.press("y")
        await seen.sees("cancel 8")
        assert seen.actions.asked == [("cancel", "8")]


async def test_keys_act_on_nothing_where_there_is_nothing() -> None:
    async with opened() as seen:
        await seen.press("c")  # a node is no job
        await seen.press("tab", "d", "r")  # a job is no node
        await seen.press("tab", "d", "r", "c", "e")  # an event is neither
        assert len(seen.app.screen_stack) == 1
        await seen.tell(facts())
        await seen.sees("no nodes", "no jobs")
        await seen.press("tab", "d", "r", "e", "tab", "c", "e")
        assert len(seen.app.screen_stack) == 1
        assert seen.actions.asked == []


async def test_e_explains_a_node_and_a_job() -> None:
    async with opened() as seen:
        await seen.press("e")
        await seen.sees("Esc closes it", "cpu-1", "bad fan")
        await seen.press("escape", "tab", "down", "e")
        await seen.sees("Job 8")
        await seen.press("q")
        await seen.sees_no("Esc closes it")


async def test_l_shows_the_log_of_the_node_and_else_of_slurmctld() -> None:
    async with opened() as seen:
        await seen.press("l")
        await seen.sees("slurmd of cpu-1", "first line", "second line", "the log ends here")
        assert "\033" not in seen.screen
        await seen.press("d", "q")  # only q does something there
        await seen.sees("by trouble")
        await seen.press("tab", "l")
        await seen.sees("slurmctld of demo")
        assert seen.actions.asked == [("logs", "cpu-1"), ("logs", "slurmctld")]


async def test_a_log_that_can_not_be_had_says_why() -> None:
    async with opened() as seen:
        seen.actions.refusal = "cpu-1 has no pod, so there is no log"
        await seen.press("l")
        await seen.sees("cpu-1 has no pod")


async def test_a_slash_looks_for_words() -> None:
    async with opened() as seen:
        await seen.press("slash")
        await seen.type("fan")
        await seen.sees("Nodes 1 of 2", "/fan")
        await seen.press("enter")
        await seen.press("r")  # typed no more, but pressed
        await seen.until(lambda: seen.actions.asked)
        await seen.press("slash", "escape")
        await seen.sees("Nodes 2 ")
        await seen.press("slash")
        await seen.type("zzz")
        await seen.sees("none has 'zzz' in it")


async def test_s_sorts_by_something_else_and_comes_round() -> None:
    async with opened() as seen:
        names = [name for name, _ in seen.table("queue").pane.sorts]
        await seen.press("tab")
        for name in [*names[1:], names[0]]:
            await seen.press("s")
            await seen.sees(f"Queue 2  by {name}")


async def test_a_question_mark_shows_the_keys() -> None:
    async with opened() as seen:
        await seen.press("question_mark")
        await seen.sees("drain the node", "sort by something else")


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_it_can_be_quit(key: str) -> None:
    async with opened() as seen:
        await seen.press(key)
        await seen.until(lambda: not seen.app.is_running)
    assert seen.app.return_code == 0
    assert seen.app.failure is None


# --- trouble ---------------------------------------------------------------------------------------------------------


async def test_trouble_is_reported_and_what_was_known_stays() -> None:
    async with opened() as seen:
        await seen.tell(DEMO, "slurmctld is failing over from a")
        await seen.sees("slurmctld is failing over from a", "cpu-0", "train")
        assert seen.is_grey
        await seen.tell(DEMO)
        await seen.sees_no("failing over")
        assert not seen.is_grey


async def test_a_cluster_without_slurm_and_without_anything_can_be_looked_at() -> None:
    async with opened(facts(silent=True, told=lease(holder=""))) as seen:
        await seen.sees("no slurmctld", "no nodes")


async def test_names_that_look_like_markup_are_shown_as_they_are() -> None:
    odd = facts([node("cpu-0", "IDLE", "DRAIN", reason="[red]x[/red] [/] y")], [job(1, name="[bold]")])
    async with opened(odd) as seen:
        await seen.sees("[red]x[/red] [/] y", "[bold]")
        await seen.press("e")
        await seen.sees("Esc closes it", "[red]x[/red]")
        await seen.press("escape", "slash")
        await seen.type("[/]")
        await seen.sees("/[/]")


async def test_it_fits_on_any_terminal() -> None:
    async with opened(size=(120, 40)) as seen:
        for size in [(60, 20), (60, 12), (30, 6), (10, 3), (300, 100)]:
            await seen.pilot.resize_terminal(*size)

            def fits(size: tuple[int, int] = size) -> bool:
                return seen.app.size == size

            await seen.until(fits)
            await seen.press("tab", "d", "question_mark")
            assert seen.screen
            await seen.press("escape")
            await seen.until(lambda: len(seen.app.screen_stack) == 1)


async def test_a_bug_ends_it_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exception, match="a bug"):
        async with opened() as seen:
            seen.feed.fail(RuntimeError("a bug"))
            await seen.until(lambda: seen.app.failure)
    assert isinstance(seen.app.failure, RuntimeError)
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err


# --- the verb --------------------------------------------------------------------------------------------------------


def test_without_a_terminal_it_says_what_else_there_is() -> None:
    with pytest.raises(CycloptsError, match="needs a terminal; 'seltzer top demo --once' prints the same as text"):
        command.top("demo")


@pytest.mark.parametrize("interval", [0.0, 0.1, -1.0, 4000.0, float("nan")])
def test_an_interval_that_makes_no_sense_is_refused(interval: float) -> None:
    with pytest.raises(SeltzerError, match=r"--interval is between 0\.2 and 3600 seconds"):
        command.top("demo", interval=interval)


def test_nothing_waits_for_the_screens_library_but_the_screen() -> None:
    script = (
        "import sys; from seltzer.cli import main; from seltzer.cli.top import command, text; "
        "main.build('top'); sys.exit('textual' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
