"""A cluster's users in a pass: what the sources list, what was published before, and what has to be written.

All of it is computed again only when one of its inputs changes: with ten thousand users that takes a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

from seltzer.api.core import ConfigMap
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build import names
from seltzer.build import users as build
from seltzer.build.components import login
from seltzer.build.components.table import CONTROL_PLANE
from seltzer.controllers.caches import Caches
from seltzer.controllers.children import Children
from seltzer.kube.resource import Key, key_of
from seltzer.plan.actions import Action, Apply, Create, Delete, Manifest
from seltzer.plan.cluster.cluster_plan import Mounted
from seltzer.plan.users import ledger as ledgers
from seltzer.plan.users import users_status
from seltzer.plan.users.accounts import BUILT_IN_USER, LDAP, Published, Source
from seltzer.plan.users.ledger import Entry, Ledger, LedgerError
from seltzer.plan.users.merge import NO_LOGIN, Merged, merge
from seltzer.plan.users.users_status import UsersOutcome

# In a ledger that was made again: some source listed the name.
_UNKNOWN = "unknown"


@dataclass(frozen=True)
class _Computed:
    """The wanted state for one set of inputs."""

    inputs: Hashable
    sources: tuple[Source, ...]
    merged: Merged
    manifests: tuple[Manifest, ...]
    too_large: str
    ledger: Manifest | None
    outcome: UsersOutcome


class ClusterUsers:
    """The users of all clusters."""

    def __init__(self, caches: Caches, children: Children) -> None:
        self._caches = caches
        self._children = children
        self._computed: dict[Key, _Computed] = {}
        # What was there last, if somebody deletes the ConfigMaps while a source fails.
        self._published: dict[Key, Published] = {}
        self._ledgers: dict[Key, Ledger] = {}

    def forget(self, key: Key) -> None:
        self._computed.pop(key, None)
        self._published.pop(key, None)
        self._ledgers.pop(key, None)

    def look(self, cluster: SlurmCluster) -> UsersOutcome:
        """What to do about the users of a cluster, and what to say about them."""
        key, config_maps = key_of(cluster), self._config_maps(cluster)
        stored = config_maps.get(names.ledger(cluster))
        sources = self._caches.user_sources.of(cluster, lambda: _directory_had_groups(stored))
        inputs = tuple((name, each.metadata.resource_version) for name, each in sorted(config_maps.items()))
        computed = self._computed.get(key)
        if computed is None or computed.inputs != inputs or computed.sources != sources:
            try:
                computed = self._compute(cluster, sources, config_maps, inputs)
            except LedgerError as error:
                return UsersOutcome(finding=users_status.unreadable(error, names.ledger(cluster)))
            self._computed[key] = computed
        actions = self._actions(cluster, computed, config_maps)
        publishing = computed.ledger is None and any(isinstance(each, Apply) for each in actions)
        events = computed.outcome.events if publishing else ()
        return replace(computed.outcome, actions=actions, events=events, ledger=_delete(stored) if stored else None)

    def mounted(self, cluster: SlurmCluster) -> Iterator[Mounted]:
        """What the control plane's pods mount of the users; login pods also have their keys."""
        found = self._config_maps(cluster)
        files = [found.get(names.passwd(cluster)), found.get(names.group(cluster))]
        keys = [found[name] for at in range(build.SHARDS) if (name := names.user_keys(cluster, at)) in found]
        for component in CONTROL_PLANE:
            digest = build.digest(*files, *(keys if component.name == login.NAME else ()))
            if digest:
                yield from (Mounted(label, names.USERS, digest) for label in component.labels(cluster))

    def _compute(
        self,
        cluster: SlurmCluster,
        sources: tuple[Source, ...],
        config_maps: Mapping[str, ConfigMap],
        inputs: Hashable,
    ) -> _Computed:
        key, ledger_name = key_of(cluster), names.ledger(cluster)
        if names.passwd(cluster) in config_maps and names.group(cluster) in config_maps:
            self._published[key] = build.published(config_maps, cluster)
        published = self._published.get(key, Published())
        stored = config_maps.get(ledger_name)
        if stored:
            self._ledgers[key] = ledgers.parse(stored.data)
        known = self._ledgers.get(key) or _rebuilt(published)
        merged = merge(sources, known, published)
        files = build.render(merged)
        save = merged.ledger != known or (stored is None and bool(merged.ledger.users or merged.ledger.groups))
        too_large = files.too_large or build.ledger_too_large(merged.ledger)
        finding = users_status.finding(merged, too_large, ledger_name)
        status = users_status.status(merged, ledger_name)
        outcome = UsersOutcome((), finding, status, users_status.events(published, merged))
        return _Computed(
            inputs,
            sources,
            merged,
            tuple(build.manifests(cluster, files)),
            too_large,
            build.ledger(cluster, merged.ledger) if save else None,
            outcome,
        )

    def _actions(
        self, cluster: SlurmCluster, computed: _Computed, config_maps: Mapping[str, ConfigMap]
    ) -> tuple[Action, ...]:
        """First the ledger, in a pass of its own: nobody gets an ID that could be given away after a crash."""
        if computed.too_large or computed.ledger is not None:
            # Pods can't start without the files: until there are others, they list nobody.
            nobody = build.manifests(cluster, build.render(merge((), Ledger(), Published())))
            empty = [Create(each) for each in self._children.absent(nobody)]
            return (*empty, Apply(computed.ledger)) if computed.ledger and not computed.too_large else tuple(empty)
        wanted = {each["metadata"]["name"] for each in computed.manifests}
        kept = {names.user_keys(cluster, at) for at in range(build.SHARDS)}
        surplus = (each for name, each in config_maps.items() if name in kept and name not in wanted)
        return (
            *(Apply(each) for each in self._children.drifted(computed.manifests)),
            *map(_delete, surplus),
        )

    def _config_maps(self, cluster: SlurmCluster) -> dict[str, ConfigMap]:
        """The published files and the ledger, by name."""
        key = key_of(cluster)
        known = {names.passwd(cluster), names.group(cluster), names.ledger(cluster)}
        known |= {names.user_keys(cluster, at) for at in range(build.SHARDS)}
        found = (self._caches.config_maps.get(Key(key.namespace, name)) for name in known)
        return {each.metadata.name: each for each in found if each is not None}


def _delete(config_map: ConfigMap) -> Delete:
    metadata = config_map.metadata
    return Delete("ConfigMap", metadata.namespace, metadata.name, metadata.uid)


def _rebuilt(published: Published) -> Ledger:
    """The ledger, if somebody deleted it, from the files that the containers have. It never has the built-in user.

    The files don't say which source listed a user: they stay until all sources have been read.
    """
    passing = {BUILT_IN_USER.name} if _has_built_in(published) else set()
    return Ledger(
        {
            name: Entry(each.uid, "" if each.shell == NO_LOGIN else _UNKNOWN)
            for name, each in published.accounts.items()
            if name not in passing
        },
        {name: Entry(each.gid, _UNKNOWN) for name, each in published.groups.items() if name not in passing},
    )


def _directory_had_groups(ledger: ConfigMap | None) -> bool:
    """Whether the directory returned groups when it was last read, maybe by an operator before this one."""
    try:
        known = ledgers.parse(ledger.data) if ledger else Ledger()
    except LedgerError:
        return False
    return any(each.source == LDAP for each in known.groups.values())


def _has_built_in(published: Published) -> bool:
    known, user = published.accounts.get(BUILT_IN_USER.name), BUILT_IN_USER
    return known is not None and (known.uid, known.full_name) == (user.uid, user.full_name)
