"""Who may use a cluster: `spec.users`, and the shape of a ConfigMap with users."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from .common import ObjectName, Part, Report, Rule, text
from .ldap import Ldap

LOWEST_ID = 1000
HIGHEST_ID = 2_147_483_647
SHELL = "/bin/bash"
NAME_PATTERN = r"^[a-z_][-a-z0-9_.]{0,31}\Z"
NAME_SAYS = (
    "not a name that Slurm and the shell can use: use at most 32 lower-case letters, digits, hyphens, underscores and "
    "dots, with a letter or an underscore first"
)
SHELL_PATTERN = r"^/[-a-zA-Z0-9_./+]*\Z"
SHELL_SAYS = "not the full path of a program: use one that is in the images, such as /bin/bash"
FULL_NAME_PATTERN = r"^[^:\r\n\t]*\Z"
FULL_NAME_SAYS = "a colon or the end of a line would end a field of passwd: use one line without colons"
KEY_PATTERN = r"^[^\r\n]+\Z"
KEY_SAYS = "a key is one line: write each line of authorized_keys as one item of the list"
MOST_KEY = 2048
MOST_KEYS = 12

UnixName = Annotated[str, text(NAME_PATTERN, NAME_SAYS, 32)]
Id = Annotated[int, Meta(ge=LOWEST_ID, le=HIGHEST_ID)]
Shell = Annotated[str, text(SHELL_PATTERN, SHELL_SAYS, 255)]
FullName = Annotated[str, text(FULL_NAME_PATTERN, FULL_NAME_SAYS, 255)]
UserKey = Annotated[str, text(KEY_PATTERN, KEY_SAYS, MOST_KEY)]
_Set = Meta(extra_json_schema={"x-kubernetes-list-type": "set"})
_ByName = Meta(extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]})
_ByNameAndSource = Meta(
    extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "source"]}
)


class User(Part, frozen=True, kw_only=True):
    """A person or a program that uses the cluster."""

    name: UnixName
    """The login name."""

    uid: Id
    """The user ID. It belongs to the name for good: no other name can have it later."""

    gid: Id | None = None
    """The ID of the primary group; by default the user's own group, which has the user's name and ID."""

    groups: Annotated[tuple[UnixName, ...], Meta(max_length=64), _Set] = ()
    """Further groups of the user, by name."""

    full_name: FullName = ""
    """The person's name."""

    shell: Shell = SHELL
    """The login shell. It has to be in the images."""

    authorized_keys: Annotated[tuple[UserKey, ...], Meta(max_length=MOST_KEYS), _Set] = ()
    """SSH public keys that may log in as this user, each as a line of an authorized_keys file."""


class Group(Part, frozen=True, kw_only=True):
    """A group of users, for files that they share."""

    name: UnixName
    """The group's name."""

    gid: Id
    """The group ID. It belongs to the name for good."""


class UserList(Part, frozen=True, kw_only=True):
    """Users and groups. A ConfigMap has them in this form, too, as YAML under the key users.yaml."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.users) || self.users.all(one, self.users.exists_one(other, other.uid == one.uid))",
            "two users with one uid could read each other's files: choose a uid of its own for each",
            ".users",
        ),
        Rule(
            "!has(self.groups) || self.groups.all(one, self.groups.exists_one(other, other.gid == one.gid))",
            "two groups can't share a gid: choose a gid of its own for each",
            ".groups",
        ),
    )

    users: Annotated[tuple[User, ...], Meta(max_length=256), _ByName] = ()
    """The users."""

    groups: Annotated[tuple[Group, ...], Meta(max_length=256), _ByName] = ()
    """The groups that users name in `groups`."""


class UsersConfigMap(Part, frozen=True, kw_only=True):
    """A ConfigMap in the cluster's namespace, with users and groups under the key users.yaml."""

    name: ObjectName
    """The name of the ConfigMap."""


class Users(Part, frozen=True, kw_only=True):
    """Where the cluster's users come from. As soon as a source is named, only its users exist.

    Without any source there is one user called `user`, with the ID 1000. If a source fails or lists nobody, its users
    stay as they were; the condition UsersReady says why.
    """

    inline: UserList | None = None
    """Users that are written here, for small teams."""

    config_map: UsersConfigMap | None = None
    """Users from a ConfigMap, such as one that another program maintains."""

    ldap: Ldap | None = None

    @property
    def named(self) -> bool:
        """Whether a source is named."""
        return self.inline is not None or self.config_map is not None or self.ldap is not None


class RefusedUser(Report, frozen=True, kw_only=True):
    """A user or group that a source lists and that isn't used as listed."""

    name: str
    """Its name in the source."""

    source: str
    """The source that lists it."""

    why: str = ""
    """What is wrong, and what to do about it."""


class UsersStatus(Report, frozen=True, kw_only=True):
    """The users that all containers of the cluster know."""

    active: int = 0
    """How many may log in and submit jobs."""

    removed: int = 0
    """How many no source lists any more. Their IDs stay reserved, and their files keep their names."""

    refused: int = 0
    """How many entries of sources aren't used as listed."""

    refusals: Annotated[tuple[RefusedUser, ...], Meta(max_length=64), _ByNameAndSource] = ()
    """The first of these entries."""
