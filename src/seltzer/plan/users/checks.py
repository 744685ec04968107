"""Which entries of a source can't be users or groups, whatever else there is. The CRD has the same rules."""

from __future__ import annotations

import re
from typing import Final

from seltzer.api import users as api
from seltzer.plan.users.accounts import Account, Group

# The names that Debian and Slurm give to accounts and groups of their own. `files` comes before `extrausers` in
# nsswitch.conf: a user of this name would have the ID of the system's.
_SYSTEM = """
    root daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc nobody nogroup adm tty disk fax
    voice cdrom floppy tape sudo audio dip operator src shadow utmp video sasl plugdev staff users input sgx kvm render
    crontab sshd ssh_agent _ssh messagebus polkitd munge slurm slurmrestd slurmdbd mysql postfix systemd-network
    systemd-resolve systemd-timesync systemd-journal _apt ntp dnsmasq tcpdump uuidd
"""
SYSTEM: Final = frozenset(_SYSTEM.split())
# Numbers that programs take for "nobody" or "none".
_SPECIAL_IDS: Final = frozenset({65534, 65535})
MOST_KEY_BYTES: Final = 64 * 1024
_NAME, _SHELL = re.compile(api.NAME_PATTERN), re.compile(api.SHELL_PATTERN)
_FULL_NAME, _KEY = re.compile(r"^[^:\x00-\x1f\x7f]*\Z"), re.compile(r"^[^\x00-\x08\x0a-\x1f\x7f]+\Z")
_HOME = re.compile(r"^/[^:\x00-\x1f\x7f]*\Z")


def of_account(account: Account) -> str:
    """What is wrong with an account, and what to do; empty: nothing."""
    found = _name(account.name) or _id("uid", account.uid)
    if not found and account.gid is not None:
        found = _id("gid", account.gid)
    if found:
        return found
    if not _SHELL.match(account.shell) or len(account.shell) > 255:
        return f"the shell {account.shell[:64]!r}: {api.SHELL_SAYS}"
    if not _FULL_NAME.match(account.full_name) or len(account.full_name) > 255:
        return f"the full name {account.full_name[:64]!r}: {api.FULL_NAME_SAYS}"
    if account.home and (not _HOME.match(account.home) or len(account.home) > 255):
        return f"the home {account.home[:64]!r}: a home is a full path without colons"
    return _keys(account.keys)


def of_group(group: Group) -> str:
    """What is wrong with a group, and what to do; empty: nothing."""
    return _name(group.name) or _id("gid", group.gid)


def usable_keys(keys: tuple[str, ...]) -> tuple[tuple[str, ...], list[str]]:
    """The first keys that an account can have together, and what is wrong with each of the others."""
    taken: list[str] = []
    wrong: list[str] = []
    size = 0
    for key in keys:
        more = len(key.encode())
        if not _KEY.match(key):
            wrong.append(f"an SSH key: {api.KEY_SAYS}")
        elif size + more > MOST_KEY_BYTES:
            wrong.append(f"too many bytes of keys: remove some, below {MOST_KEY_BYTES:,}")
        else:
            taken.append(key)
            size += more
    return tuple(taken), wrong


def _name(name: str) -> str:
    if not _NAME.match(name):
        return f"the name {name[:64]!r}: {api.NAME_SAYS}"
    if name in SYSTEM:
        return f"the name {name!r} belongs to the system: choose another"
    return ""


def _id(what: str, number: int) -> str:
    if not api.LOWEST_ID <= number <= api.HIGHEST_ID or number in _SPECIAL_IDS:
        return f"the {what} {number} belongs to the system: choose one from {api.LOWEST_ID} on, but not 65534 or 65535"
    return ""


def _keys(keys: tuple[str, ...]) -> str:
    size = sum(len(key.encode()) for key in keys)
    if size > MOST_KEY_BYTES:
        return f"the SSH keys have {size:,} bytes: remove some, below {MOST_KEY_BYTES:,}"
    if not all(_KEY.match(key) for key in keys):
        return f"an SSH key: {api.KEY_SAYS}"
    return ""
