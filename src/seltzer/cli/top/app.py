"""The screen of `seltzer top`: a cluster in three tables, and keys that act on their rows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import DescendantFocus
from textual.widgets import Footer, Static
from textual.worker import WorkerFailed

from seltzer.cli import drain, show
from seltzer.cli.top.actions import Actions
from seltzer.cli.top.feed import UpdateFeed
from seltzer.cli.top.layout import share
from seltzer.cli.top.screens import Ask, Confirm, Filter, LogScreen, Words
from seltzer.cli.top.table import Table, Tables
from seltzer.errors import SeltzerError
from seltzer.slurm.snapshot import Job
from seltzer.view import colours, header
from seltzer.view.events import Event
from seltzer.view.explain import job as explain_job
from seltzer.view.explain import node as explain_node
from seltzer.view.frame import Choice, Frame, Update, frame
from seltzer.view.panes import EVENTS, NODES, PANES, QUEUE, NodeRow

_FAR = 1_000_000
HELP = """\
Tab, Shift-Tab   next, previous table
arrows, PgUp, PgDn, Home, End   move in it

d   drain the node: it takes no new jobs, those on it go on
r   resume the node
c   cancel the job
e   explain the node or the job: why it is as it is
l   log of the node's slurmd; elsewhere, of slurmctld
/   show only rows with these words
s   sort by something else
q   quit

While slurmctld fails over or can't be reached, a line says so,
and what was last known is grey."""


def _key(keys: str, action: str, label: str = "", display: str | None = None) -> Binding:
    """A binding with priority, which makes keys act in the order in which they are pressed.

    Without it each key travels through the widgets first: on a slow machine `d` could act on the row that an arrow key
    was about to leave, or letters of a reason could act as keys.
    """
    return Binding(keys, action, label, show=bool(label), key_display=display, priority=True)


class Top(App[None]):
    """Shows the feed's updates until the user quits."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #header { height: auto; max-height: 5; }
    #banner { height: auto; max-height: 2; color: ansi_yellow; text-style: bold reverse; display: none; }
    Table { border-top: solid ansi_bright_black; border-title-style: bold; min-height: 1; }
    Table:focus { border-top: solid ansi_cyan; border-title-color: ansi_cyan; }
    Tables { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        _key("q", "leave", "quit"),
        _key("question_mark", "help", "help", "?"),
        _key("d", "drain", "drain"),
        _key("r", "resume", "resume"),
        _key("c", "cancel", "cancel"),
        _key("e", "explain", "explain"),
        _key("l", "logs", "logs"),
        _key("slash", "filter", "filter", "/"),
        _key("s", "sort", "sort"),
        _key("tab", "next(1)"),
        _key("shift+tab", "next(-1)"),
        _key("up,k", "move(-1, 0)"),
        _key("down,j", "move(1, 0)"),
        _key("pageup", "move(0, -1)"),
        _key("pagedown", "move(0, 1)"),
        _key("home,g", f"move({-_FAR}, 0)"),
        _key("end,G", f"move({_FAR}, 0)"),
        _key("ctrl+c", "quit"),
    ]

    def __init__(self, name: str, feed: UpdateFeed, actions: Actions) -> None:
        super().__init__(ansi_color=True)
        self.title = f"seltzer top {name}"
        self._cluster, self._feed, self._actions = name, feed, actions
        self._choices = dict.fromkeys(PANES, Choice())
        self._last_update: Update | None = None
        self._frame: Frame | None = None
        self._new = asyncio.Event()
        self._used = "nodes"
        self._kind: type[object] | None = None
        self._drawn_text: dict[str, str | Text] = {}
        self.failure: Exception | None = None
        """The error that ended it, if any."""

    def compose(self) -> ComposeResult:
        yield Static(Text.assemble((self._cluster, colours.TITLE), "  …"), id="header")
        yield Static(id="banner")
        with Tables():
            yield Table(NODES, self._slurm_time, id="nodes")
            yield Table(QUEUE, self._slurm_time, id="queue")
            yield Table(EVENTS, time.time, id="events")
        yield Filter()
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self.theme = "ansi-dark"
        self.query_one("#nodes").focus()

    def on_ready(self) -> None:
        self.run_worker(self._feed.run(self._receive))
        self.run_worker(self._follow())
        self.set_interval(1.0, self._tick)

    # --- output ---------------------------------------------------------------------------------------------------

    def _slurm_time(self) -> float:
        return time.time() + (self._last_update.ahead if self._last_update else 0.0)

    def _receive(self, update: Update) -> None:
        self._last_update = update
        self._new.set()

    async def _follow(self) -> None:
        while True:
            await self._new.wait()
            self._new.clear()
            if self._last_update:
                # In a thread: the words for a thousand nodes take longer than a key press should wait.
                self._show(await asyncio.to_thread(frame, self._last_update, dict(self._choices)))

    @property
    def _has_screen(self) -> bool:
        """Whether the screen still exists: timers and updates can fire after it is gone."""
        return bool(self.screen_stack) and self.screen_stack[0].is_running

    def _show(self, shown: Frame) -> None:
        if not self._has_screen:
            return
        # Before Slurm's first answer the order of rows means nothing, and neither does the cursor's position.
        reset = self._frame is None or self._frame.update.facts.slurm is None
        self._frame = shown
        trouble, slurm = shown.update.trouble, shown.update.facts.slurm
        self._main("#banner", Static).display = bool(trouble)
        self._set_line("#banner", Text(trouble))
        none = {"nodes": "no nodes", "queue": "no jobs" if slurm else "?", "events": "nothing in the last hour"}
        for name in PANES:
            table, words = self._main(f"#{name}", Table), self._choices[name].words
            empty = f"none has {words!r} in it" if words else none[name]
            table.show(shown.rows[name], greyed=bool(trouble) and name != "events", empty=empty, reset=reset)
            if self._drawn_text.get(name) != shown.titles[name]:
                self._drawn_text[name] = shown.titles[name]
                table.border_title = Content(shown.titles[name])
        self._tick()
        self._arrange()
        self._show_keys()

    def on_tables_resized(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        """Shares the lines of the screen between the tables."""
        if not self._has_screen:
            return
        tables = list(self.screen_stack[0].query(Table))
        room = self._main("Tables", Tables).size.height
        needs = [each.lines_needed for each in tables]
        for table, lines in zip(tables, share(needs, room, tables.index(self._table)), strict=True):
            if table.styles.height is None or table.styles.height.value != lines:
                table.styles.height = lines

    def _tick(self) -> None:
        """Draws ages and remaining times again."""
        if not self._has_screen:
            return
        if self._frame:
            lines = header.lines(self._frame.update.facts, self._frame.nodes, datetime.now(UTC))
            self._set_line("#header", Text("\n").join(map(show.text, lines)))
        for table in self.screen_stack[0].query(Table):
            table.redraw()

    def _set_line(self, selector: str, words: Text) -> None:
        """Updates a line only if it has changed: each update lays out the whole screen again."""
        if self._drawn_text.get(selector) != words:
            self._drawn_text[selector] = words
            self._main(selector, Static).update(words)

    def _main(self, selector: str, kind: type[Any]) -> Any:
        """A part of the main screen, also while another is above it."""
        return self.screen_stack[0].query_one(selector, kind)

    # --- keys -----------------------------------------------------------------------------------------------------

    @property
    def _table(self) -> Table[Any]:
        """The table in use, also while an input has the focus."""
        found: Table[Any] = self._main(f"#{self._used}", Table)
        return found

    @property
    def _selected(self) -> NodeRow | Job | Event | None:
        found: NodeRow | Job | Event | None = self._table.selected
        return found

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A key without anything to act on is grey. While an input has the focus, all keys are letters."""
        if action == "quit" or not self.screen_stack:
            return True
        if len(self.screen_stack) > 1 or isinstance(self.focused, Filter):
            return False
        wants: dict[str, Any] = {"drain": NodeRow, "resume": NodeRow, "cancel": Job, "explain": (NodeRow, Job)}
        return True if action not in wants or isinstance(self._selected, wants[action]) else None

    def action_leave(self) -> None:
        self.exit()

    def action_next(self, by: int) -> None:
        names = list(PANES)
        self._used = names[(names.index(self._used) + by) % len(names)]
        self.screen.set_focus(self._table)

    def action_move(self, rows: int, pages: int) -> None:
        self._table.move(rows, pages)

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        if isinstance(event.widget, Table) and event.widget.id:
            self._used = event.widget.id
        self._arrange()
        self._show_keys()

    def _show_keys(self) -> None:
        """Draws the keys again, but only if others have something to act on now: it is visible."""
        kind = type(self._selected)
        if kind is not self._kind:
            self._kind = kind
            self.refresh_bindings()

    async def action_drain(self) -> None:
        row, update = self._selected, self._last_update
        if isinstance(row, NodeRow) and update:

            def answered(reason: str | None) -> None:
                if reason is not None:
                    self._do(self._actions.drain(update.facts, row.name, reason))

            await self.push_screen(Ask(f"Why shall {row.name} take no new jobs?", _check_reason), answered)

    def action_resume(self) -> None:
        row = self._selected
        if isinstance(row, NodeRow) and self._last_update:
            self._do(self._actions.resume(self._last_update.facts, row.name))

    async def action_cancel(self) -> None:
        job, update = self._selected, self._last_update
        if isinstance(job, Job) and update:

            def answered(yes: bool | None) -> None:
                if yes:
                    self._do(self._actions.cancel(update.facts, job))

            await self.push_screen(Confirm(f"Cancel job {job.id} of {job.user} ({job.name})?"), answered)

    def _do(self, what: Awaitable[str]) -> None:
        async def work() -> None:
            try:
                self.notify(await what, markup=False)
            except SeltzerError as error:
                self.notify(str(error), severity="error", markup=False)
            self._feed.hurry()

        self.run_worker(work())

    async def action_explain(self) -> None:
        row, update = self._selected, self._last_update
        try:
            if isinstance(row, NodeRow) and update:
                title, words = row.name, explain_node.explain(update.facts, row.name).sentences
            elif isinstance(row, Job) and update:
                title, words = f"job {row.id}", explain_job.explain(update.facts, row.id).sentences
            else:
                return
        except SeltzerError as error:
            self.notify(str(error), severity="error", markup=False)
        else:
            await self.push_screen(Words(title, " ".join(words)))

    async def action_logs(self) -> None:
        row, update = self._selected, self._last_update
        if update:
            node = row.name if isinstance(row, NodeRow) else None
            title = f"slurmd of {node}" if node else f"slurmctld of {self._cluster}"
            await self.push_screen(LogScreen(title, lambda: self._actions.logs(update.facts, node)))

    async def action_help(self) -> None:
        await self.push_screen(Words("seltzer top", HELP))

    def action_sort(self) -> None:
        name = self._table.id or ""
        choice = self._choices[name]
        self._choices[name] = replace(choice, sort=(choice.sort + 1) % len(PANES[name].sorts))
        self._new.set()

    def action_filter(self) -> None:
        name = self._table.id or ""
        self.query_one(Filter).open(name, self._choices[name].words)

    def on_filter_typed(self, event: Filter.Typed) -> None:
        self._choices[event.name] = replace(self._choices[event.name], words=event.words)
        self._new.set()
        if event.done:
            self._main(f"#{event.name}", Table).focus()

    def _handle_exception(self, error: Exception) -> None:
        """Keeps the traceback off the terminal. The caller reports the error."""
        super()._handle_exception(error)
        self.failure = self.failure or (error.error if isinstance(error, WorkerFailed) else error)  # type: ignore[assignment]
        self._exit_renderables.clear()


def _check_reason(reason: str) -> None:
    if not reason.strip():
        raise SeltzerError("Slurm wants a reason for a drain; type some words, or give up with Esc")
    drain.checked_reason(reason)
