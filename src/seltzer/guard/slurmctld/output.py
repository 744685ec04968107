"""What slurmctld said last, and which of it a person should read."""

from __future__ import annotations

import re
from collections.abc import Sequence

LIMIT = 1000

_STAMP = re.compile(r"^(?:\[[^\]]*\]|\d{4}-\d\d-\d\dT\S+|slurmctld:|\S+ slurmctld\[\d+\]:)\s*")
_SERIOUS = re.compile(r"\b(?:fatal|error):")
# Said on every start, whatever is wrong.
_NOISE = re.compile(r"specified more than once, latest value used|Configured MailProg is invalid")


def bare(line: str) -> str:
    """The line without its time and the program's name, and with nothing in it that could upset a terminal."""
    while (shorter := _STAMP.sub("", line, count=1)) != line:
        line = shorter
    return "".join(char if char.isprintable() else "?" for char in line.strip())


def verdict(lines: Sequence[str]) -> str:
    """The words that say why it ended: those of the last fatal error and the errors that led to it.

    `fatal: Unable to process configuration file` alone helps nobody: the line before it names the key. Without a fatal
    error it is the last error, without one the last line, and nothing if there is none.
    """
    said = [line for line in map(bare, lines) if line and not _NOISE.search(line)]
    serious = [index for index, line in enumerate(said) if _SERIOUS.search(line)]
    fatal = [index for index in serious if "fatal:" in said[index]]
    if fatal:
        first = last = fatal[-1]
        while first - 1 in serious and last - first < 3:
            first -= 1
        return "; ".join(said[first : last + 1])[:LIMIT]
    return (said[serious[-1]] if serious else said[-1] if said else "")[:LIMIT]
