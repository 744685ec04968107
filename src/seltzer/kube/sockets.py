"""Connections that notice when the machine at their other end is gone.

A machine that loses its power or its network says nothing, and a watch only listens: it would take two or three
bookmarks that don't come, minutes, until somebody here wondered. So the kernel asks the other end.
"""

from __future__ import annotations

import socket
from typing import Any

# Seconds of silence before the first question, between questions, and how many may stay unanswered.
_IDLE, _INTERVAL, _QUESTIONS = 4, 2, 3
# The same for what we sent and nobody acknowledged.
_UNACKNOWLEDGED = 1000 * (_IDLE + _INTERVAL * _QUESTIONS)

# What a system doesn't have is left at what it usually does.
_OPTIONS = {
    "TCP_KEEPIDLE": _IDLE,
    "TCP_KEEPINTVL": _INTERVAL,
    "TCP_KEEPCNT": _QUESTIONS,
    "TCP_USER_TIMEOUT": _UNACKNOWLEDGED,
}


def new(address: tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, Any]) -> socket.socket:
    """A socket that an address of getaddrinfo can be reached with; it gives up after ten seconds without a sign."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made
