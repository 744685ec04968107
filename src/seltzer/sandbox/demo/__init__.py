"""A Slurm cluster from plain manifests, without an operator: the first proof that images and sandbox work."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from pathlib import Path
from secrets import token_bytes
from typing import Any

import msgspec
import yaml

NAMESPACE = "slurm-demo"
KEYS = "slurm-keys"
REST_API = "v0.0.45"


def manifests() -> list[dict[str, Any]]:
    """Everything but the keys, the namespace first."""
    text = Path(__file__).with_name("slurm.yaml").read_text(encoding="utf-8")
    return [document for document in yaml.safe_load_all(text) if document]


def secrets() -> dict[str, Any]:
    """A Secret with new keys, for `auth/slurm` and for JWT. To be created once: the daemons read it when they start."""
    keys = {"slurm.key": token_bytes(256), "jwt_hs256.key": token_bytes(32)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": KEYS, "namespace": NAMESPACE},
        "data": {name: base64.b64encode(key).decode() for name, key in keys.items()},
    }


def token(key: bytes, user: str, *, lifetime: float = 600, now: float | None = None) -> str:
    """A JWT that makes slurmrestd's caller `user`, signed with the bytes of `jwt_hs256.key`."""
    issued = int(time.time() if now is None else now)
    claims = {"iat": issued, "exp": issued + int(lifetime), "sun": user}
    parts = (msgspec.json.encode({"alg": "HS256", "typ": "JWT"}), msgspec.json.encode(claims))
    signed = b".".join(map(_base64url, parts))
    return b".".join((signed, _base64url(hmac.digest(key, signed, hashlib.sha256)))).decode()


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
