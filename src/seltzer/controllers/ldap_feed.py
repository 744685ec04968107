"""The directory of a cluster as a source of its users: read completely again and again, beside the passes."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from seltzer.api.common import seconds
from seltzer.api.core import ConfigMap, Secret
from seltzer.api.ldap import Ldap, LdapBindSecret, LdapCaConfigMap, LdapCaSecret
from seltzer.controllers.report import now
from seltzer.directory import settings
from seltzer.directory.directory import Found, read
from seltzer.directory.errors import DirectoryError, Incomplete, Refused
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.reflector import Reflector
from seltzer.kube.resource import Key, Resource
from seltzer.kube.store import Store
from seltzer.plan.users import reading
from seltzer.plan.users.accounts import LDAP, Account, Group, Refusal, Source
from seltzer.plan.users.reading import History

logger = logging.getLogger(__name__)

_What = LdapBindSecret | LdapCaSecret | LdapCaConfigMap


class LdapFeed:
    """Follows one directory, and the Secret and the authority that it is read with.

    The source always has a whole directory, or an error. Before the first answer it is pending.
    """

    def __init__(
        self, client: Client, namespace: str, ldap: Ldap, changed: Callable[[], None], *, had_groups: bool = False
    ) -> None:
        self._ldap = ldap
        self._changed = changed
        self._news = asyncio.Event()
        self._bind = _Followed(client, kinds.SECRETS, namespace, ldap.bind_secret, self._news)
        kind: Resource[Any] = kinds.SECRETS if ldap.ca_secret else kinds.CONFIG_MAPS
        self._ca = _Followed(client, kind, namespace, ldap.ca_secret or ldap.ca_config_map, self._news)
        self._history = History(had_groups or None)
        self.source = Source(LDAP, error="it hasn't been read yet", pending=True)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for each in (self._bind, self._ca):
                if each.reflector:
                    group.create_task(each.reflector.run())
                    await each.reflector.synced.wait()
            while True:
                self._news.clear()
                pause = await self._read()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._news.wait()

    async def _read(self) -> float:
        """Read the directory; returns how long to wait before the next time."""
        interval = float(seconds(self._ldap.interval))
        try:
            found = await read(settings.directory(self._ldap, self._bind.data(), self._ca.data()))
            if self._history.lost_groups(found.groups):
                raise Incomplete(reading.LOST_GROUPS)
        except DirectoryError as error:
            self._fail(str(error))
            return self._history.pause_after_failure(interval, refused=isinstance(error, Refused))
        except Exception as error:
            # A mistake of ours mustn't end the feed: the users stay as they are, and the next reading may be well.
            logger.exception("reading a directory failed")
            self._fail(f"reading it failed: {error!r}; please report this")
            return interval
        self._history = History(bool(found.groups))
        # With 50,000 users this takes a tenth of a second.
        source, is_news = await asyncio.to_thread(_compared, found, self.source)
        if is_news:
            self.source = source
            self._changed()
        return interval

    def _fail(self, why: str) -> None:
        source = reading.failed(self.source, why, now())
        if source != self.source:
            self.source = source
            self._changed()


class _Followed:
    """One Secret or ConfigMap, which needn't have any label; `news` is set when it changes."""

    def __init__(
        self, client: Client, kind: Resource[Any], namespace: str, what: _What | None, news: asyncio.Event
    ) -> None:
        self._key = Key(namespace, what.name if what else "")
        self._store: Store[Any] = Store()
        self.reflector: Reflector[Any] | None = None
        if what:
            only = {"fieldSelector": f"metadata.name={what.name}"}
            self.reflector = Reflector(client, kind, self._store, namespace=namespace, selector=only)
            self._store.watch(lambda before, after: news.set())

    def data(self) -> Mapping[str, bytes] | None:
        """What the object holds; None if there is none."""
        found = self._store.get(self._key) if self.reflector else None
        return None if found is None else dict(_bytes(found))


def _bytes(found: Secret | ConfigMap) -> Iterator[tuple[str, bytes]]:
    for key, value in found.data.items():
        if isinstance(found, ConfigMap):
            yield key, value.encode()
        else:
            # The API server accepts nothing but base64.
            with contextlib.suppress(binascii.Error):
                yield key, base64.b64decode(value)


def _compared(found: Found, before: Source) -> tuple[Source, bool]:
    """What a directory lists, and whether that is news."""
    source = Source(
        LDAP,
        accounts=tuple(
            Account(each.name, each.uid, each.gid, full_name=each.full_name, shell=each.shell, keys=each.keys)
            for each in found.users
        ),
        groups=tuple(Group(each.name, each.gid, each.members) for each in found.groups),
        unreadable=tuple(Refusal(each.name, LDAP, each.why, each.is_group) for each in found.refusals),
    )
    return source, source != before
