"""How answers look: on a terminal in colour and as wide as it is, elsewhere plain and unwrapped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import yaml
from rich.console import Console
from rich.text import Text

from seltzer.cli.options import Output

_UNWRAPPED = 100_000
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def console() -> Console:
    """Standard output. What isn't a terminal gets whole lines, so that a program can read them."""
    made = Console(highlight=False, emoji=False)
    if not made.is_terminal:
        made.width = _UNWRAPPED
    return made


def data(value: object, output: Output) -> None:
    """Print what a program asked for."""
    print(
        yaml.safe_dump(value, sort_keys=False) if output is Output.yaml else json.dumps(value, indent=2) + "\n", end=""
    )


def manifests(items: Iterable[Mapping[str, object]]) -> str:
    """Objects as a YAML stream that `kubectl apply -f -` takes."""
    return yaml.dump_all(items, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=120)


class _Dumper(yaml.SafeDumper):
    """Writes every value out where it is used: anchors save space and are hard to read."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def age(stamp: str | None, now: datetime) -> str:
    """How long ago that was, in one or two units as kubectl writes it: 42s, 5m, 3h20m, 12d."""
    when = parse(stamp)
    if when is None:
        return ""
    left = max(0, int((now - when).total_seconds()))
    for at, (unit, size) in enumerate(_UNITS):
        if left >= size:
            rest = left % size // _UNITS[at + 1][1] if at + 1 < len(_UNITS) else 0
            finer = f"{rest}{_UNITS[at + 1][0]}" if rest and left < 10 * size and unit in "dh" else ""
            return f"{left // size}{unit}{finer}"
    return "0s"


def parse(stamp: str | None) -> datetime | None:
    """A time as the API server writes it; None for none, and for what isn't one."""
    try:
        found = datetime.fromisoformat(stamp) if stamp else None
    except ValueError:
        return None
    return found.replace(tzinfo=found.tzinfo or UTC) if found else None


def aligned(rows: Sequence[Sequence[Text]]) -> list[Text]:
    """Each row as one line, with columns below each other; the last one isn't padded."""
    widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
    return [_line(row, widths) for row in rows]


def _line(row: Sequence[Text], widths: Sequence[int]) -> Text:
    line = Text()
    for cell, width in zip(row, widths, strict=True):
        line.append_text(cell)
        if width:
            line.append(" " * (width - cell.cell_len + 2))
    line.rstrip()
    return line
