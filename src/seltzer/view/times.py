"""Times and durations for people: `5m`, `3h20m`, `in 5m`."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def parse(stamp: str | None) -> datetime | None:
    """A time as the API server writes it; None if there is none, or it is malformed."""
    try:
        found = datetime.fromisoformat(stamp) if stamp else None
    except ValueError:
        return None
    return found.replace(tzinfo=found.tzinfo or UTC) if found else None


def age(stamp: str | None, now: datetime) -> str:
    """How long ago that was, as `span` writes it; empty where `parse` finds no time."""
    when = parse(stamp)
    return "" if when is None else span(int((now - when).total_seconds()))


def span(seconds: int) -> str:
    """A duration in one or two units, as kubectl writes it: 42s, 5m, 3h20m, 12d."""
    left = max(0, seconds)
    for at, (unit, size) in enumerate(_UNITS):
        if left >= size:
            rest = left % size // _UNITS[at + 1][1] if at + 1 < len(_UNITS) else 0
            finer = f"{rest}{_UNITS[at + 1][0]}" if rest and left < 10 * size and unit in "dh" else ""
            return f"{left // size}{unit}{finer}"
    return "0s"


def until(seconds: int) -> str:
    """`in 5m`; `any moment` for a time that is over, such as the end of a job beyond its limit."""
    return f"in {span(seconds)}" if seconds > 0 else "any moment"


def stamp(seconds: int | None) -> str | None:
    """Slurm's seconds as an RFC 3339 time; None for none."""
    return datetime.fromtimestamp(seconds, UTC).isoformat() if seconds else None
