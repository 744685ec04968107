"""Show what is going on, for a person at a terminal and for a log file alike."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress as RichProgress
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn


class Progress:
    """Named steps, each with its time; steps may overlap and may be reported from any thread.

    On a terminal a running step has a spinner. In a log each step is one line, written when the step has ended: `✓`, or
    `✗` when it failed, with its duration.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(file=sys.stderr, highlight=False)
        self._live: RichProgress | None = None

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        text = escape(text)
        started = time.monotonic()
        task = self._live.add_task(text) if self._live else None
        try:
            yield
        except BaseException:
            self._say(f"[red]  ✗ {text}[/] [dim]{_seconds(started)}[/]")
            raise
        else:
            self._say(f"[green]  ✓[/] {text} [dim]{_seconds(started)}[/]")
        finally:
            if self._live and task is not None:
                self._live.remove_task(task)

    def note(self, text: str) -> None:
        """A line of its own, between the steps."""
        self._say(f"    {escape(text)}")

    def _say(self, line: str) -> None:
        (self._live.console if self._live else self._console).print(line, soft_wrap=True)

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self._live = RichProgress(*columns, console=self._console, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()
            self._live = None


def _seconds(started: float) -> str:
    return f"{time.monotonic() - started:.1f} s"
