"""Users and groups out of entries, one by one. Pure.

The values of an attribute have no order in LDAP. Whatever is made of several is sorted, so that the same entries always
result in the same users.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import re
from collections.abc import Mapping

from msgspec import Struct

from .messages import Entry
from .schema import ACCOUNT_CONTROL, PRIMARY_GROUP, SECURITY_ID, Schema

LOWEST_ID, HIGHEST_ID = 1000, 2_147_483_647
DEFAULT_SHELL = "/bin/bash"
MOST_KEY_BYTES = 64 * 1024

_NAME = re.compile(r"[a-z_][-a-z0-9_.]{0,31}")
_NUMBER = re.compile(rb"[0-9]{1,10}")
_SHELL = re.compile(r"/[-a-zA-Z0-9_./+]{1,254}")
_KEY_KIND = re.compile(r"(?:ssh|ecdsa|sk-ssh|sk-ecdsa)-[-a-z0-9@.]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_DISABLED = 0x2
# The ends of shells by which administrators lock accounts.
_LOCKS = (b"/nologin", b"/false")


class Account(Struct, frozen=True, gc=False):
    """A user."""

    name: str
    uid: int
    gid: int
    full_name: str = ""
    shell: str = DEFAULT_SHELL
    keys: tuple[str, ...] = ()


class Refusal(Struct, frozen=True, gc=False):
    """An entry, or a part of it, that can't be used: its name or DN, and why."""

    name: str
    why: str
    is_group: bool = False


class Unusable(Exception):
    """Why an entry can't be used, and what to do about it."""


def account(
    entry: Entry, schema: Schema, group_of: Mapping[int, int], shell: str | None = None
) -> tuple[Account | None, list[Refusal]]:
    """The user of an entry, and what isn't used of it; None for a disabled account.

    `group_of` has the IDs of the groups that Active Directory knows by another number. `shell` is everybody's who
    isn't locked.
    """
    try:
        if schema.windows and _control(entry) & _DISABLED:
            return None, []
        name = _name(entry, schema.user_name, schema)
        uid = _id(entry, schema.uid_number)
        gid = _primary(entry, schema, group_of)
        keys, bad = _keys(entry, schema.key)
        found = Account(name, uid, gid, _full_name(entry, schema), _shell(entry, schema.shell, shell), keys)
    except Unusable as error:
        return None, [Refusal(name, str(error)) for name in claimed(entry, schema.user_name, schema) or [entry.dn]]
    return found, [Refusal(name, why) for why in bad]


def group_id(entry: Entry, schema: Schema) -> tuple[str, int] | None:
    """The name and ID of a group; None if it isn't one of Unix, Unusable if it can't be one."""
    if schema.windows and not entry.attributes.get(schema.gid_number):
        return None
    return _name(entry, schema.group_name, schema), _id(entry, schema.gid_number)


def relative_id(entry: Entry) -> int | None:
    """The number by which Active Directory's users name their primary group: the end of the group's SID."""
    sid = entry.attributes.get(SECURITY_ID, [])
    return int.from_bytes(sid[0][-4:], "little") if len(sid) == 1 and len(sid[0]) >= 12 else None


def number_of(entry: Entry, attribute: str) -> int | None:
    """A number that may be missing."""
    values = entry.attributes.get(attribute, ())
    return int(values[0]) if len(values) == 1 and _NUMBER.fullmatch(values[0]) else None


def claimed(entry: Entry, attribute: str, schema: Schema) -> list[str]:
    """The names that an entry gives itself, of those that can be names. Only one of them can be used."""
    values = sorted(value.decode(errors="replace") for value in entry.attributes.get(attribute, ()))
    names = [name.lower() if schema.windows else name for name in values]
    return [name for name in names if _NAME.fullmatch(name)]


def group_refusals(entry: Entry, schema: Schema, why: str) -> list[Refusal]:
    """Why a group isn't used, under each of its names."""
    names = claimed(entry, schema.group_name, schema) or [_label(entry, schema)]
    return [Refusal(name, f"this group: {why}", is_group=True) for name in names]


def _label(entry: Entry, schema: Schema) -> str:
    """How a group without a usable name is called in a message."""
    try:
        return _text(entry, schema.group_name) or entry.dn
    except Unusable:
        return entry.dn


def _one(entry: Entry, attribute: str) -> bytes | None:
    values = entry.attributes.get(attribute, ())
    if len(values) > 1:
        raise Unusable(f"it has {len(values)} values of {attribute}: leave one")
    return values[0] if values else None


def _text(entry: Entry, attribute: str) -> str | None:
    value = _one(entry, attribute)
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        raise Unusable(f"its {attribute} isn't UTF-8: write it again") from None


def _number(entry: Entry, attribute: str, default: int | None = None) -> int:
    value = _one(entry, attribute)
    if value is None:
        if default is None:
            raise Unusable(f"it has no {attribute}: give it one")
        return default
    if not _NUMBER.fullmatch(value):
        raise Unusable(f"its {attribute} is {value[:20].decode(errors='replace')!r}, which isn't a number: correct it")
    return int(value)


def _control(entry: Entry) -> int:
    """Every account has it: one that hides it may be disabled."""
    if not entry.attributes.get(ACCOUNT_CONTROL):
        raise Unusable(
            f"its {ACCOUNT_CONTROL} can't be seen, so it may be disabled: give the account of bindSecret the right to "
            "read Account Restrictions"
        )
    return _number(entry, ACCOUNT_CONTROL)


def _id(entry: Entry, attribute: str) -> int:
    number = _number(entry, attribute)
    if not LOWEST_ID <= number <= HIGHEST_ID:
        raise Unusable(f"its {attribute} {number} belongs to the system: use one from {LOWEST_ID} to {HIGHEST_ID}")
    return number


def _primary(entry: Entry, schema: Schema, group_of: Mapping[int, int]) -> int:
    """The ID of the primary group. Active Directory has one of its own, which counts if there is no gidNumber."""
    if schema.windows and not entry.attributes.get(schema.gid_number):
        relative = _number(entry, PRIMARY_GROUP, 0)
        if relative not in group_of:
            raise Unusable(f"neither it nor its primary group has a {schema.gid_number}: give one of them one")
        return group_of[relative]
    return _id(entry, schema.gid_number)


def _name(entry: Entry, attribute: str, schema: Schema) -> str:
    name = _text(entry, attribute)
    if name is None:
        raise Unusable(f"it has no {attribute}: give it one")
    name = name.lower() if schema.windows else name
    if not _NAME.fullmatch(name):
        raise Unusable(
            f"Slurm and the shell can't use the name {name[:40]!r}: use at most 32 lower-case letters, digits, "
            "hyphens, underscores and dots, with a letter or an underscore first"
        )
    return name


def _full_name(entry: Entry, schema: Schema) -> str:
    """One of the full names; passwd can't hold colons and control characters."""
    names = [value.decode(errors="replace") for value in entry.attributes.get(schema.full_name, ())]
    return _CONTROL.sub(" ", min(names, default="")).replace(":", " ").strip()[:255]


def _shell(entry: Entry, attribute: str, everybodys: str | None) -> str:
    """The login shell. Everybody's opens no account that the directory locks."""
    if everybodys and not any(value.endswith(_LOCKS) for value in entry.attributes.get(attribute, ())):
        return everybodys
    shell = _text(entry, attribute) or DEFAULT_SHELL
    if not _SHELL.fullmatch(shell):
        raise Unusable(f"its {attribute} is {shell[:40]!r}: use the full path of a program, such as /bin/bash")
    return shell


def _keys(entry: Entry, attribute: str) -> tuple[tuple[str, ...], list[str]]:
    """The SSH keys, and why others aren't used."""
    values = entry.attributes.get(attribute, ())
    size = sum(map(len, values))
    if size > MOST_KEY_BYTES:
        raise Unusable(f"its SSH keys have {size:,} bytes: remove some, below {MOST_KEY_BYTES:,}")
    lines = {line.strip() for value in values for line in value.decode(errors="replace").splitlines()}
    lines -= {line for line in lines if not line or line.startswith("#")}
    good = {line for line in lines if _is_key(line)}
    bad = [
        f"a value of {attribute} isn't an SSH public key ({line[:30]!r} …): correct it" for line in sorted(lines - good)
    ]
    return tuple(sorted(good)), bad


def _is_key(line: str) -> bool:
    """Whether sshd could read this line: options, a kind of key, and data that begins with the same kind."""
    words = line.split()
    pairs = [(kind, data) for kind, data in itertools.pairwise(words) if _KEY_KIND.fullmatch(kind)]
    return not _CONTROL.search(line) and any(_belong(kind, data) for kind, data in pairs)


def _belong(kind: str, data: str) -> bool:
    try:
        blob = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return False
    return blob[:4] == len(kind).to_bytes(4, "big") and blob[4:].startswith(kind.encode()) and len(blob) > 4 + len(kind)
