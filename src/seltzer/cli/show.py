"""Prints answers: in colour and as wide as the terminal, elsewhere plain and unwrapped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import yaml
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from seltzer.cli.options import Output
from seltzer.view import colours
from seltzer.view.branch import Branch
from seltzer.view.text import Line

_UNWRAPPED = 100_000


def console() -> Console:
    """Standard output. Without a terminal, lines are whole, for programs that read them."""
    made = Console(highlight=False, emoji=False)
    if not made.is_terminal:
        made.width = _UNWRAPPED
    return made


def data(value: object, output: Output) -> None:
    """Prints data as YAML or JSON."""
    print(
        yaml.safe_dump(value, sort_keys=False) if output is Output.yaml else json.dumps(value, indent=2) + "\n", end=""
    )


def manifests(items: Iterable[Mapping[str, object]]) -> str:
    """Objects as a YAML stream for `kubectl apply -f -`."""
    return yaml.dump_all(items, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=120)


class _Dumper(yaml.SafeDumper):
    """Repeats values instead of using anchors, which are hard to read."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def text(line: Line) -> Text:
    """A line of the view, for a console."""
    return Text.assemble(*((cell.text, cell.style) for cell in line))


def tree(branch: Branch) -> Tree:
    """A tree of the view, for a console."""
    top = Tree(aligned([[*map(text, branch.columns)]])[0], guide_style=colours.MINOR)
    _grow(top, branch.children)
    return top


def _grow(top: Tree, branches: Sequence[Branch]) -> None:
    """Adds branches. Those with several columns are a table: their columns are aligned with each other."""
    tables = [each for each in branches if len(each.columns) > 1]
    rows = iter(aligned([[*map(text, each.columns)] for each in tables]))
    for each in branches:
        label = next(rows) if len(each.columns) > 1 else text(each.columns[0])
        _grow(top.add(label), each.children)


def aligned(rows: Sequence[Sequence[Text]]) -> list[Text]:
    """Each row as one line, with aligned columns. Trailing blanks are removed."""
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
