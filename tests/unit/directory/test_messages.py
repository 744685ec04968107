"""Messages: an answer is read as it was meant, and anything else is Malformed, never another error."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import ldap as fake

from seltzer.directory import ber, messages
from seltzer.directory.ber import Malformed
from seltzer.directory.messages import DONE, Entry, Reference, Result, Search

ATTRIBUTES = st.dictionaries(
    st.text("abc;-", min_size=1, max_size=8), st.lists(st.binary(max_size=20), max_size=4), max_size=5
)
ANSWER = fake.entry(7, "uid=a,dc=x", {"uid": [b"a"], "uidNumber": [b"1000"]})
END = fake.result(7, DONE, 4, "too many", cookie=b"next")


@given(st.text(max_size=40), ATTRIBUTES)
def test_an_entry_is_read_as_the_server_wrote_it(dn: str, attributes: dict[str, list[bytes]]) -> None:
    assert messages.parse(fake.entry(7, dn, attributes)) == (7, Entry(dn, attributes))


def test_names_of_attributes_are_in_lower_case() -> None:
    assert messages.parse(ANSWER)[1] == Entry("uid=a,dc=x", {"uid": [b"a"], "uidnumber": [b"1000"]})


def test_an_end_has_a_code_a_text_and_a_cookie() -> None:
    assert messages.parse(END) == (7, Result(DONE, 4, "too many", (), b"next"))


def test_the_cookie_is_found_behind_other_controls_and_a_criticality() -> None:
    other = ber.element(ber.SEQUENCE, ber.text("1.2.3"), ber.boolean(True))
    value = ber.element(ber.SEQUENCE, ber.integer(0), ber.element(ber.OCTETS, b"next"))
    paged = ber.element(ber.SEQUENCE, ber.text(fake.PAGED), ber.boolean(False), ber.element(ber.OCTETS, value))
    operation = ber.element(DONE, ber.integer(0, ber.ENUMERATED), ber.text(""), ber.text(""))
    data = fake.message(7, operation, ber.element(0xA0, other, paged))
    assert messages.parse(data) == (7, Result(DONE, 0, "", (), b"next"))


def test_referrals_say_where() -> None:
    more = ber.element(0xA3, ber.text("ldap://a"), ber.text("ldap://b"))
    assert messages.parse(fake.result(7, DONE, 10, more=more))[1] == Result(DONE, 10, "", ("ldap://a", "ldap://b"), b"")
    assert messages.parse(fake.reference(7, "ldap://a"))[1] == Reference(("ldap://a",))


def test_a_text_of_several_lines_becomes_one() -> None:
    said = messages.parse(fake.result(7, DONE, 49, "80090308: LdapErr,\n data 52e, v3839\0"))[1]
    assert isinstance(said, Result)
    assert said.text == "80090308: LdapErr, data 52e, v3839"


def test_other_messages_do_not_matter() -> None:
    assert messages.parse(fake.message(7, ber.element(0x79))) == (7, None)


@given(st.sampled_from([ANSWER, END, fake.reference(7, "ldap://a")]), st.data())
def test_a_damaged_message_is_read_or_malformed(message: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(message) - 1))
    damaged = message[:at] + data.draw(st.binary(max_size=3)) + message[at + data.draw(st.integers(0, 3)) :]
    with contextlib.suppress(Malformed):
        messages.parse(damaged)


@pytest.mark.parametrize("data", [b"", b"\x30\x00", b"\x04\x00", b"\x30\x03\x02\x01\x07"])
def test_nothing_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        messages.parse(data)


def test_a_search_asks_for_a_page_and_active_directory_for_its_own_domain() -> None:
    search = Search("dc=x", ber.text("uid", 0x87), ("uid", "cn"))
    asked = fake.parse(search.request(7, 1000, b"next"))
    assert (asked.number, asked.dn, asked.scope, asked.attributes) == (7, "dc=x", 2, ("uid", "cn"))
    assert (asked.page, asked.cookie) == (1000, b"next")
    assert b"1.2.840.113556.1.4.1339" in search._replace(own_domain=True).request(7, 0, b"")
    assert fake.parse(search.request(7, 0, b"")).page == 0
