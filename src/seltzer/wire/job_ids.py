"""Lists of job IDs in short: `12-40,51,60_[1-3,7]`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_ID = re.compile(r"\d+(?:[_+]\S+)?")
_TASK = re.compile(r"(\d+_)?(\d{1,10})")
_PIECE = re.compile(r"[^,\[]+(?:\[[^\]]*\])?")
_BRACKET = re.compile(r"(\d+_)\[([\d,-]+)\]")
_RANGE = re.compile(r"(\d{1,10})-(\d{1,10})")
_LONGEST = 1 << 20
_IN_BRACKETS = 30  # keeps each piece short enough to cut a list between any two


def is_id(text: str) -> bool:
    """Whether this is a job ID as Slurm writes it: `42`, `42_7`, `42_[8-99]` or `42+1`."""
    return _ID.fullmatch(text) is not None


def fold(ids: Iterable[str]) -> str:
    """A list in short, each ID once, in numeric order. Text that is neither a job nor a task of an array is kept."""
    numbers: dict[str, set[int]] = {}
    others = set()
    for each in ids:
        if match := _TASK.fullmatch(each):
            numbers.setdefault(match[1] or "", set()).add(int(match[2]))
        else:
            others.add(each)
    pieces = list(_runs(numbers.pop("", set())))
    for array in sorted(numbers, key=lambda prefix: (len(prefix), prefix)):
        runs = list(_runs(numbers[array]))
        for first in range(0, len(runs), _IN_BRACKETS):
            some = ",".join(runs[first : first + _IN_BRACKETS])
            pieces.append(array + (some if some.isdecimal() else f"[{some}]"))
    return ",".join([*pieces, *sorted(others)])


def expand(text: str) -> list[str]:
    """The IDs of a folded list, one by one. The inverse of `fold`."""
    found: list[str] = []
    for piece in pieces(text):
        if match := _BRACKET.fullmatch(piece):
            found += (match[1] + number for each in match[2].split(",") for number in _span(each))
        else:
            found += _span(piece)
    return found


def pieces(text: str) -> list[str]:
    """A folded list, split at the commas outside of brackets."""
    return _PIECE.findall(text)


def shown(text: str) -> str:
    """A folded list for people: a long line wraps between two pieces, never within one."""
    return ", ".join(pieces(text))


def _span(text: str) -> list[str]:
    match = _RANGE.fullmatch(text)
    if not match or not 0 <= int(match[2]) - int(match[1]) < _LONGEST:
        return [text]
    return [str(number) for number in range(int(match[1]), int(match[2]) + 1)]


def _runs(numbers: Iterable[int]) -> Iterator[str]:
    run: list[int] = []
    for number in [*sorted(numbers), -1]:
        if run and number != run[-1] + 1:
            yield str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}"
            run = []
        run.append(number)
