"""The guard notices by itself that names can't be resolved."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.fakes.guard.rig import until

from seltzer.guard import name_servers
from seltzer.guard.kube.report import Report
from seltzer.guard.name_servers import NameServerWatch, ask, settings

LONG = 600.0
NAME = "demo-slurmctld.ns.svc.cluster.local"


@contextmanager
def server(*answers: Callable[[bytes], bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """A name server on loopback that sends these answers to each question."""
    asked: list[bytes] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.bind(("127.0.0.1", 0))

        def serve() -> None:
            while True:
                question, sender = channel.recvfrom(4096)
                if not question:
                    return
                asked.append(question)
                for answer in answers:
                    channel.sendto(answer(question), sender)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield channel.getsockname()[1], asked
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
                other.sendto(b"", channel.getsockname())
            thread.join()


def answer(code: int) -> Callable[[bytes], bytes]:
    return lambda question: question[:2] + bytes([0x81, 0x80 | code]) + question[4:]


@pytest.mark.parametrize(("code", "why"), [(0, ""), (3, ""), (5, ""), (2, "can't answer (SERVFAIL)")])
def test_a_server_that_answers_is_of_use_unless_it_says_that_it_failed(code: int, why: str) -> None:
    with server(answer(code)) as (port, asked):
        assert ask("127.0.0.1", NAME, LONG, port) == why
    assert b"\x0edemo-slurmctld\x02ns\x03svc\x07cluster\x05local\x00\x00\x01\x00\x01" in asked[0]


def test_an_answer_to_another_question_is_none() -> None:
    with server(lambda question: bytes([question[0] ^ 1]) + question[1:], answer(0)) as (port, _):
        assert ask("127.0.0.1", NAME, LONG, port) == ""


def test_a_server_that_is_silent_is_told_with_its_patience() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        assert ask("127.0.0.1", NAME, 0.01, silent.getsockname()[1]) == "doesn't answer within 0.01 s"


def test_a_port_where_nobody_listens_says_so_at_once() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as once:
        once.bind(("127.0.0.1", 0))
        port = once.getsockname()[1]
    assert ask("127.0.0.1", NAME, LONG, port) == "can't be asked (Connection refused)"


def test_the_servers_and_the_name_come_from_resolv_conf() -> None:
    text = "search ns.svc.cluster.local svc.cluster.local\nnameserver 10.96.0.10\nnameserver fd00::a\noptions ndots:5\n"
    assert settings(text, "demo-slurmctld") == (["10.96.0.10", "fd00::a"], NAME)
    assert settings("# empty\n", "demo-slurmctld") == ([], ".")
    with pytest.raises(ValueError, match="not"):
        settings("nameserver not an address", "demo-slurmctld")


class Watched:
    """A watch whose name server does what the test says."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.trouble = ""
        self.asked = 0
        self.once = threading.Condition()
        monkeypatch.setattr(name_servers, "ask", self._ask)
        (folder / "resolv.conf").write_text("nameserver 192.0.2.1\n")
        self.report = Report(lambda: None)
        self.watch = NameServerWatch(folder / "resolv.conf", "demo-slurmctld", self.report, every=0.001, patience=LONG)
        self.watch.start()

    def _ask(self, server: str, name: str, patience: float) -> str:
        with self.once:
            self.asked += 1
            self.once.notify_all()
            return self.trouble if self.asked % 3 else ""  # the third attempt of each look

    def turn(self, times: int) -> None:
        with self.once:
            goal = self.asked + times
            self.once.wait_for(lambda: self.asked >= goal)


def test_a_lost_packet_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(tmp_path, monkeypatch)
    watched.trouble = "doesn't answer"
    watched.turn(30)
    watched.watch.stop()
    assert watched.report.get("names") == ""


def test_what_is_wrong_is_reported_and_that_it_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(tmp_path, monkeypatch)
    monkeypatch.setattr(name_servers, "ask", lambda server, name, patience: "doesn't answer")
    until("it is reported", lambda: watched.report.get("names") == "name server 192.0.2.1 doesn't answer")
    monkeypatch.setattr(name_servers, "ask", lambda server, name, patience: "")
    until("it is over", lambda: not watched.report.get("names"))
    watched.watch.stop()
