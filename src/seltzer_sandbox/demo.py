"""`seltzer demo`: from nothing to jobs on a Slurm cluster that grows and shrinks under them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from seltzer.cli import create, install, kube, kubectl, scale, show, status
from seltzer.cli.kube import Place
from seltzer.cli.objects import Objects
from seltzer.errors import SeltzerError
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.progress import Progress
from seltzer_sandbox import commands
from seltzer_sandbox.run import layout

NAMESPACE: Final = "slurm-demo"
CLUSTER: Final = "demo"
NODESETS: Final = {"cpu": "1Gi", "highmem": "2Gi"}
SCALED: Final = "cpu"
READY_DEADLINE = 180.0
SCALE_DEADLINE = 120.0
COMMAND_DEADLINE = 60.0
JOB_DEADLINE = 30.0
POLL = 0.2

# On the NodeSet that is scaled. It ends well when it is told to, so that the demo takes no longer than it must;
# forgotten, it ends by itself.
SCRIPT: Final = f"""\
#!/bin/sh
#SBATCH --nodes=2 --constraint={SCALED} --output=/dev/null
trap 'exit 0' USR1
for second in $(seq 300); do sleep 1; done
exit 1
"""

_TRY_NEXT = """
[bold]Try next[/], in a shell that knows where things are:
  [cyan]export PATH=$PWD/.venv/bin:$PATH[/]
  [cyan]export KUBECONFIG=$(seltzer sandbox kubeconfig --path{name})[/]
[bold]The cluster[/]
  [cyan]seltzer status -n {namespace} {cluster}[/]
      how it is; 'kubectl get slurmclusters,nodesets -A' tells it in a line each
  [cyan]seltzer shell -n {namespace} {cluster}[/]
      a shell on the login pod: sinfo, sbatch --wrap 'sleep 60', squeue
  [cyan]seltzer srun -n {namespace} {cluster} --constraint=highmem --pty bash[/]
      a shell on a compute node, as a job
  [cyan]seltzer scale -n {namespace} highmem 5 --wait[/]
      more nodes; fewer again is the same command
  [cyan]seltzer logs -n {namespace} {cluster} slurmctld[/]
      what slurmctld says; any node's name instead shows what its slurmd says
[bold]Kubernetes[/]
  [cyan]seltzer sandbox node kill n1{name}[/]
      switch a node off; 'seltzer sandbox status{name}' shows when Kubernetes notices, 'node heal n1{name}' mends it
  [cyan]seltzer sandbox down{name}[/]
      take it all away again
[bold]On a Kubernetes of your own[/]
  [cyan]seltzer install --registry registry.example/seltzer && seltzer create mine --wait[/]
      the same there: it goes where your kubeconfig leads, so 'unset KUBECONFIG' first
"""


def manifests() -> list[dict[str, Any]]:
    """The namespace, a cluster and its two NodeSets. Both are in one partition, so that a job can span them."""
    # No pod is privileged. `restricted` would be too much: slurmd and sshd become other users, so they are root.
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}},
        _ours("SlurmCluster", CLUSTER, {}),
        *(_ours("NodeSet", name, _nodeset(memory)) for name, memory in NODESETS.items()),
    ]


def _ours(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "seltzer.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def _nodeset(memory: str) -> dict[str, Any]:
    return {
        "clusterRef": {"name": CLUSTER},
        "replicas": 2,
        # Slurm sees the limits. The requests are small: all of this has to fit on a laptop.
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": memory}},
        "partition": {"name": "main"},
    }


def demo(*, name: Annotated[str, Parameter(help="Which sandbox to use.")] = layout.DEFAULT_NAME) -> None:
    """Show Seltzer on a sandbox: a Slurm cluster with two NodeSets, jobs, and nodes that come and go under them.

    It stops at the first problem and says which. Run it again as often as you like.
    """
    console = show.console()
    _title(console, "A real Kubernetes on this machine")
    with Progress() as progress:
        commands.up(progress, name, None, None)
    sandbox = commands.find(name)
    # From here on everything finds the sandbox as it would find any Kubernetes: the verbs below, and what they start.
    os.environ["KUBECONFIG"] = str(sandbox.layout.kubeconfig)
    os.environ["PATH"] = f"{sandbox.binaries}:{os.environ.get('PATH', '')}"
    _title(console, "Seltzer on it")
    install.install()
    place = kube.locate(NAMESPACE)
    _title(console, "A Slurm cluster with two NodeSets")
    _bring_up(place)
    _status(console)
    _title(console, "A job across both NodeSets")
    _slurm(console, "srun", "--nodes=4", "hostname")
    _title(console, "Two nodes more, and two fewer, under a running job")
    _scale_under_a_job(console, place)
    said = "" if name == layout.DEFAULT_NAME else f" --name {name}"
    console.print(_TRY_NEXT.format(name=said, namespace=NAMESPACE, cluster=CLUSTER).rstrip())


def _bring_up(place: Place) -> None:
    """Apply all, and wait until each part says that it is ready; where one isn't in time, show the whole."""

    async def bring(client: Client, progress: Progress) -> None:
        objects = Objects(client)
        with progress.step(f"apply SlurmCluster {CLUSTER} and NodeSets {' and '.join(NODESETS)}"):
            for manifest in manifests():
                await objects.apply(manifest)
        with progress.step("wait until all are ready"):
            await kube.until(lambda: _unready(client), READY_DEADLINE, progress.note, "the cluster isn't ready")

    try:
        with Progress() as progress:
            kube.talk(place, lambda client: bring(client, progress))
    except SeltzerError:
        with suppress(SystemExit, SeltzerError):
            status.status(CLUSTER, namespace=NAMESPACE)
        raise


async def _unready(client: Client) -> str:
    """What is waited for; empty when all is ready."""
    cluster = await client.get(kinds.CLUSTERS, CLUSTER, NAMESPACE)
    if lacking := create.unready(cluster):
        return f"{CLUSTER}: {lacking}"
    for name in NODESETS:
        nodeset = await client.get(kinds.NODESETS, name, NAMESPACE)
        if lacking := scale.lacks(nodeset) or create.unready(nodeset):
            return f"{name}: {lacking}"
    return ""


def _status(console: Console) -> None:
    console.print(f"  [cyan]$ seltzer status -n {NAMESPACE} {CLUSTER}[/]")
    try:
        status.status(CLUSTER, namespace=NAMESPACE)
    except SystemExit:
        raise SeltzerError("the cluster isn't well: see the problems above, and 'seltzer logs operator'") from None


def _scale_under_a_job(console: Console, place: Place) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "count.sh").write_text(SCRIPT)
        job = _slurm(console, "sbatch", "count.sh", folder=folder).split()[-1]
    with Progress() as progress, progress.step(f"job {job} runs"):
        before = _until(place, job, "RUNNING")
    _scale(console, 4)
    _slurm(console, "sinfo")
    _scale(console, 2)
    with Progress() as progress, progress.step(f"job {job} is told to end, and ends"):
        _ask(place, "scancel", "--batch", "--signal=USR1", job)
        after = _until(place, job, "COMPLETED")
    if disturbed := differences(before, after):
        raise SeltzerError(f"job {job} was disturbed: {disturbed}; see 'seltzer events -n {NAMESPACE} {CLUSTER}'")
    console.print(
        f"  job {job} ran on {after['NodeList']} for {after['RunTime']}, from start to end; nodes came and went, "
        "and it was not disturbed"
    )


def _scale(console: Console, replicas: int) -> None:
    console.print(f"  [cyan]$ seltzer scale -n {NAMESPACE} {SCALED} {replicas} --wait[/]")
    scale.scale(SCALED, replicas, wait=True, timeout=SCALE_DEADLINE, namespace=NAMESPACE)


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """What shows that a job was moved or begun anew, as `scontrol show job` tells it; empty if nothing does."""
    return ", ".join(
        f"{key} was {before.get(key)} and is {after.get(key)}"
        for key in ("StartTime", "NodeList", "Restarts", "ExitCode")
        if before.get(key) != after.get(key)
    )


def _until(place: Place, job: str, state: str) -> dict[str, str]:
    """The job as `scontrol` shows it, once it is in that state."""
    end = time.monotonic() + JOB_DEADLINE
    while True:
        words = _ask(place, "scontrol", "--oneliner", "show", "job", job).split()
        found = dict(word.partition("=")[::2] for word in words)
        if found["JobState"] == state:
            return found
        if time.monotonic() > end or found["JobState"] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
            why = f"{found['JobState']} (reason {found['Reason']}, exit code {found['ExitCode']})"
            raise SeltzerError(
                f"job {job} should be {state} and is {why}; see 'seltzer squeue -n {NAMESPACE} {CLUSTER} --states=all'"
            )
        time.sleep(POLL)


def _ask(place: Place, *command: str) -> str:
    """Slurm's answer to a question that isn't part of the show."""
    return kubectl.output(place, f"deployment/{CLUSTER}-login", "login", command)


def _slurm(console: Console, verb: str, *words: str, folder: str | None = None) -> str:
    """Show a command and what it prints. It is the user's own: in a process of its own, for it ends as kubectl."""
    command = [verb, "-n", NAMESPACE, CLUSTER, *words]
    console.print(f"  [cyan]$ seltzer {escape(' '.join(command))}[/]")
    seltzer = str(Path(sys.executable).with_name("seltzer"))
    look = f"see 'seltzer squeue -n {NAMESPACE} {CLUSTER}' and 'seltzer status -n {NAMESPACE} {CLUSTER}'"
    try:
        done = subprocess.run(
            [seltzer, *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_DEADLINE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SeltzerError(f"{verb} had no answer after {COMMAND_DEADLINE:.0f} s; {look}") from None
    if done.returncode:
        raise SeltzerError(f"{verb} failed: {done.stderr.strip() or done.stdout.strip()}; {look}")
    for line in done.stdout.rstrip().splitlines():
        console.print(f"  {escape(line)}")
    return done.stdout


def _title(console: Console, text: str) -> None:
    console.print(f"[bold]{text}[/]")
