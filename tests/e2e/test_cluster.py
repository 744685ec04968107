"""The sandbox is a Kubernetes like any other."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from tests.harness import Sandbox, claim, mounted, pod, until

from seltzer_sandbox.run import pki


def answer_of(sandbox: Sandbox, pod_name: str, *words: str) -> str | None:
    """What a command in a pod prints; None as long as that is nothing."""
    return sandbox.exec(pod_name, *words, check=False).stdout or None


def test_three_nodes_are_ready_in_different_zones_and_racks(sandbox: Sandbox) -> None:
    nodes = sandbox.get("nodes")["items"]
    assert [node["metadata"]["name"] for node in nodes] == ["n1", "n2", "n3"]
    for name in ("n1", "n2", "n3"):
        sandbox.wait_for_node(name, "True")
    for label in ("topology.kubernetes.io/zone", "topology.seltzer.dev/rack"):
        assert len({node["metadata"]["labels"][label] for node in nodes}) == 3


def test_pods_on_different_nodes_reach_each_other_by_service_name(sandbox: Sandbox) -> None:
    server = pod("server", "cd /etc && exec python3 -m http.server 8080", "n1")
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "server"},
        "spec": {"selector": {"test": "server"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    fetch = "import urllib.request as u; print(u.urlopen('http://server.default.svc/hostname', timeout=5).status)"
    try:
        sandbox.apply(server, service, *(pod(f"client-{node}", "sleep 600", node) for node in ("n1", "n2", "n3")))
        for name in ("server", "client-n1", "client-n2", "client-n3"):
            sandbox.wait_for_pods(f"test={name}")
        for node in ("n1", "n2", "n3"):
            answered = until(
                f"a pod on {node} reaches the server",
                partial(answer_of, sandbox, f"client-{node}", "python3", "-c", fetch),
            )
            assert answered.strip() == "200"
    finally:
        sandbox.delete("pod/server", "service/server", *(f"pod/client-{node}" for node in ("n1", "n2", "n3")))


def test_a_pod_reaches_itself_by_its_service(sandbox: Sandbox) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "mirror"},
        "spec": {"selector": {"test": "mirror"}, "ports": [{"port": 8080}]},
    }
    fetch = "import urllib.request as u; print(u.urlopen('http://mirror:8080/hostname', timeout=5).status)"
    try:
        sandbox.apply(service, pod("mirror", "cd /etc && exec python3 -m http.server 8080"))
        sandbox.wait_for_pods("test=mirror")
        ask = partial(answer_of, sandbox, "mirror", "python3", "-c", fetch)
        assert until("the pod reaches itself", ask).strip() == "200"
    finally:
        sandbox.delete("pod/mirror", "service/mirror")


def test_a_volume_written_on_one_node_is_read_on_another(sandbox: Sandbox) -> None:
    try:
        sandbox.apply(
            claim("shared"),
            pod("writer", "echo from n1 > /data/file && sleep 600", "n1", **mounted("shared")),
            pod("reader", "sleep 600", "n2", **mounted("shared")),
        )
        sandbox.wait_for_pods("test=writer")
        sandbox.wait_for_pods("test=reader")
        read = partial(answer_of, sandbox, "reader", "cat", "/data/file")
        assert until("the file is there", read) == "from n1\n"
        volume = sandbox.get("pvc", "shared")["spec"]["volumeName"]
    finally:
        sandbox.delete("pod/writer", "pod/reader", "pvc/shared")
    until("the volume is gone with its claim", lambda: sandbox.kubectl("get", "pv", volume, check=False).code != 0)


def test_a_volume_belongs_to_the_pods_group(sandbox: Sandbox) -> None:
    group: dict[str, Any] = {"securityContext": {"runAsUser": 1234, "runAsGroup": 1234, "fsGroup": 4321}}
    try:
        sandbox.apply(claim("grouped"), pod("member", "touch /data/mine && sleep 600", **mounted("grouped"), **group))
        sandbox.wait_for_pods("test=member")
        ask = partial(answer_of, sandbox, "member", "stat", "-c", "%u %g", "/data/mine")
        assert until("the file is there", ask) == "1234 4321\n"
    finally:
        sandbox.delete("pod/member", "pvc/grouped")


def test_a_limited_volume_is_full_at_its_size(sandbox: Sandbox) -> None:
    fill = "dd if=/dev/zero of=/data/file bs=1M count=20"
    try:
        sandbox.apply(claim("small", "limited", "16Mi"), pod("filler", "sleep 600", "n3", **mounted("small")))
        sandbox.wait_for_pods("test=filler")
        answer = sandbox.exec("filler", "bash", "-c", fill, check=False)
        assert answer.code != 0
        assert "No space left on device" in answer.stderr
        assert sandbox.exec("filler", "stat", "-c", "%s", "/data/file").stdout == f"{16 << 20}\n"
    finally:
        sandbox.delete("pod/filler", "pvc/small")


def test_a_restricted_namespace_rejects_a_privileged_pod(sandbox: Sandbox) -> None:
    privileged = pod("privileged", "sleep 600")
    privileged["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    try:
        sandbox.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restricted", "labels": labels}},
        )
        answer = sandbox.kubectl(
            *("run", "privileged", "--namespace", "restricted", "--image", "seltzer.dev/pause:dev", "--privileged"),
            check=False,
        )
        assert answer.code != 0
        assert 'violates PodSecurity "restricted' in answer.stderr
    finally:
        sandbox.delete("namespace/restricted")


def test_a_service_account_may_do_only_what_it_was_given(sandbox: Sandbox) -> None:
    ask = (
        "import ssl, urllib.request as u, pathlib as p; s = p.Path('/var/run/secrets/kubernetes.io/serviceaccount'); "
        "r = u.Request('https://kubernetes.default.svc/api/v1/nodes', "
        "headers={'Authorization': 'Bearer ' + (s / 'token').read_text()}); "
        "u.urlopen(r, timeout=5, context=ssl.create_default_context(cafile=s / 'ca.crt'))"
    )
    try:
        sandbox.apply(pod("caller", "sleep 600"))
        sandbox.wait_for_pods("test=caller")
        words = "HTTP Error 403: Forbidden"  # known, and not allowed: not 401, no TLS error
        until(words, lambda: words in sandbox.exec("caller", "python3", "-c", ask, check=False).stderr)
    finally:
        sandbox.delete("pod/caller")


def test_a_name_that_nobody_has_does_not_exist(sandbox: Sandbox) -> None:
    """And isn't a failure that one tries again."""
    # With a dot: slurmctld's image, which this pod has, answers for names without one.
    ask = "import socket; socket.getaddrinfo('no-such-pod.example', 22)"
    try:
        sandbox.apply(pod("asking", "sleep 600"))
        sandbox.wait_for_pods("test=asking")
        answer = sandbox.exec("asking", "python3", "-c", ask, check=False)
        assert "[Errno -2] Name or service not known" in answer.stderr
    finally:
        sandbox.delete("pod/asking")


AGGREGATED = """
import http.server, json, ssl

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        answer = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "test.seltzer.dev/v1", "resources": []}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({**answer, "user": self.headers["X-Remote-User"]}).encode())

server = http.server.ThreadingHTTPServer(("", 8443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/data/ca.crt", "/data/ca.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


def test_the_aggregation_layer_serves_an_api_of_a_pod(sandbox: Sandbox, tmp_path: Path) -> None:
    """With the front-proxy certificate, and straight to the pod, since the hub has no kube-proxy."""
    pki.Authority(tmp_path, "ca").create()
    files = {
        "server.py": AGGREGATED,
        **{f"ca.{kind}": (tmp_path / f"ca.{kind}").read_text() for kind in ("crt", "key")},
    }
    volume: dict[str, Any] = {**mounted(""), "volumes": [{"name": "data", "configMap": {"name": "aggregated"}}]}
    service = {"name": "aggregated", "namespace": "default", "port": 443}
    priorities = {"groupPriorityMinimum": 100, "versionPriority": 100}
    try:
        sandbox.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "aggregated"}, "data": files},
            pod("aggregated", "exec python3 /data/server.py", "n2", **volume),
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "aggregated"},
                "spec": {"selector": {"test": "aggregated"}, "ports": [{"port": 443, "targetPort": 8443}]},
            },
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": "v1.test.seltzer.dev"},
                "spec": {
                    "group": "test.seltzer.dev",
                    "version": "v1",
                    "insecureSkipTLSVerify": True,
                    "service": service,
                    **priorities,
                },
            },
        )
        answer = until(
            "the aggregated API answers",
            lambda: sandbox.kubectl("get", "--raw", "/apis/test.seltzer.dev/v1", check=False).stdout or None,
        )
        assert '"user": "admin"' in answer
    finally:
        sandbox.delete("apiservice/v1.test.seltzer.dev", "service/aggregated", "pod/aggregated", "configmap/aggregated")
