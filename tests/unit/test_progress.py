"""What a person sees while a command runs, at a terminal and in a log."""

from __future__ import annotations

import io
import re
import threading

import pytest
from rich.console import Console

from seltzer.progress import Progress


def console(terminal: bool) -> tuple[Console, io.StringIO]:
    output = io.StringIO()
    return Console(file=output, force_terminal=terminal, highlight=False, width=60), output


def test_in_a_log_each_step_is_one_line_when_it_has_ended() -> None:
    to, output = console(terminal=False)
    with Progress(to) as progress, progress.step("boil water"):
        assert output.getvalue() == ""
    assert re.fullmatch(r"  ✓ boil water \d+\.\d s\n", output.getvalue())


def test_a_step_that_fails_is_one_marked_line_and_the_error_goes_on() -> None:
    to, output = console(terminal=False)
    with pytest.raises(ValueError, match="no water"), Progress(to) as progress, progress.step("boil water"):
        raise ValueError("no water")
    assert re.fullmatch(r"  ✗ boil water \d+\.\d s\n", output.getvalue())


def test_in_a_log_a_step_inside_a_step_comes_first() -> None:
    to, output = console(terminal=False)
    with Progress(to) as progress, progress.step("make tea"), progress.step("boil water"):
        progress.note("it sings")
    assert re.fullmatch(r"    it sings\n  ✓ boil water \S+ s\n  ✓ make tea \S+ s\n", output.getvalue())


def test_ctrl_c_marks_the_step_too() -> None:
    to, output = console(terminal=False)
    with pytest.raises(KeyboardInterrupt), Progress(to) as progress, progress.step("boil water"):
        raise KeyboardInterrupt
    assert "✗ boil water" in output.getvalue()


def test_long_lines_are_left_whole_so_that_they_can_be_searched_and_copied() -> None:
    to, output = console(terminal=False)
    Progress(to).note("/a/very/long/path" * 10)
    assert output.getvalue() == "    " + "/a/very/long/path" * 10 + "\n"


def test_text_in_brackets_is_shown_as_it_is() -> None:
    to, output = console(terminal=False)
    with Progress(to) as progress, progress.step("drain cpu-[0-3] [dim]"):
        progress.note("listen on [::1]:6443 [/]")
    assert "✓ drain cpu-[0-3] [dim] " in output.getvalue()
    assert "    listen on [::1]:6443 [/]\n" in output.getvalue()


def test_steps_may_overlap_and_come_from_threads() -> None:
    to, output = console(terminal=False)
    both_run = threading.Barrier(2)

    def work(name: str, progress: Progress) -> None:
        with progress.step(name):
            both_run.wait()

    with Progress(to) as progress:
        threads = [threading.Thread(target=work, args=(name, progress)) for name in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = output.getvalue().splitlines()
    assert sorted(line.split()[1] for line in lines) == ["one", "two"]


def test_at_a_terminal_the_spinner_is_gone_at_the_end_and_the_steps_are_left() -> None:
    to, output = console(terminal=True)
    with Progress(to) as progress, progress.step("boil water"):
        pass
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output.getvalue())
    assert text.count("✓ boil water") == 1
    assert "…" not in text
    assert "\x1b[?25h" in output.getvalue(), "the cursor is shown again"
