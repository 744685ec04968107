"""How tests speak to a sandbox: through the `seltzer` command and kubectl, as a user would."""

from __future__ import annotations

import base64
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

from seltzer.slurm.token import sign
from seltzer_sandbox import commands

T = TypeVar("T")
SELTZER = Path(sys.executable).with_name("seltzer")
COMMAND_DEADLINE = 300.0
# How long anything may take that happens within seconds here: how fast a machine is isn't tested.
PATIENCE = 180.0
REST_API = "v0.0.45"
_DELETIONS_AT_ONCE = 4


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


def until(what: str, ask: Callable[[], T | None], deadline: float = PATIENCE) -> T:
    """Ask until there is an answer that isn't empty; fail with `what` was waited for when the deadline has passed.

    A question that fails has no answer yet: a pod may just be replaced, or a daemon be about to answer.
    """
    end = time.monotonic() + deadline
    while True:
        trouble: Exception | None = None
        answer = None
        try:
            answer = ask()
        except (AssertionError, OSError, LookupError, ValueError) as error:
            trouble = error
        if answer:
            return answer
        if time.monotonic() >= end:
            why = f"; the last question failed: {trouble}" if trouble else ""
            raise AssertionError(f"waited {deadline:.0f} s in vain: {what}{why}") from trouble
        time.sleep(0.2)


class Sandbox:
    """A sandbox that is up."""

    def __init__(self, name: str) -> None:
        self.name = name
        status = json.loads(self.command("status", "--output", "json"))
        self.kubeconfig: str = status["kubeconfig"]
        self._kubectl = [status["kubectl"], f"--kubeconfig={self.kubeconfig}"]
        self._background = ThreadPoolExecutor(_DELETIONS_AT_ONCE)
        self._deletions: list[Future[None]] = []

    def command(self, *words: str) -> str:
        """A sandbox command. One that breaks or repairs nodes waits for the deletions that still need them."""
        if words[0] in ("node", "up"):
            self.settle()
        return succeed("sandbox", *words, "--name", self.name)

    def later(self, deletion: Callable[[], None]) -> None:
        """Run a deletion in the background: the next tests don't wait for it. `settle` raises what it raises."""
        self._deletions.append(self._background.submit(deletion))

    def settle(self) -> None:
        """Wait until all deletions have ended; fail with the first one that failed."""
        pending, self._deletions = self._deletions, []
        for deletion in pending:
            deletion.result()

    def seltzer(self, *words: str, check: bool = True, deadline: float = COMMAND_DEADLINE) -> Answer:
        """The command, as it is for a user whose kubeconfig leads here and who has kubectl on the PATH."""
        path = f"{Path(self._kubectl[0]).parent}:{os.environ['PATH']}"
        answer = seltzer(*words, env={"KUBECONFIG": self.kubeconfig, "PATH": path}, deadline=deadline)
        assert not check or answer.code == 0, f"seltzer {' '.join(words)}: {answer.stderr}{answer.stdout}"
        return answer

    def processes_of(self, pod: str, namespace: str, word: str) -> list[int]:
        """The processes of a pod with this word on their command line, as this machine knows them."""
        uid = self.get("pod", pod, "--namespace", namespace)["metadata"]["uid"]
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has just ended
                ours = f"pod{uid}" in (folder / "cgroup").read_text()
                if ours and word in (folder / "cmdline").read_text().split("\0"):
                    found.append(int(folder.name))
        return found

    def command_words(self) -> list[str]:
        """kubectl, with what leads it here."""
        return list(self._kubectl)

    @property
    def environment(self) -> dict[str, str]:
        """What a user has whose kubeconfig leads here: kubectl, seltzer and kubectl-slurm are on the PATH."""
        path = f"{Path(self._kubectl[0]).parent}:{SELTZER.parent}:{os.environ['PATH']}"
        return {**os.environ, "KUBECONFIG": self.kubeconfig, "PATH": path}

    def shell(self, script: str, stdin: str | None = None, deadline: float = COMMAND_DEADLINE) -> Answer:
        """What a user types into bash, on this machine."""
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", script],
            input=stdin or "",
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=deadline,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def forward(self, target: str, port: int, namespace: str) -> Iterator[str]:
        """Where a port of a pod or Service can be reached on this machine, such as 127.0.0.1:41234."""
        words = ["--namespace", namespace, "port-forward", target, f":{port}"]
        forward = subprocess.Popen([*self._kubectl, *words], stdout=subprocess.PIPE, text=True)
        try:
            assert forward.stdout
            line = forward.stdout.readline()  # Forwarding from 127.0.0.1:41234 -> 6820
            assert line.startswith("Forwarding from"), line
            yield line.split()[2]
        finally:
            forward.kill()
            forward.communicate()

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
        self.kubectl("delete", "--ignore-not-found", "--now", "--timeout=180s", *words)

    def wait_for_pods(self, selector: str, namespace: str = "default") -> list[dict[str, Any]]:
        """The pods with these labels, once they are Ready."""
        words = ("wait", "--namespace", namespace, "--for=condition=Ready", "pod", "--selector", selector)
        until(f"pods {selector} exist", lambda: self.pods(selector, namespace) or None)
        self.kubectl(*words, "--timeout=180s")
        return self.pods(selector, namespace)

    def pods(self, selector: str, namespace: str = "default") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("pods", "--namespace", namespace, "--selector", selector)["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def ready(self, node: str) -> str:
        """The status of the node's condition Ready: True, False or Unknown."""
        conditions = self.get("node", node)["status"]["conditions"]
        return next(str(c["status"]) for c in conditions if c["type"] == "Ready")

    def dns_node(self) -> str:
        """The node that answers for names: a test that breaks it breaks more than it means to."""

        def ask() -> str:
            [pod] = self.pods("k8s-app=kube-dns", "kube-system")
            return str(pod["spec"]["nodeName"])

        return until("DNS is on a node", ask)

    def wait_for_node(self, node: str, status: str) -> None:
        until(f"{node} is Ready={status}", lambda: self.ready(node) == status)

    def exec(self, pod: str, *words: str, check: bool = True) -> Answer:
        return self.kubectl("exec", pod, "--", *words, check=check)


class Cluster:
    """A SlurmCluster in a namespace of its own, as its users see it: by its objects, its login pod and its REST API.

    Needs the fixture `installed`. A test makes one like this::

        cluster = Cluster(installed, "scale-in", "demo")
        cluster.create(cpu={"replicas": 2})
        cluster.wait_ready()
        assert cluster.login("srun", "-N2", "hostname").split() ...
        cluster.delete_later()
    """

    def __init__(self, sandbox: Sandbox, namespace: str, name: str, *, user: str = "user") -> None:
        """`user` runs commands on the login pod unless a test says who."""
        self.sandbox, self.namespace, self.name, self.user = sandbox, namespace, name, user
        self._naps: dict[str, str] = {}  # how long each job of `hold` sleeps: no other process sleeps as long

    def create(self, spec: Mapping[str, Any] | None = None, **nodesets: Mapping[str, Any]) -> None:
        """Apply the namespace, the SlurmCluster and NodeSets by name, each with its spec; `clusterRef` is added."""
        labels = {"pod-security.kubernetes.io/enforce": "baseline"}
        metadata = {"name": self.namespace, "labels": labels}
        self.sandbox.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        self.apply(
            self._manifest("SlurmCluster", self.name, spec or {}),
            *(
                self._manifest("NodeSet", name, {"clusterRef": {"name": self.name}, **its})
                for name, its in nodesets.items()
            ),
        )

    def create_from(self, file: Path) -> None:
        """Apply the namespace, and a file that a user could have written."""
        self.sandbox.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
        self.kubectl("apply", "-f", str(file))

    def _manifest(self, kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        return {"apiVersion": "seltzer.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Any objects, into the cluster's namespace."""
        self.sandbox.apply(*manifests, namespace=self.namespace)

    def kubectl(self, *words: str, check: bool = True) -> Answer:
        """kubectl in the cluster's namespace."""
        return self.sandbox.kubectl("--namespace", self.namespace, *words, check=check)

    def seltzer(self, *words: str, check: bool = True) -> Answer:
        """The `seltzer` command in the cluster's namespace."""
        return self.sandbox.seltzer("--namespace", self.namespace, *words, check=check)

    def wait_ready(self, deadline: float = PATIENCE) -> None:
        """Wait until the SlurmCluster and all its NodeSets are Ready as they are now."""
        end = time.monotonic() + deadline
        for what in (f"slurmcluster/{self.name}", *(f"nodeset/{name}" for name in self.nodesets())):
            self.wait(what, "Ready", deadline=max(1.0, end - time.monotonic()))

    def wait(self, what: str, condition: str, status: str = "True", deadline: float = PATIENCE) -> None:
        """Wait for a condition of an object such as nodeset/cpu; fail with what `seltzer status` says."""
        words = ("wait", f"--for=condition={condition}={status}", what, f"--timeout={deadline:.0f}s")
        if self.kubectl(*words, check=False).code:
            said = self.seltzer("status", self.name, check=False)
            raise AssertionError(
                f"{what} isn't {condition}={status} after {deadline:.0f} s\n{said.stdout}{said.stderr}"
            )

    def run(self, *command: str, user: str = "") -> Answer:
        """Run a command on a login pod, in that user's home."""
        user = user or self.user
        become = ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--reset-env")
        words = (*become, "sh", "-c", 'cd && exec "$@"', "sh", *command)
        login = f"deployment/{self.name}-login"
        return self.kubectl("exec", login, "--container=login", "--", *words, check=False)

    def login(self, *command: str, user: str = "") -> str:
        """What a command on a login pod prints; fails where the command does."""
        answer = self.run(*command, user=user)
        assert answer.code == 0, f"{' '.join(command)[:200]}: {answer.stderr}"
        return answer.stdout

    def sbatch(self, script: str, *options: str) -> str:
        """Submit a shell script as a batch job; its ID."""
        return self.login("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={script}").strip()

    def get(self, what: str) -> dict[str, Any]:
        """An object of the namespace, such as pod/cpu-0; empty when there is none."""
        answer = self.kubectl("get", what, "--ignore-not-found", "--output=json")
        found: dict[str, Any] = json.loads(answer.stdout or "{}")
        return found

    def nodeset(self, name: str) -> dict[str, Any]:
        return self.get(f"nodeset/{name}")

    def nodesets(self) -> list[str]:
        """The names of the NodeSets in the cluster's namespace that belong to it."""
        found = self.get("nodesets").get("items", [])
        return [each["metadata"]["name"] for each in found if each["spec"]["clusterRef"]["name"] == self.name]

    def status(self) -> dict[str, Any]:
        """The SlurmCluster's own."""
        found: dict[str, Any] = self.get(f"slurmcluster/{self.name}").get("status", {})
        return found

    def condition(self, what: str, kind: str) -> dict[str, Any]:
        """A condition of an object such as slurmcluster/demo: status, reason, message; empty when there is none."""
        conditions = self.get(what).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {})

    def patch(self, kind: str, name: str, patch: Mapping[str, Any]) -> None:
        """Change an object with a merge patch, such as {"spec": {"replicas": 3}}."""
        self.kubectl("patch", kind, name, "--type=merge", f"--patch={json.dumps(patch)}")

    def pods(self, nodeset: str | None = None) -> dict[str, dict[str, Any]]:
        """The pods that aren't being deleted, by name: those of a NodeSet, or all of the cluster's."""
        more = f",seltzer.dev/nodeset={nodeset}" if nodeset else ""
        found = self.sandbox.pods(f"seltzer.dev/cluster={self.name}{more}", self.namespace)
        return {pod["metadata"]["name"]: pod for pod in found}

    def slurm_nodes(self) -> dict[str, str]:
        """Slurm's nodes by name, each with its whole state, such as IDLE+DRAIN+DYNAMIC_NORM."""
        lines = self.login("scontrol", "--oneliner", "show", "nodes").splitlines()
        words = [dict(word.partition("=")[::2] for word in line.split()) for line in lines]
        return {each["NodeName"]: each["State"] for each in words if "NodeName" in each}

    def jobs(self) -> dict[str, str]:
        """The state of every job that slurmctld still knows, by its ID: RUNNING, COMPLETED and so on."""
        lines = self.login("squeue", "--noheader", "--states=all", "--format=%i %T").splitlines()
        return dict(line.split() for line in lines)

    def wait_for_job(self, job: str, state: str, deadline: float = PATIENCE) -> None:
        until(f"job {job} is {state}", lambda: self.jobs().get(job) == state, deadline)

    def scale(self, nodeset: str, replicas: int) -> None:
        self.kubectl("scale", f"nodeset/{nodeset}", f"--replicas={replicas}")

    def hold(self, *options: str) -> str:
        """Start a batch job that runs until `release`; its ID, once its script runs."""
        nap = f"900.{random.getrandbits(48)}"
        job = self.sbatch(f"trap 'kill $!; exit 0' USR1; sleep {nap} & wait", *options)
        self._naps[job] = nap
        self.wait_for_job(job, "RUNNING")
        self._wait_for_script(job)
        return job

    def release(self, job: str) -> None:
        """Let a job of `hold` end well, and wait until it has."""
        self._wait_for_script(job)  # the job may have been requeued
        self.login("scancel", "--batch", "--signal=USR1", job)
        self.wait_for_job(job, "COMPLETED")

    def _wait_for_script(self, job: str) -> None:
        """Wait until the script of a job of `hold` takes signals: Slurm shows a job as running before it has one."""
        nap = self._naps[job]
        until(f"the script of job {job} runs", lambda: _runs("sleep", nap))

    def job(self, job: str) -> dict[str, str]:
        """slurmctld's record of a job: JobState, Restarts, NodeList and so on."""
        return _fields(self.login("scontrol", "--oneliner", "show", "job", job))

    def slurm_node(self, name: str) -> dict[str, str]:
        """slurmctld's record of a node: State, ActiveFeatures and so on; empty when it has none."""
        answer = self.run("scontrol", "--oneliner", "show", "node", name)
        return _fields(answer.stdout) if answer.code == 0 else {}

    def told(self, kind: str, name: str) -> dict[str, str]:
        """The Events of an object as `kubectl describe` shows them: the last message of each reason."""
        about = [each for each in self.events() if each["involvedObject"]["kind"] == kind]
        return {each["reason"]: each["message"] for each in about if each["involvedObject"]["name"] == name}

    def configure(self, config: Mapping[str, str | None]) -> dict[str, Any]:
        """Change files of spec.config (None removes one); the condition ConfigValid once the operator is done."""
        self.patch("slurmcluster", self.name, {"spec": {"config": config}})
        return self.config_settled()

    def config_settled(self, deadline: float = PATIENCE) -> dict[str, Any]:
        """The condition ConfigValid once it is about the cluster as it is now, and nothing is under way any more."""

        def settled() -> dict[str, Any] | None:
            found = self.get(f"slurmcluster/{self.name}")
            conditions = found.get("status", {}).get("conditions", [])
            valid: dict[str, Any] = next((each for each in conditions if each["type"] == "ConfigValid"), {})
            current = valid.get("observedGeneration") == found["metadata"]["generation"]
            return valid if current and valid["reason"] not in ("Trying", "RollingOut") else None

        return until("the configuration is settled", settled, deadline)

    def setting(self, key: str) -> str:
        """What Slurm says about a key of slurm.conf, asked on a login pod."""
        lines = (line.partition("=") for line in self.login("scontrol", "show", "config").splitlines())
        return next((value.strip() for name, _, value in lines if name.strip() == key), "")

    def manifest(self, kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        """A SlurmCluster or a NodeSet, for `apply`."""
        return self._manifest(kind, name, spec)

    def in_controller(self, *command: str, check: bool = True) -> Answer:
        """Run a command beside slurmctld: in the pod in charge, not in one that stands by."""
        holder = self.get(f"lease/{self.name}-slurmctld").get("spec", {}).get("holderIdentity")
        pod = f"pod/{holder}" if holder else f"deployment/{self.name}-slurmctld"
        return self.kubectl("exec", pod, "--", *command, check=check)

    def slurmctld(self) -> str:
        """Which slurmctld process it is: its pod, its pid and when it started."""
        ask = "hostname -i; ps --ppid 1 -o pid=,lstart=,args= | grep slurmctld"
        return " ".join(self.in_controller("sh", "-c", ask).stdout.split())

    def events(self) -> list[dict[str, Any]]:
        """The Events of the namespace, the oldest first: reason, message, involvedObject."""
        words = ("get", "events", "--sort-by=.metadata.creationTimestamp", "--output=json")
        found: list[dict[str, Any]] = json.loads(self.kubectl(*words).stdout)["items"]
        return found

    def key(self) -> bytes:
        """The key that signs tokens for slurmrestd."""
        return base64.b64decode(self.get(f"secret/{self.name}-keys")["data"]["jwt_hs256.key"])

    def rest(self, path: str, user: str = "user", key: bytes | None = None) -> dict[str, Any]:
        """GET from slurmrestd as that user, such as nodes/, with a token signed by the cluster's key or another."""
        headers = {"X-SLURM-USER-NAME": user, "X-SLURM-USER-TOKEN": sign(key or self.key(), user)}
        service = f"/api/v1/namespaces/{self.namespace}/services/{self.name}-slurmrestd:6820/proxy"
        api = commands.find(self.sandbox.name).api()
        code, body = api.call("GET", f"{service}/slurm/{REST_API}/{path}", headers=headers)
        found: dict[str, Any] = json.loads(body)
        # Slurm reports errors in the body, whatever the status says.
        assert code == HTTPStatus.OK and not found.get("errors"), f"slurmrestd answered with {code}: {found}"
        return found

    def delete_later(self) -> None:
        """Delete it in the background. The session fails at its end if the deletion does."""
        self.sandbox.later(self.delete)

    def delete(self, deadline: float = 240.0) -> None:
        """Cancel all jobs, delete the SlurmCluster and the NodeSets, then the namespace, and wait until all is gone."""
        self.run("scancel", "--state=PENDING", user="root")
        self.run("scancel", "--state=RUNNING", user="root")
        self.kubectl("delete", "slurmclusters,nodesets", "--all", f"--timeout={deadline:.0f}s", check=False)
        left = self.get("slurmclusters,nodesets").get("items", [])
        assert not left, f"{self.namespace}: not deleted after {deadline:.0f} s: {json.dumps(left, indent=1)}"
        # What is left would take its grace; a test that is over has no patience.
        self.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
        self._delete_namespace(deadline)

    def delete_namespace_later(self, deadline: float = 180.0) -> None:
        """Delete the namespace of a cluster that a test has deleted, in the background."""
        self.sandbox.later(partial(self._delete_namespace, deadline))

    def _delete_namespace(self, deadline: float) -> None:
        self.sandbox.kubectl("delete", "namespace", self.namespace, "--ignore-not-found", f"--timeout={deadline:.0f}s")


def _runs(*words: str) -> bool:
    """Whether a process of this machine, which has all containers, has exactly this command line."""
    wanted = "".join(f"{word}\0" for word in words).encode()
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            if file.read_bytes() == wanted:
                return True
    return False


def _fields(line: str) -> dict[str, str]:
    """Key=Value pairs as `scontrol --oneliner` prints them."""
    return dict(word.partition("=")[::2] for word in line.split())


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
