"""The screens above the tables of `seltzer top`: a question, a text, a log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, Log, Static

from seltzer.cli.top.stream import end
from seltzer.errors import SeltzerError
from seltzer.slurm.snapshot import tidy
from seltzer.view import colours

_MOST_LINES = 20_000
_BOX = """
{name} {{ align: center middle; }}
{name} > Vertical {{
    width: 76; max-width: 100%; height: auto; max-height: 100%; padding: 0 1; border: round ansi_cyan;
    background: ansi_default;
}}
{name} VerticalScroll {{ height: auto; max-height: 100%; }}
"""


class Ask(ModalScreen[str | None]):
    """A question with an input. `check` raises SeltzerError for a bad answer, and its message is shown."""

    DEFAULT_CSS = _BOX.format(name="Ask")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "give up")]

    def __init__(self, question: str, check: Callable[[str], object]) -> None:
        super().__init__()
        self._question, self._check = question, check

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._question, markup=False)
            yield Input(compact=True)
            yield Static(Text("Enter does it, Esc gives up", colours.MINOR), id="verdict")

    def on_mount(self) -> None:
        self.set_focus(self.query_one(Input))  # at once: the first letters may already be typed

    def on_input_submitted(self, event: Input.Submitted) -> None:
        try:
            self._check(event.value)
        except SeltzerError as error:
            self.query_one("#verdict", Static).update(Text(str(error), colours.BAD))
            return
        self.dismiss(event.value)

    def action_give_up(self) -> None:
        self.dismiss(None)


class Confirm(ModalScreen[bool]):
    """Yes or no. Any other key is a no."""

    DEFAULT_CSS = _BOX.format(name="Confirm")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,q", "answer(False)", "no"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Text.assemble(self._question, ("  y/n", "bold")))

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class Words(ModalScreen[None]):
    """A text to read."""

    DEFAULT_CSS = _BOX.format(name="Words")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,question_mark,e", "close", "close")]

    def __init__(self, title: str, words: str) -> None:
        super().__init__()
        self._title, self._words = title, words

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Content(self._title)
            box.border_subtitle = "Esc closes it"
            with VerticalScroll():
                yield Static(Text(self._words))

    def action_close(self) -> None:
        self.dismiss(None)


class Filter(Input):
    """An input for the words that filter a table. It filters with each letter."""

    DEFAULT_CSS = "Filter { display: none; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "clear", show=False)]

    class Typed(Message):
        """The words for a table. `done`: the input is complete."""

        def __init__(self, name: str, words: str, done: bool) -> None:
            super().__init__()
            self.name, self.words, self.done = name, words, done

    def __init__(self) -> None:
        super().__init__(compact=True, placeholder="words to look for; Enter keeps them, Esc shows all")
        self._for = ""

    def open(self, name: str, words: str) -> None:
        """Opens with these words."""
        self._for, self.value = name, words
        self.display = True
        self.screen.set_focus(self)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Typed(self._for, event.value, False))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._close(event.value)

    def action_clear(self) -> None:
        self._close("")

    def _close(self, words: str) -> None:
        self.display = False
        self.post_message(self.Typed(self._for, words, True))


class LogScreen(ModalScreen[None]):
    """The output of a command, until it ends or the screen closes."""

    DEFAULT_CSS = """
    LogScreen > Static { height: 1; background: ansi_default; text-style: bold reverse; }
    LogScreen > Log { height: 1fr; background: ansi_default; scrollbar-size: 1 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape", "close", "back"),
        Binding("home,g", "first", show=False),
        Binding("end,G", "last", show=False),
    ]

    def __init__(self, title: str, find: Callable[[], Sequence[str]]) -> None:
        super().__init__()
        self._title, self._find = title, find

    def compose(self) -> ComposeResult:
        yield Static(Text(f"{self._title}   q goes back, g and G to the first and last line"))
        yield Log(max_lines=_MOST_LINES, auto_scroll=True)

    def on_mount(self) -> None:
        self.set_focus(self.query_one(Log))
        self.run_worker(self._follow())

    async def _follow(self) -> None:
        log = self.query_one(Log)
        try:
            words = self._find()
        except SeltzerError as error:
            log.write_line(str(error))
            return
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=1 << 20,
            start_new_session=True,
        )
        assert process.stdout
        try:
            while chunk := await process.stdout.read(1 << 16):
                # kubectl writes whole lines.
                lines = chunk.decode(errors="replace").splitlines()
                log.write_lines([tidy(line) for line in lines])
            log.write_line("— the log ends here —")
        finally:
            await end(process)

    def action_first(self) -> None:
        self.query_one(Log).scroll_home(animate=False)

    def action_last(self) -> None:
        self.query_one(Log).scroll_end(animate=False)

    def action_close(self) -> None:
        self.dismiss(None)
