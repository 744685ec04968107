"""What is stamped, by whom, and who can't any more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seltzer.guard.state import epoch, stamps
from seltzer.guard.state.stamps import Stamps


def begun(state: Path, who: str = "pod-a") -> Stamps:
    return Stamps(epoch.begin(state, lambda: True), who)


def lines(state: Path) -> list[str]:
    (file,) = state.glob("epoch-*/seltzer.stamps")
    return file.read_text().splitlines()


def test_a_line_tells_when_who_and_what(tmp_path: Path) -> None:
    begun(tmp_path).write("crash", "was ended by SIGSEGV:\n  fatal: " + "x" * 5000)
    (line,) = lines(tmp_path)
    pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z epoch=1 by=pod-a crash was ended by SIGSEGV: fatal: x{100,180}"
    assert re.fullmatch(pattern, line)


def test_the_lines_of_all_epochs_are_in_order(tmp_path: Path) -> None:
    for who in ("pod-a", "pod-b"):
        written = begun(tmp_path, who)
        written.write("start", "")
        written.write("stop", "the pod ends")
    assert [line.split(" ", 1)[1] for line in lines(tmp_path)] == [
        "epoch=1 by=pod-a start",
        "epoch=1 by=pod-a stop the pod ends",
        "epoch=2 by=pod-b start",
        "epoch=2 by=pod-b stop the pod ends",
    ]


def test_who_is_fenced_stamps_nothing_and_says_so_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fenced = begun(tmp_path)
    fenced.write("start", "")
    begun(tmp_path, "pod-b").write("start", "")
    fenced.write("save", "too late")
    fenced.write("save", "too late")
    assert len(lines(tmp_path)) == 2
    assert capfd.readouterr().err.count("can't write to seltzer.stamps") == 1


def test_who_was_fenced_with_the_file_open_writes_into_one_without_a_name(tmp_path: Path) -> None:
    begun(tmp_path).write("start", "")
    with (tmp_path / "epoch-1" / stamps.NAME).open("ab", buffering=0) as frozen:
        begun(tmp_path, "pod-b").write("start", "")
        frozen.write(b"a line of epoch 1\n")
    assert [line.split()[1] for line in lines(tmp_path)] == ["epoch=1", "epoch=2"]


def test_the_older_half_goes_when_there_are_many(tmp_path: Path) -> None:
    written = begun(tmp_path)
    for number in range(3000):
        written.write("save", f"number={number} {'x' * 80}")
    found = lines(tmp_path)
    assert stamps.LIMIT // 2 < (tmp_path / "epoch-1" / stamps.NAME).stat().st_size <= stamps.LIMIT
    numbers = [int(line.split("number=")[1].split()[0]) for line in found]
    assert numbers == list(range(numbers[0], 3000))
    assert not (tmp_path / "epoch-1" / f"{stamps.NAME}.half").exists()
