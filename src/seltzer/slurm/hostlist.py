"""Hostlists, Slurm's short form for many node names: `n[1-3,7],gpu-[01-16]`.

Whatever is accepted here means the same to Slurm, in the same order (`tests/contract` compares the two). Some input
that Slurm accepts is refused because it is surely a mistake: `a]`, `a[1-]`, `a[+1]`, spaces, and numbers that don't fit
in 64 bits, which Slurm silently reduces. Steps (`n[1-9/2]`) don't exist in Slurm.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from seltzer.errors import SeltzerError

LIMIT = 100_000
# Slurm refuses a range of more hosts. It accepts any number of ranges in one bracket.
LONGEST_RANGE = 65_536
# Slurm has no limit, but a long name times many hosts must not exhaust the memory.
LONGEST_NAME = 255
# Slurm holds the number at the end of a name in 64 bits. A larger one becomes the maximum: another node's name.
LARGEST_NUMBER = 2**64 - 2
DIGITS_THAT_ALWAYS_FIT = 19

_DIGITS = "0123456789"
# Printable ASCII except space; braces would be one of slurmctld's hostlist functions.
_NAME = re.compile(r"[!-+\--Z\\^-z|~]+")
_UNFIT = re.compile(r"[^!-z|~]")
_TOKEN = re.compile(r"\[(?P<bracket>[^\[\]]*)\]|(?P<literal>[^\[\],]+)|(?P<comma>,)|(?P<stray>.)")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_NUMBER = re.compile(r"0*([0-9]+)")


class HostlistError(SeltzerError):
    """A hostlist or a node name that Slurm would refuse or interpret differently."""


class _Range(NamedTuple):
    low: int
    high: int
    width: int

    @property
    def hosts(self) -> int:
        return self.high - self.low + 1

    @property
    def longest(self) -> int:
        return max(self.width, len(str(self.high)))

    def values(self) -> Iterator[str]:
        return (str(number).zfill(self.width) for number in range(self.low, self.high + 1))


# The contents of a bracket; text outside brackets is kept as it is.
_Bracket = tuple[_Range, ...]
_Term = list[str | _Bracket]


def expand(text: str, limit: int = LIMIT) -> list[str]:
    """All names of a hostlist, in Slurm's order, and as often as it names them.

    The number of names is checked against `limit` before any is built.
    """
    unfit = _UNFIT.search(text)
    if unfit:
        raise HostlistError(f"hostlist {_shown(text)}: {unfit.group()!r} can't be in a node's name")
    terms = list(_terms(text))
    if sum(map(_count, terms)) > limit:
        raise HostlistError(f"hostlist {_shown(text)} stands for more than {limit} nodes; name fewer at a time")
    return [name for term in terms for name in _names(text, term)]


def fold(names: Iterable[str]) -> str:
    """The hostlist that Slurm would write for these names, each once, in natural order: n2 before n10.

    Like Slurm, this folds only the number at the end of a name: `a1x,a2x` stays as it is. `expand` and Slurm both
    return the same set again.
    """
    numbers: dict[str, list[str]] = {}
    for name in set(names):
        prefix, digits = _split(name)
        numbers.setdefault(prefix, []).append(digits)
    return ",".join(term for prefix in sorted(numbers, key=_natural) for term in _fold(prefix, numbers[prefix]))


def _terms(text: str) -> Iterator[_Term]:
    """Split at commas outside of brackets. Drops empty terms, as Slurm does."""
    term: _Term = []
    for token in _TOKEN.finditer(text):
        if token["comma"]:
            if term:
                yield term
            term = []
        elif token["literal"]:
            term.append(token["literal"])
        elif token["stray"]:
            other = "]" if token["stray"] == "[" else "["
            raise HostlistError(f"hostlist {_shown(text)}: a {token['stray']} has no {other}")
        else:
            term.append(tuple(_range(text, each) for each in token["bracket"].split(",")))
    if term:
        yield term


def _range(text: str, range_: str) -> _Range:
    match = _RANGE.fullmatch(range_)
    if not match:
        raise HostlistError(f"hostlist {_shown(text)}: {_shown(range_)} in brackets is neither a number nor a range")
    if len(range_) > 2 * LONGEST_NAME:  # also bounds the input of int()
        raise HostlistError(f"hostlist {_shown(text)}: a node's name is longer than {LONGEST_NAME} characters")
    low, high = int(match[1]), int(match[2] or match[1])
    if low > high:
        raise HostlistError(f"hostlist {_shown(text)}: {_shown(range_)} goes backwards")
    if high > LARGEST_NUMBER:
        raise HostlistError(f"hostlist {_shown(text)}: {_shown(range_)} doesn't fit in Slurm's 64 bits")
    if high - low >= LONGEST_RANGE:
        raise HostlistError(
            f"hostlist {_shown(text)}: {_shown(range_)} is more than Slurm's {LONGEST_RANGE} in a range"
        )
    return _Range(low, high, len(match[1]))


def _count(term: _Term) -> int:
    return math.prod(sum(each.hosts for each in part) for part in term if not isinstance(part, str))


def _names(text: str, term: _Term) -> list[str]:
    """Slurm's order: the last bracket changes fastest, then the first, the second and so on."""
    longest = sum(len(part) if isinstance(part, str) else max(each.longest for each in part) for part in term)
    if longest > LONGEST_NAME:
        raise HostlistError(f"hostlist {_shown(text)}: a node's name is longer than {LONGEST_NAME} characters")
    last = max((place for place, part in enumerate(term) if not isinstance(part, str)), default=-1)
    names = [""]
    for place, part in enumerate(term):
        values = [part] if isinstance(part, str) else [value for each in part for value in each.values()]
        if place == last:
            names = [name + value for name in names for value in values]
        else:
            names = [name + value for value in values for name in names]
    if longest > DIGITS_THAT_ALWAYS_FIT:
        for name in names:
            _split(name)
    return names


def _split(name: str) -> tuple[str, str]:
    """A name without the number at its end, and the digits of that number."""
    if not _NAME.fullmatch(name):
        raise HostlistError(f"{_shown(name)} can't be a node's name: use printable ASCII without space , [ ] {{ }}")
    if len(name) > LONGEST_NAME:
        raise HostlistError(f"{_shown(name)} can't be a node's name: it is longer than {LONGEST_NAME} characters")
    prefix = name.rstrip(_DIGITS)
    digits = name[len(prefix) :]
    if len(digits) > DIGITS_THAT_ALWAYS_FIT and int(digits) > LARGEST_NUMBER:
        raise HostlistError(f"{_shown(name)} can't be a node's name: its number doesn't fit in Slurm's 64 bits")
    return prefix, digits


def _fold(prefix: str, numbers: list[str]) -> Iterator[str]:
    """The terms for all names with one prefix. A name without a number has its own term."""
    ranges: list[list[str]] = []
    # By the number that would extend it, each open range. Padded and unpadded ranges can be open at the same time.
    awaited: dict[str, list[str]] = {}
    for number, _, digits in sorted((int(digits), len(digits), digits) for digits in numbers if digits):
        run = awaited.pop(digits, None)
        if run is None or number - int(run[0]) >= LONGEST_RANGE:
            run = [digits, digits]
            ranges.append(run)
        run[1] = digits
        awaited[str(number + 1).zfill(len(run[0]))] = run
    if "" in numbers:
        yield prefix
    inside = ",".join(low if low == high else f"{low}-{high}" for low, high in ranges)
    if inside:
        yield prefix + (inside if inside.isdecimal() else f"[{inside}]")


def _natural(prefix: str) -> tuple[str, str]:
    """A sort key that orders numbers numerically, and digits as ASCII does among other characters."""
    return _NUMBER.sub(lambda number: f"{len(number[1]):03}{number[1]}", prefix), prefix


def _shown(text: str) -> str:
    """On one line, whatever it contains."""
    return repr(text if len(text) <= 60 else text[:59] + "…")
