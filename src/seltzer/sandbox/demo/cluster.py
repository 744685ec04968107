"""The demo's Slurm cluster on a sandbox: apply it, wait for it, run jobs on it, ask it over REST."""

from __future__ import annotations

import base64
import http.client
import json
import subprocess
import time
from typing import Any

from seltzer.errors import SeltzerError
from seltzer.progress import Progress
from seltzer.sandbox import demo
from seltzer.sandbox.apiserver import ApiServer
from seltzer.sandbox.cluster import Sandbox

WAIT_SECONDS = 180
COMMAND_DEADLINE = 60.0


class DemoCluster:
    """Every call may be repeated: what is there stays as it is."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._kubectl = [str(sandbox.binaries / "kubectl"), f"--kubeconfig={sandbox.layout.kubeconfig}"]

    def bring_up(self, progress: Progress) -> None:
        with progress.step("apply the Slurm cluster's manifests"):
            namespace, *others = demo.manifests()
            self._apply([namespace])
            # The daemons read their keys when they start: new ones under running daemons would lock them out.
            if self._secret() is None:
                self._apply([demo.secrets()])
            self._apply(others)
        for kind, name in (("deployment", "slurmctld"), ("deployment", "slurmrestd"), ("statefulset", "cpu")):
            with progress.step(f"{name} is ready"):
                self._wait(kind, name)
        with progress.step("login is ready"):
            self._wait("deployment", "login")
        with progress.step("both compute nodes are idle in Slurm"):
            self._wait_until_idle()

    def _wait_until_idle(self) -> None:
        until = time.monotonic() + WAIT_SECONDS
        while sum("IDLE" in node["state"] for node in self.rest("nodes/")["nodes"]) < 2:
            if time.monotonic() > until:
                raise SeltzerError("the compute nodes are not idle; run 'sinfo -R' on the login node")
            time.sleep(0.2)

    def places(self) -> dict[str, str]:
        """Which Kubernetes node each compute node is on."""
        pods = json.loads(self._run(["get", "pods", "--selector", "app=slurmd", "--output", "json"]))["items"]
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "nowhere") for pod in pods}

    def login(self, *command: str) -> str:
        """Run a command on the login node, as a user who has never heard of Kubernetes."""
        words = ["exec", "deployment/login", "--container", "login", "--"]
        return self._run([*words, "setpriv", "--reuid=user", "--regid=user", "--clear-groups", *command])

    def rest(self, path: str, user: str = "user") -> dict[str, Any]:
        """GET from slurmrestd, with a token of our own, through the API server's proxy."""
        secret = self._secret()
        if secret is None:
            raise SeltzerError("the demo's Slurm cluster is not there; 'make demo' brings it up")
        token = demo.token(base64.b64decode(secret["data"]["jwt_hs256.key"]), user)
        api: ApiServer = self._sandbox.api()
        service = f"/api/v1/namespaces/{demo.NAMESPACE}/services/slurmrestd:6820/proxy"
        headers = {"X-SLURM-USER-NAME": user, "X-SLURM-USER-TOKEN": token}
        try:
            status, body = api.call("GET", f"{service}/slurm/{demo.REST_API}/{path}", headers=headers)
            answer: dict[str, Any] = json.loads(body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise SeltzerError(f"slurmrestd gave no answer that makes sense ({error})") from None
        # Slurm reports errors in the body, whatever the status says.
        if status != http.client.OK or answer.get("errors"):
            raise SeltzerError(f"slurmrestd answered with {status}: {answer.get('errors') or answer}")
        return answer

    def _secret(self) -> dict[str, Any] | None:
        return self._sandbox.api().get(f"/api/v1/namespaces/{demo.NAMESPACE}/secrets/{demo.KEYS}")

    def _apply(self, manifests: list[dict[str, Any]]) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
        self._run(["apply", "--server-side", "--force-conflicts", "--field-manager=seltzer-demo", "-f", "-"], text)

    def _wait(self, kind: str, name: str) -> None:
        self._run(["rollout", "status", f"{kind}/{name}", f"--timeout={WAIT_SECONDS}s"], deadline=WAIT_SECONDS + 10)

    def _run(self, words: list[str], stdin: str = "", deadline: float = COMMAND_DEADLINE) -> str:
        command = [*self._kubectl, "--namespace", demo.NAMESPACE, *words]
        try:
            done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=deadline, check=False)
        except subprocess.TimeoutExpired:
            raise SeltzerError(f"kubectl {words[0]} {words[1]}: no end after {deadline:.0f} s") from None
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["no reason given"]
            raise SeltzerError(f"kubectl {words[0]} {words[1]}: {said[-1]}")
        return done.stdout
