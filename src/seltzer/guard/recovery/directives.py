"""Finds in a script's #SBATCH lines the options that a job loses when it is put back. Pure.

The journal lacks them, since job_submit plugins don't see them. Options from the command line are recorded nowhere.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

_MAGIC = "#SBATCH"
# Each with the shortest abbreviation that sbatch accepts. docs/decisions/0014-keep-jobs.md has the same list.
_LONG = {
    "deadline": "dea",
    "signal": "si",
    "open-mode": "op",
    "distribution": "di",
    "profile": "prof",
    "oom-kill-step": "oo",
    "no-kill": "no-k",
    "wait-all-nodes": "wait-",
    "cluster-constraint": "cluster-",
    "resv-ports": "resv",
    "container-id": "container-i",
}
_SHORT = {"m": "distribution", "k": "no-kill"}
_MOST = 64 << 10  # no real script has more options, and one that has must not delay other jobs
_ALONE = "HhOQsvVW"
"""Short options without a value: another option may follow in the same word."""


def unkept(script: str) -> tuple[str, ...]:
    """The options of this script that a plugin doesn't see, as `--name`, in order."""
    return tuple(dict.fromkeys(f"--{name}" for word in _words(script) if (name := _name(word))))


def without(script: str) -> str:
    """The same as a phrase to append to the outcome of the job; empty if it keeps all its options."""
    *most, last = unkept(script) or ("",)
    if not last:
        return ""
    names = f"{', '.join(most)} and {last}" if most else last
    return f"; without {names}, which no plugin sees"


def _words(script: str) -> Iterator[str]:
    """Split like sbatch does: up to the first line that is a command."""
    for line in script[:_MOST].split("\n"):
        if line.startswith(_MAGIC):
            try:
                yield from shlex.split(line.removeprefix(_MAGIC), comments=True)
            except ValueError:  # an unclosed quote
                yield from line.removeprefix(_MAGIC).split()
        elif line.strip() and not line.lstrip().startswith("#"):
            return


def _name(word: str) -> str:
    """The long name of the option that is lost; empty if this word is none."""
    if word.startswith("--"):
        given = word[2:].partition("=")[0]
        return next((name for name, short in _LONG.items() if name.startswith(given) and given.startswith(short)), "")
    if word.startswith("-"):
        first = word[1:].lstrip(_ALONE)[:1]
        return _SHORT.get(first, "")
    return ""
