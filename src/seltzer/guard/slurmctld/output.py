"""Picks from slurmctld's last lines what a person should read."""

from __future__ import annotations

import re
from collections.abc import Sequence

LIMIT = 1000

_STAMP = re.compile(r"^(?:\[[^\]]*\]|\d{4}-\d\d-\d\dT\S+|slurmctld:|\S+ slurmctld\[\d+\]:)\s*")
_SERIOUS = re.compile(r"\b(?:fatal|error):")
# Printed on every start, whatever the problem is.
_NOISE = re.compile(r"specified more than once, latest value used|Configured MailProg is invalid")


def bare(line: str) -> str:
    """The line without its timestamp and program name, and without unprintable characters."""
    while (shorter := _STAMP.sub("", line, count=1)) != line:
        line = shorter
    return "".join(char if char.isprintable() else "?" for char in line.strip())


def cause(lines: Sequence[str]) -> str:
    """Why slurmctld ended: the last fatal error and the errors that led to it.

    `fatal: Unable to process configuration file` alone doesn't help: the line before it names the key. Without a fatal
    error this is the last error; without any error, the last line; without any line, nothing.
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
