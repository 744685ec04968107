"""A Kubernetes API server in memory, over real HTTP: what we use of one, as 1.36 does it, and faults on request.

It passes the contract tests that the real one passes. Where those two differ, this file is wrong.
"""

from __future__ import annotations

import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Self
from urllib.parse import unquote

import msgspec
from aiohttp import web
from tests.fakes.apiserver import patch
from tests.fakes.apiserver.collector import Collector
from tests.fakes.apiserver.errors import Failure, expired
from tests.fakes.apiserver.fields import Manager
from tests.fakes.apiserver.select import selector
from tests.fakes.apiserver.state import Id, Object, State
from tests.fakes.apiserver.watch import Watch
from tests.fakes.apiserver.writes import Write, Writes, dropped

from seltzer.kube.config import Config
from seltzer.kube.credentials import Static

# What happens to one request instead of its answer; None lets the answer come after all.
Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


class FakeApiServer:
    """A server on the loopback interface, for as long as its context lasts. Namespaces needn't exist.

    `state` has all objects, for those in the same process. `faults` are used up one per request, oldest first.
    `writes` lists what was written, and crashes the writer where it is told to.
    """

    def __init__(self, *, writes: Writes | None = None, clock: Callable[[], float] = time.time) -> None:
        self.state = State(clock)
        self.writes = writes or Writes()
        self.faults: deque[Fault] = deque()
        self.requests: list[str] = []
        self._collector = Collector(self.state)
        self._kinds: dict[tuple[str, str], str] = {}
        self._pages: dict[str, list[Object]] = {}
        self._watches: set[Watch] = set()
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # for Config, which wants one; nobody uses it
        self._runner: web.AppRunner | None = None
        self._port = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def config(self, client: str = "operator") -> Config:
        """How to reach it, as this client."""
        return Config(f"http://127.0.0.1:{self._port}", self._tls, Static(client))

    async def start(self) -> None:
        """Listen; on the same port as before, if there was one."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True).start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Refuse connections, and end those that are open. The objects stay."""
        for watch in self._watches:
            watch.cut()
        if self._runner:
            await self._runner.cleanup()
            self._runner = None

    # --- faults ---------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """End every open watch."""
        for watch in self._watches:
            watch.cut()

    def compact(self) -> None:
        """Forget all old versions: watches and lists that go on from one get a 410, open watches too."""
        self.state.compact()
        self._pages.clear()
        for watch in self._watches:
            watch.fail(expired())

    # --- requests -------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        client = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.requests.append(f"{request.method} {request.raw_path}")
        if self.writes.refuses(client):
            return dropped(request)
        if self.faults and (instead := await self.faults.popleft()(request)) is not None:
            return instead
        body = await request.read()
        if self.writes.refuses(client):
            return dropped(request)  # it died while it sent this
        version = self.state.version
        try:
            if request.method == "GET" and request.query.get("watch") in ("true", "1"):
                return await self._watch(request)
            status, answer = self._answer(request, body)
        except Failure as failure:
            status, answer = failure.status, failure.body
        response = web.Response(status=status, body=msgspec.json.encode(answer), content_type="application/json")
        if request.method == "GET":
            return response
        content = msgspec.json.decode(body) if body else None
        changed = self.state.version != version
        write = Write("kubernetes", client, request.method, request.path, content, status, changed)
        return await self.writes.answer(request, response, write)

    def _answer(self, request: web.Request, body: bytes) -> tuple[int, Any]:
        id_, subresource = self._place(request)
        try:
            content = msgspec.json.decode(body) if body else {}
        except msgspec.DecodeError as error:
            raise Failure(400, "BadRequest", str(error)) from None
        if isinstance(content, dict) and request.method != "DELETE" and "kind" in content and not subresource:
            self._kinds[id_.group, id_.plural] = content["kind"]
        match request.method:
            case "GET":
                return 200, self._read(request, id_, subresource)
            case "POST" if not id_.name:
                manager = Manager(_manager(request), "Update", "")
                return 201, self.state.create(id_._replace(name=content["metadata"]["name"]), content, manager)
            case "PUT" if id_.name:
                return 200, self._change(request, id_, subresource, lambda _: content)
            case "PATCH" if id_.name:
                return self._patch(request, id_, subresource, content)
            case "DELETE" if id_.name and not subresource:
                return 200, self._delete(id_, content)
        raise Failure(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    @staticmethod
    def _place(request: web.Request) -> tuple[Id, str]:
        """What a path is about, and the subresource of it."""
        root, *parts = [unquote(part) for part in request.raw_path.split("?")[0].strip("/").split("/")]
        group = parts.pop(0) if root == "apis" and len(parts) > 2 else ""
        if root not in ("api", "apis") or len(parts) < 2:
            raise Failure(404, "NotFound", "the server could not find the requested resource")
        _, *parts = parts
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            _, namespace, *parts = parts
        plural, name, subresource = (*parts, "", "")[:3]
        return Id(group, plural, namespace, name), subresource

    def _read(self, request: web.Request, id_: Id, subresource: str) -> Object:
        if id_.name:
            item = self.state.get(id_)
            return _scale(id_, item) if subresource == "scale" else item
        query = request.query
        if token := query.get("continue"):
            if token not in self._pages:
                raise expired("The provided continue parameter is too old to display a consistent list result.")
            items, version = self._pages.pop(token), token.partition("-")[0]
        else:
            chosen = selector(query.get("labelSelector", ""), query.get("fieldSelector", ""))
            items = [item for _, item in self.state.items(id_.group, id_.plural, id_.namespace) if chosen(item)]
            version = str(self.state.version)
        metadata = {"resourceVersion": version}
        limit = int(query.get("limit", 0)) or len(items)
        if len(items) > limit:
            metadata["continue"] = f"{version}-{len(self.requests)}"
            self._pages[metadata["continue"]] = items[limit:]
        kind = self._kinds.get((id_.group, id_.plural), "")
        return {"kind": f"{kind}List", "apiVersion": "v1", "metadata": metadata, "items": items[:limit]}

    # --- writes ---------------------------------------------------------------------------------------------------

    def _patch(self, request: web.Request, id_: Id, subresource: str, content: Any) -> tuple[int, Object]:
        match request.content_type:
            case "application/apply-patch+yaml" if subresource != "scale":
                manager = Manager(request.query["fieldManager"], "Apply", subresource)
                force = request.query.get("force") == "true"
                item, created = self.state.apply(id_, content, manager, force=force)
                return (201 if created else 200), item
            case "application/merge-patch+json":
                return 200, self._change(request, id_, subresource, lambda item: patch.merge(item, content))
            case "application/strategic-merge-patch+json":
                return 200, self._change(request, id_, subresource, lambda item: patch.strategic(item, content))
            case "application/json-patch+json":
                return 200, self._change(request, id_, subresource, lambda item: patch.json_patch(item, content))
        raise Failure(415, "UnsupportedMediaType", f"{request.content_type} isn't known here")

    def _change(self, request: web.Request, id_: Id, subresource: str, change: Callable[[Object], Any]) -> Object:
        manager = Manager(_manager(request), "Update", subresource)
        if subresource != "scale":
            return self.state.replace(id_, change, manager)

        def scaled(item: Object) -> Object:
            wanted = change(_scale(id_, item))
            version = wanted["metadata"].get("resourceVersion", item["metadata"]["resourceVersion"])
            metadata = {**item["metadata"], "resourceVersion": version}
            return {**item, "metadata": metadata, "spec": {**item["spec"], "replicas": wanted["spec"]["replicas"]}}

        return _scale(id_, self.state.replace(id_, scaled, manager))

    def _delete(self, id_: Id, options: dict[str, Any]) -> Object:
        asked = options.get("preconditions") or {}
        self.state.get(id_)
        left = self.state.delete(
            id_,
            uid=asked.get("uid"),
            version=asked.get("resourceVersion"),
            grace=options.get("gracePeriodSeconds"),
            finalizers=self._collector.finalizers(id_, options.get("propagationPolicy")),
        )
        return left or {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    # --- watches --------------------------------------------------------------------------------------------------

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        id_, _ = self._place(request)
        chosen = selector(request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""))
        watch = Watch(self.state, id_, chosen, dict(request.query))
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        self._watches.add(watch)
        try:
            await response.prepare(request)
            async for line in watch.lines():
                await response.write(line)
        except ConnectionError:
            pass  # nobody listens any more
        finally:
            watch.close()
            self._watches.discard(watch)
        return response


def _manager(request: web.Request) -> str:
    return request.query.get("fieldManager") or request.headers.get("User-Agent", "").partition("/")[0]


def _scale(id_: Id, item: Object) -> Object:
    """The same object as autoscalers see it."""
    metadata = {k: v for k, v in item["metadata"].items() if k in ("name", "namespace", "uid", "resourceVersion")}
    status = item.get("status", {})
    told = {"replicas": status.get("replicas", 0)} | (
        {"selector": status["selector"]} if id_.custom and "selector" in status else {}
    )
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": item.get("spec", {}).get("replicas", 0)},
        "status": told,
    }
