"""Our credentials for the API server. Tokens rotate, so every request asks for the current one."""

from __future__ import annotations

import asyncio
import datetime
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from seltzer.kube.errors import ConfigError

EXEC_DEADLINE = 60.0
_REREAD_SECONDS = 30.0
_EARLY_SECONDS = 60.0  # a token is replaced this long before it expires


class Credentials(Protocol):
    """The source of the Authorization header."""

    async def token(self) -> str | None:
        """The bearer token for the next request; None if a client certificate is used."""

    def refused(self) -> None:
        """The API server rejected the last token: don't hand it out again."""


class Static:
    """A token that never changes, or none at all."""

    def __init__(self, token: str | None = None) -> None:
        self._token = token

    async def token(self) -> str | None:
        return self._token

    def refused(self) -> None:
        return


class TokenFile:
    """A token in a file that another process keeps fresh, such as the kubelet for a pod's ServiceAccount."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = ""
        self._until = 0.0

    async def token(self) -> str | None:
        if time.monotonic() >= self._until:
            try:
                self._read = self._path.read_text().strip()
            except OSError as error:
                raise ConfigError(f"the token file {self._path} can't be read: {error.strerror}") from None
            self._until = time.monotonic() + _REREAD_SECONDS
        return self._read

    def refused(self) -> None:
        self._until = 0.0


class _ExecStatus(msgspec.Struct, rename="camel"):
    token: str | None = None
    expiration_timestamp: datetime.datetime | None = None


class _ExecCredential(msgspec.Struct):
    status: _ExecStatus


class ExecPlugin:
    """A program that prints a token, as cloud providers ship them. Runs once at a time, however many callers wait."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], api_version: str) -> None:
        self._command = tuple(command)
        self._env = {**env, "KUBERNETES_EXEC_INFO": _exec_info(api_version)}
        self._lock = asyncio.Lock()
        self._status: _ExecStatus | None = None

    async def token(self) -> str | None:
        async with self._lock:
            if self._status is None or self._expires_soon(self._status):
                self._status = await self._run()
            return self._status.token

    def refused(self) -> None:
        self._status = None

    @staticmethod
    def _expires_soon(status: _ExecStatus) -> bool:
        if status.expiration_timestamp is None:
            return False
        now = datetime.datetime.now(datetime.UTC)
        return status.expiration_timestamp - now < datetime.timedelta(seconds=_EARLY_SECONDS)

    async def _run(self) -> _ExecStatus:
        program = f"the kubeconfig's credential program {self._command[0]}"
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env={**os.environ, **self._env},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise ConfigError(f"{program} can't be run: {error.strerror}") from None
        try:
            output, said = await asyncio.wait_for(process.communicate(), EXEC_DEADLINE)
        except TimeoutError:
            process.kill()
            raise ConfigError(f"{program} did not end in {EXEC_DEADLINE:.0f} s") from None
        if process.returncode != 0:
            raise ConfigError(f"{program} failed: {' '.join(said.decode(errors='replace').split())[:300]}")
        try:
            status = msgspec.json.decode(output, type=_ExecCredential).status
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{program} printed no ExecCredential: {error}") from None
        if not status.token:
            raise ConfigError(f"{program} returned no token; plugins that return client certificates are not supported")
        return status


def _exec_info(api_version: str) -> str:
    info = {"apiVersion": api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
    return msgspec.json.encode(info).decode()
