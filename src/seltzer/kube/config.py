"""How to reach an API server: from a kubeconfig, or from inside a pod."""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from seltzer.kube.credentials import Credentials, ExecPlugin, Static, TokenFile
from seltzer.kube.errors import ConfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Config:
    """An API server, how to verify its identity, and our credentials."""

    server: str
    tls: ssl.SSLContext
    credentials: Credentials = field(default_factory=Static)
    namespace: str = "default"


def load(context: str | None = None, env: Mapping[str, str] = os.environ) -> Config:
    """Like kubectl: $KUBECONFIG (several files; the first that has an entry wins), ~/.kube/config, the pod."""
    named = [Path(name) for name in env.get("KUBECONFIG", "").split(os.pathsep) if name]
    usual = Path(env.get("HOME", "/root")) / ".kube" / "config"
    files = named or ([usual] if usual.exists() else [])
    if files:
        return from_kubeconfig(files, context)
    if "KUBERNETES_SERVICE_HOST" in env:
        return in_cluster(env)
    raise ConfigError("no cluster is configured: set KUBECONFIG, or put a kubeconfig into ~/.kube/config")


def in_cluster(env: Mapping[str, str] = os.environ, folder: Path = SERVICE_ACCOUNT) -> Config:
    """From inside a pod. The token is read repeatedly, since the kubelet replaces it."""
    try:
        host, port = env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"]
        tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        namespace = (folder / "namespace").read_text().strip()
    except (KeyError, OSError, ssl.SSLError) as error:
        raise ConfigError(f"this doesn't look like a pod with a ServiceAccount: {error}") from None
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Config(server, tls, TokenFile(folder / "token"), namespace)


def from_kubeconfig(files: list[Path], context: str | None = None) -> Config:
    """One context of one or more kubeconfig files."""
    merged = _Merged(files)
    name = context or merged.current
    if not name:
        raise ConfigError(f"{files[0]} has no current-context; choose one with --context")
    chosen = merged.find("contexts", "context", name, "context")
    cluster = merged.find("clusters", "cluster", str(chosen.values.get("cluster", "")), "cluster")
    named_user = chosen.values.get("user")
    user = merged.find("users", "user", str(named_user), "user") if named_user else _Entry({}, files[0].parent)
    server = cluster.values.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise ConfigError(f"the cluster of context {name!r} has no server address")
    namespace = str(chosen.values.get("namespace") or "default")
    return Config(server.rstrip("/"), _tls(cluster, user), _credentials(user), namespace)


@dataclass(frozen=True)
class _Entry:
    """A cluster, user or context. Its paths are relative to its file."""

    values: Mapping[str, Any]
    folder: Path

    def content(self, key: str) -> bytes | None:
        """The content of `key-data`, or of the file that `key` names."""
        if data := self.values.get(f"{key}-data"):
            try:
                return base64.b64decode(str(data), validate=True)
            except (binascii.Error, ValueError):
                raise ConfigError(f"the kubeconfig's {key}-data is not base64") from None
        if path := self.values.get(key):
            try:
                return (self.folder / str(path)).read_bytes()
            except OSError as error:
                raise ConfigError(f"the kubeconfig's {key} {path} can't be read: {error.strerror}") from None
        return None


class _Merged:
    def __init__(self, files: list[Path]) -> None:
        self._loaded = [(file, _read(file)) for file in files if file.exists()]
        if not self._loaded:
            raise ConfigError(f"there is no kubeconfig at {files[0]}; check KUBECONFIG")
        found = (str(values.get("current-context") or "") for _, values in self._loaded)
        self.current = next((name for name in found if name), "")

    def find(self, plural: str, what: str, name: str, inner: str) -> _Entry:
        names = []
        for file, values in self._loaded:
            for entry in values.get(plural) or ():
                if isinstance(entry, dict):
                    names.append(str(entry.get("name")))
                    if entry.get("name") == name:
                        return _Entry(entry.get(inner) or {}, file.parent)
        known = f"; there are {', '.join(names)}" if names else ""
        raise ConfigError(f"there is no {what} {name!r} in the kubeconfig{known}")


def _read(file: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"the kubeconfig {file} can't be read: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{file} is not a kubeconfig")
    return values


def _tls(cluster: _Entry, user: _Entry) -> ssl.SSLContext:
    authority = cluster.content("certificate-authority")
    try:
        context = ssl.create_default_context(cadata=authority.decode() if authority else None)
        if cluster.values.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate, key = user.content("client-certificate"), user.content("client-key")
        if certificate and key:
            # Python can load a key only from a file. The file is removed at once.
            with tempfile.NamedTemporaryFile() as file:
                file.write(certificate + b"\n" + key)
                file.flush()
                context.load_cert_chain(file.name)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise ConfigError(f"a certificate or key in the kubeconfig can't be used: {error}") from None
    return context


def _credentials(user: _Entry) -> Credentials:
    values = user.values
    if plugin := values.get("exec"):
        env = {entry["name"]: entry["value"] for entry in plugin.get("env") or ()}
        command = [str(plugin.get("command", "")), *map(str, plugin.get("args") or ())]
        if "/" in command[0]:
            command[0] = str(user.folder / command[0])
        return ExecPlugin(command, env, str(plugin.get("apiVersion", "client.authentication.k8s.io/v1")))
    if token := values.get("token"):
        return Static(str(token))
    if path := values.get("tokenFile"):
        return TokenFile(user.folder / path)
    if "auth-provider" in values:
        raise ConfigError("the kubeconfig uses auth-provider, which Kubernetes has removed; use an exec plugin")
    return Static()
