"""How a directory names what Seltzer reads: three presets, and what spec changes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

ACCOUNT_CONTROL, PRIMARY_GROUP, SECURITY_ID = "useraccountcontrol", "primarygroupid", "objectsid"


@dataclass(frozen=True)
class Schema:
    """The names of attributes, in lower case as `messages.Entry` has them, and which entries are users and groups."""

    users: str
    groups: str
    user_name: str
    full_name: str
    group_name: str
    members: str
    uid_number: str = "uidnumber"
    gid_number: str = "gidnumber"
    shell: str = "loginshell"
    key: str = "sshpublickey"
    # Whether `members` holds DNs, of users and of other groups, or plain names.
    members_are_dns: bool = True
    # Active Directory: names ignore case, accounts can be disabled, and the primary group may be known by its number.
    windows: bool = False

    @property
    def of_user(self) -> tuple[str, ...]:
        """The attributes of a user that are read."""
        windows = (ACCOUNT_CONTROL, PRIMARY_GROUP) if self.windows else ()
        names = (self.user_name, self.uid_number, self.gid_number, self.full_name, self.shell, self.key)
        return tuple(dict.fromkeys((*names, *windows)))

    @property
    def of_group(self) -> tuple[str, ...]:
        """The attributes of a group that are read."""
        names = (self.group_name, self.gid_number, self.members)
        return tuple(dict.fromkeys((*names, *((SECURITY_ID,) if self.windows else ()))))

    def using(self, **attributes: str | None) -> Schema:
        """The schema with other names of attributes; None keeps one."""
        given: dict[str, str] = {field: name.lower() for field, name in attributes.items() if name}
        return replace(self, **given)  # type: ignore[arg-type]


RFC2307: Final = Schema(
    users="(objectClass=posixAccount)",
    groups="(objectClass=posixGroup)",
    user_name="uid",
    full_name="cn",
    group_name="cn",
    members="memberuid",
    members_are_dns=False,
)
RFC2307BIS: Final = replace(RFC2307, members="member", members_are_dns=True)
# Groups without a gidNumber are read too: their members may belong to a group around them.
ACTIVE_DIRECTORY: Final = Schema(
    users="(&(objectCategory=person)(objectClass=user)(uidNumber=*))",
    groups="(objectClass=group)",
    user_name="samaccountname",
    full_name="displayname",
    group_name="samaccountname",
    members="member",
    windows=True,
)
PRESETS: Final[Mapping[str, Schema]] = {
    "rfc2307": RFC2307,
    "rfc2307bis": RFC2307BIS,
    "activeDirectory": ACTIVE_DIRECTORY,
}
