"""The API server is asked over TLS with the sandbox's own keys, and whatever it says is no surprise."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.ports import Port

from seltzer.errors import SeltzerError
from seltzer_sandbox.run import manifests
from seltzer_sandbox.run.apiserver import ApiServer, node_conditions
from seltzer_sandbox.run.pki import Authority


class Server(HTTPServer):
    """Answers every request with the same bytes, and keeps what it was asked."""

    answer = b""
    asked: list[tuple[str, str, str | None, bytes]]

    def say(self, status: int, body: bytes | str | dict[str, Any]) -> None:
        content = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
        self.answer = f"HTTP/1.1 {status} Whatever\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that goes away is part of the tests


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 600.0
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.path, self.headers.get("Content-Type"), body))
        self.wfile.write(self.server.answer)
        self.close_connection = b"\r\nContent-Length:" not in self.server.answer or b"close" in self.server.answer

    do_PATCH = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    authority = Authority(tmp_path_factory.mktemp("pki"), "ca")
    authority.create()
    authority.issue("apiserver", "kube-apiserver", hosts=("127.0.0.1",))
    authority.issue("admin", "admin", "system:masters")
    return authority.folder


@pytest.fixture
def server(keys: Path) -> Iterator[Server]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(keys / "ca.crt"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(keys / "apiserver.crt", keys / "apiserver.key")
    with Server(("127.0.0.1", 0), Handler) as made:
        made.asked = []
        made.socket = context.wrap_socket(made.socket, server_side=True)
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def api(keys: Path, server: Server) -> Iterator[ApiServer]:
    made = ApiServer(keys, server.server_port, deadline=600.0)
    yield made
    made.close()


def test_an_object_is_returned(api: ApiServer, server: Server) -> None:
    server.say(200, {"kind": "Node"})
    assert api.get("/api/v1/nodes/n1") == {"kind": "Node"}
    assert api.ready()
    assert [asked[:2] for asked in server.asked] == [("GET", "/api/v1/nodes/n1"), ("GET", "/readyz")]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, '{"kind": "Status"}'),
        (404, '{"kind": "Status"}'),
        (403, "Forbidden"),
        (200, "not JSON"),
        (200, '{"half": '),
        (200, '["a", "list"]'),
        (200, "null"),
        (200, ""),
        (200, b"\xff\xfe\xfd"),
    ],
)
def test_anything_else_is_nothing(api: ApiServer, server: Server, status: int, body: str | bytes) -> None:
    server.say(status, body)
    assert api.get("/api/v1/nodes") is None
    assert api.ready() == (status == 200)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\0\1\2\3 garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{",
        b"HTTP/1.1 abc OK\r\n\r\n",
    ],
    ids=["hangs up", "speaks no HTTP", "stops in the middle", "no status"],
)
def test_a_server_that_breaks_off_is_nothing_and_the_next_call_works(
    api: ApiServer, server: Server, answer: bytes
) -> None:
    server.answer = answer
    assert api.get("/api/v1/nodes") is None
    assert not api.ready()
    server.say(200, {"kind": "NodeList"})
    assert api.get("/api/v1/nodes") == {"kind": "NodeList"}


def test_no_server_at_all_is_nothing(keys: Path, server: Server) -> None:
    port = Port()
    api = ApiServer(keys, port.number, deadline=600.0)
    assert api.get("/api/v1/nodes") is None
    assert not api.ready()
    with pytest.raises(SeltzerError, match="does not answer"):
        api.apply(manifests.all_manifests(unified=True)[0])
    port.give_back()


def test_a_server_with_another_sandboxs_keys_is_nothing(tmp_path: Path, server: Server) -> None:
    stranger = Authority(tmp_path, "ca")
    stranger.create()
    stranger.issue("admin", "admin")
    server.say(200, {"kind": "NodeList"})
    api = ApiServer(tmp_path, server.server_port, deadline=600.0)
    assert api.get("/api/v1/nodes") is None
    assert server.asked == []


@pytest.mark.parametrize("manifest", manifests.all_manifests(unified=True), ids=lambda each: f"{each['kind']}")
def test_a_manifest_is_applied_at_its_own_address(api: ApiServer, server: Server, manifest: dict[str, Any]) -> None:
    server.say(201, {})
    api.apply(manifest)
    ((method, path, kind, body),) = server.asked
    address, _, query = path.partition("?")
    assert (method, kind) == ("PATCH", "application/apply-patch+yaml")
    assert address.endswith(f"/{manifest['metadata']['name']}")
    assert f"/namespaces/{manifest['metadata'].get('namespace')}/" in address or "namespace" not in manifest["metadata"]
    assert {"fieldManager=seltzer-sandbox", "force=true"} == set(query.split("&"))
    assert json.loads(body) == manifest


def test_a_refusal_names_what_was_refused_and_why(api: ApiServer, server: Server) -> None:
    server.say(422, '{"message": "no such field"}')
    with pytest.raises(SeltzerError, match=r"refused StorageClass shared: .*no such field"):
        api.apply(manifests.storage()[0])


def node(name: str, *conditions: tuple[str, str]) -> dict[str, Any]:
    listed = [{"type": kind, "status": status} for kind, status in conditions]
    return {"metadata": {"name": name}, "status": {"conditions": listed} if conditions else {}}


def test_conditions_are_what_kubernetes_says_of_ready(api: ApiServer, server: Server) -> None:
    nodes = [
        node("n1", ("MemoryPressure", "False"), ("Ready", "True")),
        node("n2", ("Ready", "False")),
        node("n3", ("MemoryPressure", "False")),
        node("n4"),
    ]
    server.say(200, {"items": nodes})
    assert node_conditions(api) == {"n1": "True", "n2": "False", "n3": "Unknown", "n4": "Unknown"}


@pytest.mark.parametrize("status", [200, 503])
def test_without_an_answer_no_condition_is_known(api: ApiServer, server: Server, status: int) -> None:
    server.say(status, {})
    assert node_conditions(api) == {}
