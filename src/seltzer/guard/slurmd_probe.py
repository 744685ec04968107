"""Finds the addresses at which a slurmd answers. Runs in slurmctld's own pod, so it sees what slurmctld would see.

A probe connects, shuts down its sending side, and waits for the peer to close. The kernel alone accepts connections for
a slurmd that hangs or is frozen; only a healthy slurmd closes them.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import resource
import selectors
import socket
import time
from collections import deque
from collections.abc import Sequence

MOST = 4096
# A later answer would describe a moment that has long passed.
DEADLINE = 5.0
# File descriptors left for everything else here, above all for the renewal of the Lease.
_RESERVE = 256
_TICK = 0.25
# Errors by which the network says that no slurmd is there. All others, such as a full table, are problems of our own.
_UNREACHABLE = frozenset(
    {
        *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT),
        *(errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.EACCES),
    }
)


def parse(text: str) -> tuple[int, list[str]] | None:
    """A port and addresses, from `6818/10.0.0.1,10.0.0.2`; None if the text is malformed."""
    port, _, listed = text.partition("/")
    addresses = listed.split(",")
    try:
        for address in addresses:
            ipaddress.ip_address(address)
        number = int(port)
    except ValueError:
        return None
    return (number, addresses) if 0 < number < 65536 and len(addresses) <= MOST else None


def raise_file_limit(requests: int) -> None:
    """Let this many requests probe all addresses at the same time, as far as the limit allows: it is often 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = requests * MOST + _RESERVE
    wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # then fewer are probed at once
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def probes_at_once(requests: int) -> int:
    """How many addresses each of this many requests may probe at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else max(1, min(MOST, (soft - _RESERVE) // requests))


def answering(
    port: int, addresses: Sequence[str], patience: float, *, at_once: int = MOST, deadline: float = DEADLINE
) -> list[str]:
    """The addresses that answer. Each of the others had `patience` seconds; raises OSError if that isn't true of all.

    Only the seconds in which this process listens count: time in which it is stalled doesn't make a slurmd silent.
    """
    end = time.monotonic() + deadline
    waiting = deque(dict.fromkeys(addresses))
    with _Probes(port) as probes:
        while waiting or probes.open:
            if time.monotonic() >= end:
                raise TimeoutError(
                    f"{len(waiting) + len(probes.open)} addresses were not probed in time, {at_once} at once"
                )
            while waiting and len(probes.open) < at_once:
                probes.begin(waiting.popleft(), patience)
            probes.listen()
    return probes.found


class _Probes:
    """Connections in progress, the oldest first."""

    def __init__(self, port: int) -> None:
        self.found: list[str] = []
        self.open: dict[socket.socket, tuple[str, float]] = {}
        self._port = port
        self._selector = selectors.DefaultSelector()
        self._listened = 0.0

    def __enter__(self) -> _Probes:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.open:
            one.close()
        self._selector.close()

    def begin(self, address: str, patience: float) -> None:
        """Raises OSError if the address can't be probed for a reason that isn't its own."""
        one = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        self.open[one] = (address, self._listened + patience)
        one.setblocking(False)
        self._selector.register(one, selectors.EVENT_WRITE)
        code = one.connect_ex((address, self._port))
        if code not in (0, errno.EINPROGRESS) and _is_unreachable(code):
            self._end(one)

    def listen(self) -> None:
        """Wait for events, for one tick at most."""
        began = time.monotonic()
        for key, _ in self._selector.select(_TICK):
            assert isinstance(key.fileobj, socket.socket)
            one = key.fileobj
            if key.events == selectors.EVENT_READ:
                self.found.append(self.open[one][0])  # any reaction, even an error, means a process is there
                self._end(one)
            elif _is_connected(one):
                self._selector.modify(one, selectors.EVENT_READ)
            else:
                self._end(one)
        self._listened += min(time.monotonic() - began, _TICK)
        for one, (_, until) in list(self.open.items()):
            if until > self._listened:
                break
            self._end(one)

    def _end(self, one: socket.socket) -> None:
        self._selector.unregister(one)
        one.close()
        del self.open[one]


def _is_connected(one: socket.socket) -> bool:
    """Whether the connection is established. If it is, shuts down our side, which makes the peer close it."""
    code = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code and _is_unreachable(code):
        return False
    try:
        one.shutdown(socket.SHUT_WR)
    except OSError:
        return False
    return True


def _is_unreachable(code: int) -> bool:
    if code not in _UNREACHABLE:
        raise OSError(code, os.strerror(code))
    return True
