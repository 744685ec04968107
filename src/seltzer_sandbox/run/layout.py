"""The folders and files of one sandbox."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

import msgspec

from seltzer import paths
from seltzer.errors import SeltzerError
from seltzer_sandbox.run.namespaces import HIDDEN

DEFAULT_NAME = "default"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?")
_NODE = re.compile(r"n([1-9][0-9]{0,2})")


class Spec(msgspec.Struct, frozen=True):
    """The parameters of a sandbox. `up` stores them, and a later `up` repairs the sandbox to match."""

    nodes: int
    port: int
    binaries: str
    template: str
    gpus: str = ""
    """How many GPUs each node pretends to have; `real`: the first has those of this machine."""


@dataclass(frozen=True)
class Layout:
    """The paths and names of one sandbox."""

    name: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SeltzerError(
                f"{self.name!r} can't be a sandbox's name: use at most 30 lower-case letters, digits and dashes"
            )

    @property
    def folder(self) -> Path:
        return paths.state() / "sandboxes" / self.name

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def etcd(self) -> Path:
        return self.folder / "etcd"

    @property
    def volumes(self) -> Path:
        return self.folder / "volumes"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def records(self) -> Path:
        return self.folder / "processes"

    @property
    def config(self) -> Path:
        return self.folder / "config"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def context(self) -> str:
        return f"seltzer-{self.name}"

    @property
    def cgroup(self) -> str:
        """Unique per name and state folder: sandboxes in different state folders may have the same name."""
        return f"seltzer-{self.name}-{hashlib.sha256(str(self.folder).encode()).hexdigest()[:6]}"

    def node(self, number: int) -> Path:
        return self.folder / "nodes" / f"n{number}"

    def log(self, component: str) -> Path:
        return self.logs / f"{component.replace('/', '-')}.log"

    def make(self) -> None:
        for hidden in HIDDEN:
            for folder in (paths.cache(), self.folder):
                if folder.resolve().is_relative_to(hidden):
                    raise SeltzerError(
                        f"{folder} is under {hidden}, which every node replaces with its own; "
                        "set XDG_CACHE_HOME and XDG_STATE_HOME to folders elsewhere"
                    )
        for folder in (self.pki, self.etcd, self.volumes, self.logs, self.records, self.config):
            folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)  # it contains the cluster's private keys
        self.etcd.chmod(0o700)

    def read(self) -> Spec | None:
        """The stored spec, or None if the sandbox does not exist."""
        try:
            return msgspec.json.decode((self.folder / "sandbox.json").read_bytes(), type=Spec)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise SeltzerError(
                f"{self.folder}/sandbox.json can't be read; 'seltzer sandbox down --name {self.name}' removes it"
            ) from None

    def write(self, spec: Spec) -> None:
        scratch = self.folder / ".sandbox.json.new"
        scratch.write_bytes(msgspec.json.encode(spec))
        scratch.rename(self.folder / "sandbox.json")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lets one command at a time change a sandbox. The kernel releases the lock when the process ends."""
        path = paths.state() / "sandboxes" / f".{self.name}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            try:
                flock(file, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                raise SeltzerError(
                    f"another command is working on sandbox {self.name!r}; wait for it to end, then try again"
                ) from None
            yield


def existing() -> list[str]:
    """The names of all sandboxes on this machine, running or not."""
    folder = paths.state() / "sandboxes"
    entries = folder.iterdir() if folder.exists() else ()
    return sorted(entry.name for entry in entries if entry.is_dir() and _NAME.fullmatch(entry.name))


def node_number(name: str, nodes: int) -> int:
    match = _NODE.fullmatch(name)
    if not match or int(match[1]) > nodes:
        known = "n1" if nodes == 1 else f"n1 to n{nodes}"
        raise SeltzerError(f"there is no node {name!r} in this sandbox; it has {known}")
    return int(match[1])
