"""`seltzer ssh` and `seltzer cp`: ssh and scp to a login pod, without a load balancer or a prompt.

The connection goes through kubectl, to the sshd of the pod. ssh checks the host key against the one of the cluster: the
Secret that the operator made, or what the pod says to those who may not read it. Both come from the API server, whose
certificate is checked.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NoReturn

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from cyclopts import Parameter

from seltzer.api.core import Secret
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build.components import login as logins
from seltzer.cli import kube, kubectl
from seltzer.cli.kube import Place
from seltzer.cli.options import Context, LoginSet, Namespace
from seltzer.cli.slurm import Cluster, Words, deployment, hindrance
from seltzer.errors import SeltzerError
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.errors import Forbidden, NotFound
from seltzer.view.facts import LOGIN_USER

Print = Annotated[bool, Parameter(name="--print", negative="", help="Print an entry for ~/.ssh/config instead.")]

# Connects to sshd's port from within the pod. It ends when either end closes: ssh waits for it.
_RELAY = (
    f"exec 3<>/dev/tcp/127.0.0.1/{logins.PORT} 4<&0 || exit; "
    "cat <&3 & cat <&4 >&3 & wait -n; kill $(jobs -p) 2>/dev/null"
)
# [USER@]NAME:PATH, as scp knows it: a word with a slash before its colon is a file here.
_REMOTE = re.compile(r"(?:(?P<user>[^@:/\s]+)@)?(?P<name>[a-z]([-a-z0-9]*[a-z0-9])?):(?P<path>.*)", re.DOTALL)


@dataclass(frozen=True)
class Access:
    """How ssh reaches the login pods of a cluster, and verifies them."""

    # What ssh calls the host.
    alias: str
    host_key: str
    proxy: tuple[str, ...]

    @property
    def settings(self) -> dict[str, str]:
        """As in an entry of ~/.ssh/config. Nothing is stored: the host key is fetched each time."""
        return {
            "HostKeyAlias": self.alias,
            "KnownHostsCommand": f"{_echo()} {self.alias} {self.host_key}",
            "UserKnownHostsFile": "/dev/null",
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "ProxyCommand": shlex.join(self.proxy).replace("%", "%%"),
        }

    @property
    def options(self) -> list[str]:
        # No shared connection: it may lead to another login set, or to a cluster of this name in another context.
        settings = {**self.settings, "ControlPath": "none"}
        return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def ssh(
    name: Cluster,
    /,
    *words: Words,
    login: LoginSet = None,
    namespace: Namespace = None,
    context: Context = None,
    print_: Print = False,
) -> None:
    """Log in with ssh, for example: `seltzer ssh demo`, `seltzer ssh demo ada -A -L 8888:cpu-0:8888`, `seltzer ssh demo
    ada -- squeue --me`

    The word after the cluster's name is the user; options of ssh follow, and a command after `--`. Your key has to be
    one of the cluster's; `seltzer shell` needs none.

    `--login SET`, before the name, takes a pod of that login set. `--print` prints an entry for ~/.ssh/config, with
    which ssh, scp, rsync and editors know the cluster by its name.
    """
    user, options, command = divide(words)
    access = _access(name, login, namespace, context)
    if print_:
        print(entry(name, user, access), end="")
        return
    # As always, ssh gives a terminal to a shell, but not to a command.
    host = f"{user}@{access.alias}"
    _become("ssh", [*access.options, host, *options, *(["--", *command] if command else [])])


def cp(*words: Words, login: LoginSet = None, namespace: Namespace = None, context: Context = None) -> None:
    """Copy files to a login pod or from it, for example: `seltzer cp data.csv demo:` or `seltzer cp -r ada@demo:out .`

    The words are scp's; NAME:PATH or USER@NAME:PATH is a path on the login pods of the cluster NAME, by default below
    the home directory.
    """
    remotes = {found["name"] for word in words if (found := _remote(word))}
    if len(remotes) != 1:
        problem = "no word" if not remotes else f"{' and '.join(sorted(remotes))} each"
        raise SeltzerError(
            f"{problem} names a cluster, and one is needed: write a path there as NAME:PATH, as in 'seltzer cp file "
            "demo:' or 'seltzer cp demo:out.txt .'"
        )
    access = _access(remotes.pop(), login, namespace, context)
    _become("scp", [*access.options, *(addressed(word, access.alias) for word in words)])


def divide(words: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """The user, ssh's options and the command, from the words after the cluster's name."""
    rest = list(words)
    user = rest.pop(0) if rest and not rest[0].startswith("-") else LOGIN_USER
    if "--" not in rest:
        return user, rest, []
    at = rest.index("--")
    return user, rest[:at], rest[at + 1 :]


def addressed(word: str, alias: str) -> str:
    """A word for scp: a path on the cluster gets a user and the name by which ssh knows the host."""
    found = _remote(word)
    return f"{found['user'] or LOGIN_USER}@{alias}:{found['path']}" if found else word


def entry(name: str, user: str, access: Access) -> str:
    """An entry of ~/.ssh/config."""
    lines = [f"Host {name}", f"    User {user}", *(f"    {key} {value}" for key, value in access.settings.items())]
    return "".join(f"{line}\n" for line in lines)


def public_key(private: bytes) -> str:
    """The public half of a private key, as in known_hosts."""
    key = load_ssh_private_key(private, password=None).public_key()
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def _remote(word: str) -> re.Match[str] | None:
    return None if word.startswith("-") else _REMOTE.fullmatch(word)


def _access(name: str, login_set: str | None, namespace: str | None, context: str | None) -> Access:
    place = kube.locate(namespace, context)

    async def look(client: Client) -> tuple[SlurmCluster, Secret | None]:
        cluster = await kube.cluster(client, place, name)
        try:
            secret = await client.get(kinds.SECRETS, logins.COMPONENT.named(cluster), place.namespace)
        except (Forbidden, NotFound):
            secret = None
        return cluster, secret

    cluster, secret = kube.talk(place, look)
    pods = deployment(cluster, login_set)
    if note := hindrance(cluster):
        print(note, file=sys.stderr)
    relay = ("exec", "--stdin", "--quiet", pods, "--container", logins.NAME, "--", "bash", "-c", _RELAY)
    return Access(
        alias=f"{name}.{place.namespace}.seltzer",
        host_key=_host_key(place, pods, secret),
        proxy=(kubectl.find(), *place.kubectl_flags, *relay),
    )


def _host_key(place: Place, pods: str, secret: Secret | None) -> str:
    if secret is not None and (private := logins.host_key(secret)):
        return public_key(private)
    words = ("ssh-keygen", "-y", "-f", logins.OWN_HOST_KEY)
    return " ".join(kubectl.output(place, pods, logins.NAME, words).split()[:2])


def _echo() -> str:
    """ssh needs the full path of a command."""
    return next((path for path in ("/bin/echo", "/usr/bin/echo") if os.access(path, os.X_OK)), "/bin/echo")


def _become(program: str, words: Sequence[str]) -> NoReturn:
    """Replaces this process with ssh or scp, which gets the terminal and sets the exit code."""
    path = shutil.which(program)
    if path is None:
        raise SeltzerError(f"{program} isn't on your PATH, and this needs it; install OpenSSH's client")
    sys.stdout.flush()
    os.execv(path, [program, *words])
