"""The plot of the results: an SVG written by hand. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

_TITLE = "Seconds from each fault until slurmctld answers, a new job runs and the pool is whole"
_PLOT, _GAP, _RIGHT, _TOP, _LINE = 500, 14, 30, 56, 24
# Pixels per character. DejaVu Sans, the widest of the usual system fonts, takes 6.7 on average for the widest name.
_CHARACTER = 7.2
_LEGEND = 830
_LEAST, _MOST = 0.05, 100.0
_TICKS = (0.1, 0.3, 1, 3, 10, 30, 100)
# Colours of their own for light and for dark: the page that shows it may be either.
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f; }
.small { font-size: 11px; fill: #57606a; }
.grid { stroke: #d0d7de; stroke-width: 1; }
.answer { fill: #0969da; }
.job { fill: none; stroke: #bc4c00; stroke-width: 1.5; }
.whole { fill: #1a7f37; }
.median { stroke: #0969da; stroke-width: 2; }
.limit { stroke: #cf222e; stroke-width: 1.5; stroke-dasharray: 3 2; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .small { fill: #9198a1; }
  .grid { stroke: #3d444d; }
  .answer { fill: #4493f8; }
  .job { stroke: #f0883e; }
  .whole { fill: #3fb950; }
  .median { stroke: #4493f8; }
  .limit { stroke: #f85149; }
}
"""


def draw(rows: Sequence[dict[str, Any]]) -> str:
    """Every repeat of every row on a line of seconds, which is logarithmic: a tenth counts as much as a minute."""
    left = _margin(rows)
    width = max(left + _PLOT + _RIGHT, _LEGEND)
    height = _TOP + _LINE * len(rows) + 30
    bottom = height - 26
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title">',
        f'<title id="title">{_TITLE}</title>',
        f"<style>{_STYLE}</style>",
        *_legend(),
    ]
    for tick in _TICKS:
        x = left + _along(tick)
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{_TOP - 8}" y2="{bottom}"/>')
        parts.append(f'<text class="small" x="{x}" y="{bottom + 16}" text-anchor="middle">{tick:g} s</text>')
    for number, row in enumerate(rows):
        parts += _row(row, left, _TOP + _LINE * number + _LINE / 2)
    return "\n".join([*parts, "</svg>", ""])


def _margin(rows: Sequence[dict[str, Any]]) -> int:
    """Wide enough on the left for the longest name of a row."""
    longest = max((len(row["name"]) for row in rows), default=0)
    return math.ceil(longest * _CHARACTER) + _GAP


def _legend() -> list[str]:
    marks = [
        ('<circle class="answer" cx="8" cy="16" r="4"/>', 18, "slurmctld answers"),
        ('<circle class="job" cx="148" cy="16" r="4"/>', 158, "a new job runs"),
        (_square(266, 16), 276, "the pool is whole"),
        ('<line class="median" x1="396" x2="396" y1="9" y2="23"/>', 404, "median answer"),
        ('<line class="limit" x1="506" x2="506" y1="9" y2="23"/>', 514, "has to answer by then"),
        ("", 660, "left edge: nothing was felt"),
    ]
    return [f'{mark}<text class="small" x="{x}" y="20">{text}</text>' for mark, x, text in marks]


def _row(row: dict[str, Any], left: int, y: float) -> list[str]:
    def at(seconds: float) -> float:
        return round(left + _along(seconds), 1)

    parts = [f'<text x="{left - _GAP}" y="{y + 4}" text-anchor="end">{escape(row["name"])}</text>']
    limit = row.get("expected", {}).get("answer_s")
    if limit:
        parts.append(f'<line class="limit" x1="{at(limit)}" x2="{at(limit)}" y1="{y - 9}" y2="{y + 9}"/>')
    parts += [f'<circle class="job" cx="{at(each)}" cy="{y}" r="4"/>' for each in row.get("jobs", [])]
    parts += [f'<circle class="answer" cx="{at(each)}" cy="{y}" r="3"/>' for each in row.get("answers", [])]
    parts += [_square(at(each), y) for each in row.get("wholes", [])]
    median = row["answer_s"]["median"]
    if median is not None:
        parts.append(f'<line class="median" x1="{at(median)}" x2="{at(median)}" y1="{y - 8}" y2="{y + 8}"/>')
    return parts


def _square(x: float, y: float) -> str:
    return f'<rect class="whole" x="{round(x - 3, 1)}" y="{y - 3}" width="6" height="6"/>'


def _along(seconds: float) -> float:
    """How far along the line a number of seconds is; what is less than the line shows is at its edge."""
    share = math.log(min(max(seconds, _LEAST), _MOST) / _LEAST) / math.log(_MOST / _LEAST)
    return round(share * _PLOT, 1)
