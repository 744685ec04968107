"""A guard in a process of its own, with a slurmctld and an API server that aren't real.

It acts again after moments of real time. What it measures, such as a Lease's duration, passes when a test lets it pass.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.fakes.guard.api import FakeApi
from tests.fakes.guard.nursery import FAKES, Guard, nursery
from tests.fakes.ports import Port

TIMES = {
    "tick": 0.02,
    "probe": 0.01,
    "api": 600.0,
    "lease": 0.5,  # others wait for a second all the same, which is the shortest that a Lease can say
    "announce": 0.3,
    "blocked": 0.05,
    "volume": 0.05,
    "backoff": [0.0, 0.2, 0.4],
    "steady": 1e12,
    "probation": 0.3,
    "reconfigure": 5.0,
    "grace": 5.0,
    "lost_grace": 0.3,
    # Programs take as long as they take.
    "squeue": 600.0,
    "gdb": 600.0,
    "repair": 600.0,
    "partitions": 600.0,
    "reregister_latest": 600.0,
}

RESERVE = 1 << 20


def until(what: str, ask: Callable[[], Any]) -> Any:
    """Ask until the answer is true. What is waited for is for those who read where a test hung."""
    while not (answer := ask()):
        time.sleep(0.01)
    return answer


@dataclasses.dataclass(frozen=True)
class Event:
    """What happened to a slurmctld."""

    what: str
    pid: int
    state: str
    partition: str


@dataclasses.dataclass(frozen=True)
class Stamp:
    """A line of seltzer.stamps, without its time."""

    epoch: int
    by: str
    what: str
    detail: str


class Rig:
    """One cluster's volumes, and guards that want to run its slurmctld."""

    def __init__(self, folder: Path, api: FakeApi) -> None:
        self.api = api
        self.folder = folder
        self.state = folder / "state"
        self.guards: list[Guard] = []
        self.http_ports: dict[str, int] = {}
        self._ports: list[Port] = []
        self._started = ""
        self._clock = folder / "clock"
        self._now = time.monotonic()  # some compare it with the real one
        self._versions = 0
        self._said = folder / "stderr"
        self._said.touch()
        self.let_pass(0.0)
        self.state.mkdir()
        (folder / "keys").mkdir()
        for name in ("slurm.key", "jwt_hs256.key"):
            (folder / "keys" / name).write_bytes(b"k" * 32)
        self.configure("first")

    def let_pass(self, seconds: float) -> None:
        """For all guards."""
        self._now += seconds
        file = os.open(self._clock, os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(file, struct.pack("d", self._now), 0)
        os.close(file)

    def later(self, what: str, ask: Callable[[], Any]) -> None:
        """Let time pass until the answer is true."""

        def asked() -> Any:
            self.let_pass(1.0)
            return ask()

        until(what, asked)

    def port(self) -> int:
        self._ports.append(Port())
        return self._ports[-1].number

    def configure(self, partition: str, *more: str, restart: str = "r1") -> None:
        """A new version of the configuration, exchanged in one step as kubelet does it. The digest is the partition."""
        lines = [
            f"FakeJournal={self.folder}/journal",
            f"PartitionName={partition}",
            *more,
        ]
        mount = self.folder / "config"
        mount.mkdir(exist_ok=True)
        self._versions += 1
        version = mount / f"..version-{self._versions}"
        version.mkdir()
        for name, text in {
            "slurm.conf": "\n".join(lines),
            "seltzer.digest": partition,
            "seltzer.restart": restart,
        }.items():
            (version / name).write_text(text)
        link = mount / "..link"
        link.symlink_to(version.name)
        link.rename(mount / "..data")

    def start(self, identity: str = "pod-a", **times: Any) -> Guard:
        etc = self.folder / f"etc-{identity}"
        etc.mkdir(exist_ok=True)
        port, http_port = self.port(), self.port()
        places = {
            "config": str(self.folder / "config"),
            "keys": str(self.folder / "keys"),
            "state": str(self.state),
            "link": str(self.folder / f"link-{identity}"),
            "etc": str(etc),
            "cores": str(self.folder / f"cores-{identity}"),
            "termination_log": str(self.folder / "termination_log"),
            "slurmctld": [sys.executable, "-S", str(FAKES / "slurmctld.py")],
            "gdb": str(self.folder / "gdb"),
            "sdiag": str(self.folder / "sdiag"),
            "port": port,
            "http_port": http_port,
        }
        settings = {
            "namespace": "ns",
            "lease": "demo-slurmctld",
            "endpointslice": "demo-slurmctld",
            "identity": identity,
            "address": f"address-of-{identity}",
            "reserve": RESERVE,
            "places": places,
            "times": {**TIMES, **times},
        }
        guard = Guard(settings, self.api.port, self._clock, {"FAKE_PORT": str(port)}, self._said)
        self.guards.append(guard)
        self.http_ports[identity] = http_port
        return guard

    def readyz(self, identity: str = "pod-a") -> tuple[int, str]:
        """What kubelet is told, without a token."""
        connection = HTTPConnection("127.0.0.1", self.http_ports[identity])
        try:
            connection.request("GET", "/readyz")
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def annotate(self, **annotations: str | None) -> None:
        """As a person or the operator does it; None removes."""
        named = {f"seltzer.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
        self.api.patch({"metadata": {"annotations": named}})

    def phase(self, phase: str) -> str:
        """Wait until the guard says so; its message."""
        until(f"it is {phase}", lambda: self.api.report.get("phase") == phase)
        return self.api.report.get("message", "")

    def stamps(self) -> list[Stamp]:
        """All stamps on the volume."""
        (file,) = self.state.glob("epoch-*/seltzer.stamps")
        found = []
        for line in file.read_text().splitlines():
            at, epoch, by, what, *detail = line.split(" ")
            assert (at[-1], epoch[:6], by[:3]) == ("Z", "epoch=", "by=")
            found.append(Stamp(int(epoch[6:]), by[3:], what, " ".join(detail)))
        return found

    @property
    def said(self) -> str:
        """What guards and slurmctlds wrote to stderr."""
        return self._said.read_text()

    def end(self) -> None:
        for guard in self.guards:
            guard.send_signal(signal.SIGCONT)
            guard.kill()
            guard.wait()
        nursery().sweep()
        for port in self._ports:
            port.give_back()
        print(self.said)  # for who looks at a test that failed

    @property
    def journal(self) -> list[Event]:
        file = self.folder / "journal"
        lines = file.read_text().splitlines() if file.exists() else []
        fields = [line.split(" ") for line in lines]
        return [Event(what, int(pid), state, partition) for what, pid, state, partition in fields]

    def happened(self, what: str) -> list[Event]:
        return [event for event in self.journal if event.what == what]

    def running(self, partition: str = "first", *, again: bool = False) -> int:
        """Wait until slurmctld runs with this configuration; its process id. `again`: not the one that ran the last
        time, of which the Lease may still tell."""

        def ask() -> str:
            report = self.api.report
            started = report.get("started", "")
            runs = report.get("phase") == "running" and report.get("config") == partition
            return started if runs and not (again and started == self._started) else ""

        self._started = until(f"slurmctld runs with {partition}", ask)
        return self.journal[-1].pid

    def epochs(self) -> list[str]:
        return sorted(path.name for path in self.state.glob("epoch-*"))


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
