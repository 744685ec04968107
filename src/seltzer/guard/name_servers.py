"""Watches whether the name servers of the pod answer. Without them new steps and new clients wait, and don't say why.

Asks them directly: the resolver of this image answers for unknown hosts itself (images/slurm/nss.c), and may take a
minute.
"""

from __future__ import annotations

import ipaddress
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from seltzer.guard import log
from seltzer.guard.kube.report import Report

_PORT = 53
_SERVFAIL = 2
_TRIES = 3


class NameServerWatch:
    """Asks during one epoch, in a thread of its own, and reports what is wrong; an empty text: nothing is."""

    def __init__(self, resolv_conf: Path | None, service: str, report: Report, every: float, patience: float) -> None:
        self._resolv_conf = resolv_conf
        self._service = service
        self._report = report
        self._every = every
        self._patience = patience
        self._over = threading.Event()

    def start(self) -> None:
        if self._resolv_conf:
            threading.Thread(target=self._run, args=(self._resolv_conf,), daemon=True, name="names").start()

    def stop(self) -> None:
        self._over.set()

    def _run(self, resolv_conf: Path) -> None:
        while not self._over.is_set():
            try:
                servers, name = settings(resolv_conf.read_text(), self._service)
                trouble = "" if not servers else self._trouble(servers, name)
            except (OSError, ValueError) as error:
                trouble = f"{resolv_conf} can't be used: {error}"
            if self._report.get("names") != trouble and not self._over.is_set():
                log.say(f"names: {trouble or 'the name servers answer'}")
                self._report.set(names=trouble)
            self._over.wait(self._every)

    def _trouble(self, servers: Sequence[str], name: str) -> str:
        """Empty if any of them answers. A lost packet is no trouble."""
        said: dict[str, str] = {}
        for _ in range(_TRIES):
            for server in servers:
                said[server] = ask(server, name, self._patience)
                if not said[server]:
                    return ""
        return "; ".join(f"name server {server} {why}" for server, why in said.items())


def settings(text: str, service: str) -> tuple[list[str], str]:
    """The name servers of a resolv.conf, and the full name of a Service in its first search domain."""
    servers, name = [], "."
    for line in text.splitlines():
        match line.split():
            case ["nameserver", server, *_]:
                ipaddress.ip_address(server.partition("%")[0])
                servers.append(server)
            case ["search", domain, *_]:
                name = f"{service}.{domain}"
    return servers, name


def ask(server: str, name: str, patience: float, port: int = _PORT) -> str:
    """Why the server isn't of use; empty if it answers, whatever it says about the name."""
    number = os.urandom(2)
    labels = [label.encode("ascii") for label in name.rstrip(".").split(".") if label]
    asked = b"".join(struct.pack("B", len(label)) + label for label in labels) + b"\0"
    query = number + struct.pack(">5H", 0x0100, 1, 0, 0, 0) + asked + struct.pack(">2H", 1, 1)
    try:
        with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM) as channel:
            channel.connect((server, port))
            channel.send(query)
            end = time.monotonic() + patience
            while (left := end - time.monotonic()) > 0 and select.select([channel], [], [], left)[0]:
                answer = channel.recv(4096)
                if answer[:2] == number and len(answer) > 3:
                    return "can't answer (SERVFAIL)" if answer[3] & 0xF == _SERVFAIL else ""
    except OSError as error:
        return f"can't be asked ({error.strerror})"
    return f"doesn't answer within {patience:g} s"
