"""Tokens are what Slurm expects, and are renewed before they expire."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

from seltzer.slurm.token import TokenSource, sign


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def claims(token: str) -> dict[str, object]:
    decoded: dict[str, object] = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    return decoded


def test_a_token_is_a_jwt_signed_with_the_key() -> None:
    head, body, signature = sign(b"key", "slurm", lifetime=60, now=1000).split(".")
    assert json.loads(base64.urlsafe_b64decode(head + "==")) == {"alg": "HS256", "typ": "JWT"}
    assert json.loads(base64.urlsafe_b64decode(body + "==")) == {"iat": 1000, "exp": 1060, "sun": "slurm"}
    expected = hmac.digest(b"key", f"{head}.{body}".encode(), hashlib.sha256)
    assert base64.urlsafe_b64decode(signature + "==") == expected


def test_a_token_is_kept_while_it_is_young_and_renewed_before_it_expires() -> None:
    clock = Clock()
    source = TokenSource(lambda: b"key", lifetime=300, clock=clock)
    first = source.token()
    clock.now += 199
    assert source.token() == first
    clock.now += 1
    assert claims(source.token())["exp"] == 1500


def test_a_clock_that_was_set_back_makes_a_new_token() -> None:
    clock = Clock()
    source = TokenSource(lambda: b"key", clock=clock)
    source.token()
    clock.now = 500.0
    assert claims(source.token())["iat"] == 500


def test_a_rotated_key_is_used_after_a_refusal() -> None:
    key = b"old"
    source = TokenSource(lambda: key, clock=Clock())
    before = source.token()
    key = b"new"
    assert source.token() == before
    source.renew()
    assert source.token() == sign(b"new", "slurm", now=1000)
