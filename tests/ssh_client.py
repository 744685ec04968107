"""How tests log in: with the ssh programs of this machine, each person with a key of their own."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.harness import PATIENCE, Answer, Cluster, until


class Keys:
    """Key pairs of people, made when they are first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def private(self, name: str) -> Path:
        file = self._folder / name
        if not file.exists():
            make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(file)]
            subprocess.run(make, check=True, capture_output=True, timeout=30)
        return file

    def public(self, name: str) -> str:
        return self.private(name).with_suffix(".pub").read_text().strip()


def host_key(cluster: Cluster) -> str:
    """The public half of the host key, as an administrator would read it from a login pod."""
    words = ("exec", f"deployment/{cluster.name}-login", "--container=login", "--")
    return cluster.kubectl(*words, "ssh-keygen", "-y", "-f", "/run/sshd/host_key").stdout.strip()


class Ssh:
    """The ssh command, which takes no word for granted: it knows no host key but the one that it was told."""

    def __init__(self, cluster: Cluster, keys: Keys, folder: Path) -> None:
        self._cluster, self._keys = cluster, keys
        self._known = folder / "known_hosts"
        self._agent = ""

    def know(self, line: str) -> None:
        """Trust this host key from now on, whatever address it comes from."""
        self._known.write_text(f"* {line}\n")

    def from_here(
        self, who: str, *command: str, user: str = "user", options: tuple[str, ...] = (), stdin: str = ""
    ) -> Answer:
        """Through a forwarded port."""
        with self._forwarded() as address:
            host, _, port = address.rpartition(":")
            return self._run(who, user, (f"-p{port}", *options), host, command, stdin)

    def copy(self, who: str, *words: str) -> Answer:
        """scp with these words, in which HOST is the login pod."""
        with self._forwarded() as address:
            host, _, port = address.rpartition(":")
            line = ["scp", "-q", "-F", "none", *self._settings(who), f"-P{port}"]
            return _answer([*line, *(word.replace("HOST", host) for word in words)])

    @contextmanager
    def agent(self, who: str) -> Iterator[None]:
        """ssh's agent, with that key."""
        with tempfile.TemporaryDirectory() as folder:
            socket = f"{folder}/agent"
            agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
            try:
                self._agent = socket
                add = ["ssh-add", "-q", str(self._keys.private(who))]
                env = {**os.environ, "SSH_AUTH_SOCK": socket}
                until("the agent answers", lambda: subprocess.run(add, env=env, check=False).returncode == 0)
                yield
            finally:
                self._agent = ""
                agent.terminate()
                agent.wait(10)

    def from_a_pod(self, who: str, *command: str, user: str = "user") -> Answer:
        """Over a connection that a pod called `elsewhere` makes to the Service, by its name."""
        relay = f"exec 3<>/dev/tcp/{self._service}/22; cat <&3 & cat >&3; kill $!"
        kubectl = " ".join(self._cluster.sandbox.command_words())
        proxy = f"{kubectl} -n {self._cluster.namespace} exec -i elsewhere -- bash -c '{relay}'"
        return self._run(who, user, (f"-oProxyCommand={proxy}",), self._service, command)

    @property
    def _service(self) -> str:
        return f"{self._cluster.name}-login"

    def _forwarded(self) -> AbstractContextManager[str]:
        return self._cluster.sandbox.forward(f"service/{self._service}", 22, self._cluster.namespace)

    def _run(
        self, who: str, user: str, options: tuple[str, ...], host: str, command: tuple[str, ...], stdin: str = ""
    ) -> Answer:
        return _answer(["ssh", "-F", "none", *self._settings(who), *options, f"{user}@{host}", *command], stdin)

    def _settings(self, who: str) -> list[str]:
        settings = {
            "BatchMode": "yes",
            "IdentitiesOnly": "yes",
            "IdentityAgent": self._agent or "none",
            "UserKnownHostsFile": str(self._known),
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "LogLevel": "ERROR",
            "ConnectTimeout": "20",
        }
        words = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        return [*words, "-i", str(self._keys.private(who))]


def _answer(line: list[str], stdin: str = "") -> Answer:
    done = subprocess.run(line, capture_output=True, timeout=PATIENCE, input=stdin.encode(), check=False)
    return Answer(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
