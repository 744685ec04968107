"""The calls that `up` and `status` make to the sandbox's API server."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seltzer.errors import SeltzerError

# The path of each kind that we apply; namespaced kinds have a {namespace}.
_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
}


class ApiServer:
    """One connection, with a deadline on every call. Not safe to share between threads."""

    def __init__(self, pki: Path, port: int, deadline: float = 5.0) -> None:
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        self._connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=deadline, context=context)

    def close(self) -> None:
        self._connection.close()

    def call(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Returns status and body; raises OSError or HTTPException if there is no response."""
        try:
            content = None if body is None else json.dumps(body)
            usual = {"Content-Type": "application/json", "Accept": "application/json"}
            self._connection.request(method, path, content, {**usual, **(headers or {})})
            response = self._connection.getresponse()
            return response.status, response.read()
        except BaseException:
            self._connection.close()  # the rest of a response may still be in it
            raise

    def ready(self) -> bool:
        """Whether the API server reports that it is ready."""
        try:
            return self.call("GET", "/readyz")[0] == http.client.OK
        except (OSError, http.client.HTTPException):
            return False

    def get(self, path: str) -> dict[str, Any] | None:
        """The object, or None if it does not exist or the server does not respond."""
        try:
            status, body = self.call("GET", path)
            answer = json.loads(body) if status == http.client.OK else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
        return answer if isinstance(answer, dict) else None

    def apply(self, manifest: dict[str, Any]) -> None:
        """Server-side apply; applying a manifest again changes nothing."""
        metadata = manifest["metadata"]
        path = _PATHS[manifest["kind"]].format(namespace=metadata.get("namespace"))
        query = "?fieldManager=seltzer-sandbox&force=true"
        kind = {"Content-Type": "application/apply-patch+yaml"}
        try:
            status, body = self.call("PATCH", f"{path}/{metadata['name']}{query}", manifest, kind)
        except (OSError, http.client.HTTPException) as error:
            raise SeltzerError(
                f"the sandbox's API server does not answer ({error}); see 'seltzer sandbox logs'"
            ) from None
        if status not in (http.client.OK, http.client.CREATED):
            answer = body.decode(errors="replace")[:300]
            raise SeltzerError(f"the API server refused {manifest['kind']} {metadata['name']}: {answer}")


def node_conditions(api: ApiServer) -> dict[str, str]:
    """The status of each node's Ready condition: "True", "False" or "Unknown"."""
    nodes = (api.get("/api/v1/nodes") or {}).get("items", [])
    found = {}
    for node in nodes:
        conditions = node.get("status", {}).get("conditions", [])
        found[node["metadata"]["name"]] = next((c["status"] for c in conditions if c["type"] == "Ready"), "Unknown")
    return found
