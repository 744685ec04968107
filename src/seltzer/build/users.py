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
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.plan.users import ledger as ledgers
from seltzer.plan.users.accounts import BUILT_IN_USER, Account, Group, Published
from seltzer.plan.users.ledger import Ledger
from seltzer.plan.users.merge import Merged

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

    @property
    def too_large(self) -> str:
        """What doesn't fit into a ConfigMap; empty if everything fits."""
        for name, size in ((PASSWD, _size(self.passwd) + _size(self.removed)), (GROUP, _size(self.group))):
            if size > MOST_BYTES:
                return f"the users make a {name} file of {size:,} bytes, and a ConfigMap holds {MOST_BYTES:,}"
        return f"the users have more than {SHARDS * _SHARD_BYTES:,} bytes of keys" if len(self.keys) > SHARDS else ""


def render(merged: Merged) -> Files:
    """The files. The same users always give the same files."""
    lines = [_passwd_line(each) for each in (*merged.accounts, *merged.removed)]
    groups = [f"{each.name}:*:{each.gid}:{','.join(each.members)}\n" for each in merged.groups]
    removed = [each.uid for each in (*merged.removed, *merged.accounts) if each.locked]
    if BUILT_IN_USER.uid not in {each.uid for each in merged.accounts}:
        removed.append(BUILT_IN_USER.uid)
    ids = "".join(f"{uid}\n" for uid in sorted(set(removed)))
    return Files("".join(lines), "".join(groups), ids, _shards(merged.accounts))


def manifests(cluster: SlurmCluster, files: Files) -> list[Manifest]:
    """The ConfigMaps with these files; there is always one for keys."""
    passwd = _config_map(cluster, names.passwd(cluster), {PASSWD: files.passwd, REMOVED: files.removed})
    group = _config_map(cluster, names.group(cluster), {GROUP: files.group})
    keys = [_config_map(cluster, names.user_keys(cluster, at), part) for at, part in enumerate(files.keys)]
    return [passwd, group, *keys]


def ledger(cluster: SlurmCluster, content: Ledger) -> Manifest:
    """The ConfigMap of the ledger, without an owner: like the queue, it outlives the cluster unless
    storage.onDelete says otherwise."""
    head = names.manifest("ConfigMap", "v1", cluster, COMPONENT, names.ledger(cluster))
    del head["metadata"]["ownerReferences"]
    return {**head, "data": ledgers.text(content)}


def ledger_too_large(content: Ledger) -> str:
    """Whether the ledger doesn't fit into its ConfigMap; empty: it does."""
    size = sum(map(_size, ledgers.text(content).values()))
    return f"the IDs make a ledger of {size:,} bytes, and a ConfigMap holds {MOST_BYTES:,}" if size > MOST_BYTES else ""


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
    return parse(
        data.get(names.passwd(cluster), {}).get(PASSWD, ""), data.get(names.group(cluster), {}).get(GROUP, ""), keys
    )


def parse(passwd: str, group: str, keys: Mapping[str, str]) -> Published:
    """Reads what `render` wrote. Ignores lines in another format."""
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
    return Published(accounts, groups)


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
