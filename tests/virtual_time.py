"""An event loop whose time is virtual: it passes only while nothing else can happen.

On a `VirtualLoop` a sleep of an hour takes no time, and no deadline fires because the machine is slow: time stands
still while a task can run, while bytes are on their way, and while a thread or a program works. `time.monotonic`,
`time.time` and `time.thread_time` follow the loop that runs, so code that reads them needs no clock passed to it.

Servers and clients of one loop meet in memory: a connection is a socketpair, whose bytes have arrived when they are
sent. That is what makes it sound to move the clock when no socket is ready; over TCP they might be on their way. Nobody
else can be reached: a port that no server of this loop listens on refuses connections.

Importing this module replaces the clocks of `time`, once and for the whole process: import it before anything that
keeps a reference to one of them. Where no VirtualLoop runs, they are what they were.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import math
import selectors
import socket
import ssl
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_FIRST_PORT = 40_000

_wall, _monotonic, _thread_time = time.time, time.monotonic, time.thread_time


class VirtualLoop(asyncio.SelectorEventLoop):
    """See above. Its clock begins at a full second of the real one, and is moved by its own timers only."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._began = float(math.floor(_wall())) - self._now
        self._outside = 0
        self._ports = itertools.count(_FIRST_PORT)
        self._listeners: dict[int, _Listener] = {}
        self._full: set[int] = set()
        self._connected: weakref.WeakKeyDictionary[socket.socket, socket.socket] = weakref.WeakKeyDictionary()
        self._accepting: set[asyncio.Task[Any]] = set()
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self._now

    def wall(self) -> float:
        """The time since 1970."""
        return self._began + self._now

    def pass_(self, seconds: float) -> None:
        """Let time pass for everyone, as if nobody had been woken in between: the process slept."""
        self._now += seconds

    # --- what happens outside of the loop -------------------------------------------------------------------------

    @property
    def is_awaited(self) -> bool:
        """Whether a thread or a program works for the loop."""
        return self._outside > 0

    def _returned(self, _: object = None) -> None:
        self._outside -= 1

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        future = super().run_in_executor(executor, func, *args)
        self._outside += 1
        future.add_done_callback(self._returned)
        return future

    async def _make_subprocess_transport(self, *args: Any, **options: Any) -> Any:
        self._outside += 1
        try:
            transport = await super()._make_subprocess_transport(*args, **options)  # type: ignore[misc]
        except BaseException:
            self._returned()
            raise
        ended = self.create_task(transport._wait())
        ended.add_done_callback(self._returned)
        return transport

    # --- the network ----------------------------------------------------------------------------------------------

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: ssl.SSLContext | None = None,
        **_: Any,
    ) -> asyncio.AbstractServer:
        chosen = port or next(self._ports)
        if chosen in self._listeners:
            raise OSError(errno.EADDRINUSE, f"port {chosen} is taken")
        listener = self._listeners[chosen] = _Listener(self, protocol_factory, (host or "127.0.0.1", chosen), ssl)
        return listener

    def full_port(self) -> int:
        """A port at which a connection is neither accepted nor refused: the server's queue is full."""
        port = next(self._ports)
        self._full.add(port)
        return port

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        self._connected[sock] = await self._connect(address)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        sock: socket.socket | None = None,
        **options: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        if sock is None:
            found = await self._connect((host, port))
            if options.get("ssl"):
                options.setdefault("server_hostname", host)
        else:
            found = self._connected.pop(sock)
            sock.close()
        return await super().create_connection(protocol_factory, sock=found, **options)

    async def _connect(self, address: Any) -> socket.socket:
        if address[1] in self._full:
            await self.create_future()
        listener = self._listeners.get(address[1])
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {address}")
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setblocking(False)
        accepting = self.create_task(self.connect_accepted_socket(listener.factory, theirs, ssl=listener.ssl))
        self._accepting.add(accepting)
        accepting.add_done_callback(self._accepted)
        return ours

    def _accepted(self, accepting: asyncio.Task[Any]) -> None:
        self._accepting.discard(accepting)
        if not accepting.cancelled():
            accepting.exception()  # a handshake that failed is the client's to tell

    def close_listener(self, port: int) -> None:
        self._listeners.pop(port, None)


class _Listener(asyncio.AbstractServer):
    """A server in memory."""

    def __init__(
        self,
        loop: VirtualLoop,
        factory: Callable[[], asyncio.BaseProtocol],
        address: tuple[str, int],
        tls: ssl.SSLContext | None,
    ) -> None:
        self._loop = loop
        self._address = address
        self.factory = factory
        self.ssl = tls
        self.sockets = [self]

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def close(self) -> None:
        self._loop.close_listener(self._address[1])
        self.sockets = []

    async def wait_closed(self) -> None:
        pass

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def is_serving(self) -> bool:
        return bool(self.sockets)

    async def start_serving(self) -> None:
        pass

    async def serve_forever(self) -> None:
        await self._loop.create_future()


class _Selector(selectors.DefaultSelector):
    """Instead of waiting for a time it moves the clock there, if nothing is ready and nobody outside is awaited."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None or self._loop.is_awaited:
            return super().select(None)
        self._loop.pass_(timeout)
        return ready


async def quiet() -> None:
    """Until nothing can happen any more but by the time that passes. A microsecond later, on a VirtualLoop."""
    await asyncio.sleep(1e-6)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)


def _virtual(real: Callable[[], float], ours: Callable[[VirtualLoop], float]) -> Callable[[], float]:
    def now() -> float:
        loop = asyncio._get_running_loop()
        return ours(loop) if isinstance(loop, VirtualLoop) else real()

    return now


# What a pass costs is measured in CPU time, which depends on the machine: in virtual time it costs nothing.
for _name, _clock in {
    "time": _virtual(_wall, VirtualLoop.wall),
    "monotonic": _virtual(_monotonic, VirtualLoop.time),
    "thread_time": _virtual(_thread_time, lambda _: 0.0),
}.items():
    setattr(time, _name, _clock)
