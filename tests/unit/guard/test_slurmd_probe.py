"""The probe distinguishes a healthy slurmd from one that hangs."""

from __future__ import annotations

import errno
import resource
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import pytest

from seltzer.guard import slurmd_probe


class Clock:
    """Time passes whenever somebody looks, but only while it `may`. In place of the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.may: Callable[[], bool] = lambda: True

    def monotonic(self) -> float:
        self.now += TICK if self.may() else 0.0
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(slurmd_probe, "time", made)
    monkeypatch.setattr(slurmd_probe, "_TICK", TICK)
    return made


@contextmanager
def listening(address: str, port: int = 0, *, answered: threading.Event | None = None) -> Iterator[int]:
    """Somebody at this address; one that doesn't answer leaves its connections to the kernel, as if it were frozen."""
    with socket.create_server((address, port)) as server:
        over = threading.Event()

        def serve() -> None:
            assert answered
            while not over.is_set():
                try:
                    one, _ = server.accept()
                except OSError:
                    return
                with one:
                    one.recv(1)  # that the other side has nothing to say
                answered.set()

        thread = threading.Thread(target=serve, daemon=True)
        if answered:
            thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            over.set()
            server.shutdown(socket.SHUT_RDWR)
            if answered:
                thread.join()


@contextmanager
def everywhere(living: Collection[str], answered: threading.Event | None = None) -> Iterator[int]:
    """Somebody at every address of this machine, who answers only at these; the others take a connection and hang."""
    left = set(living)
    with ExitStack() as held, socket.create_server(("", 0), backlog=4096) as server:

        def serve() -> None:
            while True:
                try:
                    one, _ = server.accept()
                except OSError:
                    return
                if one.getsockname()[0] in living:
                    left.discard(one.getsockname()[0])
                    one.close()
                    if answered and not left:
                        answered.set()
                else:
                    held.enter_context(one)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.fixture
def many_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    slurmd_probe.raise_file_limit(1)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


TICK = 0.02
MANY = [f"127.1.{part}.{host}" for part in range(10) for host in range(1, 201)]


def test_who_is_well_answers_and_who_hangs_or_is_not_there_does_not(clock: Clock) -> None:
    answered = threading.Event()
    clock.may = answered.is_set
    with listening("127.0.0.1", answered=answered) as port, listening("127.0.0.2", port):
        found = slurmd_probe.answering(port, ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.1"], patience=0.5)
    assert found == ["127.0.0.1"]


@pytest.mark.usefixtures("many_files")
def test_two_thousand_that_dont_answer_take_no_longer_than_one(clock: Clock) -> None:
    # The first few connections are taken by the kernel, as if all were frozen; no others are, as if all were dead.
    with socket.create_server(("", 0), backlog=8) as server:
        assert slurmd_probe.answering(server.getsockname()[1], MANY, patience=0.5) == []
    assert 0.5 <= clock.now < 3.0


@pytest.mark.usefixtures("many_files")
def test_those_that_are_well_are_found_among_two_thousand(clock: Clock) -> None:
    living, answered = MANY[::20], threading.Event()
    clock.may = answered.is_set
    with everywhere(living, answered) as port:
        assert sorted(slurmd_probe.answering(port, MANY, patience=0.5)) == sorted(living)


def test_with_few_files_each_one_still_has_its_time(clock: Clock) -> None:
    """The last are the ones that are well: they are asked when the first have had theirs."""
    answered = threading.Event()
    living = MANY[30:40]

    def the_living_are_not_waited_for() -> bool:
        return not asked & set(living) or answered.is_set()

    connect, asked = socket.socket.connect_ex, set[str]()

    def noted(one: socket.socket, where: tuple[str, int]) -> int:
        asked.add(where[0])
        return connect(one, where)

    clock.may = the_living_are_not_waited_for
    with everywhere(living, answered) as port, mock.patch.object(socket.socket, "connect_ex", noted):
        found = slurmd_probe.answering(port, MANY[:40], patience=0.3, at_once=10)
    assert sorted(found) == sorted(living)
    assert clock.now >= 0.9


def test_there_is_no_answer_where_some_could_not_be_asked_in_time(clock: Clock) -> None:
    with everywhere(()) as port, pytest.raises(TimeoutError):
        slurmd_probe.answering(port, MANY[:40], patience=0.3, at_once=10, deadline=0.7)
    assert clock.now >= 0.7


@pytest.mark.parametrize("code", [errno.ENOBUFS, errno.EADDRNOTAVAIL, errno.EAGAIN, errno.ENETDOWN])
def test_there_is_no_answer_where_we_could_not_ask_ourselves(code: int) -> None:
    with mock.patch.object(socket.socket, "connect_ex", return_value=code), pytest.raises(OSError) as told:
        slurmd_probe.answering(6818, ["127.0.0.1"], patience=0.1)
    assert told.value.errno == code


@pytest.mark.parametrize("code", [errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH])
def test_where_the_network_says_so_nobody_is_there(code: int) -> None:
    with mock.patch.object(socket.socket, "connect_ex", return_value=code):
        assert slurmd_probe.answering(6818, ["127.0.0.1"], patience=0.1) == []


def test_what_we_sleep_through_is_nobodys_silence(clock: Clock) -> None:
    """A guard that was held up after it had asked listens as long as ever."""
    answered, connect = threading.Event(), socket.socket.connect_ex

    def held_up(one: socket.socket, where: tuple[str, int]) -> int:
        code = connect(one, where)
        clock.now += 0.6
        return code

    clock.may = answered.is_set
    with (
        listening("127.0.0.1", answered=answered) as port,
        mock.patch.object(socket.socket, "connect_ex", held_up),
    ):
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
