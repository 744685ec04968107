"""A client of the API server: gets and patches single objects, with a deadline, over a connection that is kept."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_BODY = 4 << 20

Json = dict[str, Any]
Connect = Callable[[], http.client.HTTPConnection]


class ApiError(Exception):
    """The API server can't be reached, or refuses."""


class Conflict(ApiError):
    """The object has changed since it was read."""


class KubeClient:
    """For one thread. A call that fails may have taken effect all the same."""

    def __init__(self, connect: Connect, token: Callable[[], str]) -> None:
        self._connect = connect
        self._token = token
        self._connection: http.client.HTTPConnection | None = None

    def get(self, path: str) -> Json:
        return self._call("GET", path, None)

    def patch(self, path: str, patch: Json) -> Json:
        """Send a merge patch. With a metadata.resourceVersion it is conditional, and may raise Conflict."""
        return self._call("PATCH", path, json.dumps(patch).encode())

    def _call(self, method: str, path: str, body: bytes | None) -> Json:
        kept = self._connection is not None
        try:
            try:
                status, answer = self._send(method, path, body)
            except (OSError, http.client.HTTPException):
                if not kept:
                    raise
                # The server closed an idle connection. Everything sent here may be sent twice.
                status, answer = self._send(method, path, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ApiError(f"{method} {path}: {error or type(error).__name__}") from error
        if status == 409:
            raise Conflict(f"{method} {path}: {_words(answer)}")
        if status != 200:
            raise ApiError(f"{method} {path}: {status} {_words(answer)}")
        return _object(answer)

    def _send(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        connection = self._connection or self._connect()
        self._connection = None
        headers = {"Authorization": f"Bearer {self._token()}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json"
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            answer = response.read(_BODY)
            if response.will_close or not response.isclosed():
                connection.close()
            else:
                self._connection = connection
        except BaseException:
            connection.close()
            raise
        return response.status, answer


def in_cluster(env: Mapping[str, str], deadline: float, account: Path = ACCOUNT) -> KubeClient:
    """Connects as the pod's ServiceAccount. Its token and the CA are read each time they are needed: they change."""
    host, port = env["KUBERNETES_SERVICE_HOST"], int(env["KUBERNETES_SERVICE_PORT"])

    def connect() -> http.client.HTTPConnection:
        context = ssl.create_default_context(cafile=str(account / "ca.crt"))
        return http.client.HTTPSConnection(host, port, timeout=deadline, context=context)

    return KubeClient(connect, lambda: (account / "token").read_text().strip())


def _object(answer: bytes) -> Json:
    try:
        found = json.loads(answer)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ApiError("the API server's answer is not an object")
    return found


def _words(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["message"])
    except (ValueError, KeyError, TypeError):
        return answer[:200].decode(errors="replace")
