"""The operations on a sandbox, by name: for the command line, the demo and the tests."""

from __future__ import annotations

import os
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec

from seltzer import paths
from seltzer.errors import SeltzerError
from seltzer.progress import Progress
from seltzer_sandbox import shell
from seltzer_sandbox.build import gobuild, images, offline, template
from seltzer_sandbox.run import cluster, components, faults, layout, network
from seltzer_sandbox.run.apiserver import node_conditions
from seltzer_sandbox.run.cluster import Sandbox
from seltzer_sandbox.run.layout import Layout, Spec
from seltzer_sandbox.run.processes import Registry

DEFAULT_NODES = 3
LOAD_DEADLINE = 300.0
NVIDIA = Path("/dev/nvidia0")
_MOST_GPUS = 16
MPI_IMAGES = ("slurmd-mpi", "login-mpi")
_PROGRAMS = ("ip", "nft", "runc", "nsenter", "unshare", "mount")


@dataclass(frozen=True)
class NodeStatus:
    """A node as the kernel shows it (`state`) and as Kubernetes reports it (`ready`)."""

    name: str
    state: str
    ready: str
    address: str


@dataclass(frozen=True)
class Status:
    """The current state of one sandbox."""

    name: str
    up: bool
    kubernetes: str
    server: str
    kubeconfig: str
    kubectl: str
    stopped: list[str]
    nodes: list[NodeStatus]


def up(progress: Progress, name: str, nodes: int | None, port: int | None, gpus: str | None = None) -> Status:
    """Bring a sandbox up, or repair it. Without `nodes` an existing sandbox keeps its size, without `gpus` its GPUs."""
    _check_machine()
    here = Layout(name)
    if nodes is not None and not 1 <= nodes <= network.MOST_NODES:
        raise SeltzerError(f"a sandbox has 1 to {network.MOST_NODES} nodes, not {nodes}")
    if port is not None and not 1 <= port <= 65535:
        raise SeltzerError(f"{port} is no port; choose one from 1 to 65535")
    if gpus is not None:
        _check_gpus(gpus)
    with here.lock():
        spec = here.read()
        if spec and nodes and nodes < spec.nodes:
            raise SeltzerError(f"sandbox {name!r} has {spec.nodes} nodes and can't shrink; take it down first")
        if spec is None or Sandbox(here, spec).registry.get("hub") is None:
            with paths.alone("sandboxes", progress.note):
                spec = _prepare(progress, here, spec, nodes, port, gpus)
        elif not Path(spec.binaries).exists():
            raise SeltzerError(f"the programs of sandbox {name!r} were deleted from the cache; take it down first")
        else:
            _refuse_port_change(name, spec, port)
            if gpus not in (None, spec.gpus):
                raise SeltzerError(f"sandbox {name!r} is up with other GPUs; take it down before you change them")
            if _is_behind(spec):
                progress.note(
                    f"programs or images have changed since sandbox {name!r} started; 'down' and 'up' renews it"
                )
            spec = _grow(here, spec, nodes or spec.nodes)
        sandbox = Sandbox(here, spec)
        for number in sandbox.numbers:
            if sandbox.registry.get("hub") and sandbox.registry.get(f"n{number}"):
                faults.heal(sandbox, number)
        sandbox.bring_up(progress)
        return _status(sandbox)


def prepare(progress: Progress) -> tuple[Path, Path]:
    """Build what every sandbox needs and the cache lacks: the programs, and a template with the images."""
    _check_machine()
    with paths.alone("sandboxes", progress.note):
        return _build(progress)


def pack(progress: Progress, folder: Path, part_size: int) -> offline.Packed:
    """Build what every sandbox needs, and write it with all that runs it into a folder."""
    _check_machine()
    offline.check_folder(folder)
    with paths.alone("sandboxes", progress.note):
        binaries = gobuild.build(progress)
        archive = images.archive(progress, binaries)
    return offline.pack(progress, binaries, archive, folder, part_size)


def _build(progress: Progress) -> tuple[Path, Path]:
    binaries = gobuild.build(progress)
    return binaries, template.make(progress, binaries, images.archive(progress, binaries))


def _check_gpus(gpus: str) -> None:
    if gpus == components.REAL_GPUS:
        if not NVIDIA.exists():
            raise SeltzerError("this machine has no /dev/nvidia0; give a number of GPUs to pretend")
    elif gpus and not (gpus.isascii() and gpus.isdigit() and 1 <= int(gpus) <= _MOST_GPUS):
        raise SeltzerError(f"--gpus takes a number from 1 to {_MOST_GPUS}, or 'real', not {gpus!r}")


def _prepare(
    progress: Progress, here: Layout, old: Spec | None, nodes: int | None, port: int | None, gpus: str | None
) -> Spec:
    """Prepare everything that a sandbox starts from: programs, images, folders, a free port."""
    if port is not None:
        network.listen(port).close()
    here.make()
    was_there = old is not None and Path(old.template).exists()
    binaries, filled = _build(progress)
    chosen = port or (old.port if old else _free_port())
    if old is not None and not (was_there and old.template == str(filled)):
        # The nodes' containerd roots link to a template that is gone: start from the new one.
        for number in range(1, old.nodes + 1):
            shutil.rmtree(here.node(number), ignore_errors=True)
    have = gpus if gpus is not None else (old.gpus if old else "")
    spec = Spec(nodes or (old.nodes if old else DEFAULT_NODES), chosen, str(binaries), str(filled), have)
    here.write(spec)
    _prune()
    return spec


def _prune() -> None:
    try:
        others = [Layout(name).read() for name in layout.existing()]
    except SeltzerError:
        return  # a sandbox whose spec can't be read may use any template
    template.prune({other.template for other in others if other})


def _grow(here: Layout, spec: Spec, nodes: int) -> Spec:
    if nodes == spec.nodes:
        return spec
    grown = msgspec.structs.replace(spec, nodes=nodes)
    here.write(grown)  # healing gives the old nodes their routes to the new ones
    return grown


def _is_behind(spec: Spec) -> bool:
    """Whether a new sandbox would use other programs or images than this one."""
    binaries = gobuild.place()
    archive = images.ready(binaries) if str(binaries) == spec.binaries else None
    return archive is None or str(template.place(archive)) != spec.template


def _refuse_port_change(name: str, spec: Spec, port: int | None) -> None:
    if port is not None and port != spec.port:
        raise SeltzerError(f"sandbox {name!r} is up on port {spec.port}; take it down before you give it another")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def down(name: str) -> bool:
    _check_root()
    here = Layout(name)
    with here.lock():
        return cluster.take_down(here)


def find(name: str) -> Sandbox:
    """A running sandbox; raises if it does not exist or is not up."""
    _check_root()
    here = Layout(name)
    spec = here.read()
    if spec is None:
        flag = "" if name == layout.DEFAULT_NAME else f" --name {name}"
        raise SeltzerError(f"there is no sandbox {name!r}; make it with 'seltzer sandbox up{flag}'")
    sandbox = Sandbox(here, spec)
    sandbox.hub()
    return sandbox


def running() -> dict[str, bool]:
    """All sandboxes on this machine, and whether each is running."""
    return {name: Registry(Layout(name).records).get("hub") is not None for name in layout.existing()}


def status(name: str) -> Status:
    return _status(find(name))


def _status(sandbox: Sandbox) -> Status:
    hub = sandbox.hub()
    links = network.links(hub.pid)
    conditions = node_conditions(sandbox.api())
    nodes = [
        NodeStatus(
            f"n{number}",
            faults.state(sandbox, number, links),
            conditions.get(f"n{number}", "Unknown"),
            network.node_address(number),
        )
        for number in sandbox.numbers
    ]
    # The programs of a killed node ended with it: its state already says so.
    down = {node.name for node in nodes if node.state == "killed"}
    stopped = [
        name
        for name in sandbox.registry.names()
        if sandbox.registry.get(name) is None and name.split("/")[0] not in down
    ]
    return Status(
        sandbox.layout.name,
        not stopped,
        gobuild.kubernetes_version(),
        f"https://127.0.0.1:{sandbox.spec.port}",
        str(sandbox.layout.kubeconfig),
        str(sandbox.binaries / "kubectl"),
        stopped,
        nodes,
    )


def node_fault(name: str, fault: str, node: str) -> None:
    sandbox = find(name)
    number = layout.node_number(node, sandbox.spec.nodes)
    act = {"kill": faults.kill, "cut": faults.cut, "freeze": faults.freeze, "heal": faults.heal}[fault]
    with sandbox.layout.lock():
        act(sandbox, number)


def load(progress: Progress, name: str, archive: Path) -> None:
    """Import an image archive (docker or OCI), or one of MPI_IMAGES, into every node."""
    sandbox = find(name)
    if str(archive) in MPI_IMAGES and not archive.exists():
        archive = images.with_mpi(progress, sandbox.binaries, str(archive).removesuffix("-mpi"))
    if not archive.is_file():
        raise SeltzerError(f"there is no image archive {archive}; make one with 'docker save' or 'buildah push'")
    running = [
        (number, record)
        for number in sandbox.numbers
        if (record := sandbox.registry.get(f"n{number}")) and not sandbox.cgroups.frozen(f"n{number}")
    ]

    def import_into(number: int, pid: int) -> None:
        words = ["nsenter", "--target", pid, "-m", "-p", "-n", "--", sandbox.binaries / "ctr", "-n", "k8s.io"]
        words += ["images", "import", "--local", "-"]
        with progress.step(f"load {archive.name} into n{number}"):
            shell.run(
                [f"{word}" for word in words],
                doing=f"loading {archive.name} into n{number}",
                log=sandbox.layout.log("load"),
                deadline=LOAD_DEADLINE,
                stdin=archive,
            )

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(import_into, number, record.pid) for number, record in running]:
            future.result()


def log_files(name: str, component: str | None) -> list[Path]:
    """The log file of a component, or those of all components."""
    here = Layout(name)
    if here.read() is None and not here.logs.exists():
        raise SeltzerError(f"there is no sandbox {name!r}; make it with 'seltzer sandbox up'")
    files = sorted(here.logs.glob("*.log"))
    if component is None:
        return files
    if here.log(component) not in files:
        raise SeltzerError(f"there is no log of {component!r}; there are {', '.join(file.stem for file in files)}")
    return [here.log(component)]


def encode(status: Status) -> str:
    return msgspec.json.format(msgspec.json.encode(status), indent=2).decode()


def _check_root() -> None:
    if os.geteuid() != 0:
        raise SeltzerError("the sandbox creates namespaces and mounts and needs root; try again with sudo")


def _check_machine() -> None:
    _check_root()
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [program for program in _PROGRAMS if not shutil.which(program, path=path)]
    if missing:
        raise SeltzerError(f"{', '.join(missing)} not found; 'make setup' installs what the sandbox needs")
