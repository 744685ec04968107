"""Connections that notice when the machine at the other end is gone.

A machine that loses its power or network says nothing, and a watch only listens: without help it would take two or
three missing bookmarks, minutes, to notice. TCP keepalive makes the kernel ask the other end.
"""

from __future__ import annotations

import socket
from typing import Any

# Seconds of silence before the first probe, seconds between probes, and how many may stay unanswered.
_IDLE, _INTERVAL, _QUESTIONS = 4, 2, 3
# The same limit, in milliseconds, for data that was sent and not acknowledged.
_UNACKNOWLEDGED = 1000 * (_IDLE + _INTERVAL * _QUESTIONS)

# Options that a system lacks keep their defaults.
_OPTIONS = {
    "TCP_KEEPIDLE": _IDLE,
    "TCP_KEEPINTVL": _INTERVAL,
    "TCP_KEEPCNT": _QUESTIONS,
    "TCP_USER_TIMEOUT": _UNACKNOWLEDGED,
}


def new(address: tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, Any]) -> socket.socket:
    """A socket for an address of getaddrinfo. It fails after ten seconds without a sign of the other end."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made
