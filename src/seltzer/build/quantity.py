"""Kubernetes quantities (`1500m`, `2Gi`, `1e3`) as exact numbers."""

from __future__ import annotations

import functools
import math
import re
from fractions import Fraction

from seltzer.errors import SeltzerError

_FORM = re.compile(r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_LONGEST = 64
MEBI = 2**20


class QuantityError(SeltzerError):
    """Not a Kubernetes quantity."""


# Thousands of machines have few different sizes, which each pass reads.
@functools.lru_cache(maxsize=16384)
def parse(quantity: str | int) -> Fraction:
    """The exact value."""
    text = str(quantity)
    match = _FORM.fullmatch(text) if len(text) <= _LONGEST else None
    if not match:
        raise QuantityError(f"{text[:_LONGEST]!r} isn't a quantity: write it like 500m, 2, 1.5Gi or 1e9")
    sign, digits, suffix = match[1], match[2], match[3] or ""
    # `E` alone is exa, `E3` an exponent.
    if suffix in _BINARY:
        scale = Fraction(2) ** _BINARY[suffix]
    elif suffix in _DECIMAL:
        scale = Fraction(10) ** _DECIMAL[suffix]
    else:
        scale = Fraction(10) ** int(suffix[1:])
    return Fraction(digits.rstrip(".")) * scale * (-1 if sign == "-" else 1)


def cpus(quantity: str | int) -> int:
    """Whole CPUs, rounded down; at least one, since Slurm has no fractions."""
    return max(1, int(parse(quantity)))


def whole_cpus(quantity: str | int) -> int:
    """Whole CPUs, rounded up, as Kubernetes tells a container how many its machine has."""
    return max(1, math.ceil(parse(quantity)))


def mebibytes(quantity: str | int) -> int:
    """Whole MiB, rounded down, as Slurm counts memory; at least one."""
    return max(1, int(parse(quantity) / MEBI))
