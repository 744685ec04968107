"""slurmrestd, slurmctld's metrics and the guard's squeue in memory: as Slurm 26.05 does it, with faults on request.

It passes the contract tests that the real one passes. Where those two differ, this file is wrong.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Self
from urllib.parse import unquote

import msgspec
from aiohttp import web
from tests.fakes import slurm_node
from tests.fakes.apiserver.writes import Write, Writes, dropped
from tests.fakes.slurm_node import number, record

from seltzer.slurm import hostlist
from seltzer.slurm.token import sign

KEY = b"k" * 32
OPERATOR = "operator"
VERSIONS = ("v0.0.45", "v0.0.44", "v0.0.43", "v0.0.42")
INVALID_NODE_NAME, NODES_BUSY, INVALID_TRANSITION = 2018, 2016, 2180
NOT_A_SUBSET, INVALID_TOPOLOGY = 2031, 2178
NODE_EXISTS, TABLE_FULL, INVALID_USER, AUTHENTICATION, UNSPECIFIED = 2168, 2169, 2010, 1007, -1
NO_FILTER = 2173
WORDS = {
    INVALID_NODE_NAME: "Invalid node name specified",
    NODES_BUSY: "Requested nodes are busy",
    INVALID_TRANSITION: "Invalid node state transition",
    NOT_A_SUBSET: "Active features not subset of available features",
    INVALID_TOPOLOGY: "Requested topology configuration is not available",
    NODE_EXISTS: "Node already exists in the node table",
    TABLE_FULL: "Unable to add node, node table is full",
    INVALID_USER: "Invalid user id",
    AUTHENTICATION: "Protocol authentication error",
    UNSPECIFIED: "Unspecified error",
    NO_FILTER: "Invalid signal jobs request, at least one job id or filter is required.",
}
STATUS = {AUTHENTICATION: 511, UNSPECIFIED: 500}

# What happens to one request instead of its answer; None lets the answer come after all.
Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


class FakeSlurmrestd:
    """A server on the loopback interface, for as long as its context lasts.

    `faults` are used up one per request, oldest first; `requests` tells what was asked, as `METHOD path?query`.
    `writes` lists what was written, and crashes the writer where it is told to.
    """

    def __init__(
        self,
        *,
        key: bytes = KEY,
        versions: Collection[str] = VERSIONS,
        room: int = 10_000,
        clock: Callable[[], float] = time.time,
        writes: Writes | None = None,
    ) -> None:
        self.writes = writes or Writes()
        self.key = key
        self.versions = versions
        self.room = room
        self.nodes: dict[str, dict[str, Any]] = {}
        self.jobs: dict[str, int] = {"running": 0, "pending": 0}
        self.queued: dict[str, int] = {}  # jobs that wait, by partition
        self.named: list[str] = []  # the hostlists that waiting jobs ask for
        self.silent: set[str] = set()  # the addresses at which no slurmd answers
        self.listened: asyncio.Event | None = None  # set when the guard has listened to them long enough
        self.faults: deque[Fault] = deque()
        self.requests: list[str] = []
        self.clock = clock
        self._running: dict[str, list[int]] = {}  # the jobs on each node
        self._submitted = 0
        self._started = int(clock())
        self._changed = self._started
        self._runner: web.AppRunner | None = None
        self._port = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Listen; on the same port as before, if there was one."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True).start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Refuse connections, as when the pod is gone."""
        if self._runner:
            await self._runner.cleanup()
            self._runner = None

    def restart_slurmctld(self) -> None:
        """slurmctld comes back with all nodes, and counts anew."""
        self._started = self._changed = int(self.clock())

    def add(self, names: str, state: Iterable[str] = ("IDLE", "DYNAMIC_NORM"), **fields: Any) -> None:
        """Nodes that have registered by themselves."""
        for name in hostlist.expand(names):
            self.nodes[name] = record(name, list(state), **fields)
        self._touch()

    def change(self, names: str, **fields: Any) -> None:
        """Something happens to nodes: a job starts, say."""
        for name in hostlist.expand(names):
            self.nodes[name].update(fields)
        self._touch()

    def forget(self, names: str) -> None:
        """Nodes vanish."""
        for name in hostlist.expand(names):
            del self.nodes[name]
        self._touch()

    def register(self, name: str, conf: Mapping[str, str], address: str) -> None:
        """A slurmd starts with this `--conf`."""
        now = int(self.clock())
        if name in self.nodes:
            slurm_node.registered_again(self.nodes[name], conf, now)
            self.change(name, address=address, boot_time=number(now))
        else:
            self.add(name, **slurm_node.configured(conf), address=address, boot_time=number(now))

    def lost(self, names: str) -> None:
        """slurmctld notices that these slurmds don't answer any more: DOWN*. Their jobs are over."""
        for name in hostlist.expand(names):
            self._free(name, "DOWN")
            self.nodes[name]["state"].append("NOT_RESPONDING")
        self._touch()

    def occupy(self, names: str, cpus: int = 1) -> None:
        """A job starts on each of these nodes."""
        for name in hostlist.expand(names):
            node = self.nodes[name]
            node["alloc_cpus"] += cpus
            slurm_node.set_base(node, "ALLOCATED" if node["alloc_cpus"] >= node["cpus"] else "MIXED")
            self._submitted += 1
            self._running.setdefault(name, []).append(self._submitted)
            self.jobs["running"] += 1
        self._touch()

    def release(self, names: str) -> None:
        """The jobs on these nodes end."""
        for name in hostlist.expand(names):
            self._free(name, "IDLE")
        self._touch()

    def _free(self, name: str, base: str) -> None:
        self.jobs["running"] -= len(self._running.pop(name, ()))
        if self.nodes[name]["alloc_cpus"]:
            self.nodes[name].update(alloc_cpus=0, last_busy=number(int(self.clock())))
        slurm_node.set_base(self.nodes[name], base)

    def _touch(self) -> None:
        self._changed = int(self.clock())

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.raw_path}")
        if self.writes.refuses(OPERATOR):
            return dropped(request)
        if self.faults:
            instead = await self.faults.popleft()(request)
            if instead is not None:
                return instead
        if request.path.startswith("/metrics/"):
            return web.Response(text=self._metrics(request.path))
        if request.path.startswith("/alive/") and self.listened:
            await self.listened.wait()
        if request.path == "/named" or request.path.startswith(("/jobs/", "/alive/")):
            return self._squeue(request)
        answer = await self._rest(request)
        writes = request.method != "GET" or request.path.endswith("/reconfigure/")
        if answer.status >= 400:
            return await _twice(request, answer)
        if not writes:
            return answer
        body = await request.read()
        content = msgspec.json.decode(body) if body else None
        write = Write("slurm", OPERATOR, request.method, unquote(request.path), content, answer.status, True)
        return await self.writes.answer(request, answer, write)

    async def _rest(self, request: web.Request) -> web.Response:
        token = request.headers.get("X-SLURM-USER-TOKEN")
        if token is None:
            return web.Response(status=401, text="Authentication failure")
        _, root, version, path = (*request.raw_path.split("?")[0].split("/", 3), "", "", "")[:4]
        if root != "slurm" or version not in self.versions:
            return web.Response(
                status=404, text="Unable to find requested URL endpoint. Please query the '/openapi/v3'"
            )
        if path == "ping/":
            up = self._good(token)
            return _answer(pings=[{"hostname": "slurmctld", "responding": up, "primary": True, "latency": 1}])
        if not self._good(token):
            return _failure(AUTHENTICATION, "Failure to query")
        if request.method != "GET" and _claims(token)["sun"] not in ("slurm", "root"):
            return _failure(INVALID_USER, "Failure to update")
        return await self._route(request, path)

    def _good(self, token: str) -> bool:
        try:
            claims = _claims(token)
            lifetime = claims["exp"] - claims["iat"]
            signed = sign(self.key, claims["sun"], lifetime=lifetime, now=claims["iat"])
            return signed == token and claims["exp"] > self.clock()
        except (IndexError, KeyError, ValueError):
            return False

    async def _route(self, request: web.Request, path: str) -> web.Response:
        match request.method, path.split("/"):
            case "GET", ["nodes", ""]:
                return self._list(request)
            case "POST", ["nodes", ""]:
                return self._update(await request.json(loads=msgspec.json.decode))
            case "POST", ["new", "node", ""]:
                return self._create(await request.json(loads=msgspec.json.decode))
            case "DELETE", ["node", names] if not set("[],") & set(names):
                return self._delete(unquote(names))
            case "DELETE", ["jobs", ""]:
                return self._kill(await request.json(loads=msgspec.json.decode))
            case "GET", ["diag", ""]:
                return _answer(statistics=self._statistics())
            case "GET", ["partitions", ""]:
                return _answer(partitions=[self._partition()])
            case "GET", ["reservations", ""]:
                return _answer(reservations=[])
            case "GET", ["conf"]:
                meta = {"BOOT_TIME": self._started, "SLURM_VERSION": "26.05.5"}
                return _answer(slurm_conf={"ClusterName": "fake", "MaxNodeCount": self.room}, slurm_conf_meta=meta)
            case "GET", ["reconfigure", ""]:
                self.restart_slurmctld()
                return _answer()
        return web.Response(status=404, text="Invalid or unknown URL path")

    def _list(self, request: web.Request) -> web.Response:
        since = request.query.get("update_time")
        if since is not None and int(since) - 1 >= self._changed:
            return web.Response(status=304)
        future = "FUTURE" in request.query.getall("flags", [])
        shown = [node for node in self.nodes.values() if future or "FUTURE" not in node["state"]]
        return _answer(nodes=shown, last_update=number(int(self.clock())))

    def _statistics(self) -> dict[str, Any]:
        return {
            "req_time": number(int(self.clock())),
            "req_time_start": number(self._started),
            "jobs_running": self.jobs.get("running", 0),
            "jobs_pending": self.jobs.get("pending", 0),
        }

    def _partition(self) -> dict[str, Any]:
        names = [name for name, node in self.nodes.items() if "set_cpu" in node["features"]]
        nodes = {"configured": hostlist.fold(names), "total": len(names)}
        return {"name": "cpu", "nodes": nodes, "partition": {"state": ["UP"]}, "node_sets": "set_cpu"}

    def _named(self, given: str) -> list[str]:
        """Slurm's reading of names: `all`, a NodeSet (here: `set_cpu`, by feature), or a hostlist."""
        if given.lower() == "all":
            return list(self.nodes)
        if given == "set_cpu":
            return [name for name, node in self.nodes.items() if "set_cpu" in node["features"]]
        return hostlist.expand(hostlist.fold(hostlist.expand(given)))  # in natural order, as Slurm takes them

    def _update(self, body: dict[str, Any]) -> web.Response:
        given = ",".join(body.get("name", []))
        problem = 0 if given else INVALID_NODE_NAME
        for name in self._named(given):
            if name not in self.nodes:
                problem = INVALID_NODE_NAME
                break
            problem = self._set(name, body) or problem
        self._touch()
        return _failure(problem, f"Failure to update node {given}") if problem else _answer()

    def _set(self, name: str, body: dict[str, Any]) -> int:
        node, now = self.nodes[name], int(self.clock())
        match body.get("state"):
            case None:
                pass
            case ["DRAIN"]:
                slurm_node.drain(node, body.get("reason", ""), now)
            case ["DOWN"]:
                self._free(name, "DOWN")
                slurm_node.set_reason(node, body.get("reason") or node["reason"], now)
            case ["RESUME"]:
                if not set(node["state"]) & {"DRAIN", "FAIL", "DOWN", "CLOUD"}:
                    return INVALID_TRANSITION
                node["state"] = ["IDLE" if s == "DOWN" else s for s in node["state"] if s not in ("DRAIN", "FAIL")]
                slurm_node.set_reason(node, "", now)
            case _:
                return UNSPECIFIED
        active = body.get("features_act", node["active_features"])
        if not set(active) <= set(body.get("features", node["features"])):
            return NOT_A_SUBSET
        topology = body.get("topology_str", "")
        if topology and not topology.startswith("default:"):
            return INVALID_TOPOLOGY
        node.update(active_features=active, topology=body.get("topology_str", node["topology"]))
        node.update({field: body[field] for field in ("comment", "extra", "features") if field in body})
        return 0

    def _kill(self, body: dict[str, Any]) -> web.Response:
        """End all jobs on these nodes. Nodes that don't exist have none."""
        if not body.get("nodes"):
            return _failure(NO_FILTER, "Signal request failed")
        for name in self._named(",".join(body["nodes"])):
            if name in self.nodes and self.nodes[name]["alloc_cpus"]:
                self._free(name, "IDLE")
        self._touch()
        return _answer()

    def _metrics(self, path: str) -> str:
        """slurmctld's own; a partition has the name of its nodes' first feature."""
        if path == "/metrics/jobs":
            return "".join(f"slurm_jobs_{name} {count}\n" for name, count in self.jobs.items())
        queued = dict(self.queued)
        for name, running in self._running.items():
            for partition in self.nodes[name]["partitions"]:
                queued[partition] = queued.get(partition, 0) + len(running)
        lines = [f'slurm_partition_jobs{{partition="{name}"}} {count}\n' for name, count in queued.items()]
        return f"slurm_partitions {len(queued)}\n" + "".join(lines)

    def _squeue(self, request: web.Request) -> web.Response:
        """What the guard answers: the nodes that waiting jobs name, who of them is there, or the jobs on some nodes in
        squeue's words, each field with a separator behind it."""
        if not self._good(request.headers.get("X-SLURM-USER-TOKEN", "")):
            return web.Response(status=401, text="Authentication failure")
        if request.path == "/named":
            return web.Response(text="".join(f"{name}\n" for name in self.named))
        if request.path.startswith("/alive/"):
            asked = request.path.rpartition("/")[2].split(",")
            return web.Response(text="".join(f"{each}\n" for each in asked if each not in self.silent))
        lines = []
        for name in hostlist.expand(unquote(request.raw_path.removeprefix("/jobs/"))):
            for job in self._running.get(name, ()):
                fields = (str(job), "user", "RUNNING", "cpu", name, "1:00:00", "1", "None")
                lines.append("".join(f"{field}\x1f" for field in fields) + "\n")
        return web.Response(text="".join(lines))

    def _create(self, body: dict[str, Any]) -> web.Response:
        words = dict(word.partition("=")[::2] for word in body["node_conf"].split())
        if "\n" in body["node_conf"] or not words.keys() <= {"NodeName", "CPUs", "RealMemory", "State", "Feature"}:
            return _failure(UNSPECIFIED, "Failure to create node")
        names = hostlist.expand(words["NodeName"])
        if len(self.nodes) + len(names) > self.room:
            return _failure(TABLE_FULL, "Failure to create node")
        if self.nodes.keys() & set(names):
            return _failure(NODE_EXISTS, "Failure to create node")
        state = {"CLOUD": ["IDLE", "CLOUD", "POWERED_DOWN"], "FUTURE": ["FUTURE"]}.get(words["State"], ["UNKNOWN"])
        features = words["Feature"].split(",") if "Feature" in words else []
        sizes = {"cpus": int(words.get("CPUs", 1)), "real_memory": int(words.get("RealMemory", 1))}
        self.add(words["NodeName"], [*state, "DYNAMIC_NORM"], features=features, active_features=features, **sizes)
        return _answer()

    def _delete(self, given: str) -> web.Response:
        problem = 0
        for name in self._named(given):
            if name not in self.nodes:
                problem = INVALID_NODE_NAME
            elif self.nodes[name]["alloc_cpus"]:
                problem = NODES_BUSY
            else:
                del self.nodes[name]
        self._touch()
        return _failure(problem, f"Failure to delete node {given}") if problem else _answer()


async def _twice(request: web.Request, answer: web.Response) -> web.StreamResponse:
    """slurmrestd sends every error two times, the second time in fewer words; then it closes the connection."""
    assert request.transport and isinstance(answer.body, bytes)
    for body in (answer.body, b"the same again"):
        head = f"HTTP/1.1 {answer.status} ERROR\r\nConnection: Close\r\nContent-Length: {len(body)}\r\n\r\n"
        request.transport.write(head.encode() + body)
    request.transport.close()
    return answer


def _claims(token: str) -> dict[str, Any]:
    claims: dict[str, Any] = msgspec.json.decode(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    return claims


def _answer(status: int = 200, **told: Any) -> web.Response:
    release = {"release": "26.05.5", "cluster": "fake"}
    body = {"errors": [], "warnings": [], **told, "meta": {"slurm": release}}
    text = msgspec.json.format(msgspec.json.encode(body))
    return web.Response(status=status, body=text, content_type="application/json")


def _failure(number: int, description: str, *, status: int | None = None, words: str | None = None) -> web.Response:
    error = {"description": description, "error_number": number, "error": words or WORDS[number], "source": "fake"}
    return _answer(STATUS.get(number, 422) if status is None else status, errors=[error])


def error(number: int, words: str, status: int) -> Fault:
    """Slurm says no, with this HTTP status."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return _failure(number, "Failure to please", status=status, words=words)

    return answer


def html(status: int = 200) -> Fault:
    """What a proxy in between might say."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text="<html><body>Bad Gateway</body></html>", content_type="text/html")

    return answer


def text(body: str, status: int = 200) -> Fault:
    """Any other words."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=body)

    return answer


def wait_for(event: asyncio.Event) -> Fault:
    """The answer comes when the event is set: a delay, or a connection that hangs."""

    async def answer(_: web.Request) -> None:
        await event.wait()

    return answer


async def disconnect(request: web.Request) -> web.StreamResponse:
    """The connection ends without an answer."""
    assert request.transport
    request.transport.abort()
    return web.Response()


def cut(body: bytes, *, announced: bool) -> Fault:
    """The answer ends too early; with or without a length that tells so."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if announced:
            response.content_length = len(body) * 2
        response.force_close()
        await response.prepare(request)
        await response.write(body)
        if announced:
            assert request.transport
            request.transport.close()
        else:
            await response.write_eof()
        return response

    return answer
