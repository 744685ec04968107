"""What an API server does to a new object before it keeps it: defaults, quotas, namespaces that are going away."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.fakes.apiserver.errors import forbidden, invalid

if TYPE_CHECKING:
    from tests.fakes.apiserver.state import Id, Object

_WITH_GENERATION = {
    ("", "pods"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("batch", "jobs"),
    ("discovery.k8s.io", "endpointslices"),
    ("networking.k8s.io", "networkpolicies"),
    ("policy", "poddisruptionbudgets"),
}


def has_generation(id_: Id) -> bool:
    return id_.custom or (id_.group, id_.plural) in _WITH_GENERATION


def is_new_generation(id_: Id, before: Object, after: Object) -> bool:
    """Whether a write changed what is wanted, not only what is said about it."""
    if not has_generation(id_):
        return False
    if id_.plural == "deployments" and _annotations(before) != _annotations(after):
        return True
    return _wanted(before) != _wanted(after)


def _wanted(item: Object) -> Object:
    wanted = {key: value for key, value in item.items() if key not in ("metadata", "status")}
    if item["kind"] == "Pod":  # where it runs isn't something that anybody wanted
        wanted["spec"] = {key: value for key, value in item["spec"].items() if key != "nodeName"}
    return wanted


def _annotations(item: Object) -> Any:
    return item["metadata"].get("annotations")


def check_update(id_: Id, before: Object, after: Object) -> None:
    """Raises Invalid for a change of what can't be changed once it is there."""
    match id_.group, id_.plural:
        case "", "pods" if _fixed(before) != _fixed(after):
            raise invalid("Pod", id_.name, "spec: Forbidden: pod updates may not change fields other than its images")
        case "", "persistentvolumeclaims" if _fixed(before) != _fixed(after):
            raise invalid("PersistentVolumeClaim", id_.name, "spec: Forbidden: spec is immutable after creation")
        case "", "configmaps" | "secrets" if before.get("immutable") and before.get("data") != after.get("data"):
            raise invalid(after["kind"], id_.name, "data: Forbidden: field is immutable when `immutable` is set")
        case "apps", "deployments" if before["spec"].get("selector") != after["spec"].get("selector"):
            raise invalid("Deployment", id_.name, "spec.selector: Invalid value: field is immutable")


def _fixed(item: Object) -> Any:
    """The part of a pod's or a claim's spec that stays."""
    spec = {k: v for k, v in item["spec"].items() if k not in ("nodeName", "resources", "tolerations")}
    for name in ("containers", "initContainers"):
        spec[name] = [{k: v for k, v in each.items() if k != "image"} for each in spec.get(name) or ()]
    return spec


def stored(id_: Id, item: Object) -> Object:
    """As it is kept: the plain text of a Secret isn't."""
    if (id_.group, id_.plural) != ("", "secrets") or "stringData" not in item:
        return item
    plain = {key: base64.b64encode(value.encode()).decode() for key, value in item["stringData"].items()}
    rest = {key: value for key, value in item.items() if key != "stringData"}
    return {**rest, "data": {**item.get("data", {}), **plain}}


def defaulted(id_: Id, item: Object) -> Object:
    """With what the API server fills in, as far as anybody here reads it. A new object's status is not the client's."""
    item = {key: value for key, value in item.items() if key != "status"}
    item["metadata"] = {key: value for key, value in item["metadata"].items() if value not in ({}, [])}
    match id_.group, id_.plural:
        case "", "pods":
            spec = {"restartPolicy": "Always", "terminationGracePeriodSeconds": 30, **item["spec"]}
            return {**item, "spec": spec, "status": {"phase": "Pending"}}
        case "apps", "deployments":
            return {**item, "spec": {"replicas": 1, **item["spec"]}, "status": {}}
        case "", "resourcequotas":
            return {**item, "status": {"hard": item["spec"]["hard"]}}
        case "", "namespaces":
            return {**item, "status": {"phase": "Active"}}
        case "apiextensions.k8s.io", "customresourcedefinitions":
            return {**item, "status": {"conditions": [{"type": "Established", "status": "True"}]}}
    return item


def check(id_: Id, item: Object, items: Callable[[str, str, str], list[tuple[Id, Object]]]) -> None:
    """Raises Forbidden for what may not be created now."""
    if not id_.namespace:
        return
    for other, namespace in items("", "namespaces", ""):
        if other.name == id_.namespace and "deletionTimestamp" in namespace["metadata"]:
            why = f"unable to create new content in namespace {id_.namespace} because it is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": f"namespace {id_.namespace} is being terminated"}
            raise forbidden(id_.plural, id_.name, why, causes=[{**cause, "field": "metadata.namespace"}])
    if (id_.group, id_.plural) != ("", "pods"):
        return
    for other, quota in items("", "resourcequotas", id_.namespace):
        if (limit := quota["spec"]["hard"].get("pods")) is not None:
            pods = [pod for _, pod in items("", "pods", id_.namespace)]
            used = sum(pod.get("status", {}).get("phase") not in ("Succeeded", "Failed") for pod in pods)
            if used >= int(limit):
                why = f"exceeded quota: {other.name}, requested: pods=1, used: pods={used}, limited: pods={limit}"
                raise forbidden(id_.plural, id_.name, why)
