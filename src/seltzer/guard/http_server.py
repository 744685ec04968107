"""The guard's HTTP API.

`GET /jobs/<hostlist>`: the jobs on these nodes, listed beside slurmctld, where it is cheap.
`GET /named`: the nodes that pending jobs request by name.
`GET /alive/<port>/<addresses>`: the addresses at which a slurmd answers.
`GET /readyz`: whether slurmctld is ready here, or the pod stands by.

Answers about jobs are squeue's output. The caller is the operator, which proves with a token of user slurm that it has
the cluster's key. Health is public: the kubelet has no token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from seltzer.guard import slurmd_probe
from seltzer.guard.processes import Processes
from seltzer.guard.settings import Settings
from seltzer.guard.slurmctld.config import LOCAL
from seltzer.guard.slurmctld.output import bare
from seltzer.wire import guard_api, squeue

AT_ONCE = 4
_CONNECTIONS = 32
_HOSTLIST = re.compile(r"[A-Za-z0-9_.,\[\]-]{1,65536}")


def is_administrator(token: str, key: bytes, now: float) -> bool:
    """Whether this is a valid token of user slurm, signed with the cluster's key."""
    try:
        signed, _, signature = token.encode("ascii").rpartition(b".")
        head, _, claims = signed.partition(b".")
        if json.loads(_decode(head))["alg"] != "HS256":
            return False
        if not hmac.compare_digest(hmac.digest(key, signed, hashlib.sha256), _decode(signature)):
            return False
        said = json.loads(_decode(claims))
        return bool(said["sun"] == "slurm" and said["iat"] <= now + 60 and now < said["exp"])
    except (ValueError, KeyError, TypeError):
        return False


def _decode(part: bytes) -> bytes:
    return base64.b64decode(part + b"=" * (-len(part) % 4), altchars=b"-_", validate=True)


class Jobs:
    """Runs squeue and slurmd probes: a few at a time, and never for long."""

    def __init__(self, settings: Settings, processes: Processes, unready: Callable[[], str]) -> None:
        self._unready = unready
        self._key: Path = settings.places.etc / "jwt_hs256.key"
        self._env = {"SLURM_CONF": str(settings.places.etc / LOCAL)}
        self._squeue = settings.places.squeue
        self._deadline = settings.times.squeue
        self._processes = processes
        self._turns = threading.BoundedSemaphore(AT_ONCE)

    def answer(self, path: str, token: str) -> tuple[int, bytes]:
        """An HTTP status and a body, for a path such as `/jobs/cpu-[0-3]`, percent-encoded or not."""
        if path == guard_api.HEALTH:
            return 200, b"ok\n"
        if path == guard_api.READY:
            why = self._unready()
            return (503, f"{why}\n".encode()) if why else (200, b"ok\n")
        if not path.startswith((guard_api.JOBS, guard_api.ALIVE)) and path != guard_api.NAMED:
            return 404, b"use /jobs/<hostlist>, /named, /alive/<port>/<addresses>, /readyz or /healthz\n"
        try:
            key = self._key.read_bytes()
        except OSError:
            return 503, b"slurmctld has not been started here\n"
        if not is_administrator(token, key, time.time()):
            return 401, b"X-SLURM-USER-TOKEN has to be a token of user slurm that has not expired\n"
        if path.startswith(guard_api.ALIVE):
            return self._alive(unquote(path.removeprefix(guard_api.ALIVE)))
        hostlist = unquote(path.removeprefix(guard_api.JOBS))
        if path != guard_api.NAMED and not _HOSTLIST.fullmatch(hostlist):
            return 400, b"not a hostlist\n"
        if not self._turns.acquire(blocking=False):
            return 503, b"too many requests at once\n"
        try:
            if path != guard_api.NAMED:
                return self._ask([self._squeue, *squeue.jobs_on_nodes(hostlist)])
            status, printed = self._ask([self._squeue, *squeue.NAMED_NODES])
            # Many jobs name no nodes, or the same ones.
            return status, "".join(
                f"{each}\n" for each in squeue.parse_named(printed.decode(errors="replace"))
            ).encode()
        finally:
            self._turns.release()

    def _alive(self, text: str) -> tuple[int, bytes]:
        asked = slurmd_probe.parse(text)
        if asked is None:
            return 400, b"not a port with addresses\n"
        if not self._turns.acquire(blocking=False):
            return 503, b"too many requests at once\n"
        try:
            found = slurmd_probe.answering(*asked, patience=2.0, at_once=slurmd_probe.probes_at_once(AT_ONCE))
            return 200, "".join(f"{each}\n" for each in found).encode()
        except OSError as error:
            return 503, f"not all addresses can be probed: {error}\n".encode()
        finally:
            self._turns.release()

    def _ask(self, argv: list[str]) -> tuple[int, bytes]:
        try:
            process = self._processes.start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self._env)
        except OSError as error:
            return 503, f"squeue can't be run: {error}\n".encode()
        try:
            printed, complaint = process.communicate(timeout=self._deadline)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return 503, f"squeue did not end within {self._deadline:g} s\n".encode()
        if process.returncode == 0:
            return 200, printed
        words = "; ".join(map(bare, complaint.decode(errors="replace").splitlines())) or f"code {process.returncode}"
        return 503, f"{words[:1000]}\n".encode()


def serve(settings: Settings, processes: Processes, unready: Callable[[], str]) -> ThreadingHTTPServer:
    """Serve on the guard's port, on all addresses, in threads of its own; `shutdown` ends it.

    `unready` returns why this pod can't be relied on, or an empty string.
    """
    server = _listen(settings.places.http_port, Jobs(settings, processes, unready).answer)
    threading.Thread(target=server.serve_forever, daemon=True, name="jobs").start()
    return server


def _listen(port: int, answer: Callable[[str, str], tuple[int, bytes]]) -> ThreadingHTTPServer:
    connections = threading.BoundedSemaphore(_CONNECTIONS)

    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0  # for clients that connect and send nothing

        def do_GET(self) -> None:
            status, body = answer(self.path, self.headers.get(guard_api.AUTHORIZATION, ""))
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

        def server_bind(self) -> None:
            if self.address_family == socket.AF_INET6:
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            # Not HTTPServer's: that looks up our name in DNS, which nothing needs.
            socketserver.TCPServer.server_bind(self)

        def verify_request(self, *_: Any) -> bool:
            return connections.acquire(blocking=False)  # otherwise the connection is closed

        def process_request_thread(self, *what: Any) -> None:
            try:
                super().process_request_thread(*what)
            finally:
                connections.release()

        def handle_error(self, *_: Any) -> None:
            pass  # the client has disconnected

    return Server(("", port), Handler)
