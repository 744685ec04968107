"""Which of these addresses have a slurmd that answers: asked from slurmctld's own pod, so that it tells what slurmctld
would see.

We connect, say that we have nothing to say, and wait until the other side closes. The kernel alone takes a connection
for a slurmd that hangs or is frozen; only a slurmd that is well closes it.
"""

from __future__ import annotations

import ipaddress
import selectors
import socket
import time
from collections.abc import Sequence

MOST = 4096
_AT_ONCE = 256


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


def answering(port: int, addresses: Sequence[str], patience: float) -> list[str]:
    """Those that answer within so many seconds each."""
    found: list[str] = []
    for at in range(0, len(addresses), _AT_ONCE):
        found += _some(port, addresses[at : at + _AT_ONCE], patience)
    return found


def _some(port: int, addresses: Sequence[str], patience: float) -> list[str]:
    end = time.monotonic() + patience
    found: list[str] = []
    with selectors.DefaultSelector() as selector:
        open_: dict[socket.socket, str] = {}
        try:
            for address in dict.fromkeys(addresses):
                family = socket.AF_INET6 if ":" in address else socket.AF_INET
                one = socket.socket(family, socket.SOCK_STREAM)
                one.setblocking(False)
                open_[one] = address
                one.connect_ex((address, port))
                selector.register(one, selectors.EVENT_WRITE)
            while open_ and (left := end - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    assert isinstance(key.fileobj, socket.socket)
                    one = key.fileobj
                    if _goes_on(selector, one, key.events):
                        continue
                    if key.events == selectors.EVENT_READ:
                        found.append(open_[one])
                    selector.unregister(one)
                    one.close()
                    del open_[one]
        finally:
            for left_over in open_:
                left_over.close()
    return found


def _goes_on(selector: selectors.BaseSelector, one: socket.socket, events: int) -> bool:
    """Whether there is more to wait for: after the connection, that it is closed."""
    if events == selectors.EVENT_READ:
        return False  # whatever it is, there is somebody
    if one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        return False
    try:
        one.shutdown(socket.SHUT_WR)
    except OSError:
        return False
    selector.modify(one, selectors.EVENT_READ)
    return True
