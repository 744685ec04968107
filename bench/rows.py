"""A row of the bench: a measurement beside its floor, in one table and one file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parents[1] / "build" / "bench.json"


@dataclass(frozen=True)
class Row:
    """`floor` is the cost of the simplest possible client for the same work in the same run."""

    name: str
    value: float
    unit: str
    floor: float | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.floor if self.floor else None


def report(rows: list[Row]) -> None:
    """Print the rows. In the results file they replace rows of the same name; others stay."""
    RESULTS.parent.mkdir(exist_ok=True)
    known = {row["name"]: row for row in json.loads(RESULTS.read_text())} if RESULTS.exists() else {}
    known |= {row.name: {**asdict(row), "ratio": row.ratio} for row in rows}
    RESULTS.write_text(json.dumps(list(known.values()), indent=2) + "\n")
    table = Table("what", "value", "floor", "ratio", "unit", box=None, pad_edge=False)
    for row in rows:
        table.add_row(row.name, *(_short(number) for number in (row.value, row.floor, row.ratio)), row.unit)
    Console(highlight=False).print(table)


def _short(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.2f}"
