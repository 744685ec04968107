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
from seltzer.build.components.table import CONTROL_PLANE
from seltzer.controllers.caches import Caches
from seltzer.controllers.children import Children
from seltzer.kube.resource import Key, key_of
from seltzer.plan.actions import Action, Apply, Create, Delete, Manifest
from seltzer.plan.cluster.cluster_plan import Mounted
from seltzer.plan.users import publishing, reading, users_status
from seltzer.plan.users.accounts import Published, Source
from seltzer.plan.users.ledger import LedgerError
from seltzer.plan.users.publishing import NOBODY, Decision, Memory
from seltzer.plan.users.users_status import UsersOutcome


@dataclass(frozen=True)
class _Computed:
    """The wanted state for one set of inputs."""

    inputs: Hashable
    sources: tuple[Source, ...]
    decision: Decision
    manifests: tuple[Manifest, ...]
    ledger: Manifest
    outcome: UsersOutcome


class ClusterUsers:
    """The users of all clusters."""

    def __init__(self, caches: Caches, children: Children) -> None:
        self._caches = caches
        self._children = children
        self._computed: dict[Key, _Computed] = {}
        self._memory: dict[Key, Memory] = {}

    def forget(self, key: Key) -> None:
        self._computed.pop(key, None)
        self._memory.pop(key, None)

    def look(self, cluster: SlurmCluster) -> UsersOutcome:
        """What to do about the users of a cluster, and what to say about them."""
        key, config_maps = key_of(cluster), self._config_maps(cluster)
        ledger = config_maps.get(names.ledger(cluster))
        sources = self._caches.user_sources.of(cluster, lambda: reading.had_groups(ledger.data if ledger else None))
        inputs = tuple((name, each.metadata.resource_version) for name, each in sorted(config_maps.items()))
        computed = self._computed.get(key)
        if computed is None or computed.inputs != inputs or computed.sources != sources:
            try:
                computed = self._compute(cluster, sources, config_maps, inputs)
            except LedgerError as error:
                return UsersOutcome(finding=users_status.unreadable(error, names.ledger(cluster)))
            self._computed[key] = computed
        actions = self._actions(cluster, computed, config_maps)
        is_publishing = computed.decision.publish and any(isinstance(each, Apply) for each in actions)
        events = computed.outcome.events if is_publishing else ()
        return replace(computed.outcome, actions=actions, events=events, ledger=_delete(ledger) if ledger else None)

    def mounted(self, cluster: SlurmCluster) -> Iterator[Mounted]:
        """What the control plane's pods mount of the users; login pods also have their keys."""
        found = self._config_maps(cluster)
        files = [found.get(names.passwd(cluster)), found.get(names.group(cluster))]
        keys = [found[name] for at in range(build.SHARDS) if (name := names.user_keys(cluster, at)) in found]
        for component in CONTROL_PLANE:
            digest = build.digest(*files, *(keys if component.mounts_user_keys else ()))
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
        stored = build.stored(config_maps, cluster)
        self._memory[key] = memory = publishing.remember(self._memory.get(key, Memory()), stored)
        decision = publishing.decide(sources, memory, stored, build.too_large)
        merged = decision.merged
        finding = users_status.finding(merged, decision.too_large, ledger_name)
        status = users_status.status(merged, ledger_name)
        events = users_status.events(memory.published or Published(), merged)
        return _Computed(
            inputs,
            sources,
            decision,
            tuple(build.manifests(cluster, build.render(merged))),
            build.ledger(cluster, merged.ledger),
            UsersOutcome((), finding, status, events),
        )

    def _actions(
        self, cluster: SlurmCluster, computed: _Computed, config_maps: Mapping[str, ConfigMap]
    ) -> tuple[Action, ...]:
        decision = computed.decision
        if not decision.publish:
            nobody = build.manifests(cluster, build.render(NOBODY)) if decision.placeholder else []
            empty = [Create(each) for each in self._children.absent(nobody)]
            return (*empty, Apply(computed.ledger)) if decision.save and not decision.stuck else tuple(empty)
        wanted = {each["metadata"]["name"] for each in computed.manifests}
        surplus = sorted((config_maps.keys() & build.keys_names(cluster)) - wanted)
        drifted = self._children.drifted(computed.manifests)
        # Keys move to other ConfigMaps before those that they were in go.
        return tuple(map(Apply, drifted)) or tuple(_delete(config_maps[name]) for name in surplus)

    def _config_maps(self, cluster: SlurmCluster) -> dict[str, ConfigMap]:
        """The published files and the ledger, by name."""
        key = key_of(cluster)
        known = {names.passwd(cluster), names.group(cluster), names.ledger(cluster), *build.keys_names(cluster)}
        found = (self._caches.config_maps.get(Key(key.namespace, name)) for name in known)
        return {each.metadata.name: each for each in found if each is not None}


def _delete(config_map: ConfigMap) -> Delete:
    metadata = config_map.metadata
    return Delete("ConfigMap", metadata.namespace, metadata.name, metadata.uid)
