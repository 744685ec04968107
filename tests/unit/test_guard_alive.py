"""Who answers is asked in the way that tells a slurmd that is well from one that hangs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from seltzer.guard import alive


@contextmanager
def listening(address: str, port: int = 0, *, answers: bool) -> Iterator[int]:
    """Somebody at this address; one that doesn't answer leaves its connections to the kernel, as if it were frozen."""
    with socket.create_server((address, port)) as server:
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                try:
                    one, _ = server.accept()
                except OSError:
                    return
                with one:
                    one.recv(1)  # that the other side has nothing to say

        thread = threading.Thread(target=serve, daemon=True)
        if answers:
            thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            over.set()
            server.shutdown(socket.SHUT_RDWR)
            if answers:
                thread.join(5.0)


def test_who_is_well_answers_and_who_hangs_or_is_not_there_does_not() -> None:
    with listening("127.0.0.1", answers=True) as port, listening("127.0.0.2", port, answers=False):
        found = alive.answering(port, ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.1"], patience=0.5)
    assert found == ["127.0.0.1"]


def test_many_are_asked_side_by_side() -> None:
    with listening("127.0.0.1", answers=True) as port:
        addresses = [f"127.0.{part}.{host}" for part in range(1, 3) for host in range(1, 200)]
        assert alive.answering(port, ["127.0.0.1", *addresses], patience=1.0) == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("6818/10.0.0.1", (6818, ["10.0.0.1"])),
        ("6818/10.0.0.1,fd00::1", (6818, ["10.0.0.1", "fd00::1"])),
        ("6818/", None),
        ("6818", None),
        ("0/10.0.0.1", None),
        ("65536/10.0.0.1", None),
        ("x/10.0.0.1", None),
        ("6818/example", None),
        ("6818/10.0.0.1/24", None),
        (f"6818/{','.join(['10.0.0.1'] * (alive.MOST + 1))}", None),
    ],
)
def test_only_ports_with_addresses_are_asked_for(text: str, meant: tuple[int, list[str]] | None) -> None:
    assert alive.parse(text) == meant
