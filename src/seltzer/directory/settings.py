"""The directory that `spec.users.ldap` describes, with what its Secrets and ConfigMaps hold."""

from __future__ import annotations

from collections.abc import Mapping

from seltzer.api.ldap import Ldap

from .directory import Directory
from .errors import Misconfigured
from .schema import PRESETS

DN, PASSWORD, AUTHORITIES = "dn", "password", "ca.crt"


def directory(ldap: Ldap, bind: Mapping[str, bytes] | None, ca: Mapping[str, bytes] | None) -> Directory:
    """The directory to read. `bind` and `ca` are the data of the objects that the spec names; None: there is none.

    Misconfigured says which object or key is missing.
    """
    dn, password = _credentials(ldap, bind)
    names = ldap.attributes
    schema = PRESETS[ldap.schema].using(
        user_name=names.user_name,
        uid_number=names.uid_number,
        gid_number=names.gid_number,
        full_name=names.full_name,
        shell=names.shell,
        group_name=names.group_name,
        members=names.members,
        key=ldap.key_attribute,
    )
    return Directory(
        uris=ldap.uri,
        user_base=ldap.user_base_dn or ldap.base_dn,
        group_base=ldap.group_base_dn or ldap.base_dn,
        schema=schema,
        start_tls=ldap.start_tls,
        authorities=_authorities(ldap, ca),
        bind_dn=dn,
        password=password,
        user_filter=ldap.user_filter,
        group_filter=ldap.group_filter,
        shell=ldap.shell,
        page_size=ldap.page_size,
        most_users=ldap.max_users,
    )


def _credentials(ldap: Ldap, bind: Mapping[str, bytes] | None) -> tuple[str, bytes]:
    if not ldap.bind_secret:
        return "", b""
    where = f"the Secret {ldap.bind_secret.name} (bindSecret)"
    if bind is None:
        raise Misconfigured(f"{where} doesn't exist: create it with the keys dn and password")
    # Files often end in a line break, and passwords don't.
    dn, password = (bind.get(key, b"").rstrip(b"\r\n") for key in (DN, PASSWORD))
    # With a DN and an empty password, the login would be anonymous, and the answer might be incomplete.
    for key, value in ((DN, dn), (PASSWORD, password)):
        if not value:
            raise Misconfigured(f"{where} has no {key}: add it under the key {key}")
    try:
        return dn.decode(), password
    except UnicodeDecodeError:
        raise Misconfigured(f"{where} has a dn that isn't UTF-8: write it again") from None


def _authorities(ldap: Ldap, ca: Mapping[str, bytes] | None) -> str | None:
    if ldap.ca_secret:
        where = f"the Secret {ldap.ca_secret.name} (caSecret)"
    elif ldap.ca_config_map:
        where = f"the ConfigMap {ldap.ca_config_map.name} (caConfigMap)"
    else:
        return None
    if ca is None:
        raise Misconfigured(f"{where} doesn't exist: create it with the directory's authorities under the key ca.crt")
    found = ca.get(AUTHORITIES, b"").decode("ascii", errors="ignore")
    if "-----BEGIN" not in found:
        raise Misconfigured(
            f"{where} has no certificate: put the directory's authorities, in PEM, under the key ca.crt"
        )
    return found
