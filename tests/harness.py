"""How tests speak to a sandbox: through the `seltzer` command and kubectl, as a user would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
SELTZER = Path(sys.executable).with_name("seltzer")
COMMAND_DEADLINE = 300.0


@dataclass(frozen=True)
class Answer:
    """What a command did."""

    code: int
    stdout: str
    stderr: str


def seltzer(*words: str, env: dict[str, str] | None = None, deadline: float = COMMAND_DEADLINE) -> Answer:
    done = subprocess.run(
        [SELTZER, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=deadline,
        env={**os.environ, **(env or {})},
        check=False,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def succeed(*words: str) -> str:
    answer = seltzer(*words)
    assert answer.code == 0, f"seltzer {' '.join(words)}: {answer.stderr}"
    return answer.stdout


def until(what: str, ask: Callable[[], T | None], deadline: float = 60.0) -> T:
    """Ask until the answer is neither None nor False; fail with `what` was waited for when the deadline has passed."""
    end = time.monotonic() + deadline
    while True:
        answer = ask()
        if answer is not None and answer is not False:
            return answer
        assert time.monotonic() < end, f"waited {deadline:.0f} s in vain: {what}"
        time.sleep(0.2)


class Sandbox:
    """A sandbox that is up."""

    def __init__(self, name: str) -> None:
        self.name = name
        status = json.loads(self.command("status", "--output", "json"))
        self._kubectl = [status["kubectl"], f"--kubeconfig={status['kubeconfig']}"]

    def command(self, *words: str) -> str:
        return succeed("sandbox", *words, "--name", self.name)

    def kubectl(self, *words: str, stdin: str | None = None, check: bool = True) -> Answer:
        done = subprocess.run(
            [*self._kubectl, *words],
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=COMMAND_DEADLINE,
            check=False,
        )
        assert not check or done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return Answer(done.returncode, done.stdout, done.stderr)

    def get(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "-o", "json").stdout)

    def apply(self, *manifests: dict[str, Any], namespace: str = "default") -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
        self.kubectl("apply", "--namespace", namespace, "-f", "-", stdin=text)

    def delete(self, *words: str) -> None:
        self.kubectl("delete", "--ignore-not-found", "--now", "--timeout=60s", *words)

    def wait_for_pods(self, selector: str, namespace: str = "default") -> list[dict[str, Any]]:
        """The pods with these labels, once they are Ready."""
        words = ("wait", "--namespace", namespace, "--for=condition=Ready", "pod", "--selector", selector)
        until(f"pods {selector} exist", lambda: self.pods(selector, namespace) or None)
        self.kubectl(*words, "--timeout=90s")
        return self.pods(selector, namespace)

    def pods(self, selector: str, namespace: str = "default") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("pods", "--namespace", namespace, "--selector", selector)["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def ready(self, node: str) -> str:
        """The status of the node's condition Ready: True, False or Unknown."""
        conditions = self.get("node", node)["status"]["conditions"]
        return next(str(c["status"]) for c in conditions if c["type"] == "Ready")

    def wait_for_node(self, node: str, status: str) -> None:
        until(f"{node} is Ready={status}", lambda: self.ready(node) == status)

    def exec(self, pod: str, *words: str, check: bool = True) -> Answer:
        return self.kubectl("exec", pod, "--", *words, check=check)


def pod(name: str, command: str, node: str | None = None, **spec: Any) -> dict[str, Any]:
    """A pod that runs a shell command, in one of our own images."""
    container = {
        "name": "main",
        "image": "seltzer.dev/slurmctld:dev",
        "imagePullPolicy": "Never",
        "command": ["bash", "-c", command],
        "volumeMounts": spec.pop("mounts", []),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"test": name}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsUser": 0},
            **({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}),
            **spec,
            "containers": [container],
        },
    }


def claim(name: str, storage_class: str | None = None, size: str = "1Gi") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": size}},
            **({"storageClassName": storage_class} if storage_class else {}),
        },
    }


def mounted(claim_name: str) -> dict[str, Any]:
    """Keyword arguments for `pod` that mount a claim at /data."""
    return {
        "mounts": [{"name": "data", "mountPath": "/data"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}],
    }
