"""Errors of calls to the API server."""

from __future__ import annotations

import msgspec

from seltzer.errors import SeltzerError


class KubeError(SeltzerError):
    """Any failure of a call to the API server."""


class Unavailable(KubeError):
    """There was no answer, or a malformed one: a write may or may not have happened."""


class ConfigError(KubeError):
    """The API server can't be located: no kubeconfig, no such context, or no usable credentials."""


class ApiError(KubeError):
    """The API server refused. `reason` is the machine-readable cause, such as NotFound or Invalid."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message or f"the API server answered {status} {reason}".rstrip())
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class Unauthorized(ApiError):
    """401: our credentials were rejected; new ones may be accepted."""


class Forbidden(ApiError):
    """403: we lack the permission."""


class NotFound(ApiError):
    """404: no such object, or no such kind."""


class Conflict(ApiError):
    """409: another client changed the object, or a precondition failed."""


class AlreadyExists(Conflict):
    """409 on a create."""


class Gone(ApiError):
    """410: the server no longer has that resourceVersion; everything has to be listed again."""


class Invalid(ApiError):
    """400 or 422: the object or the request is invalid, and repeating it won't help."""


class TooManyRequests(ApiError):
    """429: nothing was done; retry after `retry_after` seconds."""


class ServerError(ApiError):
    """5xx: a write may or may not have happened."""


class _Details(msgspec.Struct, rename="camel", gc=False):
    retry_after_seconds: float | None = None


class _Status(msgspec.Struct, gc=False):
    """The fields of metav1.Status that we read."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def from_answer(status: int, body: bytes, retry_after: float | None = None) -> ApiError:
    """The error in an answer, whatever its body is: a Status, a proxy's HTML, or nothing."""
    try:
        said = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        said = _Status(message=" ".join(body[:200].decode(errors="replace").split()))
    code = said.code or status
    kind = _BY_STATUS.get(code, ServerError if code >= 500 else ApiError)
    if said.reason == "AlreadyExists":
        kind = AlreadyExists
    if said.reason == "Expired":
        kind = Gone
    if retry_after is None and said.details:
        retry_after = said.details.retry_after_seconds
    return kind(code, said.reason, said.message, retry_after)
