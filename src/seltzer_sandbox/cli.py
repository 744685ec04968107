"""`seltzer sandbox`: a real multi-node Kubernetes on this machine."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from seltzer.cli.sandbox import RunningSandbox
from seltzer.errors import SeltzerError
from seltzer.progress import Progress
from seltzer_sandbox import commands
from seltzer_sandbox.build import offline
from seltzer_sandbox.build.offline import parts
from seltzer_sandbox.run import layout

app = App("sandbox", help="A real multi-node Kubernetes on this machine, with nodes that can die.")
node = App("node", help="Inject real faults into a node, and heal it. Kubernetes has to detect them.")
app.command(node)

Name = Annotated[str, Parameter(help="Which sandbox; any number of them run side by side.")]


class Output(Enum):
    text = "text"
    json = "json"


OutputFlag = Annotated[Output, Parameter(name=["--output", "-o"], help="The output format.")]


@app.command
def up(
    *,
    name: Name = layout.DEFAULT_NAME,
    nodes: Annotated[int | None, Parameter(help="How many worker nodes; 3 for a new sandbox.")] = None,
    port: Annotated[int | None, Parameter(help="The API server's port on 127.0.0.1; a free one by default.")] = None,
    gpus: Annotated[
        str | None,
        Parameter(help="How many GPUs each node pretends to have; `real`: n1 has the NVIDIA GPUs of this machine."),
    ] = None,
    output: OutputFlag = Output.text,
) -> None:
    """Bring a sandbox up, or repair the one that runs.

    The first run builds Kubernetes and the images, which takes a quarter of an hour; later runs take seconds. Run it
    again whenever something looks broken.
    """
    with Progress() as progress:
        status = commands.up(progress, name, nodes, port, gpus)
    _show(status, output)


@app.command
def prepare() -> None:
    """Build Kubernetes and the images, without bringing a sandbox up."""
    with Progress() as progress:
        commands.prepare(progress)


@app.command
def pack(
    *,
    folder: Annotated[Path, Parameter(name=["--output"], help="The folder to write; an older archive is replaced.")],
    part_size: Annotated[str, Parameter(help="The largest size of a part, such as 55M or 2G.")] = "1G",
) -> None:
    """Write the sandbox, its tests and all that they need into a folder, for machines without a network.

    Copy the folder to a Debian or Ubuntu machine, and run `./seltzer-offline run seltzer demo` there.
    """
    size = parts.size(part_size)
    with Progress() as progress:
        packed = commands.pack(progress, folder.absolute(), size)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("COMPONENT", "UNPACKED", "PACKED", "PARTS"):
        table.add_column(title, justify="left" if title == "COMPONENT" else "right")
    for each in packed.components:
        table.add_row(each.name, _mib(each.unpacked), _mib(each.packed), str(each.parts))
    total = _mib(sum(each.packed for each in packed.components))
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    console.print(
        f"{total} of commit {packed.commit} in {packed.folder}; there, run ./{offline.SCRIPT} run seltzer demo"
    )


@app.command
def down(
    *,
    name: Name = layout.DEFAULT_NAME,
    every: Annotated[bool, Parameter(name="--all", negative="", help="Take all sandboxes down.")] = False,
) -> None:
    """Take a sandbox down: remove its processes, its network and its files. Nothing remains on the machine."""
    failed = []
    for each in layout.existing() if every else [name]:
        try:
            with Progress() as progress, progress.step(f"take down sandbox {each!r}"):
                was_there = commands.down(each)
        except SeltzerError as error:
            failed.append(str(error))
            continue
        if not was_there:
            print(f"there was no sandbox {each!r}")
    if failed:
        raise SeltzerError("; ".join(failed))


@app.command
def status(*, name: Name = layout.DEFAULT_NAME, output: OutputFlag = Output.text) -> None:
    """Show a sandbox: the fault of each node, and what Kubernetes reports about it.

    Exits with 1 if a program of the sandbox has stopped.
    """
    found = commands.status(name)
    _show(found, output)
    if not found.up:
        sys.exit(1)


@app.command(name="list")
def list_(*, output: OutputFlag = Output.text) -> None:
    """List the sandboxes on this machine, and whether each is running."""
    found = commands.running()
    if output is Output.json:
        print(json.dumps([{"name": name, "running": running} for name, running in found.items()], indent=2))
        return
    for name, running in found.items():
        print(f"{name:30} {'running' if running else 'stopped'}")
    if not found:
        print("no sandboxes; make one with 'seltzer sandbox up'", file=sys.stderr)


@app.command
def kubeconfig(
    *,
    name: Name = layout.DEFAULT_NAME,
    path: Annotated[bool, Parameter(negative="", help="Print the path of the file instead of its content.")] = False,
) -> None:
    """Print the kubeconfig of a sandbox.

    Use it in a shell with: `export KUBECONFIG=$(seltzer sandbox kubeconfig --path)`
    """
    file = commands.find(name).layout.kubeconfig
    print(file if path else file.read_text(), end="\n" if path else "")


@app.command
def kubectl(
    *arguments: Annotated[str, Parameter(allow_leading_hyphen=True)],
    name: Name = layout.DEFAULT_NAME,
) -> None:
    """Run kubectl on a sandbox, for example: `seltzer sandbox kubectl get pods -A`

    `--name` comes first; all other arguments go to kubectl.
    """
    found = commands.find(name)
    environment = {**os.environ, "KUBECONFIG": str(found.layout.kubeconfig)}
    os.execve(found.binaries / "kubectl", ["kubectl", *arguments], environment)


def become_kubectl(words: Sequence[str]) -> None:
    """Run kubectl with unparsed arguments: except for a leading `--name`, all go to kubectl, "--" and "--help" too."""
    name = layout.DEFAULT_NAME
    if words[:1] == ["--name"] and len(words) > 1:
        name, words = words[1], words[2:]
    elif words and words[0].startswith("--name="):
        name, words = words[0].removeprefix("--name="), words[1:]
    kubectl(*words[words[:1] == ["--"] :], name=name)


def running() -> RunningSandbox | None:
    """The default sandbox, if it is up: the product's verbs use it when no kubeconfig is configured."""
    try:
        found = commands.find(layout.DEFAULT_NAME)
    except SeltzerError:
        return None
    return RunningSandbox(found.layout.name, found.layout.kubeconfig, found.binaries / "kubectl")


@app.command
def load(archive: Path, /, *, name: Name = layout.DEFAULT_NAME) -> None:
    """Load a container image archive (docker or OCI) into every node of a sandbox.

    `slurmd-mpi` and `login-mpi` are built first: images with MPI, which a sandbox has only if they are loaded.
    """
    with Progress() as progress:
        commands.load(progress, name, archive)


@app.command
def logs(
    component: str | None = None,
    /,
    *,
    name: Name = layout.DEFAULT_NAME,
    tail: Annotated[int, Parameter(help="How many lines of each log.")] = 20,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative="", help="Keep printing new lines.")] = False,
) -> None:
    """Print the newest log lines of a component such as kube-apiserver or n1/kubelet, or of all of them."""
    if tail < 0:
        raise SeltzerError("--tail takes a number of lines, 0 or more")
    files = commands.log_files(name, component)
    if follow:
        os.execvp("tail", ["tail", f"--lines={tail}", "--follow=name", "--retry", *map(str, files)])
    for file in files:
        if len(files) > 1:
            print(f"==> {file} <==")
        lines = file.read_text(errors="replace").splitlines()
        print("".join(f"{line}\n" for line in lines[len(lines) - min(tail, len(lines)) :]), end="")


@node.command
def kill(node: str, /, *, name: Name = layout.DEFAULT_NAME) -> None:
    """Switch a node off: its kubelet, containerd and all containers end at once."""
    commands.node_fault(name, "kill", node)
    print(f"{node} is off; 'seltzer sandbox node heal {node}' switches it on again")


@node.command
def cut(node: str, /, *, name: Name = layout.DEFAULT_NAME) -> None:
    """Disconnect a node: everything on it keeps running, and nothing can reach it."""
    commands.node_fault(name, "cut", node)
    print(f"{node} is cut off; 'seltzer sandbox node heal {node}' plugs it in again")


@node.command
def freeze(node: str, /, *, name: Name = layout.DEFAULT_NAME) -> None:
    """Freeze all processes of a node. When healed, they continue with stale state."""
    commands.node_fault(name, "freeze", node)
    print(f"{node} is frozen; 'seltzer sandbox node heal {node}' wakes it")


@node.command
def heal(node: str, /, *, name: Name = layout.DEFAULT_NAME) -> None:
    """Undo kill, cut or freeze."""
    commands.node_fault(name, "heal", node)
    print(f"{node} is healed; Kubernetes reports Ready when it has noticed")


def _show(status: commands.Status, output: Output) -> None:
    if output is Output.json:
        print(commands.encode(status))
        return
    console = Console(highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("NODE", "STATE", "READY", "ADDRESS"):
        table.add_column(title)
    for each in status.nodes:
        table.add_row(each.name, _coloured(each.state, "running"), _coloured(each.ready, "True"), each.address)
    console.print(f"sandbox {status.name!r}: Kubernetes {status.kubernetes} at {status.server}")
    console.print(table)
    if status.stopped:
        console.print(f"[red]stopped:[/] {', '.join(status.stopped)}; 'seltzer sandbox up' starts them again")


def _coloured(word: str, good: str) -> str:
    return f"[green]{word}[/]" if word == good else f"[red]{word}[/]"


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
