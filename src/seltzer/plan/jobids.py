"""Folded job IDs, as the guard writes them: `12-40,51,60_[1-3,7]`."""

from __future__ import annotations

import re

_PIECE = re.compile(r"[^,\[]+(?:\[[^\]]*\])?")
_BRACKET = re.compile(r"(\d+_)\[([\d,-]+)\]")
_RANGE = re.compile(r"(\d{1,10})-(\d{1,10})")
_LONGEST = 1 << 20


def pieces(text: str) -> list[str]:
    """Split at commas outside brackets."""
    return _PIECE.findall(text)


def shown(text: str) -> str:
    """For people: a long line then breaks between two IDs, not within one."""
    return ", ".join(pieces(text))


def expand(text: str) -> list[str]:
    """The IDs one by one."""
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
