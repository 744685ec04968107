"""Who answers is asked in the way that tells a slurmd that is well from one that hangs."""

from __future__ import annotations

import errno
import resource
import socket
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import pytest

from seltzer.guard import slurmd_probe


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


@contextmanager
def everywhere(living: Collection[str]) -> Iterator[int]:
    """Somebody at every address of this machine, who answers only at these; the others take a connection and hang."""
    with ExitStack() as held, socket.create_server(("", 0), backlog=4096) as server:

        def serve() -> None:
            while True:
                try:
                    one, _ = server.accept()
                except OSError:
                    return
                if one.getsockname()[0] in living:
                    one.close()
                else:
                    held.enter_context(one)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(5.0)


@pytest.fixture
def many_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    slurmd_probe.raise_file_limit(1)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


MANY = [f"127.1.{part}.{host}" for part in range(10) for host in range(1, 201)]


def test_who_is_well_answers_and_who_hangs_or_is_not_there_does_not() -> None:
    with listening("127.0.0.1", answers=True) as port, listening("127.0.0.2", port, answers=False):
        found = slurmd_probe.answering(port, ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.1"], patience=0.5)
    assert found == ["127.0.0.1"]


@pytest.mark.usefixtures("many_files")
def test_two_thousand_that_dont_answer_take_no_longer_than_one() -> None:
    # The first few connections are taken by the kernel, as if all were frozen; no others are, as if all were dead.
    with socket.create_server(("", 0), backlog=8) as server:
        began = time.monotonic()
        assert slurmd_probe.answering(server.getsockname()[1], MANY, patience=1.0) == []
    assert 1.0 <= time.monotonic() - began < 3.0


@pytest.mark.usefixtures("many_files")
def test_those_that_are_well_are_found_among_two_thousand() -> None:
    living = MANY[::20]
    with everywhere(living) as port:
        assert sorted(slurmd_probe.answering(port, MANY, patience=1.0)) == sorted(living)


def test_with_few_files_each_one_still_has_its_time() -> None:
    """The last are the ones that are well: they are asked when the first have had theirs."""
    with everywhere(MANY[30:40]) as port:
        began = time.monotonic()
        found = slurmd_probe.answering(port, MANY[:40], patience=0.3, at_once=10)
    assert sorted(found) == sorted(MANY[30:40])
    assert time.monotonic() - began >= 0.9


def test_there_is_no_answer_where_some_could_not_be_asked_in_time() -> None:
    with everywhere(()) as port, pytest.raises(TimeoutError):
        slurmd_probe.answering(port, MANY[:40], patience=0.3, at_once=10, deadline=0.7)


@pytest.mark.parametrize("code", [errno.ENOBUFS, errno.EADDRNOTAVAIL, errno.EAGAIN, errno.ENETDOWN])
def test_there_is_no_answer_where_we_could_not_ask_ourselves(code: int) -> None:
    with mock.patch.object(socket.socket, "connect_ex", return_value=code), pytest.raises(OSError) as told:
        slurmd_probe.answering(6818, ["127.0.0.1"], patience=0.1)
    assert told.value.errno == code


@pytest.mark.parametrize("code", [errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH])
def test_where_the_network_says_so_nobody_is_there(code: int) -> None:
    with mock.patch.object(socket.socket, "connect_ex", return_value=code):
        assert slurmd_probe.answering(6818, ["127.0.0.1"], patience=0.1) == []


def test_what_we_sleep_through_is_nobodys_silence() -> None:
    """A guard that was held up after it had asked listens as long as ever."""
    connect = socket.socket.connect_ex

    def held_up(one: socket.socket, where: tuple[str, int]) -> int:
        code = connect(one, where)
        time.sleep(0.6)
        return code

    with listening("127.0.0.1", answers=True) as port, mock.patch.object(socket.socket, "connect_ex", held_up):
        assert slurmd_probe.answering(port, ["127.0.0.1"], patience=0.5) == ["127.0.0.1"]


def test_room_is_made_for_all_who_ask_and_some_is_left() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    try:
        assert slurmd_probe.probes_at_once(4) == 192
        slurmd_probe.raise_file_limit(4)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == min(before[1], 4 * slurmd_probe.MOST + 256)
        assert hard == before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


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
        (f"6818/{','.join(['10.0.0.1'] * (slurmd_probe.MOST + 1))}", None),
    ],
)
def test_only_ports_with_addresses_are_asked_for(text: str, meant: tuple[int, list[str]] | None) -> None:
    assert slurmd_probe.parse(text) == meant
