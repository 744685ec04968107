"""Which of these addresses have a slurmd that answers: asked from slurmctld's own pod, so that it tells what slurmctld
would see.

We connect, say that we have nothing to say, and wait until the other side closes. The kernel alone takes a connection
for a slurmd that hangs or is frozen; only a slurmd that is well closes it.
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
# An answer that came later would tell of a moment that is long over.
DEADLINE = 5.0
# Files that are left to everything else here, above all to who renews the Lease.
_RESERVE = 256
_TICK = 0.25
# With these the network says that nobody is there. All others, such as a table that is full, tell of ourselves.
_NOBODY = frozenset(
    {
        *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT),
        *(errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.EACCES),
    }
)


def parse(text: str) -> tuple[int, list[str]] | None:
    """A port and addresses, from `6818/10.0.0.1,10.0.0.2`; None if it isn't that."""
    port, _, listed = text.partition("/")
    addresses = listed.split(",")
    try:
        for address in addresses:
            ipaddress.ip_address(address)
        number = int(port)
    except ValueError:
        return None
    return (number, addresses) if 0 < number < 65536 and len(addresses) <= MOST else None


def make_room(askers: int) -> None:
    """Have so many ask for all addresses side by side, as far as we may: 1,024 files are what a process often has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = askers * MOST + _RESERVE
    wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # then fewer are asked at once
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def room(askers: int) -> int:
    """How many addresses each of so many may ask at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else max(1, min(MOST, (soft - _RESERVE) // askers))


def answering(
    port: int, addresses: Sequence[str], patience: float, *, at_once: int = MOST, deadline: float = DEADLINE
) -> list[str]:
    """Those that answer. Each other one was asked and given so many seconds; OSError if that can't be said of all.

    The seconds count while we listen: what comes while this process is held up is nobody's silence.
    """
    end = time.monotonic() + deadline
    waiting = deque(dict.fromkeys(addresses))
    with _Asked(port) as asked:
        while waiting or asked.open:
            if time.monotonic() >= end:
                raise TimeoutError(
                    f"{len(waiting) + len(asked.open)} of them could not be waited for, {at_once} at once"
                )
            while waiting and len(asked.open) < at_once:
                asked.begin(waiting.popleft(), patience)
            asked.listen()
    return asked.found


class _Asked:
    """Connections that are under way, the oldest first."""

    def __init__(self, port: int) -> None:
        self.found: list[str] = []
        self.open: dict[socket.socket, tuple[str, float]] = {}
        self._port = port
        self._selector = selectors.DefaultSelector()
        self._listened = 0.0

    def __enter__(self) -> _Asked:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.open:
            one.close()
        self._selector.close()

    def begin(self, address: str, patience: float) -> None:
        """OSError if it can't be asked, through no fault of its own."""
        one = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        self.open[one] = (address, self._listened + patience)
        one.setblocking(False)
        self._selector.register(one, selectors.EVENT_WRITE)
        code = one.connect_ex((address, self._port))
        if code not in (0, errno.EINPROGRESS) and _is_nobody(code):
            self._end(one)

    def listen(self) -> None:
        """For a moment."""
        began = time.monotonic()
        for key, _ in self._selector.select(_TICK):
            assert isinstance(key.fileobj, socket.socket)
            one = key.fileobj
            if key.events == selectors.EVENT_READ:
                self.found.append(self.open[one][0])  # whatever it is, there is somebody
                self._end(one)
            elif _is_taken(one):
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


def _is_taken(one: socket.socket) -> bool:
    """Whether the connection is there; then the other side is told that nothing follows, and has to close it."""
    code = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code and _is_nobody(code):
        return False
    try:
        one.shutdown(socket.SHUT_WR)
    except OSError:
        return False
    return True


def _is_nobody(code: int) -> bool:
    if code not in _NOBODY:
        raise OSError(code, os.strerror(code))
    return True
