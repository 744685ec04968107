"""Short-lived tokens for Slurm's administrator: JWTs signed with the cluster's own key."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable

import msgspec

LIFETIME = 300.0
ADMINISTRATOR = "slurm"

_HEADER = b'{"alg":"HS256","typ":"JWT"}'


def sign(key: bytes, user: str, *, lifetime: float = LIFETIME, now: float | None = None) -> str:
    """A JWT that authenticates its bearer as `user` for this many seconds; `key` is the content of `jwt_hs256.key`."""
    issued = int(time.time() if now is None else now)
    claims = msgspec.json.encode({"iat": issued, "exp": issued + int(lifetime), "sun": user})
    signed = _base64url(_HEADER) + b"." + _base64url(claims)
    return (signed + b"." + _base64url(hmac.digest(key, signed, hashlib.sha256))).decode()


class TokenSource:
    """Always returns a token that is valid for at least a third of its lifetime.

    The key is read whenever a token is signed: a rotated key is in use after one lifetime at the latest, and at once
    after `renew`.
    """

    def __init__(
        self,
        key: Callable[[], bytes],
        user: str = ADMINISTRATOR,
        *,
        lifetime: float = LIFETIME,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.user = user
        self._key = key
        self._lifetime = lifetime
        self._clock = clock
        self._token = ""
        self._signed = 0.0

    def token(self) -> str:
        """The current token, or a new one if that is old or from the future (the clock was set back)."""
        now = self._clock()
        age = now - self._signed
        if not self._token or not 0 <= age < self._lifetime * 2 / 3:
            self._token = sign(self._key(), self.user, lifetime=self._lifetime, now=now)
            self._signed = now
        return self._token

    def renew(self) -> None:
        """Discard the token: it was refused."""
        self._token = ""


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
