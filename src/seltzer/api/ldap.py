"""Users from an LDAP directory or Active Directory, as a source of `spec.users`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, field

from .common import Duration, ObjectName, Part, Rule, text

LdapUri = Annotated[
    str,
    text(
        r"^ldaps?://([-a-zA-Z0-9._]+|\[[0-9a-fA-F:]+\])(:[0-9]{1,5})?/?\Z",
        "not the URI of a directory: write it as ldaps://ldap.example.com, with the port if it isn't the usual one",
        300,
    ),
]
DistinguishedName = Annotated[
    str,
    text(
        r"^[a-zA-Z0-9.-]+ *=[^\r\n]*\Z",
        "not a distinguished name: write it as ou=people,dc=example,dc=com",
        1024,
    ),
]
LdapFilter = Annotated[
    str,
    text(
        r"^\([^\r\n]*\)\Z",
        "not an LDAP filter: write it in parentheses, such as (memberOf=cn=hpc,ou=groups,dc=example,dc=com)",
        4096,
    ),
]
LdapAttribute = Annotated[
    str,
    text(
        r"^[a-zA-Z0-9][-a-zA-Z0-9.]*\Z",
        "not the name of an attribute: use letters, digits and hyphens, such as sshPublicKey",
        128,
    ),
]
LdapShell = Annotated[
    str,
    text(
        r"^/[-a-zA-Z0-9_./+]*\Z", "not a shell: write the full path of a program in the images, such as /bin/bash", 255
    ),
]

_Set = Meta(extra_json_schema={"x-kubernetes-list-type": "set"})


class LdapBindSecret(Part, frozen=True, kw_only=True):
    """A Secret in the cluster's namespace with an account that may read users and groups, under the keys dn and
    password."""

    name: ObjectName
    """The name of the Secret."""


class LdapCaSecret(Part, frozen=True, kw_only=True):
    """A Secret in the cluster's namespace with the certificates of authorities, in PEM, under the key ca.crt."""

    name: ObjectName
    """The name of the Secret."""


class LdapCaConfigMap(Part, frozen=True, kw_only=True):
    """A ConfigMap in the cluster's namespace with the certificates of authorities, in PEM, under the key ca.crt."""

    name: ObjectName
    """The name of the ConfigMap."""


class LdapAttributes(Part, frozen=True, kw_only=True):
    """The names of attributes where the directory uses others than its schema says."""

    user_name: LdapAttribute | None = None
    """The login name: uid, or sAMAccountName with activeDirectory."""

    uid_number: LdapAttribute | None = None
    """The user ID: uidNumber."""

    gid_number: LdapAttribute | None = None
    """The ID of a group, and of a user's primary group: gidNumber."""

    full_name: LdapAttribute | None = None
    """The person's name: cn, or displayName with activeDirectory."""

    shell: LdapAttribute | None = None
    """The login shell: loginShell."""

    group_name: LdapAttribute | None = None
    """The name of a group: cn, or sAMAccountName with activeDirectory."""

    members: LdapAttribute | None = None
    """The members of a group: memberUid with rfc2307, which holds names, else member, which holds DNs. Groups of the
    class groupOfUniqueNames have uniqueMember."""


class Ldap(Part, frozen=True, kw_only=True):
    """Users and groups from an LDAP directory or Active Directory.

    The whole directory is read every `interval`. If it can't be read
    completely, or has no users, everything stays as it was, and the condition UsersReady says why. Homes are always
    /home/NAME.
    """

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.caSecret) || !has(self.caConfigMap)",
            "there are two authorities for the directory: remove caSecret or caConfigMap",
            ".caSecret",
        ),
        Rule(
            # A value that isn't a duration violates its own rule; here it would only make this rule fail to evaluate.
            "!self.interval.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') || self.interval.size() < 2"
            " || (duration(self.interval) >= duration('10s') && duration(self.interval) <= duration('24h'))",
            "reading a directory more often than every 10s burdens it, and less often than every 24h keeps those who "
            "have left: set interval to between 10s and 24h",
            ".interval",
        ),
    )

    uri: Annotated[tuple[LdapUri, ...], Meta(min_length=1, max_length=8), _Set]
    """The directory's servers, such as ldaps://ldap.example.com. They are tried in order; all must have all entries."""

    base_dn: DistinguishedName = field(name="baseDN")
    """Where users and groups are, such as dc=example,dc=com. Entries below it count, at any depth."""

    user_base_dn: DistinguishedName | None = field(default=None, name="userBaseDN")
    """Where users are, if groups are elsewhere; by default baseDN."""

    group_base_dn: DistinguishedName | None = field(default=None, name="groupBaseDN")
    """Where groups are, if users are elsewhere; by default baseDN."""

    bind_secret: LdapBindSecret | None = None
    """The account that reads the directory; by default the directory is read anonymously. A changed Secret is used at
    once."""

    ca_secret: LdapCaSecret | None = None
    """The authorities that sign the directory's certificates; by default the public ones."""

    ca_config_map: LdapCaConfigMap | None = None
    """The same authorities, if a ConfigMap has them."""

    start_tls: bool = field(default=True, name="startTLS")
    """Whether connections to ldap:// URIs are encrypted with StartTLS before anything else. With false, anyone on
    the network can read the password and add users."""

    schema: Literal["rfc2307", "rfc2307bis", "activeDirectory"] = "rfc2307"
    """How the directory describes users and groups: groups name their members (rfc2307), groups refer to the entries of
    their members and of other groups (rfc2307bis, also FreeIPA), or as Active Directory does."""

    user_filter: LdapFilter | None = None
    """Which users may use the cluster, such as (memberOf=cn=hpc,ou=groups,dc=example,dc=com); by default all that the
    schema knows as users of Unix."""

    group_filter: LdapFilter | None = None
    """Which groups count; by default all."""

    attributes: LdapAttributes = LdapAttributes()

    key_attribute: LdapAttribute = "sshPublicKey"
    """Where a user's SSH public keys are."""

    shell: LdapShell | None = None
    """The login shell of all users, instead of the directory's; accounts that it locks with nologin or false stay
    locked. By default a user has the shell of the directory, or /bin/bash. It has to be in the images."""

    interval: Duration = "1m"
    """How often the directory is read, such as 30s; from 10s to 24h."""

    page_size: Annotated[int, Meta(ge=10, le=10000)] = 1000
    """The page size: how many entries one request returns. More than the directory's own limit has no effect."""

    max_users: Annotated[int, Meta(ge=1, le=200000)] = 50000
    """If more users match, the answer is rejected as a whole: a filter is probably missing."""
