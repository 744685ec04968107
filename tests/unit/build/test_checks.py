"""What checks add to pods and to slurm.conf: nothing where there are none, and no new pod for a changed list."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.builders.objects import cluster, nodeset

from seltzer.api.labels import CHECKS
from seltzer.api.nodeset import NodeSet
from seltzer.build import checks, config
from seltzer.build import nodeset as nodesets
from seltzer.build.images import Images

IMAGES = Images()
DISK = {"name": "disk", "use": "disk", "args": ["/tmp=5%"]}
GATE = {"name": "gate", "command": "test -e /ok", "when": "before", "onFail": "comment", "timeout": "5s"}
CLEAN = {"name": "clean", "command": "true", "when": "after", "interval": "1h30m"}


def having(*wanted: dict[str, Any]) -> NodeSet:
    return nodeset({"checks": list(wanted)})


def slurmd(one: NodeSet) -> dict[str, Any]:
    (container,) = nodesets.pod(one, cluster(), IMAGES, "cpu-0")["spec"]["containers"]
    found: dict[str, Any] = container
    return found


def test_a_nodeset_without_checks_has_the_pods_that_it_always_had() -> None:
    container = slurmd(having())
    assert checks.FOLDER not in str(container)
    assert container["command"][3:5] == ["seltzer", "/usr/sbin/slurmd"]
    assert CHECKS not in nodesets.pod(having(), cluster(), IMAGES, "cpu-0")["metadata"]["annotations"]


def test_the_runner_becomes_slurmd() -> None:
    without, container = slurmd(having()), slurmd(having(DISK))
    words = ["/bin/bash", "/etc/seltzer/checks/runner", "slurmd"]
    assert container["command"] == [*without["command"][:4], *words, *without["command"][4:]]
    assert {"name": "checks", "mountPath": "/etc/seltzer/checks", "readOnly": True} in container["volumeMounts"]


def test_only_the_first_check_replaces_the_pods() -> None:
    hashes = [nodesets.template(having(*each), cluster(), IMAGES) for each in ((), (DISK,), (DISK, GATE), (CLEAN,))]
    assert len(set(hashes)) == 2
    assert hashes[0] != hashes[1]


def test_a_changed_list_has_another_digest() -> None:
    digests = {checks.digest(having(*each)) for each in ((DISK,), (DISK, GATE), (GATE, DISK), (CLEAN,))}
    assert len(digests) == 4
    pod = nodesets.pod(having(DISK), cluster(), IMAGES, "cpu-0")
    assert pod["metadata"]["annotations"][CHECKS] == checks.digest(having(DISK))


def test_the_pods_mount_what_the_runner_reads() -> None:
    found = checks.config_map(having(DISK, GATE, CLEAN), cluster())
    assert found["metadata"]["name"] == "cpu.checks"
    assert found["metadata"]["namespace"] == "ns"
    assert found["data"]["list"] == ("disk interval drain 60 30\ngate before comment 60 5\nclean after drain 5400 30\n")
    assert found["data"]["check.disk"] == "check_disk /tmp=5%\n"
    assert found["data"]["check.gate"] == "test -e /ok\n"
    assert {"runner", "library"} < found["data"].keys()


@pytest.mark.parametrize("script", ["runner", "library"])
def test_bash_can_read(script: str, tmp_path: Path) -> None:
    file = tmp_path / script
    file.write_text(checks.config_map(having(DISK), cluster())["data"][script])
    assert subprocess.run(["bash", "-n", str(file)], capture_output=True, text=True, check=False).stderr == ""


def test_every_check_to_use_is_a_function_of_the_library() -> None:
    library = checks.config_map(having(DISK), cluster())["data"]["library"]
    for name in ("clock", "disk", "gpu", "mounts", "network"):
        assert f"\ncheck_{name}() {{\n" in library
        assert checks.config_map(having({"name": "x", "use": name}), cluster())["data"]["check.x"] == f"check_{name}\n"


@pytest.mark.parametrize(
    ("wanted", "lines", "files"),
    [
        ((), [], set()),
        ((DISK,), [], set()),
        ((GATE,), ["Prolog=seltzer-before"], {"seltzer-before"}),
        ((CLEAN,), ["Epilog=seltzer-after"], {"seltzer-after"}),
        ((GATE, CLEAN), ["Prolog=seltzer-before", "Epilog=seltzer-after"], {"seltzer-before", "seltzer-after"}),
    ],
)
def test_prolog_and_epilog_are_there_if_a_check_needs_them(
    wanted: tuple[dict[str, Any], ...], lines: list[str], files: set[str]
) -> None:
    found = config.render(cluster(), [having(*wanted)]).files
    text = found["slurm.conf"].splitlines()
    assert [line for line in text if line.startswith(("Prolog=", "Epilog="))] == lines
    assert {name for name in found if name.startswith("seltzer-")} == files
    held = "SchedulerParameters=batch_sched_delay=1"
    assert (f"{held},nohold_on_prolog_fail" if lines else held) in text


def test_a_sites_prolog_runs_too() -> None:
    of = cluster({"config": {"slurm.conf": "Prolog=/opt/site/prolog\nEpilog=/opt/site/epilog\n"}})
    text = config.render(of, [having(GATE, CLEAN)]).files["slurm.conf"]
    assert all(line in text for line in ("Prolog=seltzer-before", "Prolog=/opt/site/prolog", "Epilog=/opt/site/epilog"))


def test_on_a_node_without_checks_a_job_doesnt_wait() -> None:
    script = config.render(cluster(), [having(GATE)]).files["seltzer-before"]
    assert "/etc/seltzer/checks/runner before" in script
    assert subprocess.run(["sh", "-c", script], check=False).returncode == 0
