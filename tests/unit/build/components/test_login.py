"""A login pod waits for its people, and nobody gets more from PAM than a home directory."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.builders.objects import cluster

from seltzer.api.core import Deployment, DeploymentStatus, ObjectMeta
from seltzer.build.components import login
from seltzer.build.images import Images

SCRIPTS = login.scripts()


def made(spec: dict[str, Any], kind: str) -> Any:
    (found,) = (each for each in login.applied(cluster(spec), Images()) if each["kind"] == kind)
    return found


def pod(spec: dict[str, Any]) -> Any:
    return made(spec, "Deployment")["spec"]["template"]["spec"]


def config(spec: dict[str, Any]) -> str:
    found: str = made(spec, "ConfigMap")["data"]["sshd_config"]
    return found


def test_the_grace_of_a_pod_covers_the_wait_for_its_sessions() -> None:
    spec = pod({"login": {"sessionTimeout": "1h30m"}})
    assert spec["terminationGracePeriodSeconds"] > 5400
    (sshd,) = (each for each in spec["containers"] if each["name"] == "login")
    assert sshd["lifecycle"]["preStop"]["exec"]["command"][-1] == "5400"


def test_sackd_waits_for_sshd() -> None:
    (sackd,) = (each for each in pod({})["containers"] if each["name"] == "sackd")
    (wait,) = sackd["lifecycle"]["preStop"]["exec"]["command"][2:]
    assert ":0016 " in wait, "port 22, as the kernel lists it"
    assert wait.endswith("kill -INT 1")


def test_users_never_see_slurms_key() -> None:
    spec = pod({"home": {}})
    (sshd,) = (each for each in spec["containers"] if each["name"] == "login")
    assert not {"keys", "sack-key"} & {each["name"] for each in sshd["volumeMounts"]}
    (copies,) = spec["initContainers"]
    assert copies["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN"]}


def test_pam_is_used_only_where_there_are_homes_and_authenticates_nobody() -> None:
    assert "UsePAM yes" in config({"home": {}})
    assert "UsePAM no" in config({})
    stack = dict(line.split()[0::2][:2] for line in made({}, "ConfigMap")["data"]["pam"].splitlines())
    assert stack["auth"] == stack["password"] == "pam_deny.so"


def test_a_home_that_is_added_replaces_the_pods() -> None:
    def checksum(spec: dict[str, Any]) -> str:
        found: str = made(spec, "Deployment")["spec"]["template"]["metadata"]["annotations"]["seltzer.dev/checksum"]
        return found

    assert checksum({}) != checksum({"home": {}})


def test_files_and_ports_can_be_forwarded() -> None:
    for line in ("AllowTcpForwarding yes", "AllowAgentForwarding yes", "Subsystem sftp internal-sftp"):
        assert line in config({}).splitlines()


SETS = {
    "login": {"authorizedKeysSecret": {"name": "team-keys"}},
    "logins": [
        {"name": "gpu", "image": "here/login-gpu:1", "users": ["ada", "bob"], "groups": ["ml"]},
        {"name": "all", "replicas": 3, "limits": {"cpuTime": "90s", "memory": "2Gi"}},
    ],
}


def of_sets(kind: str) -> dict[str, Any]:
    """The objects of a kind, by name."""
    found = (each for each in login.applied(cluster(SETS), Images()) if each["kind"] == kind)
    return {each["metadata"]["name"]: each for each in found}


def test_each_login_set_is_a_deployment_and_a_service_that_select_no_pods_of_another() -> None:
    names = {"demo-login", "demo-login-gpu", "demo-login-all"}
    assert names == set(of_sets("Deployment")) == set(of_sets("Service")) == set(of_sets("ConfigMap"))
    for name, deployment in of_sets("Deployment").items():
        selector = deployment["spec"]["selector"]["matchLabels"]
        assert of_sets("Service")[name]["spec"]["selector"] == selector
        pods = {other: each["spec"]["template"]["metadata"]["labels"] for other, each in of_sets("Deployment").items()}
        assert [other for other, labels in pods.items() if selector.items() <= labels.items()] == [name]


def test_a_login_set_has_its_own_image_and_replicas_and_the_clusters_host_key() -> None:
    gpu, every = of_sets("Deployment")["demo-login-gpu"], of_sets("Deployment")["demo-login-all"]
    assert (gpu["spec"]["replicas"], every["spec"]["replicas"]) == (1, 3)
    spec = gpu["spec"]["template"]["spec"]
    assert {each["image"] for each in (*spec["containers"], *spec["initContainers"])} == {"here/login-gpu:1"}
    volumes = {each["name"]: each for each in spec["volumes"]}
    assert volumes["host-key"]["secret"]["secretName"] == "demo-login"
    assert volumes["config"]["configMap"]["name"] == "demo-login-gpu"
    assert "authorized-keys" in volumes


def test_more_keys_of_the_built_in_user_open_no_account_of_a_source() -> None:
    more = {"login": SETS["login"]}
    named = {**more, "users": {"inline": {"users": [{"name": "user", "uid": 2001}]}}}
    for spec, has in ((more, True), (named, False)):
        pod = made(spec, "Deployment")["spec"]["template"]["spec"]
        assert ("authorized-keys" in {each["name"] for each in pod["volumes"]}) is has
        assert ("authorized-keys" in {each["name"] for each in pod["containers"][0]["volumeMounts"]}) is has


def test_only_the_users_and_groups_of_a_login_set_have_keys_there() -> None:
    before, _, match = of_sets("ConfigMap")["demo-login-gpu"]["data"]["sshd_config"].partition("Match ")
    assert before.endswith("AuthorizedKeysFile none\n"), "whoever no Match block is for has no keys"
    keys = "    AuthorizedKeysFile /etc/seltzer/users/%u /etc/seltzer/authorized-keys/%u\n"
    assert match == f"User ada,bob\n{keys}Match Group ml\n{keys}"
    assert "Match" not in of_sets("ConfigMap")["demo-login-all"]["data"]["sshd_config"]


def test_limits_of_sessions_are_pams() -> None:
    data = of_sets("ConfigMap")["demo-login-all"]["data"]
    assert data["limits"] == "* - cpu 2\n* - as 2097152\n", "minutes, rounded up, and KiB"
    assert "UsePAM yes" in data["sshd_config"]
    assert "pam_limits.so conf=/etc/seltzer/login/limits" in data["pam"]
    without = of_sets("ConfigMap")["demo-login-gpu"]["data"]
    assert "limits" not in without
    assert "pam_limits" not in without["pam"]


def test_people_can_log_in_when_each_set_that_has_pods_has_a_ready_one() -> None:
    finding = login.COMPONENT.finding
    ready = {"demo-login": 1, "demo-login-gpu": 1}
    assert finding(seen(SETS, **ready)).message == "login-all is starting"
    assert finding(seen(SETS, **ready, **{"demo-login-all": 1})).holds
    assert finding(seen({"login": {"replicas": 0}, "logins": [{"name": "gpu"}]}, **{"demo-login-gpu": 1})).holds
    none = finding(seen({"login": {"replicas": 0}, "logins": [{"name": "gpu", "replicas": 0}]}))
    assert (none.holds, none.reason) == (True, "NotWanted")


def seen(spec: dict[str, Any], **ready: int) -> Any:
    """A cluster with so many ready pods of Deployments, by their names."""
    deployments = {
        each.label: Deployment(metadata=ObjectMeta(), status=DeploymentStatus(ready_replicas=ready.get(each.name, 0)))
        for each in login.sets(cluster(spec))
    }
    return SimpleNamespace(cluster=cluster(spec), deployments=deployments, pods={})


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_the_scripts_are_for_any_shell(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(SCRIPTS[name])
    subprocess.run(["sh", "-n", str(tmp_path / name)], check=True)
    assert SCRIPTS[name].startswith("#!/bin/sh\n")


@pytest.mark.parametrize(("limit", "said"), [(0, "0 s"), (10, "10 s"), (90, "90 s"), (120, "2 min"), (5400, "90 min")])
def test_people_are_told_how_long_they_have(limit: int, said: str) -> None:
    announcement = SCRIPTS["leave"].partition("is_used || exit 0\n")[2].partition("waited=0")[0]
    command = f'LIMIT={limit}\nannounce() {{ echo "$1"; }}\n{announcement}'
    told = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
    assert f"Please log out within {said} and log in again" in told
