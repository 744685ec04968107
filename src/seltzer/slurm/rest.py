"""Calls to slurmrestd: version discovery, token, retries, and the interpretation of answers.

Slurm reports errors in the body, whatever the HTTP status is; only `judge` reads either. Retried are reads without an
answer, and calls that were certainly not carried out: an unknown version, a refused token.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from seltzer.slurm.errors import Problem, Refused, Rejected, Unavailable, Unsupported
from seltzer.slurm.http import DEADLINE, Answer, Http
from seltzer.slurm.token import TokenSource

# Newest first: Slurm 26.05, 25.11, 25.05, 24.11. slurmrestd supports its own and some older ones.
VERSIONS = ("v0.0.45", "v0.0.44", "v0.0.43", "v0.0.42")
ATTEMPTS = 3
FIRST_PAUSE = 0.1

OK, NOT_MODIFIED, UNAUTHORIZED, NOT_FOUND, NETWORK_AUTHENTICATION_REQUIRED = 200, 304, 401, 404, 511
GATEWAY_TROUBLE = frozenset({502, 503, 504})
# Slurm's error numbers.
AUTHENTICATION_ERROR = 1007
NO_CHANGE_IN_DATA = 1900
COMMUNICATION_ERRORS = frozenset({*range(1001, 1005), *range(1800, 1810), 5003, 5004, 5005})


class Envelope(msgspec.Struct, frozen=True, rename={"problems": "errors"}):
    """The part that every answer has."""

    problems: tuple[_Problem, ...] = ()


class _Problem(msgspec.Struct, frozen=True):
    error_number: int = 0
    error: str | None = None
    description: str | None = None


E = TypeVar("E", bound=Envelope)


class _UnknownPath(Unavailable):
    """slurmrestd doesn't have this version, or doesn't have this path in it."""


class Rest:
    """Calls by path below `/slurm/<version>/`. Each returns an answer without errors or raises a SlurmError."""

    def __init__(
        self,
        http: Http,
        tokens: TokenSource,
        *,
        deadline: float = DEADLINE,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._http = http
        self._tokens = tokens
        self._deadline = deadline
        self._sleep = sleep
        self._version: str | None = None

    async def version(self) -> str:
        """The newest data_parser version that slurmrestd and we both support, found by trying.

        A try costs one small call; the OpenAPI document would be 900 kB.
        """
        for version in VERSIONS if self._version is None else ():
            try:
                await self._once("GET", f"/slurm/{version}/ping/", b"", Envelope)
            except _UnknownPath:
                continue
            self._version = version
            break
        if self._version is None:
            raise Unsupported(f"slurmrestd knows none of {', '.join(VERSIONS)}; Slurm 24.11 and newer does")
        return self._version

    async def read(self, path: str, kind: type[E]) -> E:
        """GET, retried if there was no answer."""
        answer = await self.read_changed(path, kind)
        if answer is None:
            raise Unavailable("slurmrestd says that nothing changed, but was asked unconditionally")
        return answer

    async def read_changed(self, path: str, kind: type[E]) -> E | None:
        """The same; None if nothing changed since the path's `update_time`."""
        failure = Unavailable(f"slurmrestd gave no answer within {self._deadline:g} s")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._deadline):
                for attempt in range(ATTEMPTS):
                    try:
                        return await self._call("GET", path, b"", kind)
                    except Unavailable as error:
                        failure = error
                    if attempt + 1 < ATTEMPTS:
                        await self._sleep(FIRST_PAUSE * 2**attempt * random.uniform(0.5, 1.5))  # noqa: S311
        raise failure

    async def write(self, method: str, path: str, body: Any = None) -> None:
        """Sent once. Unavailable means that it may or may not have been carried out."""
        try:
            async with asyncio.timeout(self._deadline):
                await self._call(method, path, b"" if body is None else msgspec.json.encode(body), Envelope)
        except TimeoutError:
            raise Unavailable(f"slurmrestd gave no answer within {self._deadline:g} s") from None

    async def _call(self, method: str, path: str, body: bytes, kind: type[E]) -> E | None:
        full = f"/slurm/{await self.version()}/{path}"
        try:
            return await self._once(method, full, body, kind)
        except Refused:
            # The key may have been rotated, or our clock corrected, since the token was signed.
            self._tokens.renew()
            return await self._once(method, full, body, kind)
        except _UnknownPath:
            # A slurmrestd of another version may have taken over since the version was discovered.
            version, self._version = self._version, None
            if await self.version() == version:
                raise Unsupported(f"slurmrestd has no {method} {path} in {version}") from None
            return await self._once(method, f"/slurm/{self._version}/{path}", body, kind)
        except Unavailable:
            self._version = None  # the next slurmrestd to answer may have another version
            raise

    async def _once(self, method: str, path: str, body: bytes, kind: type[E]) -> E | None:
        headers = {"X-SLURM-USER-NAME": self._tokens.user, "X-SLURM-USER-TOKEN": self._tokens.token()}
        if body:
            headers["Content-Type"] = "application/json"
        return judge(await self._http.exchange(method, path, headers=headers, body=body), kind)


def judge(answer: Answer, kind: type[E]) -> E | None:
    """The answer if it has no errors; None if nothing changed. Otherwise raises the error that it describes."""
    if answer.status == NOT_MODIFIED:
        return None
    if answer.status == UNAUTHORIZED:
        raise Refused(f"slurmrestd refused our token: {answer.gist}")
    try:
        parsed = msgspec.json.decode(answer.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if answer.status == NOT_FOUND:
            raise _UnknownPath(f"slurmrestd answered with 404: {answer.gist}") from None
        raise Unavailable(f"slurmrestd answered with {answer.status}, malformed ({error}): {answer.gist}") from None
    problems = [Problem(each.error_number, each.error or "", each.description or "") for each in parsed.problems]
    numbers = {problem.number for problem in problems}
    words = "; ".join(map(str, problems)) or answer.gist
    if NO_CHANGE_IN_DATA in numbers:
        return None
    if AUTHENTICATION_ERROR in numbers or answer.status == NETWORK_AUTHENTICATION_REQUIRED:
        raise Refused(f"Slurm refused our token: {words}")
    if numbers & COMMUNICATION_ERRORS or answer.status in GATEWAY_TROUBLE:
        raise Unavailable(f"slurmrestd can't reach slurmctld: {words}")
    if problems:
        raise Rejected(problems)
    if answer.status != OK:
        raise Unavailable(f"slurmrestd answered with {answer.status}: {answer.gist}")
    return parsed
