"""spec.users.ldap and its Secrets become a directory, or a line that names what is missing."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from seltzer.api.ldap import Ldap
from seltzer.directory.errors import Misconfigured
from seltzer.directory.settings import directory

SPEC = {"uri": ["ldaps://ldap.example.com"], "baseDN": "dc=example,dc=com"}
BIND = {"dn": b"cn=reader,dc=example,dc=com\n", "password": b"secret\n"}
CA = {"ca.crt": b"-----BEGIN CERTIFICATE-----\n\xc3\xa4"}


def ldap(**fields: object) -> Ldap:
    return msgspec.convert({**SPEC, **fields}, Ldap)


def test_an_address_and_a_base_suffice() -> None:
    found = directory(ldap(), None, None)
    assert (found.user_base, found.group_base, found.bind_dn, found.authorities) == (SPEC["baseDN"],) * 2 + ("", None)
    assert found.start_tls and found.schema.members == "memberuid"


def test_every_field_counts() -> None:
    found = directory(
        ldap(
            userBaseDN="ou=people",
            groupBaseDN="ou=groups",
            bindSecret={"name": "reader"},
            caConfigMap={"name": "authority"},
            startTLS=False,
            schema="rfc2307bis",
            userFilter="(a=b)",
            groupFilter="(c=d)",
            attributes={"userName": "login", "members": "uniqueMember"},
            keyAttribute="altSecurityIdentities",
            **{"shell": "/bin/sh"},
            pageSize=10,
            maxUsers=20,
        ),
        BIND,
        CA,
    )
    assert (found.user_base, found.group_base) == ("ou=people", "ou=groups")
    assert (found.bind_dn, found.password) == ("cn=reader,dc=example,dc=com", b"secret")
    assert (found.authorities, found.start_tls) == ("-----BEGIN CERTIFICATE-----\n", False)
    assert (found.user_filter, found.group_filter, found.shell) == ("(a=b)", "(c=d)", "/bin/sh")
    assert (found.page_size, found.most_users) == (10, 20)
    schema = found.schema
    assert (schema.user_name, schema.members, schema.key) == ("login", "uniquemember", "altsecurityidentities")
    assert (schema.uid_number, schema.members_are_dns) == ("uidnumber", True)


NO_BIND = "the Secret reader (bindSecret) doesn't exist: create it with the keys dn and password"
NO_CA = "the Secret authority (caSecret) doesn't exist: create it with the directory's authorities under the key ca.crt"
BAD_CA = (
    "the Secret authority (caSecret) has no certificate: put the directory's authorities, in PEM, under the key ca.crt"
)


@pytest.mark.parametrize(
    ("bind", "ca", "line"),
    [
        (None, CA, NO_BIND),
        ({"dn": b"a"}, CA, "the Secret reader (bindSecret) has no password: add it under the key password"),
        ({"password": b"a"}, CA, "the Secret reader (bindSecret) has no dn: add it under the key dn"),
        (
            {**BIND, "password": b"\n"},
            CA,
            "the Secret reader (bindSecret) has no password: add it under the key password",
        ),
        ({**BIND, "dn": b"\xff"}, CA, "the Secret reader (bindSecret) has a dn that isn't UTF-8: write it again"),
        (BIND, None, NO_CA),
        (BIND, {"ca.pem": b"x"}, BAD_CA),
        (BIND, {"ca.crt": b"x"}, BAD_CA),
    ],
)
def test_what_is_missing_is_named(bind: Mapping[str, bytes] | None, ca: Mapping[str, bytes] | None, line: str) -> None:
    with pytest.raises(Misconfigured) as error:
        directory(ldap(bindSecret={"name": "reader"}, caSecret={"name": "authority"}), bind, ca)
    assert str(error.value) == line
