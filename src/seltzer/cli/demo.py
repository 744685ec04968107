"""`seltzer demo`: from nothing to a job."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from seltzer.progress import Progress
from seltzer.sandbox import commands, layout
from seltzer.sandbox.demo import NAMESPACE
from seltzer.sandbox.demo.cluster import DemoCluster

JOB = ("srun", "--nodes=2", "hostname")

TRY_NEXT = f"""
[bold]Try next[/] (with .venv/bin on your PATH: [cyan]export PATH=$PWD/.venv/bin:$PATH[/])
  [cyan]seltzer sandbox kubectl -n {NAMESPACE} exec -it deploy/login -c login -- su - user[/]
      a shell on the login node: sinfo, sbatch --wrap 'sleep 60', squeue
  [cyan]seltzer sandbox node kill n1[/]
      switch a node off; 'seltzer sandbox status' shows when Kubernetes notices, 'node heal n1' brings it back
  [cyan]seltzer sandbox kubectl get pods -A -o wide[/]
      everything that runs, and where
  [cyan]seltzer sandbox down[/]
      take it all away again
"""


def demo(*, name: str = layout.DEFAULT_NAME) -> None:
    """Bring up a sandbox with a Slurm cluster in it, run a job on two nodes, and say what to try next.

    Run it again as often as you like: what is there stays as it is.

    Parameters
    ----------
    name
        Which sandbox to use.
    """
    console = Console(highlight=False, soft_wrap=True)
    console.print("[bold]A real Kubernetes on this machine[/]")
    with Progress() as progress:
        commands.up(progress, name, None, None)
    console.print("[bold]Slurm on it[/]")
    cluster = DemoCluster(commands.find(name))
    with Progress() as progress:
        cluster.bring_up(progress)
    console.print("[bold]A job on two of its nodes[/]")
    for command in (("sinfo",), JOB):
        _show(console, f"$ {' '.join(command)}", cluster.login(*command))
    console.print("  " + ", ".join(f"{pod} is on Kubernetes' {node}" for pod, node in cluster.places().items()))
    console.print("[bold]The same, asked over REST[/]")
    nodes = cluster.rest("nodes/")["nodes"]
    answer = "".join(f"{node['name']}: {'+'.join(node['state'])}, {node['cpus']} CPUs\n" for node in nodes)
    _show(console, "GET /slurm/…/nodes/", answer)
    console.print(TRY_NEXT.rstrip())


def _show(console: Console, title: str, output: str) -> None:
    console.print(f"  [cyan]{escape(title)}[/]")
    for line in output.rstrip().splitlines():
        console.print(f"  {escape(line)}")
