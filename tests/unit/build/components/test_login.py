"""A login pod waits for its people, and nobody gets more from PAM than a home directory."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.builders.objects import cluster

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


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_the_scripts_are_for_any_shell(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(SCRIPTS[name])
    subprocess.run(["sh", "-n", str(tmp_path / name)], check=True)
    assert SCRIPTS[name].startswith("#!/bin/sh\n")
