"""Reads users.yaml: the users and groups of a ConfigMap. An entry that can't be read is refused alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
import yaml

from seltzer.api.users import SHELL
from seltzer.errors import SeltzerError
from seltzer.plan.users.accounts import Account, Group, Refusal, Source

FILE: Final = "users.yaml"
_USERS, _GROUPS = "users", "groups"
_DEEPEST: Final = 16
_PLAIN: Final = yaml.SafeLoader
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", _PLAIN)  # ten times as fast


class _User(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The fields of `api.users.User`. Their values are judged by `checks`, whose messages say what to do."""

    name: str
    uid: int
    gid: int | None = None
    groups: tuple[str, ...] = ()
    full_name: str = ""
    shell: str = SHELL
    authorized_keys: tuple[str, ...] = ()


class _Group(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The fields of `api.users.Group`."""

    name: str
    gid: int


T = TypeVar("T", bound=msgspec.Struct)


class ListingError(SeltzerError):
    """Nothing of the text can be used. It says why and what to do."""


def read(text: str, source: str) -> Source:
    """What the text lists. Raises ListingError if it isn't a list of users at all, or lists nobody."""
    try:
        found = _parsed(text)
    except ListingError:
        raise
    except Exception as error:  # PyYAML's own, but also KeyError, IndexError and others for wrong tags
        raise ListingError(f"it isn't YAML: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(found, dict):
        raise ListingError(f"it has no map with {_USERS} and {_GROUPS}; see 'kubectl explain slurmcluster.spec.users'")
    if unknown := sorted(str(key)[:32] for key in found if key not in (_USERS, _GROUPS)):
        raise ListingError(f"it has {unknown[0]!r}, but only {_USERS} and {_GROUPS} are known; correct the word")
    refusals: list[Refusal] = []
    users = _entries(found, _USERS, _User, lambda name, why: refusals.append(Refusal(name, source, why)))
    groups = _entries(found, _GROUPS, _Group, lambda name, why: refusals.append(Refusal(name, source, why, True)))
    if not users:
        raise ListingError(
            "it lists no users; add some, or remove configMap from spec.users to remove all users that came from it"
        )
    accounts = (
        Account(each.name, each.uid, each.gid, each.groups, each.full_name, each.shell, keys=each.authorized_keys)
        for each in users
    )
    return Source(source, tuple(accounts), tuple(Group(each.name, each.gid) for each in groups), tuple(refusals))


def _parsed(text: str) -> object:
    try:
        return msgspec.json.decode(text)  # twenty times as fast, and JSON is YAML
    except msgspec.DecodeError:
        _check_shape(text)
        return yaml.load(text, _LOADER)  # noqa: S506 (a safe loader)


def _check_shape(text: str) -> None:
    """Few bytes can make a document that takes hours and gigabytes to build, or the loader's stack overflow."""
    depth = 0
    for event in yaml.parse(text, _LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise ListingError("it has an anchor and an alias, which aren't supported: write the values out")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise ListingError(f"it is nested more than {_DEEPEST} deep: a list of users isn't")


def _entries(found: dict[Any, Any], part: str, kind: type[T], refuse: Callable[[str, str], None]) -> list[T]:
    listed = found.get(part) or []
    if not isinstance(listed, list):
        raise ListingError(f"{part} isn't a list; begin each entry with a hyphen")
    read: list[T] = []
    for at, each in enumerate(listed):
        name = str(each.get("name") or "")[:64] if isinstance(each, dict) else ""
        try:
            read.append(msgspec.convert(each, kind))
        except msgspec.ValidationError as error:
            why = " ".join(str(error).split())[:200]
            refuse(name or f"{part}[{at}]", f"{why}: see 'kubectl explain slurmcluster.spec.users.inline'")
    return read
