"""One sandbox: bring it up, repair it, take it down. Every step checks first and does only what is missing."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from seltzer.errors import SeltzerError
from seltzer.progress import Progress
from seltzer_sandbox.build import template
from seltzer_sandbox.run import components, manifests, namespaces, network, pki
from seltzer_sandbox.run.apiserver import ApiServer, node_conditions
from seltzer_sandbox.run.cgroups import Cgroups
from seltzer_sandbox.run.components import Component
from seltzer_sandbox.run.layout import Layout, Spec
from seltzer_sandbox.run.processes import Record, Registry, Spawn

READY_DEADLINE = 120.0
APPLY_DEADLINE = 120.0
_POLL = 0.02
_MOST_RESTARTS = 5
_RESTART_PAUSE = 0.5


class Sandbox:
    """A sandbox whose spec is on disk. Its state is always read from the kernel, never remembered."""

    def __init__(self, layout: Layout, spec: Spec) -> None:
        self.layout = layout
        self.spec = spec
        self.registry = Registry(layout.records)
        self.cgroups = Cgroups(layout.cgroup)
        self.binaries = Path(spec.binaries)
        self._started: set[str] = set()
        self._restarts: dict[str, int] = {}
        self._restarting = threading.Lock()
        self._stopping = threading.Event()

    @property
    def numbers(self) -> list[int]:
        return list(range(1, self.spec.nodes + 1))

    def hub(self) -> Record:
        """The init process of the hub, ancestor of all processes of the sandbox; raises if it is not running."""
        record = self.registry.get("hub")
        if record is None:
            name = self.layout.name
            raise SeltzerError(f"sandbox {name!r} is not up; start it with 'seltzer sandbox up{_name_flag(name)}'")
        return record

    def api(self) -> ApiServer:
        return ApiServer(self.layout.pki, self.spec.port)

    # --- up -------------------------------------------------------------------------------------------------------

    def bring_up(self, progress: Progress) -> None:
        """Start everything that is not running. Safe to interrupt at any point and to repeat."""
        with progress.step("keys and certificates"):
            self.write_credentials()
        with progress.step("API server"):
            self.start_api_server()
            # The API server is the slowest to start: start the nodes' programs meanwhile.
            self._start_nodes()
            self.wait_for_api_server()
        with progress.step(f"{self.spec.nodes} nodes Ready"):
            self.start_managers()
            api = self.api()
            for manifest in manifests.all_manifests(unified=self.cgroups.unified):
                self._apply(api, manifest)
            self._run_in_hub(components.volumes(self.layout))
            self._wait("not every node is Ready", partial(self._nodes_are_ready, api), "n1/kubelet")
        with progress.step("DNS answers"):
            self._wait("the cluster's DNS does not answer", self._dns_answers, "n1/kubelet")

    def _start_nodes(self) -> None:
        with ThreadPoolExecutor(self.spec.nodes) as pool:
            starting = [pool.submit(self.start_node, number) for number in self.numbers]
            try:
                for future in starting:
                    future.result()
            except BaseException:
                self._stopping.set()  # Ctrl-C reaches only this thread: end the others too
                raise

    def _apply(self, api: ApiServer, manifest: dict[str, Any]) -> None:
        """Apply a manifest. A new API server refuses some until it has created its own namespaces and roles."""
        until = time.monotonic() + APPLY_DEADLINE
        while True:
            try:
                return api.apply(manifest)
            except SeltzerError:
                if time.monotonic() > until:
                    raise
                time.sleep(_POLL)

    def start_api_server(self) -> None:
        """Start the hub, etcd, the API server and the forwarder."""
        self._start_hub()
        self._run_in_hub(components.etcd(self.layout))
        self._run_in_hub(components.apiserver(self.layout))
        self._start_forwarder()

    def start_managers(self) -> None:
        """Start the controller manager and the scheduler; they need the API server."""
        self._run_in_hub(components.controller_manager(self.layout))
        self._run_in_hub(components.scheduler(self.layout))

    def kill(self, name: str) -> None:
        """Kill one of its programs, like a crash."""
        record = self.registry.get(name)
        if record is None:
            raise SeltzerError(f"{name} isn't running")
        self._started.discard(name)
        record.kill()

    def wait_for_api_server(self) -> None:
        self._wait("the API server is not ready", lambda: self.api().ready(), "kube-apiserver")

    def write_credentials(self) -> None:
        """Create the missing keys, certificates and kubeconfigs."""
        layout = self.layout
        authority = pki.Authority(layout.pki, "ca")
        front_proxy = pki.Authority(layout.pki, "front-proxy-ca")
        authority.create()
        front_proxy.create()
        front_proxy.issue("front-proxy-client", "front-proxy-client")
        pki.create_signing_key(layout.pki, "service-accounts")
        service = "kubernetes.default.svc"
        hosts = (
            "127.0.0.1",
            network.HUB,
            network.API_SERVICE,
            "localhost",
            "kubernetes",
            "kubernetes.default",
            service,
        )
        authority.issue("apiserver", "kube-apiserver", hosts=(*hosts, f"{service}.cluster.local"))
        authority.issue("apiserver-kubelet", "kube-apiserver-kubelet-client", "system:masters")
        authority.issue("admin", "admin", "system:masters")
        inside = f"https://{network.HUB}:{network.API_PORT}"
        users = ("kube-controller-manager", "kube-scheduler", "kube-proxy")
        for user in users:
            authority.issue(user, f"system:{user}")
            self._kubeconfig(layout.config / f"{user}.kubeconfig", authority, user, inside)
        authority.issue("volumes", "sandbox:volumes")
        self._kubeconfig(layout.config / "volumes.kubeconfig", authority, "volumes", inside)
        for number in self.numbers:
            node, folder = f"n{number}", layout.node(number) / "config"
            folder.mkdir(parents=True, exist_ok=True)
            authority.issue(node, f"system:node:{node}", "system:nodes", (node, network.node_address(number)))
            self._kubeconfig(folder / "kubelet.kubeconfig", authority, node, inside)
            self._kubeconfig(folder / "kube-proxy.kubeconfig", authority, "kube-proxy", inside)
        self._kubeconfig(layout.kubeconfig, authority, "admin", f"https://127.0.0.1:{self.spec.port}")

    def _kubeconfig(self, path: Path, authority: pki.Authority, user: str, server: str) -> None:
        pki.write_private(path, pki.kubeconfig(authority, user, server, self.layout.context))

    def _start_hub(self) -> None:
        record = self.registry.get("hub")
        if record is None:
            # Remove what remains from before a reboot or a crash.
            self.cgroups.kill()
            self.cgroups.remove()
            self.cgroups.create("hub")
            machine = self._machine("hub", self.layout.folder)
            record = self.registry.start_init("hub", namespaces.hub(machine, self.layout.volumes))
        network.set_up_hub(record.pid)

    def _start_forwarder(self) -> None:
        if self.registry.get("forward"):
            return
        with network.listen(self.spec.port) as listener:
            component = components.forward(listener.fileno())
            self._start("forward", self._spawn(component, self.hub().pid, "hub", (listener.fileno(),)))

    def _run_in_hub(self, component: Component) -> None:
        if not self.registry.get(component.name):
            self._start(component.name, self._spawn(component, self.hub().pid, "hub"))

    def start_node(self, number: int) -> None:
        """Bring up one node: its namespaces, its link and its programs, if they are missing."""
        name = f"n{number}"
        folder = self.layout.node(number)
        hub = self.hub()
        record = self.registry.get(name)
        if record is None:
            # Like a machine after power-on: /run and the cgroups are empty. (The kubelet spends seconds on each
            # leftover cgroup.)
            self.cgroups.kill(name)
            self.cgroups.remove(name)
            network.drop_link(hub.pid, number)
            shutil.rmtree(folder / "run", ignore_errors=True)
            for inner in ("run", "varlib", "varlog"):
                (folder / inner).mkdir(parents=True, exist_ok=True)
            self.cgroups.create(f"{name}/sys")
            template.take(Path(self.spec.template), folder / "varlib" / "containerd")
            record = self.registry.start_init(name, namespaces.node(self._machine(name, folder), hub.pid))
        network.link_node(hub.pid, record.pid, number, self.numbers)
        containerd = components.containerd(self.layout, number, self.binaries, unified=self.cgroups.unified)
        socket = folder / "run" / "containerd" / "containerd.sock"
        if not self.registry.get(containerd.name):
            socket.unlink(missing_ok=True)
        self._run_on_node(record, name, containerd)
        self._run_on_node(record, name, components.kube_proxy(self.layout, number))
        # The kubelet exits if containerd is not there.
        self._wait(f"{name}'s containerd does not start", socket.exists, containerd.name)
        self._run_on_node(record, name, components.kubelet(self.layout, number, f"/{self.cgroups.name}/{name}"))
        if devices := components.devices(number, self.spec.gpus):
            self._run_on_node(record, name, devices)

    def _run_on_node(self, node: Record, name: str, component: Component) -> None:
        if not self.registry.get(component.name):
            for path, content in component.files:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)
            self._start(component.name, self._spawn(component, node.pid, f"{name}/sys"))

    def _start(self, name: str, spawn: Spawn) -> None:
        self.registry.start(name, spawn)
        self._started.add(name)

    def _machine(self, name: str, folder: Path) -> namespaces.Machine:
        cgroup = "hub" if name == "hub" else f"{name}/sys"
        join = self.cgroups.join_files(cgroup)
        host = f"{self.layout.name}-{name}"
        return namespaces.Machine(host, folder, self.binaries / "pause", self.layout.log(name), join)

    def _spawn(self, component: Component, inside: int, cgroup: str, pass_fds: tuple[int, ...] = ()) -> Spawn:
        path = f"{self.binaries}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
        return Spawn(
            component.command,
            self.layout.log(component.name),
            self.cgroups.join_files(cgroup),
            inside=inside,
            env={"PATH": path},
            pass_fds=pass_fds,
        )

    def _nodes_are_ready(self, api: ApiServer) -> bool:
        conditions = node_conditions(api)
        return all(conditions.get(f"n{number}") == "True" for number in self.numbers)

    def _dns_answers(self) -> bool:
        return all(
            record is not None and network.dns_answers(record.pid, "kubernetes.default.svc.cluster.local")
            for record in (self.registry.get(f"n{number}") for number in self.numbers)
        )

    def _wait(self, complaint: str, true: Callable[[], bool], component: str) -> None:
        until = time.monotonic() + READY_DEADLINE
        while not true():
            dead = [name for name in sorted(self._started) if self.registry.get(name) is None]
            if dead and not self._restart_kubelet(dead[0]):
                raise SeltzerError(_why_it_ended(dead[0], self.layout.log(dead[0])))
            if self._stopping.is_set() or time.monotonic() > until:
                raise SeltzerError(f"{complaint} after {READY_DEADLINE:.0f} s; see {self.layout.log(component)}")
            time.sleep(_POLL)

    def _restart_kubelet(self, name: str) -> bool:
        """Restart a kubelet that exited because containerd was not ready, as systemd does on a real machine."""
        node, _, program = name.partition("/")
        with self._restarting:
            if self.registry.get(name) is not None:
                return True  # another thread restarted it
            if program != "kubelet" or self._restarts.get(name, 0) >= _MOST_RESTARTS:
                return False
            self._restarts[name] = self._restarts.get(name, 0) + 1
            time.sleep(_RESTART_PAUSE)
            number = int(node.removeprefix("n"))
            record = self.registry.get(node)
            if record is None:
                return False
            self._run_on_node(record, node, components.kubelet(self.layout, number, f"/{self.cgroups.name}/{node}"))
            return True


def take_down(layout: Layout) -> bool:
    """End all processes of a sandbox and remove its files; returns whether it existed."""
    registry, cgroups = Registry(layout.records), Cgroups(layout.cgroup)
    names = registry.names()
    records = [record for record in map(registry.get, names) if record is not None]
    there = bool(records) or layout.folder.exists() or cgroups.exists()
    for record in records:
        record.kill()
    # A frozen process dies only when it is thawed. Its SIGKILL is already pending: it runs no further instruction.
    for name in names:
        if cgroups.frozen(name):
            cgroups.freeze(name, False)
    cgroups.kill()
    cgroups.remove()
    shutil.rmtree(layout.folder, ignore_errors=True)
    if layout.folder.exists():
        raise SeltzerError(f"{layout.folder} can't be removed; check what is mounted or open there")
    return there


def _why_it_ended(name: str, log: Path) -> str:
    """Explains the most common cause, which the log of the program does not: too few inotify instances."""
    if "too many open files" in "".join(log.read_text(errors="replace").splitlines(keepends=True)[-20:]):
        limit = Path("/proc/sys/fs/inotify/max_user_instances")
        return (
            f"{name} ended: this machine allows {limit.read_text().strip()} inotify instances and a sandbox needs "
            "about 40; take another one down, or raise fs.inotify.max_user_instances with sysctl"
        )
    return f"{name} ended; see {log}, then run 'seltzer sandbox up' again"


def _name_flag(name: str) -> str:
    return "" if name == "default" else f" --name {name}"
