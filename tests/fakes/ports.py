"""Ports of this machine that stay free for those who chose them."""

from __future__ import annotations

import socket


class Port:
    """A port that is nobody else's until it is given back.

    Its socket doesn't listen, so that a server with SO_REUSEADDR can, as often as it likes; and the kernel gives a port
    that is bound neither to a server that takes any, nor to a connection.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number = int(self._socket.getsockname()[1])

    def give_back(self) -> None:
        self._socket.close()
