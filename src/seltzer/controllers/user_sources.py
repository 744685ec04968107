"""The sources of clusters' users that aren't in the SlurmCluster: each is followed by a task of its own.

A feed is anything with a `source` that is always the latest answer, and a `run` that keeps it up to date. Another kind
of source is another feed in `_wanted`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from seltzer.api.core import ConfigMap
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.controllers.ldap_feed import LdapFeed
from seltzer.controllers.report import now
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.reflector import Reflector
from seltzer.kube.resource import Key, key_of
from seltzer.kube.store import Store
from seltzer.plan.users import listing, spec_sources
from seltzer.plan.users.accounts import CONFIG_MAP, LDAP, Source

logger = logging.getLogger(__name__)

# Larger texts are parsed in a thread: ten thousand users take a second.
_LARGE = 50_000


class Feed(Protocol):
    """Follows one source."""

    @property
    def source(self) -> Source: ...

    async def run(self) -> None: ...


class ConfigMapFeed:
    """Follows one ConfigMap, which needn't have any label. Before the first answer the source has an error."""

    def __init__(self, client: Client, key: Key, changed: Callable[[], None]) -> None:
        self._key = key
        self._changed = changed
        self._store: Store[ConfigMap] = Store()
        only = {"fieldSelector": f"metadata.name={key.name}"}
        self._reflector = Reflector(client, kinds.CONFIG_MAPS, self._store, namespace=key.namespace, selector=only)
        self._news = asyncio.Event()
        self._store.watch(lambda before, after: self._news.set())
        self.source = Source(CONFIG_MAP, error="it hasn't been read yet", pending=True)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reflector.run())
            await self._reflector.synced.wait()
            while True:
                self._news.clear()
                source = await self._read(self._store.get(self._key))
                if source != self.source:
                    self.source = source
                    self._changed()
                await self._news.wait()

    async def _read(self, config_map: ConfigMap | None) -> Source:
        if config_map is None:
            return self._failed(f"there is no ConfigMap {self._key.name}; create it, with users under {listing.FILE}")
        text = config_map.data.get(listing.FILE)
        if text is None:
            return self._failed(f"ConfigMap {self._key.name} has no {listing.FILE}; add the users under this key")
        try:
            if len(text) > _LARGE:
                return await asyncio.to_thread(listing.read, text, CONFIG_MAP)
            return listing.read(text, CONFIG_MAP)
        except listing.ListingError as error:
            return self._failed(f"{listing.FILE} in ConfigMap {self._key.name}: {error}")
        except Exception as error:
            # A mistake of ours mustn't end the feed: the users stay as they are, and the next text may be well.
            logger.exception("reading a ConfigMap failed")
            return self._failed(f"reading {self._key.name} failed: {error!r}; please report this")

    def _failed(self, why: str) -> Source:
        since = self.source.since if self.source.error == why else now()
        return Source(CONFIG_MAP, error=why, since=since)


class UserSources:
    """The sources of all clusters."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._feeds: dict[Key, dict[str, tuple[object, Feed, asyncio.Task[None]]]] = {}
        self._watchers: list[Callable[[Key], None]] = []

    def watch(self, watcher: Callable[[Key], None]) -> None:
        """Called with the cluster of which a source has changed."""
        self._watchers.append(watcher)

    def of(self, cluster: SlurmCluster, had_groups: Callable[[], bool]) -> tuple[Source, ...]:
        """What the sources of a cluster list now. The first time a source is wanted, it begins to be followed.

        `had_groups` says whether its directory had groups when an operator before this one read it. After an edit of
        spec.users.ldap that doesn't count: it may be meant.
        """
        key = key_of(cluster)
        known = key in self._feeds
        followed = self._feeds.setdefault(key, {})
        wanted = self._wanted(cluster, lambda: not known and had_groups())
        for name in [name for name, (what, _, _) in followed.items() if name not in wanted or wanted[name][0] != what]:
            followed.pop(name)[2].cancel()
        for name, (what, make) in wanted.items():
            if name not in followed:
                feed = make()
                task = asyncio.create_task(feed.run())
                task.add_done_callback(_log_failure)
                followed[name] = (what, feed, task)
        if not followed:
            del self._feeds[key]
        inline = spec_sources.inline(cluster)
        found = [inline] if inline is not None else []
        # In the order of `_wanted`, whatever the order in which they began: the first that lists a name has it.
        found += [followed[name][1].source for name in wanted]
        return tuple(found) or (spec_sources.built_in(cluster),)

    def _wanted(
        self, cluster: SlurmCluster, had_groups: Callable[[], bool]
    ) -> dict[str, tuple[object, Callable[[], Feed]]]:
        """The feeds of a cluster by source: what each follows, and how it is made."""
        key, wanted = key_of(cluster), cluster.spec.users
        found: dict[str, tuple[object, Callable[[], Feed]]] = {}
        if config_map := wanted.config_map:
            where = Key(key.namespace, config_map.name)
            found[CONFIG_MAP] = (where, lambda: ConfigMapFeed(self._client, where, lambda: self._on_change(key)))
        if ldap := wanted.ldap:
            changed = partial(self._on_change, key)
            make = partial(LdapFeed, self._client, key.namespace, ldap, changed)
            found[LDAP] = (ldap, lambda: make(had_groups=had_groups()))
        return found

    def _on_change(self, cluster: Key) -> None:
        for watcher in self._watchers:
            watcher(cluster)

    async def close(self, cluster: Key) -> None:
        """Stop following the sources of a cluster that is gone."""
        tasks = [task for _, _, task in self._feeds.pop(cluster, {}).values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close_all(self) -> None:
        for cluster in list(self._feeds):
            await self.close(cluster)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        logger.error("a source of users ended: %r", error)
