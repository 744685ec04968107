"""What a pod says of itself in the course of its life, and what a fake kubelet reads in its spec."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

Object = dict[str, Any]
COMPONENT = "app.kubernetes.io/component"
CLUSTER = "seltzer.dev/cluster"


def component(item: Object) -> str:
    return str((item["metadata"].get("labels") or {}).get(COMPONENT, ""))


def is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def is_over(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def needs(pod: Object) -> Iterator[tuple[str, str]]:
    """The ConfigMaps, Secrets and claims without which a kubelet doesn't start it, as (plural, name)."""
    for volume in pod["spec"].get("volumes") or ():
        for source in (volume, *(volume.get("projected") or {}).get("sources", ())):
            for field, key, plural in (
                ("configMap", "name", "configmaps"),
                ("secret", "secretName" if source is volume else "name", "secrets"),
                ("persistentVolumeClaim", "claimName", "persistentvolumeclaims"),
            ):
                wanted = source.get(field)
                if wanted and not wanted.get("optional"):
                    yield plural, wanted[key]


def pinned(pod: Object) -> str:
    """The one machine that it may be on; empty: it isn't bound to one by name."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    for term in affinity.get(required, {}).get("nodeSelectorTerms", ()):
        for each in term.get("matchFields", ()):
            return str(each["values"][0])
    return ""


def missing_image(pod: Object) -> str | None:
    """An image that nobody has: one with `missing` in its name."""
    containers = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
    return next((each["image"] for each in containers if "missing" in each.get("image", "")), None)


def running(pod: Object, address: str, now: str) -> Object:
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": now,
        "conditions": _conditions(now, "True"),
        "containerStatuses": _containers(pod, {"running": {"startedAt": now}}, ready=True),
    }


def waiting(pod: Object, reason: str, message: str, now: str) -> Object:
    return {
        "phase": "Pending",
        "conditions": _conditions(now, "False"),
        "containerStatuses": _containers(pod, {"waiting": {"reason": reason, "message": message}}, ready=False),
    }


def over(pod: Object, problem: str | None, now: str) -> Object:
    """It has ended: well, or with a problem as its last words."""
    words = {"message": problem} if problem else {}
    ended = {"exitCode": 1 if problem else 0, "reason": "Error" if problem else "Completed", "finishedAt": now, **words}
    return {
        "phase": "Failed" if problem else "Succeeded",
        "conditions": _conditions(now, "False"),
        "containerStatuses": _containers(pod, {"terminated": ended}, ready=False),
    }


def scheduled(now: str) -> list[Object]:
    return [_condition("PodScheduled", "True", now)]


def _conditions(now: str, ready: str) -> list[Object]:
    names = ("Ready", "ContainersReady")
    rest = [_condition(name, "True", now) for name in ("PodScheduled", "Initialized")]
    return [*(_condition(name, ready, now) for name in names), *rest]


def _condition(kind: str, status: str, now: str) -> Object:
    return {"type": kind, "status": status, "lastTransitionTime": now}


def _containers(pod: Object, state: Object, *, ready: bool) -> list[Object]:
    return [
        {"name": each["name"], "image": each.get("image", ""), "ready": ready, "restartCount": 0, "state": state}
        for each in pod["spec"]["containers"]
    ]


def slurmd_conf(pod: Object) -> dict[str, str]:
    """What slurmd is told to say of its node: the words behind `--conf`."""
    for container in pod["spec"]["containers"]:
        args = [*(container.get("command") or ()), *(container.get("args") or ())]
        for before, word in pairwise(args):
            if before == "--conf":
                return dict(each.partition("=")[::2] for each in shlex.split(word))
    return {}
