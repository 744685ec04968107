"""`seltzer demo`: brings up a sandbox and a Slurm cluster, and scales the cluster under a running job."""

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
# Both are in a group, for files that they share.
USERS: Final = {"alice": 2001, "bob": 2002}
GROUP: Final = ("team", 3001)
USER: Final = "alice"
READY_DEADLINE = 180.0
SCALE_DEADLINE = 120.0
COMMAND_DEADLINE = 60.0
JOB_DEADLINE = 30.0
POLL = 0.2

# A job on the NodeSet that is scaled. It succeeds on SIGUSR1, which the demo sends after scaling; without the signal it
# ends after five minutes.
SCRIPT: Final = f"""\
#!/bin/sh
#SBATCH --nodes=2 --constraint={SCALED} --output=/dev/null
trap 'exit 0' USR1
for second in $(seq 300); do sleep 1; done
exit 1
"""

_TRY_NEXT = """
[bold]Try next[/], in a shell with these settings:
  [cyan]export PATH=$PWD/.venv/bin:$PATH[/]
  [cyan]export KUBECONFIG=$(seltzer sandbox kubeconfig --path{name})[/]
[bold]The cluster[/]
  [cyan]seltzer status -n {namespace} {cluster}[/]
      the state of the cluster; 'kubectl get slurmclusters,nodesets -A' shows a line for each object
  [cyan]seltzer shell -n {namespace} --user {user} {cluster}[/]
      a shell on the login pod: sinfo, sbatch --wrap 'sleep 60', squeue; 'seltzer users' lists who there is
  [cyan]seltzer srun -n {namespace} --user {user} {cluster} --constraint=highmem --pty bash[/]
      a shell on a compute node, as a job
  [cyan]seltzer scale -n {namespace} highmem 5 --wait[/]
      add nodes; the same command removes them
  [cyan]seltzer logs -n {namespace} {cluster} slurmctld[/]
      the log of slurmctld; the name of a node instead shows the log of its slurmd
[bold]Kubernetes[/]
  [cyan]seltzer sandbox node kill n1{name}[/]
      switch a node off; 'seltzer sandbox status{name}' shows when Kubernetes notices, 'node heal n1{name}' repairs it
  [cyan]seltzer sandbox down{name}[/]
      remove everything
[bold]On a Kubernetes of your own[/]
  [cyan]seltzer install --registry registry.example/seltzer && seltzer create mine --wait[/]
      the same on the cluster of your kubeconfig; 'unset KUBECONFIG' first
"""


def manifests() -> list[dict[str, Any]]:
    """The namespace, a cluster and its two NodeSets, which share a partition: a job can span both."""
    # No pod is privileged. `restricted` is not possible: slurmd and sshd need root to switch users.
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}},
        # Files are the same on the login pod and on all nodes.
        _seltzer_object("SlurmCluster", CLUSTER, {"users": {"inline": _users()}, "home": {"size": "1Gi"}}),
        *(_seltzer_object("NodeSet", name, _nodeset(memory)) for name, memory in NODESETS.items()),
    ]


def _seltzer_object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "seltzer.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def _users() -> dict[str, Any]:
    group, gid = GROUP
    users = [{"name": name, "uid": uid, "groups": [group]} for name, uid in USERS.items()]
    return {"users": users, "groups": [{"name": group, "gid": gid}]}


def _nodeset(memory: str) -> dict[str, Any]:
    return {
        "clusterRef": {"name": CLUSTER},
        "replicas": 2,
        # Slurm uses the limits. The requests are small because everything has to fit on a laptop.
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": memory}},
        "partition": {"name": "main"},
    }


def demo(*, name: Annotated[str, Parameter(help="Which sandbox to use.")] = layout.DEFAULT_NAME) -> None:
    """Show Seltzer on a sandbox: a Slurm cluster with two NodeSets, jobs, and nodes added and removed under them.

    It stops at the first problem and names it. It can be run any number of times.
    """
    console = show.console()
    _title(console, "A real Kubernetes on this machine")
    with Progress() as progress:
        commands.up(progress, name, None, None)
    sandbox = commands.find(name)
    # The verbs below, and the programs they start, now find the sandbox like any other Kubernetes.
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
    option = "" if name == layout.DEFAULT_NAME else f" --name {name}"
    console.print(_TRY_NEXT.format(name=option, user=USER, namespace=NAMESPACE, cluster=CLUSTER).rstrip())


def _bring_up(place: Place) -> None:
    """Apply the manifests and wait until all are ready; on a timeout, show the status of the cluster."""

    async def apply_and_wait(client: Client, progress: Progress) -> None:
        objects = Objects(client)
        with progress.step(f"apply SlurmCluster {CLUSTER} and NodeSets {' and '.join(NODESETS)}"):
            for manifest in manifests():
                await objects.apply(manifest)
        with progress.step("wait until all are ready"):
            await kube.until(lambda: _unready(client), READY_DEADLINE, progress.note, "the cluster isn't ready")

    try:
        with Progress() as progress:
            kube.talk(place, lambda client: apply_and_wait(client, progress))
    except SeltzerError:
        with suppress(SystemExit, SeltzerError):
            status.status(CLUSTER, namespace=NAMESPACE)
        raise


async def _unready(client: Client) -> str:
    """What is not ready yet; empty when everything is."""
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
    """The fields of `scontrol show job` that differ if a job was moved or restarted; empty if none does."""
    return ", ".join(
        f"{key} was {before.get(key)} and is {after.get(key)}"
        for key in ("StartTime", "NodeList", "Restarts", "ExitCode")
        if before.get(key) != after.get(key)
    )


def _until(place: Place, job: str, state: str) -> dict[str, str]:
    """Wait until the job is in that state; returns its fields from `scontrol show job`."""
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
    """The output of a Slurm command that the demo does not show."""
    return kubectl.output(place, f"deployment/{CLUSTER}-login", "login", command)


def _slurm(console: Console, verb: str, *words: str, folder: str | None = None) -> str:
    """Show a command and its output. It runs in its own process because the verb becomes kubectl (exec)."""
    command = [verb, "-n", NAMESPACE, "--user", USER, CLUSTER, *words]
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
