"""Kubernetes' Deployments, without ReplicaSets: a Deployment owns its pods itself."""

from __future__ import annotations

import hashlib
import itertools

import msgspec
from tests.fakes.apiserver.errors import Failure
from tests.fakes.apiserver.state import Id, Object, State
from tests.fakes.kubelet import pods

HASH = "pod-template-hash"


class Deployments:
    """Makes each Deployment's pods and reports their state in its status."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._numbers = itertools.count(1)

    def look(self, id_: Id) -> None:
        """Something has changed there: a Deployment, or a pod that may belong to one."""
        if (id_.group, id_.plural) == ("apps", "deployments"):
            self._reconcile(id_)
        elif id_.plural == "pods":
            for each, _ in self._state.items("apps", "deployments", id_.namespace):
                if id_.name.startswith(f"{each.name}-"):
                    self._reconcile(each)

    def _reconcile(self, id_: Id) -> None:
        item = self._state.find(id_)
        if item is None or "deletionTimestamp" in item["metadata"]:
            return
        template, wanted = item["spec"]["template"], int(item["spec"]["replicas"])
        digest = hashlib.sha256(msgspec.json.encode(template, order="deterministic")).hexdigest()[:10]
        mine = self._pods(id_, item["metadata"]["uid"])
        staying = [each for each in mine if "deletionTimestamp" not in each[1]["metadata"]]
        new = [each for each in staying if each[1]["metadata"]["labels"][HASH] == digest]
        old = [each for each in staying if each not in new]
        recreate = item["spec"].get("strategy", {}).get("type") == "Recreate"
        ready = [each for each in new if pods.is_ready(each[1])]
        if recreate or len(ready) >= wanted:
            self._end(old)
        if not recreate or len(mine) == len(new):
            for _ in range(wanted - len(new)):
                self._start(id_, item, digest)
        self._end(new[wanted:])
        self._report(id_, item, self._pods(id_, item["metadata"]["uid"]), digest)

    def _pods(self, id_: Id, uid: str) -> list[tuple[Id, Object]]:
        found = self._state.items("", "pods", id_.namespace)
        return [each for each in found if uid in [r["uid"] for r in each[1]["metadata"].get("ownerReferences", ())]]

    def _start(self, id_: Id, item: Object, digest: str) -> None:
        template = item["spec"]["template"]
        metadata = template.get("metadata", {})
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": id_.name, "uid": item["metadata"]["uid"]}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **metadata,
                "labels": {**metadata.get("labels", {}), HASH: digest},
                "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": template["spec"],
        }
        name = f"{id_.name}-{digest}-{next(self._numbers)}"
        try:
            self._state.create(Id("", "pods", id_.namespace, name), pod)
        except Failure:
            return  # a quota, or a namespace that is going away

    def _end(self, some: list[tuple[Id, Object]]) -> None:
        for id_, _ in some:
            self._state.delete(id_)

    def _report(self, id_: Id, item: Object, mine: list[tuple[Id, Object]], digest: str) -> None:
        there = [pod for _, pod in mine if "deletionTimestamp" not in pod["metadata"]]
        ready = sum(map(pods.is_ready, there))
        wanted = int(item["spec"]["replicas"])
        counts = {
            "replicas": len(there),
            "updatedReplicas": sum(pod["metadata"]["labels"][HASH] == digest for pod in there),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "unavailableReplicas": max(0, wanted - ready),
        }
        status = {
            "observedGeneration": item["metadata"]["generation"],
            # Kubernetes leaves out zeros.
            **{name: count for name, count in counts.items() if count},
            "conditions": [{"type": "Available", "status": "True" if ready >= wanted else "False"}],
        }
        if item.get("status") != status:
            self._state.set_status(id_, status)
