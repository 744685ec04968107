"""Every usual form of kubeconfig works, and every broken one says what is wrong with it."""

from __future__ import annotations

import base64
import datetime
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from seltzer.kube.config import Config, from_kubeconfig, in_cluster, load
from seltzer.kube.credentials import ExecPlugin, TokenFile
from seltzer.kube.errors import ConfigError
from seltzer_sandbox.run.pki import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    some = Authority(tmp_path, "ca")
    some.create()
    some.issue("admin", "admin")
    return some


def write(path: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None, **more: Any) -> Path:
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "jobs"}}],
                "clusters": [{"name": "c", "cluster": {"server": "https://h:6443/", **(cluster or {})}}],
                "users": [{"name": "u", "user": user}],
                **more,
            }
        )
    )
    return path


def test_client_certificates_from_files_and_from_data(tmp_path: Path, authority: Authority) -> None:
    files = {"client-certificate": "admin.crt", "client-key": str(tmp_path / "admin.key")}
    data = {
        f"{name}-data": base64.b64encode((tmp_path / Path(path).name).read_bytes()).decode()
        for name, path in files.items()
    }
    for user in (files, data):
        some = from_kubeconfig([write(tmp_path / "config", user, {"certificate-authority": "ca.crt"})])
        assert (some.server, some.namespace) == ("https://h:6443", "jobs")
        assert some.tls.get_ca_certs()


async def test_tokens_and_token_files(tmp_path: Path) -> None:
    some = from_kubeconfig([write(tmp_path / "config", {"token": "secret"})])
    assert await some.credentials.token() == "secret"
    (tmp_path / "token").write_text("first\n")
    some = from_kubeconfig([write(tmp_path / "config", {"tokenFile": "token"})])
    assert await some.credentials.token() == "first"
    (tmp_path / "token").write_text("second\n")
    assert await some.credentials.token() == "first", "it is not read for every request"
    some.credentials.refused()
    assert await some.credentials.token() == "second"


def plugin(tmp_path: Path, expires_in: float) -> dict[str, Any]:
    """An exec plugin that counts its runs."""
    expiry = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=expires_in)
    script = tmp_path / "plugin.py"
    script.write_text(
        f"import json, os, pathlib\ncount = pathlib.Path({str(tmp_path / 'count')!r})\n"
        "n = int(count.read_text()) + 1 if count.exists() else 1\ncount.write_text(str(n))\n"
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "print(json.dumps({'apiVersion': info['apiVersion'], 'kind': 'ExecCredential', 'status': "
        f"{{'token': os.environ['PREFIX'] + str(n), 'expirationTimestamp': {expiry.isoformat()!r}}}}}))\n"
    )
    env = [{"name": "PREFIX", "value": "token-"}]
    return {"exec": {"command": sys.executable, "args": [str(script)], "env": env, "apiVersion": "v1beta1"}}


async def test_an_exec_plugin_runs_when_its_token_is_about_to_expire(tmp_path: Path) -> None:
    some = from_kubeconfig([write(tmp_path / "config", plugin(tmp_path, 3600))]).credentials
    assert [await some.token(), await some.token()] == ["token-1", "token-1"]
    some.refused()
    assert await some.token() == "token-2"
    (tmp_path / "count").unlink()
    short = from_kubeconfig([write(tmp_path / "config", plugin(tmp_path, 5))]).credentials
    assert [await short.token(), await short.token()] == ["token-1", "token-2"]


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (["nowhere-to-be-found"], "can't be run"),
        ([sys.executable, "-c", "import sys; sys.exit('log in first')"], "log in first"),
        ([sys.executable, "-c", "print('<html>')"], "printed no ExecCredential"),
        ([sys.executable, "-c", "print('{\"status\": {}}')"], "returned no token"),
    ],
)
async def test_a_broken_exec_plugin_says_why(command: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        await ExecPlugin(command, {}, "v1").token()


def test_contexts_of_several_files(tmp_path: Path) -> None:
    first = write(tmp_path / "first", {"token": "a"})
    contexts = [{"name": "there", "context": {"cluster": "other", "user": "u"}}]
    clusters = [{"name": "other", "cluster": {"server": "https://other"}}]
    second = write(tmp_path / "second", {"token": "b"}, contexts=contexts, clusters=clusters)
    env = {"KUBECONFIG": f"{first}:{second}:{tmp_path / 'missing'}"}
    assert load(env=env).server == "https://h:6443"
    assert load("there", env).server == "https://other"
    with pytest.raises(ConfigError, match="no context 'nowhere' in the kubeconfig; there are here, there"):
        load("nowhere", env)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"current-context": ""}, "no current-context"),
        ({"clusters": []}, "no cluster 'c'"),
        ({"users": None}, "no user 'u'"),
        ({"clusters": [{"name": "c", "cluster": {}}]}, "no server address"),
        (
            {"clusters": [{"name": "c", "cluster": {"server": "https://h", "certificate-authority": "no"}}]},
            "can't be read",
        ),
        (
            {"clusters": [{"name": "c", "cluster": {"server": "https://h", "certificate-authority-data": "§"}}]},
            "not base64",
        ),
        (
            {"clusters": [{"name": "c", "cluster": {"server": "https://h", "certificate-authority-data": "aGk="}}]},
            "can't be used",
        ),
        ({"users": [{"name": "u", "user": {"auth-provider": {"name": "gcp"}}}]}, "use an exec plugin"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        from_kubeconfig([write(tmp_path / "config", {}, **change)])


@pytest.mark.parametrize("text", ["", "[]", "a: b: c", "\x00"])
def test_a_file_that_is_no_kubeconfig(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(ConfigError):
        from_kubeconfig([tmp_path / "config"])


def test_no_configuration_at_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set KUBECONFIG"):
        load(env={"HOME": str(tmp_path)})
    with pytest.raises(ConfigError, match="check KUBECONFIG"):
        load(env={"KUBECONFIG": str(tmp_path / "none")})


def test_inside_a_pod(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "namespace").write_text("jobs")
    (tmp_path / "token").write_text("t")
    env = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    some: Config = in_cluster(env, tmp_path)
    assert (some.server, some.namespace) == ("https://[fd00::1]:443", "jobs")
    assert isinstance(some.credentials, TokenFile)
    with pytest.raises(ConfigError, match="doesn't look like a pod"):
        in_cluster({}, tmp_path)
