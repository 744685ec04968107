"""Entries become users, or are refused one by one with what to do."""

from __future__ import annotations

import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seltzer.directory import accounts
from seltzer.directory.accounts import Account, Refusal
from seltzer.directory.messages import Entry
from seltzer.directory.schema import ACTIVE_DIRECTORY, RFC2307, Schema


def key(kind: str = "ssh-ed25519", data: bytes = b"\0" * 32) -> str:
    return f"{kind} {base64.b64encode(len(kind).to_bytes(4, 'big') + kind.encode() + data).decode()}"


Values = str | bytes | list[str] | list[bytes]


def entry(**attributes: Values | None) -> Entry:
    """Ada's, with what the test changes; None: without it."""
    given: dict[str, Values | None] = {
        "uid": "ada", "uidnumber": "2001", "gidnumber": "3000", "cn": "Ada", "loginshell": "/bin/zsh", **attributes
    }  # fmt: skip
    lists = {
        name: [value] if isinstance(value, str | bytes) else value for name, value in given.items() if value is not None
    }
    return Entry(
        "uid=ada,ou=people,dc=x",
        {name: [v.encode() if isinstance(v, str) else v for v in values] for name, values in lists.items()},
    )


def user(found: Entry, shell: str | None = None) -> Account:
    account, refusals = accounts.account(found, RFC2307, {}, shell)
    assert account and not refusals
    return account


def refusal(found: Entry) -> str:
    account, refusals = accounts.account(found, RFC2307, {})
    assert account is None
    (only,) = refusals
    return f"{only.name}: {only.why}"


def test_an_entry_becomes_a_user() -> None:
    found = entry(sshpublickey=[key() + " ada@laptop", key(data=b"\1" * 32)])
    assert user(found) == Account(
        "ada", 2001, 3000, "Ada", "/bin/zsh", tuple(sorted((key() + " ada@laptop", key(data=b"\1" * 32))))
    )


def test_what_a_directory_may_leave_out_has_a_default() -> None:
    assert user(entry(cn=None, loginshell=None)) == Account("ada", 2001, 3000, "", "/bin/bash", ())


def test_one_shell_may_be_for_everybody() -> None:
    assert user(entry(), "/bin/bash").shell == "/bin/bash"


@pytest.mark.parametrize("shell", ["/usr/sbin/nologin", "/bin/false"])
def test_one_shell_for_everybody_opens_no_account_that_the_directory_locks(shell: str) -> None:
    assert user(entry(loginshell=shell), "/bin/bash").shell == shell


def test_the_order_of_values_does_not_matter() -> None:
    values = [key(data=bytes((n,)) * 32) for n in range(5)]
    assert user(entry(sshpublickey=values, cn=["b", "a"])) == user(entry(sshpublickey=values[::-1], cn=["a", "b"]))


@pytest.mark.parametrize(
    ("name", "shown"),
    [("A:B\nC", "A B C"), ("\tÄda  ", "Äda"), (b"\xff", "\ufffd"), ("x" * 300, "x" * 255), (":", "")],
)
def test_a_full_name_is_made_fit_for_passwd(name: str | bytes, shown: str) -> None:
    assert user(entry(cn=name)).full_name == shown


NAME = "use at most 32 lower-case letters, digits, hyphens, underscores and dots, with a letter or an underscore first"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"uid": None}, "uid=ada,ou=people,dc=x: it has no uid: give it one"),
        ({"uid": b"\xff"}, "uid=ada,ou=people,dc=x: its uid isn't UTF-8: write it again"),
        ({"uid": "Ada"}, f"uid=ada,ou=people,dc=x: Slurm and the shell can't use the name 'Ada': {NAME}"),
        ({"uid": "ada\n"}, f"uid=ada,ou=people,dc=x: Slurm and the shell can't use the name 'ada\\n': {NAME}"),
        ({"uidnumber": None}, "ada: it has no uidnumber: give it one"),
        ({"uidnumber": ["2001", "2002"]}, "ada: it has 2 values of uidnumber: leave one"),
        ({"uidnumber": "999"}, "ada: its uidnumber 999 belongs to the system: use one from 1000 to 2147483647"),
        ({"uidnumber": "0"}, "ada: its uidnumber 0 belongs to the system: use one from 1000 to 2147483647"),
        (
            {"uidnumber": "4294967295"},
            "ada: its uidnumber 4294967295 belongs to the system: use one from 1000 to 2147483647",
        ),
        ({"uidnumber": "2_001"}, "ada: its uidnumber is '2_001', which isn't a number: correct it"),
        ({"uidnumber": "-2001"}, "ada: its uidnumber is '-2001', which isn't a number: correct it"),
        ({"gidnumber": None}, "ada: it has no gidnumber: give it one"),
        ({"gidnumber": "0"}, "ada: its gidnumber 0 belongs to the system: use one from 1000 to 2147483647"),
        ({"loginshell": "zsh"}, "ada: its loginshell is 'zsh': use the full path of a program, such as /bin/bash"),
        (
            {"loginshell": "/bin/a:b"},
            "ada: its loginshell is '/bin/a:b': use the full path of a program, such as /bin/bash",
        ),
        ({"sshpublickey": "x" * 70000}, "ada: its SSH keys have 70,000 bytes: remove some, below 65,536"),
    ],
)
def test_an_entry_that_cannot_be_used_says_what_to_do(changed: dict[str, Values | None], why: str) -> None:
    assert refusal(entry(**changed)) == why


def test_an_entry_with_two_names_is_refused_under_both_so_that_neither_is_taken_for_gone() -> None:
    _, refusals = accounts.account(entry(uid=["lovelace", "ada", "1st"]), RFC2307, {})
    why = "it has 3 values of uid: leave one"
    assert refusals == [Refusal("ada", why), Refusal("lovelace", why)]


def test_an_account_whose_control_is_hidden_may_be_disabled() -> None:
    found, refusals = accounts.account(windows(useraccountcontrol=None), ACTIVE_DIRECTORY, {})
    assert found is None
    assert [each.name for each in refusals] == ["ada"]
    assert "Account Restrictions" in refusals[0].why


GOOD = [
    key(),
    key() + " a comment",
    key("ssh-rsa", b"x" * 100),
    key("sk-ssh-ed25519@openssh.com"),
    'restrict,command="echo ssh-rsa there" ' + key(),
]
BAD = [
    "ssh-ed25519",
    "ssh-ed25519 AAAA",
    "ssh-ed25519 " + key("ssh-rsa").split()[1],
    key().split()[1],
    "ssh-ed25519 not/base64!",
    key("password"),
    key() + "\x00",
]


@pytest.mark.parametrize("line", GOOD)
def test_a_key_that_sshd_reads_is_taken(line: str) -> None:
    assert user(entry(sshpublickey=f"# mine\n{line}\n")).keys == (line,)


@pytest.mark.parametrize("line", BAD)
def test_a_key_that_sshd_cannot_read_is_left_out_and_named(line: str) -> None:
    found, refusals = accounts.account(entry(sshpublickey=[line, key()]), RFC2307, {})
    assert found and found.keys == (key(),)
    assert refusals == [
        Refusal("ada", f"a value of sshpublickey isn't an SSH public key ({line.strip()[:30]!r} …): correct it")
    ]


# --- Active Directory -------------------------------------------------------------------------------------------------


def windows(**attributes: Values | None) -> Entry:
    """A user of Active Directory."""
    given: dict[str, Values | None] = {"samaccountname": "Ada", "useraccountcontrol": "512", "primarygroupid": "513"}
    return entry(uid=None, cn=None, displayname="Ada L", **{**given, **attributes})


def test_a_name_of_active_directory_is_written_in_lower_case() -> None:
    found, _ = accounts.account(windows(), ACTIVE_DIRECTORY, {})
    assert found == Account("ada", 2001, 3000, "Ada L", "/bin/zsh")


def test_a_disabled_account_is_no_user_and_no_mistake() -> None:
    assert accounts.account(windows(useraccountcontrol="514"), ACTIVE_DIRECTORY, {}) == (None, [])


def test_without_a_gid_the_primary_group_of_active_directory_counts() -> None:
    found, _ = accounts.account(windows(gidnumber=None), ACTIVE_DIRECTORY, {513: 3513})
    assert found and found.gid == 3513
    found, refusals = accounts.account(windows(gidnumber=None), ACTIVE_DIRECTORY, {})
    assert not found
    assert refusals[0].why == "neither it nor its primary group has a gidnumber: give one of them one"


# --- anything ---------------------------------------------------------------------------------------------------------

SOMETHING = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([b"ada", b"2001", b"0", b"/bin/sh", key().encode(), b"512", b"a:b", b"x\ny"]),
)
ENTRIES = st.builds(
    Entry,
    st.text(max_size=10),
    st.dictionaries(
        st.sampled_from([*RFC2307.of_user, *ACTIVE_DIRECTORY.of_user]), st.lists(SOMETHING, max_size=3), max_size=8
    ),
)


@given(ENTRIES, st.sampled_from([RFC2307, ACTIVE_DIRECTORY]))
def test_any_entry_is_a_user_fit_for_passwd_or_is_refused(found: Entry, schema: Schema) -> None:
    account, refusals = accounts.account(found, schema, {513: 3000})
    if account is None:
        assert refusals or schema.windows
        return
    assert re.fullmatch(r"[a-z_][-a-z0-9_.]{0,31}", account.name)
    assert 1000 <= account.uid <= 2_147_483_647 and 1000 <= account.gid <= 2_147_483_647
    assert not re.search(r"[:\x00-\x1f\x7f]", account.full_name + account.shell)
    assert all("\n" not in line and line.strip() == line for line in account.keys)
    assert all("\n" not in each.why for each in refusals)
