"""How an API server says no."""

from __future__ import annotations

from typing import Any


class Failure(Exception):
    """An answer that is a Status."""

    def __init__(self, status: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.details = details

    @property
    def body(self) -> dict[str, Any]:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "details": self.details,
            "code": self.status,
        }


def not_found(plural: str, name: str) -> Failure:
    return Failure(404, "NotFound", f'{plural} "{name}" not found', name=name, kind=plural)


def already_exists(plural: str, name: str) -> Failure:
    return Failure(409, "AlreadyExists", f'{plural} "{name}" already exists', name=name, kind=plural)


def conflict(plural: str, name: str, why: str) -> Failure:
    message = f'Operation cannot be fulfilled on {plural} "{name}": {why}'
    return Failure(409, "Conflict", message, name=name, kind=plural)


def modified(plural: str, name: str) -> Failure:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(plural, name, why)


def forbidden(plural: str, name: str, why: str, **details: Any) -> Failure:
    return Failure(403, "Forbidden", f'{plural} "{name}" is forbidden: {why}', name=name, kind=plural, **details)


def invalid(kind: str, name: str, why: str) -> Failure:
    return Failure(422, "Invalid", f'{kind} "{name}" is invalid: {why}', name=name, kind=kind)


def expired(message: str = "too old resource version") -> Failure:
    return Failure(410, "Expired", message)
