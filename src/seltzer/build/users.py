"""The files from which all containers know the users, and the ConfigMaps that carry them.

libnss-extrausers reads passwd and group in /var/lib/extrausers. sshd reads a file of keys for each user. The ConfigMaps
are mounted and never part of a pod template: a change of users replaces no pod.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from seltzer.api.core import ConfigMap
from seltzer.api.labels import KEY_PARTS
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.plan.users import ledger as ledgers
from seltzer.plan.users.accounts import BUILT_IN_USER, Account, Group, Published
from seltzer.plan.users.ledger import Entry, Ledger
from seltzer.plan.users.merge import Merged
from seltzer.plan.users.publishing import Stored

from . import names
from .names import Manifest

COMPONENT: Final = "users"
FOLDER: Final = "/var/lib/extrausers"
KEYS_FOLDER: Final = "/etc/seltzer/users"
PASSWD, GROUP, REMOVED = "passwd", "group", "removed"
# The API server takes 1 MiB in a ConfigMap.
MOST_BYTES: Final = 1_000_000
_SHARD_BYTES: Final = 700_000
# Part of the pod template, and therefore fixed: 11 MB of keys.
SHARDS: Final = 16


@dataclass(frozen=True)
class Files:
    """The content of the ConfigMaps."""

    passwd: str
    group: str
    # The IDs of users who may not submit jobs any more, one per line.
    removed: str
    # Files of keys by user, in as many parts as ConfigMaps.
    keys: tuple[Mapping[str, str], ...]


def render(merged: Merged, most: int = MOST_BYTES) -> Files:
    """The files. The same users always give the same files. The names of removed users take the room that is left."""
    lines = [_passwd_line(each) for each in merged.accounts]
    groups = [f"{each.name}:*:{each.gid}:{','.join(each.members)}\n" for each in merged.groups]
    blocked = "".join(f"{uid}\n" for uid in _blocked(merged))
    lines += _former(merged.removed, most - _size("".join(lines)) - _size(blocked))
    return Files("".join(lines), "".join(groups), blocked, _shards(merged.accounts))


def too_large(merged: Merged, most: int = MOST_BYTES, shards: int = SHARDS) -> str:
    """What doesn't fit into ConfigMaps, and of what there is so much; empty: everything fits."""
    users, blocked = sum(_size(_passwd_line(each)) for each in merged.accounts), _blocked(merged)
    ids = sum(len(str(uid)) + 1 for uid in blocked)
    groups = _size(render(merged, most).group)
    ledger = sum(map(_size, ledgers.text(merged.ledger).values()))
    holds = f"and a ConfigMap holds {most:,}"
    if users + ids > most:
        return (
            f"the users make a {PASSWD} file of {users + ids:,} bytes, {holds}: {len(merged.accounts):,} users take "
            f"{users:,}, and the IDs of {len(blocked):,} who may not log in {ids:,}"
        )
    if groups > most:
        memberships, gone = sum(len(each.members) for each in merged.groups), _unlisted(merged.ledger.groups)
        return (
            f"the users make a {GROUP} file of {groups:,} bytes, {holds}: {len(merged.groups):,} groups with "
            f"{memberships:,} members, of which no source lists {gone:,} groups any more"
        )
    if ledger > most:
        names_, gone = merged.ledger.users, _unlisted(merged.ledger.users) + _unlisted(merged.ledger.groups)
        return (
            f"the IDs make a ledger of {ledger:,} bytes, {holds}: {len(names_):,} users and "
            f"{len(merged.ledger.groups):,} groups, of which no source lists {gone:,} any more"
        )
    if len(_shards(merged.accounts)) > shards:
        return f"the users have more than {shards * _SHARD_BYTES:,} bytes of keys"
    return ""


def manifests(cluster: SlurmCluster, files: Files) -> list[Manifest]:
    """The ConfigMaps with these files; there is always one for keys."""
    passwd = _config_map(cluster, names.passwd(cluster), {PASSWD: files.passwd, REMOVED: files.removed})
    passwd["metadata"]["annotations"][KEY_PARTS] = str(len(files.keys))
    group = _config_map(cluster, names.group(cluster), {GROUP: files.group})
    keys = [_config_map(cluster, names.user_keys(cluster, at), part) for at, part in enumerate(files.keys)]
    return [passwd, group, *keys]


def ledger(cluster: SlurmCluster, content: Ledger) -> Manifest:
    """The ConfigMap of the ledger, without an owner: like the queue, it outlives the cluster unless
    storage.onDelete says otherwise."""
    head = names.manifest("ConfigMap", "v1", cluster, COMPONENT, names.ledger(cluster))
    del head["metadata"]["ownerReferences"]
    return {**head, "data": ledgers.text(content)}


def copies(nodeset: NodeSet, cluster: SlurmCluster, published: Sequence[ConfigMap]) -> list[Manifest]:
    """passwd and group beside a NodeSet that isn't in its cluster's namespace."""
    renamed = {
        names.passwd(cluster): names.nodeset_passwd(nodeset),
        names.group(cluster): names.nodeset_group(nodeset),
    }
    label = {names.NODESET: nodeset.metadata.name}
    return [
        {
            **names.manifest(
                "ConfigMap",
                "v1",
                cluster,
                COMPONENT,
                renamed[each.metadata.name],
                more_labels=label,
                annotations={names.CHECKSUM: each.metadata.annotations.get(names.CHECKSUM, "")},
                owner=nodeset,
            ),
            "data": dict(each.data),
        }
        for each in published
        if each.metadata.name in renamed
    ]


def digest(*config_maps: ConfigMap | None) -> str:
    """Identifies the content of these ConfigMaps; empty if one is missing."""
    found = [each.metadata.annotations.get(names.CHECKSUM, "") if each else "" for each in config_maps]
    return hashlib.sha256("\0".join(found).encode()).hexdigest()[: names.DIGEST_CHARACTERS] if all(found) else ""


def volume(passwd: str, group: str) -> Manifest:
    """The volume with passwd and group from the ConfigMaps of these names.

    Neither is optional: if one is missing for a while, kubelets keep what they have.
    """
    return _projected("users", [_source(passwd, PASSWD, REMOVED), _source(group, GROUP)])


def cluster_volume(cluster: SlurmCluster) -> Manifest:
    """The volume for pods in the cluster's namespace."""
    return volume(names.passwd(cluster), names.group(cluster))


def mount() -> Manifest:
    """The mount of the volume, for every container whose programs look up users."""
    return {"name": "users", "mountPath": FOLDER, "readOnly": True}


def keys_names(cluster: SlurmCluster) -> set[str]:
    """The names of all ConfigMaps that may have keys."""
    return {names.user_keys(cluster, at) for at in range(SHARDS)}


def keys_volume(cluster: SlurmCluster) -> Manifest:
    """The volume with a file of keys for each user."""
    parts = [{"configMap": {"name": names.user_keys(cluster, at), "optional": True}} for at in range(SHARDS)]
    return _projected("user-keys", parts)


def published(config_maps: Mapping[str, ConfigMap], cluster: SlurmCluster) -> Published:
    """The users in these ConfigMaps, by name of the ConfigMap: those that were rendered last."""
    data = {name: each.data for name, each in config_maps.items()}
    keys: dict[str, str] = {}
    for at in range(SHARDS):
        keys.update(data.get(names.user_keys(cluster, at), {}))
    users = data.get(names.passwd(cluster), {})
    return parse(users.get(PASSWD, ""), data.get(names.group(cluster), {}).get(GROUP, ""), keys, users.get(REMOVED, ""))


def stored(config_maps: Mapping[str, ConfigMap], cluster: SlurmCluster) -> Stored:
    """What is stored of the users. Raises LedgerError if the ledger can't be read."""
    passwd, content = config_maps.get(names.passwd(cluster)), config_maps.get(names.ledger(cluster))
    complete = passwd is not None and names.group(cluster) in config_maps
    parts = passwd.metadata.annotations.get(KEY_PARTS, "") if passwd else ""
    return Stored(
        ledgers.parse(content.data) if content else None,
        published(config_maps, cluster) if complete else None,
        all(names.user_keys(cluster, at) in config_maps for at in range(int(parts) if parts.isdecimal() else 0)),
    )


def parse(passwd: str, group: str, keys: Mapping[str, str], removed: str = "") -> Published:
    """What `render` has written. A line that somebody else wrote into it doesn't count."""
    groups: dict[str, Group] = {}
    memberships: dict[str, list[str]] = {}
    for line in group.split("\n"):
        match line.split(":"):
            case [name, _, gid, members] if gid.isdecimal():
                groups[name] = Group(name, int(gid), tuple(members.split(",")) if members else ())
                for member in groups[name].members:
                    memberships.setdefault(member, []).append(name)
    accounts: dict[str, Account] = {}
    for line in passwd.split("\n"):
        match line.split(":"):
            case [name, _, uid, gid, full_name, home, shell] if uid.isdecimal() and gid.isdecimal():
                more, lines = tuple(memberships.get(name, ())), tuple(filter(None, keys.get(name, "").split("\n")))
                accounts[name] = Account(name, int(uid), int(gid), more, full_name, shell, home, lines)
    return Published(accounts, groups, frozenset(int(uid) for uid in removed.split() if uid.isdecimal()))


def _blocked(merged: Merged) -> list[int]:
    """The IDs that may not submit jobs."""
    found = {each.uid for each in (*merged.removed, *merged.accounts) if each.locked}
    if BUILT_IN_USER.uid not in {each.uid for each in merged.accounts}:
        found.add(BUILT_IN_USER.uid)
    return sorted(found)


def _former(removed: Sequence[Account], room: int) -> list[str]:
    """The lines of removed users that fit; of those with the highest IDs first, who usually left last.

    The built-in user's ID always has one, so that it isn't taken for the built-in user's.
    """
    found: dict[int, str] = {}
    for account in sorted(removed, key=lambda each: (each.uid != BUILT_IN_USER.uid, -each.uid)):
        line = _passwd_line(account)
        if account.uid == BUILT_IN_USER.uid or _size(line) <= room:
            found[account.uid] = line
            room -= _size(line)
    return [found[uid] for uid in sorted(found)]


def _unlisted(entries: Mapping[str, Entry]) -> int:
    return sum(not entry.source for entry in entries.values())


def _passwd_line(account: Account) -> str:
    # The password is `*`: sshd takes `!` for a locked account, which rejects even keys.
    home = account.home or f"/home/{account.name}"
    return f"{account.name}:*:{account.uid}:{account.gid}:{account.full_name}:{home}:{account.shell}\n"


def _shards(accounts: Sequence[Account]) -> tuple[Mapping[str, str], ...]:
    parts: list[dict[str, str]] = [{}]
    size = 0
    for account in accounts:
        if not account.keys or account.locked:  # sftp and forwarded ports need no shell
            continue
        text = "".join(f"{key}\n" for key in account.keys)
        size += _size(text) + len(account.name)
        if size > _SHARD_BYTES and parts[-1]:
            parts.append({})
            size = _size(text)
        parts[-1][account.name] = text
    return tuple(parts)


def _config_map(cluster: SlurmCluster, name: str, data: Mapping[str, str]) -> Manifest:
    checksum = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[: names.DIGEST_CHARACTERS]
    head = names.manifest("ConfigMap", "v1", cluster, COMPONENT, name, annotations={names.CHECKSUM: checksum})
    return {**head, "data": dict(data)}


def _projected(name: str, sources: Sequence[Manifest]) -> Manifest:
    # World-readable, like passwd everywhere.
    return {"name": name, "projected": {"defaultMode": 0o444, "sources": list(sources)}}


def _source(config_map: str, *files: str) -> Manifest:
    return {"configMap": {"name": config_map, "items": [{"key": file, "path": file} for file in files]}}


def _size(text: str) -> int:
    return len(text.encode())
