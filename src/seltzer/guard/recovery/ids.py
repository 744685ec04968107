"""Job IDs in a short form: `12-40,51,60_[1-3,7]`. `seltzer.plan.jobids` reads it, but may not be imported here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_TASK = re.compile(r"(\d+_)?(\d{1,10})")
_PIECE = re.compile(r"[^,\[]+(?:\[[^\]]*\])?")
_BRACKET = re.compile(r"(\d+_)\[([\d,-]+)\]")
_RANGE = re.compile(r"(\d{1,10})-(\d{1,10})")
_LONGEST = 1 << 20
_IN_BRACKETS = 30  # so that a list can be split into parts that fit anywhere


def fold(ids: Iterable[str]) -> str:
    """Each ID once, in numeric order. Anything that is neither a job nor an array task stays as it is."""
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


def pieces(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    return _PIECE.findall(text)


def unfold(text: str) -> list[str]:
    """The reverse of `fold`."""
    found: list[str] = []
    for piece in pieces(text):
        if match := _BRACKET.fullmatch(piece):
            found += (match[1] + number for each in match[2].split(",") for number in _span(each))
        else:
            found += _span(piece)
    return found


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
