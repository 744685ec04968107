"""Kinds of objects, and their paths in the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import quote


class HasMeta(Protocol):
    """Every object that the runtime handles: a Struct with metadata."""

    @property
    def metadata(self) -> Any: ...


T = TypeVar("T", bound=HasMeta)


class Key(NamedTuple):
    """An object's name. Cluster-scoped objects have no namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True)
class Resource(Generic[T]):
    """A kind of object: its place in the API, and the Struct that holds the fields that we read."""

    group: str
    version: str
    plural: str
    kind: str
    type: type[T]
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of all objects, of those in a namespace, or of one."""
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name} needs a namespace")
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(quote(part, safe="") for part in parts)


def key_of(item: HasMeta) -> Key:
    return Key(item.metadata.namespace or "", item.metadata.name)
