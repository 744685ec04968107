"""An API server in memory that only lists objects, for verbs of the CLI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seltzer.cli.kube import Place
from seltzer.kube.client import Client, Listing
from seltzer.kube.errors import Forbidden, NotFound
from seltzer.kube.resource import Resource


class Server(Client):
    """An API server with these objects, of which some kinds aren't for everybody."""

    def __init__(self, *items: Any, forbidden: Sequence[str] = ()) -> None:
        self._items, self._forbidden = items, forbidden

    async def list_all(self, resource: Resource[Any], namespace: str = "", **_: Any) -> Listing[Any]:
        if resource.kind in self._forbidden or f"{resource.kind} in {namespace}" in self._forbidden:
            raise Forbidden(403, "Forbidden", "not for you")
        found = [each for each in self._items if isinstance(each, resource.type)]
        return Listing([each for each in found if namespace in ("", each.metadata.namespace)], "1")

    async def get(self, resource: Resource[Any], name: str, namespace: str = "", **_: Any) -> Any:
        raise NotFound(404, "NotFound", name)


PLACE = Place(config=None, namespace="ns")  # type: ignore[arg-type]  # nobody connects
