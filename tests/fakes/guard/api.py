"""The two objects of the API server that a guard may change, with versions, conflicts, and absence on request."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

LEASE = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/demo-slurmctld"
SLICE = "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices/demo-slurmctld"


class FakeApi:
    """A server on the loopback interface, for as long as its context lasts. While `away`, it hangs up on everybody."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._objects: dict[str, dict[str, Any]] = {
            LEASE: {"metadata": {"resourceVersion": "1"}, "spec": {}},
            SLICE: {"metadata": {"resourceVersion": "1"}, "endpoints": []},
        }
        self._version = 1
        self._away = False
        self.on_write: Callable[[dict[str, Any]], object] = lambda lease: None
        self.before_patch: Callable[[], object] = lambda: None
        self.on_ask: Callable[[str], object] = lambda path: None
        self.slice_broken = False
        self.writes: list[dict[str, Any]] = []
        """All states of the Lease since the beginning."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a guard was killed while it asked

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def away(self) -> bool:
        return self._away

    @away.setter
    def away(self, away: bool) -> None:
        with self._lock:  # when this returns, nothing more is done
            self._away = away

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def get(self, path: str = LEASE) -> dict[str, Any]:
        with self._lock:
            return copy.deepcopy(self._objects[path])

    @property
    def holder(self) -> str:
        return str(self.get()["spec"].get("holderIdentity") or "")

    @property
    def report(self) -> dict[str, str]:
        """The guard's annotations, without their prefix."""
        found = self.get()["metadata"].get("annotations", {})
        return {name.removeprefix("seltzer.dev/"): value for name, value in found.items()}

    @property
    def addresses(self) -> list[str]:
        return [address for each in self.get(SLICE)["endpoints"] for address in each["addresses"]]

    def patch(self, patch: dict[str, Any], path: str = LEASE) -> dict[str, Any] | None:
        """As somebody else would; None for a conflict."""
        with self._lock:
            found = self._objects[path]
            wanted = patch.get("metadata", {}).get("resourceVersion")
            if wanted not in (None, found["metadata"]["resourceVersion"]):
                return None
            self._version += 1
            merged: dict[str, Any] = _merge(found, patch)
            merged["metadata"]["resourceVersion"] = str(self._version)
            self._objects[path] = merged
            if path == LEASE:
                self.writes.append(copy.deepcopy(merged))
                self.on_write(merged)
            return merged

    def take(self, holder: str) -> None:
        """Somebody else holds the Lease now."""
        self.patch({"spec": {"holderIdentity": holder, "leaseDurationSeconds": 1}})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                fake.on_ask(self.path)
                self._answer(lambda: fake.get(self.path))

            def do_PATCH(self) -> None:
                fake.before_patch()
                patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._answer(lambda: fake.patch(patch, self.path))

            def _answer(self, do: Any) -> None:
                with fake._lock:
                    if fake.away:
                        self.close_connection = True
                        return
                    broken = fake.slice_broken and self.path == SLICE
                    answer = {"message": "broken"} if broken else do()
                body = json.dumps(answer or {"message": "the object has been modified"}).encode()
                self.send_response(500 if broken else 200 if answer else 409)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def _merge(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged
