"""`seltzer top --once`."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.fakes.top_world import NOW, facts, job, node

from seltzer.cli.top import text
from seltzer.view.frame import Choice, Update, frame
from seltzer.view.panes import PANES

MOMENT = datetime.fromtimestamp(NOW, UTC)


def test_as_text_it_is_a_header_and_the_tables_that_have_rows() -> None:
    known = facts([node("cpu-0", jobs=True)], [job(7, "cpu-0")])
    made = frame(Update(known), dict.fromkeys(PANES, Choice()))
    lines = [line.plain for line in text.lines(made, 100_000, MOMENT)]
    assert lines[2:] == [
        "",
        "NODE   STATE  JOBS  FREE    ON  POD      REASON",
        "cpu-0  mixed  7     in 30m  n1  Running",
        "",
        "JOB  STATE    USER  PARTITION  FOR  LEFT  NODES  WHY  NAME",
        "7    running  ada   cpu        1m   30m   cpu-0       train",
    ]
