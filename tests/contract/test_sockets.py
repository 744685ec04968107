"""A watch on a machine that is gone without a word: found out by the real TCP of a network namespace of its own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

from tests.fakes.apiserver.server import FakeApiServer

from seltzer.kube.client import Client
from seltzer.kube.errors import Unavailable
from seltzer.kube.watch import lines

# Less than a minute, after which a live server says something by itself; more than the ten seconds that we wait.
PATIENCE = 40.0


def test_a_watch_on_a_machine_that_is_gone_ends_long_before_its_next_bookmark() -> None:
    command = ["unshare", "--map-root-user", "--net", sys.executable, "-m", "tests.contract.test_sockets"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE)
    assert done.returncode == 0, done.stderr
    assert "was interrupted" in done.stdout


async def _watch_until_it_is_cut() -> str:
    _loopback("up")
    async with FakeApiServer() as server, Client(server.config()) as client:
        params = {"watch": "true", "timeoutSeconds": "600"}
        async with client.stream("/api/v1/pods", params) as content:
            _loopback("down")
            began = time.monotonic()
            try:
                async for _ in lines(content, PATIENCE):
                    pass
            except Unavailable as error:
                return f"{error} after {time.monotonic() - began:.1f} s"
            finally:
                _loopback("up")
    return "the server ended it"


def _loopback(state: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", state], check=True, timeout=10)


if __name__ == "__main__":
    print(asyncio.run(_watch_until_it_is_cut()))
