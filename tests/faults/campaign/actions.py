"""What can be done to a cluster, in small pieces: each is done to the scene as it was before the fault."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.harness import until

from seltzer.guard.state import volume
from seltzer_sandbox import commands
from seltzer_sandbox.run.processes import wait_gone

from . import processes
from .rig import SYSTEM, Rig, Target

_FILLER = "filler"
_CHUNK = bytes(1 << 20)


@dataclass(frozen=True)
class Scene:
    """Where a fault happens: the cluster, who led when it began, and a name for what is submitted."""

    rig: Rig
    target: Target
    name: str
    chance: random.Random
    machines: tuple[str, ...] = ()
    """The Kubernetes nodes that may be hit, in the order in which they are."""
    nodes: dict[str, str] = field(default_factory=dict)
    """Slurm's nodes on them as they were before, each with its Kubernetes node."""

    def some(self, share: float) -> tuple[str, ...]:
        """That share of the Kubernetes nodes that may be hit, at least one."""
        return self.machines[: max(1, round(len(self.machines) * share))]


Action = Callable[[Scene], None]


def signal_slurmctld(number: signal.Signals) -> Action:
    """As the kernel does when memory is short (SIGKILL), as a bug does (SIGSEGV), as a person does (SIGTERM)."""
    return lambda scene: scene.target.slurmctld.signal(number)


def kill_container(scene: Scene) -> None:
    """With the first process of a container the kernel ends all others."""
    scene.target.guard.signal(signal.SIGKILL)


def delete_pod(*options: str) -> Action:
    return lambda scene: _kubectl(scene, "delete", "pod", scene.target.pod, "--wait=false", *options)


def node(fault: str) -> Action:
    """kill, cut, freeze or heal the node on which slurmctld led."""
    return lambda scene: commands.node_fault(scene.rig.sandbox.name, fault, scene.target.node)


def lose_slurmds(fault: str, share: float = 0.0) -> Action:
    """kill, cut or freeze a Kubernetes node with slurmds, or that share of all such nodes at once."""

    def lose(scene: Scene) -> None:
        for machine in scene.some(share):
            scene.rig.strike(fault, machine, {name for name, where in scene.nodes.items() if where == machine})

    return lose


def heal_slurmds(share: float = 0.0) -> Action:
    def heal(scene: Scene) -> None:
        for machine in scene.some(share):
            scene.rig.heal(machine)

    return heal


def stop_kubelet(scene: Scene) -> None:
    """Of a node with slurmds; containers go on without it."""
    record = scene.rig.machine.registry.get(f"{scene.machines[0]}/kubelet")
    assert record, f"{scene.machines[0]} has no kubelet"
    record.kill()
    assert wait_gone([record], 10.0), "the kubelet would not end"


def start_kubelet(scene: Scene) -> None:
    """To heal a node is to start what doesn't run on it."""
    commands.node_fault(scene.rig.sandbox.name, "heal", scene.machines[0])


def stop_api_server(scene: Scene) -> None:
    """And whoever is elected by way of it, as happens within ten seconds in a cluster that has more than one of them.

    One that lived on would take all nodes for lost when the API server is back: it heard of none for a minute.
    """
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        scene.rig.machine.kill(name)


def start_api_server(scene: Scene) -> None:
    scene.rig.start_api_server()


def kill_operator(scene: Scene) -> None:
    """All of its pods at once: nobody takes over."""
    for pod in scene.rig.operators():
        for process in processes.of_pod(pod["metadata"]["uid"]):
            if "operator" in process.words:
                process.signal(signal.SIGKILL)


def remove_operator(scene: Scene) -> None:
    _scale_operator(scene, 0)
    until("the operator is gone", lambda: not scene.rig.operators())


def restore_operator(scene: Scene) -> None:
    _scale_operator(scene, 2)


def kill_rest(scene: Scene) -> None:
    for pod in scene.rig.component("slurmrestd"):
        for process in processes.named(pod["metadata"]["uid"], "slurmrestd"):
            process.signal(signal.SIGKILL)


def new_rest(scene: Scene) -> None:
    """A pod whose back-off begins anew."""
    for pod in scene.rig.component("slurmrestd"):
        _kubectl(scene, "delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0")


def new_controller(scene: Scene) -> None:
    """A pod whose guard has seen no crash and whose container has none behind it: no back-off is left for the next."""
    pods = scene.rig.component("slurmctld")
    for pod in pods:
        _kubectl(scene, "delete", "pod", pod["metadata"]["name"], "--wait=false")
    old = {pod["metadata"]["uid"] for pod in pods}
    until("they are gone", lambda: not old & {pod["metadata"]["uid"] for pod in scene.rig.component("slurmctld")})


def fill_volume(scene: Scene) -> None:
    """Take all that is free on slurmctld's volume, as a neighbour on a shared file system would."""
    file = os.open(scene.rig.state() / _FILLER, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    chunk = _CHUNK
    try:
        while chunk:
            try:
                os.write(file, chunk)
            except OSError:
                chunk = chunk[: len(chunk) // 2]
    finally:
        os.close(file)


def exhaust_volume(scene: Scene) -> None:
    """Take what the guard had kept back, too, once it has given that up; from now on nothing can be saved or logged."""
    fill_volume(scene)
    reserve = scene.rig.state() / volume.RESERVE
    until("the guard has given up what it kept back", lambda: not reserve.exists(), 15.0)
    fill_volume(scene)


def stay_down(scene: Scene) -> None:
    """See that no slurmctld is started into a full volume, and that it is told: by the guard, and by the operator."""
    rig = scene.rig
    until("the guard says that it can't start", lambda: rig.annotation("phase") == "blocked", 15.0)
    assert not processes.slurmctld(scene.target.uid), "slurmctld runs on a full volume"
    if rig.operators():
        safe = partial(rig.cluster.condition, f"slurmcluster/{rig.cluster.name}", "StateSafe")
        until("the condition says so", lambda: safe().get("reason") == "Blocked", 10.0)
        assert any(event["reason"] == "LowSpace" for event in rig.cluster.events()), "no Event says that it runs full"


def let_pass(seconds: float) -> Action:
    """So long the world goes on as it is."""
    return lambda _: time.sleep(seconds)


def empty_volume(scene: Scene) -> None:
    (scene.rig.state() / _FILLER).unlink(missing_ok=True)


def configure(text: str | None) -> Action:
    """What a person writes into spec.config; None takes it away again."""
    patch = json.dumps({"spec": {"config": {"slurm.conf": text}}})
    return lambda scene: _kubectl(
        scene, "patch", "slurmcluster", scene.rig.cluster.name, "--type=merge", f"--patch={patch}"
    )


def submit(count: int) -> Action:
    def burst(scene: Scene) -> None:
        scene.rig.load.burst(scene.name, count)

    return burst


def _kubectl(scene: Scene, *words: str) -> None:
    scene.rig.cluster.kubectl(*words)


def _scale_operator(scene: Scene, replicas: int) -> None:
    words = ("scale", "deployment/seltzer-operator", "--namespace", SYSTEM, f"--replicas={replicas}")
    scene.rig.sandbox.kubectl(*words)
