"""The rest of a Kubernetes cluster: scheduler, kubelets, Deployments; and of a Slurm cluster: the guard and slurmds.

It works on the fake API server's state, in the same process. Everything happens because something else did: there is
no clock in here but `delay`, the time that a pod takes to start or to end.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

from tests.fakes.apiserver.errors import Failure
from tests.fakes.apiserver.state import Event, Id, Object, State
from tests.fakes.kubelet import pods
from tests.fakes.kubelet.deployments import Deployments
from tests.fakes.kubelet.guard import Guard
from tests.fakes.slurmrestd import FakeSlurmrestd

NODES = ("n1", "n2")


class FakeCluster:
    """Runs whatever pods there are, from `start` to `stop`; `async with` does both.

    A name in `unschedulable`, `stuck_starting` or `stuck_ending` holds that pod there; `look` again after a change.
    """

    def __init__(
        self, state: State, slurm: FakeSlurmrestd | None = None, *, delay: float = 0.0, nodes: Sequence[str] = NODES
    ) -> None:
        self.state = state
        self.slurm = slurm
        self.delay = delay
        self.nodes = nodes
        self.unschedulable: set[str] = set()
        self.stuck_starting: set[str] = set()
        self.stuck_ending: set[str] = set()
        self.apart = False  # whether slurmctld and slurmd are on different nodes
        self._deployments = Deployments(state)
        self._guard = Guard(state, slurm)
        self._addresses = itertools.count(1)
        self._timers: set[asyncio.TimerHandle] = set()
        self._stop: Callable[[], None] | None = None

    async def __aenter__(self) -> FakeCluster:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        for name in self.nodes:
            id_ = Id("", "nodes", "", name)
            if self.state.find(id_) is None:
                labels = {"kubernetes.io/hostname": name}
                self.state.create(id_, {"apiVersion": "v1", "kind": "Node", "metadata": {"labels": labels}, "spec": {}})
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": self.state.now()}
                self.state.patch_status(id_, conditions=[ready])
        self._stop = self.state.listen(self._changed)
        self.look()

    def stop(self) -> None:
        """As if all machines but the API server's were switched off."""
        if self._stop:
            self._stop()
        self._stop = None
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def look(self) -> None:
        """Look at everything once more."""
        for id_, _ in list(self.state.everything()):
            self._soon(id_)

    # --- what happens ---------------------------------------------------------------------------------------------

    def _changed(self, event: Event) -> None:
        self._soon(event.id)

    def _soon(self, id_: Id) -> None:
        asyncio.get_running_loop().call_soon(self._look, id_)

    def _later(self, what: Callable[[], None]) -> None:
        """After `delay`, if this cluster still runs then."""

        def now() -> None:
            self._timers.discard(timer)
            what()

        timer = asyncio.get_running_loop().call_later(self.delay, now)
        self._timers.add(timer)

    def _look(self, id_: Id) -> None:
        if self._stop is None:
            return
        if id_.plural == "pods":
            self._pod(id_)
        elif id_.plural in ("configmaps", "secrets", "persistentvolumeclaims"):
            claim = self.state.find(id_) if id_.plural == "persistentvolumeclaims" else None
            if claim is not None and "status" not in claim:
                self.state.set_status(id_, {"phase": "Bound"})
            for each, _ in self.state.items("", "pods", id_.namespace):
                self._pod(each)
        self._deployments.look(id_)
        self._guard.look(id_)

    def _pod(self, id_: Id) -> None:
        pod = self.state.find(id_)
        if pod is None or pods.is_over(pod):
            return
        uid = pod["metadata"]["uid"]
        if "deletionTimestamp" in pod["metadata"]:
            if id_.name not in self.stuck_ending and pod["metadata"]["deletionGracePeriodSeconds"]:
                self._later(lambda: self._end(id_, uid))
        elif not pod["spec"].get("nodeName"):
            self._schedule(id_, pod)
        elif not pod["status"].get("containerStatuses") and self._can_start(id_, pod):
            self._later(lambda: self._run(id_, uid))

    def _schedule(self, id_: Id, pod: Object) -> None:
        wanted = (pod["spec"].get("nodeSelector") or {}).items()
        pinned = pods.pinned(pod)
        fitting = [
            node.name
            for node, item in self.state.items("", "nodes")
            if wanted <= item["metadata"].get("labels", {}).items()
            and (node.name == pinned if pinned else not item["spec"].get("unschedulable"))
        ]
        if id_.name in self.unschedulable or not fitting:
            return
        place = {"slurmctld": 0, "slurmd": -1}.get(pods.component(pod)) if self.apart else None
        chosen = fitting[next(self._addresses) % len(fitting) if place is None else place]
        self.state.patch(id_, spec={**pod["spec"], "nodeName": chosen})
        self.state.patch_status(id_, conditions=pods.scheduled(self.state.now()))

    def _can_start(self, id_: Id, pod: Object) -> bool:
        found = (self.state.find(Id("", plural, id_.namespace, name)) for plural, name in pods.needs(pod))
        return id_.name not in self.stuck_starting and all(each is not None for each in found)

    def _run(self, id_: Id, uid: str) -> None:
        pod = self.state.find(id_)
        if pod is None or pod["metadata"]["uid"] != uid or "deletionTimestamp" in pod["metadata"]:
            return
        if pod["status"].get("containerStatuses"):
            return
        now = self.state.now()
        if image := pods.missing_image(pod):
            words = f'Back-off pulling image "{image}"'
            self.state.patch_status(id_, **pods.waiting(pod, "ImagePullBackOff", words, now))
        elif pods.component(pod) == "trial":
            self.state.patch_status(id_, **pods.over(pod, self._verdict(id_, pod), now))
        else:
            number = next(self._addresses)
            address = f"10.1.{number // 250}.{number % 250 + 1}"
            if pods.component(pod) == "slurmd" and self.slurm is not None:
                self.slurm.register(id_.name, pods.slurmd_conf(pod), address)
            self.state.patch_status(id_, **pods.running(pod, address, now))

    def _verdict(self, id_: Id, pod: Object) -> str | None:
        """What slurmctld would say about the configuration in the pod's ConfigMap; None if it likes it."""
        for plural, name in pods.needs(pod):
            if plural == "configmaps":
                conf = self.state.get(Id("", plural, id_.namespace, name)).get("data", {}).get("slurm.conf", "")
                for line in conf.splitlines():
                    if "Bogus" in line:
                        return f"fatal: _parse_next_key: Parsing error at unrecognized key: {line.partition('=')[0]}"
        return None

    def _end(self, id_: Id, uid: str) -> None:
        try:
            self.state.delete(id_, uid=uid, grace=0)
        except Failure:
            return  # somebody else has ended it
