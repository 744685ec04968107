"""The guard of slurmctld: takes the Lease, reports what slurmctld runs with, points the Service at itself."""

from __future__ import annotations

import base64

from tests.fakes.apiserver.state import Id, Object, State
from tests.fakes.kubelet import pods
from tests.fakes.slurmrestd import FakeSlurmrestd

DIGEST, EPOCH, PHASE = "seltzer.dev/config", "seltzer.dev/epoch", "seltzer.dev/phase"
VERSION, STARTED, RESTARTS = "seltzer.dev/slurm-version", "seltzer.dev/started", "seltzer.dev/restarts"
HOLD, VOLUME = "seltzer.dev/hold", "seltzer.dev/volume"
ROOM = '{"free": 4000000000, "size": 4294967296, "low": false}'


class Guard:
    """The guards of all slurmctld pods."""

    def __init__(self, state: State, slurm: FakeSlurmrestd | None) -> None:
        self._state = state
        self._slurm = slurm

    def look(self, id_: Id) -> None:
        """Something has changed there: a pod of slurmctld, its Lease, its EndpointSlice or its configuration."""
        if id_.plural not in ("pods", "leases", "endpointslices", "configmaps"):
            return
        if id_.plural == "pods" and "slurmctld" not in id_.name:
            return  # there may be thousands
        for each, pod in self._state.items("", "pods", id_.namespace):
            leaving = "deletionTimestamp" in pod["metadata"]
            if pods.component(pod) == "slurmctld" and pods.is_ready(pod) and not leaving:
                self._report(each, pod)

    def _report(self, id_: Id, pod: Object) -> None:
        cluster = pod["metadata"]["labels"].get(pods.CLUSTER, "")
        lease_id = Id("coordination.k8s.io", "leases", id_.namespace, f"{cluster}-slurmctld")
        lease = self._state.find(lease_id)
        config = self._state.find(Id("", "configmaps", id_.namespace, f"{cluster}-config"))
        if lease is None or config is None:
            return
        holder = lease.get("spec", {}).get("holderIdentity")
        if holder not in (None, "", id_.name) and self._lives(id_.namespace, str(holder)):
            return
        told = dict(lease["metadata"].get("annotations") or {})
        said = dict(told)
        said[DIGEST] = _digest(config)
        said[PHASE], said[VERSION] = "held" if told.get(HOLD) == "true" else "running", "26.05.5"
        said[VOLUME] = ROOM
        spec = {**lease.get("spec", {}), "holderIdentity": id_.name, "leaseDurationSeconds": 1}
        if holder != id_.name:
            said[EPOCH] = str(int(told.get(EPOCH, 0)) + 1)
            said[STARTED], said[RESTARTS] = self._state.now(), "0"
            # The first to hold it took it over from nobody.
            spec["leaseTransitions"] = spec.get("leaseTransitions", 0) + 1 if spec.get("acquireTime") else 0
            spec["acquireTime"] = self._state.now()
        if said != told or spec != lease.get("spec", {}):
            if said[PHASE] == "running":
                self._start_slurmctld(id_.namespace, cluster)
            self._state.patch(lease_id, metadata={"annotations": said}, spec=spec)
        self._point(Id("discovery.k8s.io", "endpointslices", id_.namespace, lease_id.name), pod)

    def _start_slurmctld(self, namespace: str, cluster: str) -> None:
        """Slurm believes tokens that are signed with the key in the Secret, if there is one."""
        if self._slurm is None:
            return
        keys = self._state.find(Id("", "secrets", namespace, f"{cluster}-keys"))
        if keys is not None:
            self._slurm.key = base64.b64decode(keys["data"]["jwt_hs256.key"])
        self._slurm.restart_slurmctld()

    def _lives(self, namespace: str, name: str) -> bool:
        pod = self._state.find(Id("", "pods", namespace, name))
        return pod is not None and "deletionTimestamp" not in pod["metadata"]

    def _point(self, id_: Id, pod: Object) -> None:
        endpoints = [{"addresses": [pod["status"]["podIP"]], "conditions": {"ready": True}}]
        found = self._state.find(id_)
        if found is not None and found.get("endpoints") != endpoints:
            self._state.patch(id_, endpoints=endpoints)


def _digest(config: Object) -> str:
    """What the ConfigMap says its digest is: the guard reads the file, people the annotation."""
    annotations = config["metadata"].get("annotations") or {}
    return str((config.get("data") or {}).get("seltzer.digest") or annotations.get(DIGEST, ""))
