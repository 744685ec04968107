"""The ledger is text that a person may edit, and what can't be read is never taken for nothing."""

from __future__ import annotations

import pytest

from seltzer.plan.users import ledger
from seltzer.plan.users.ledger import Entry, Ledger, LedgerError

KNOWN = Ledger({"alice": Entry(2001, "inline"), "bob": Entry(2002)}, {"team": Entry(3001, "ldap")})


def test_what_is_written_is_what_is_read() -> None:
    text = ledger.text(KNOWN)
    assert "alice 2001 inline\nbob 2002 -\n" in text["users"]
    assert ledger.parse(text) == KNOWN


def test_comments_and_empty_lines_do_not_count() -> None:
    text = {"users": "# a comment\n\n  \nalice 2001 inline", "groups": "#"}
    assert ledger.parse(text).users == {"alice": Entry(2001, "inline")}
    assert ledger.parse(ledger.text(Ledger())) == Ledger()


@pytest.mark.parametrize("part", ["users", "groups"])
@pytest.mark.parametrize("left", [None, "", "\n"])
def test_a_part_that_was_lost_is_not_taken_for_an_empty_one(part: str, left: str | None) -> None:
    data = {**ledger.text(KNOWN), part: left}
    with pytest.raises(LedgerError, match=f"{part} is empty: restore it"):
        ledger.parse({name: text for name, text in data.items() if text is not None})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("alice 2001", "line 1 of users: 'alice 2001' isn't a name, an ID and a source"),
        ("alice x inline", "isn't a name, an ID and a source"),
        ("alice -1 inline", "isn't a name, an ID and a source"),
        ("alice \u0662 inline", "isn't a name, an ID and a source"),
        ("alice 2001 inline\nbob 2001 inline", "line 2 of users: 'bob' or 2001 is in the line of 'alice'"),
        ("alice 2001 inline\n#\nalice 2002 inline", "line 3 of users: 'alice' or 2002 is in the line of 'alice'"),
    ],
)
def test_a_line_that_says_nothing_makes_all_of_it_unreadable(text: str, why: str) -> None:
    with pytest.raises(LedgerError, match=why):
        ledger.parse({"users": text, "groups": "#"})
