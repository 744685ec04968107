"""The `seltzer sandbox` commands: what they print, what they refuse, and that `up` repairs."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest
from tests.harness import SELTZER, Sandbox, seltzer, succeed, until


def refused(*words: str, env: dict[str, str] | None = None, code: int = 1) -> str:
    """The one line that a command says when it can't do what it was asked for."""
    answer = seltzer(*words, env=env)
    assert answer.code == code, answer
    assert "Traceback" not in answer.stderr
    (line,) = [line for line in answer.stderr.splitlines() if line.startswith("error: ")]
    return line


def test_status_tells_people_and_programs_the_same(sandbox: Sandbox) -> None:
    for name in ("n1", "n2", "n3"):
        sandbox.wait_for_node(name, "True")
    status = json.loads(sandbox.command("status", "--output", "json"))
    assert status["up"] is True
    assert [(node["name"], node["state"], node["ready"]) for node in status["nodes"]] == [
        (name, "running", "True") for name in ("n1", "n2", "n3")
    ]
    text = sandbox.command("status")
    assert status["server"] in text
    assert all(node["address"] in text for node in status["nodes"])


def test_list_tells_which_sandboxes_run(sandbox: Sandbox) -> None:
    listed = json.loads(succeed("sandbox", "list", "--output", "json"))
    assert {"name": sandbox.name, "running": True} in listed
    assert f"{sandbox.name} " in succeed("sandbox", "list")


def test_kubectl_passes_its_words_and_its_exit_code_on(sandbox: Sandbox) -> None:
    shown = succeed("sandbox", "kubectl", "--name", sandbox.name, "get", "nodes", "-o", "name")
    assert shown.split() == ["node/n1", "node/n2", "node/n3"]
    assert seltzer("sandbox", "kubectl", "--name", sandbox.name, "get", "node", "n9").code == 1
    helped = succeed("sandbox", "kubectl", f"--name={sandbox.name}", "get", "--help")
    assert "--field-selector" in helped, "kubectl's help, not ours"
    # Neither "--" nor an option behind it is ours.
    show = ("--dry-run=client", "--output=jsonpath={.spec.containers[0].args}")
    words = ("run", "a", "--image=x", *show, "--", "ls", "--name")
    assert json.loads(succeed("sandbox", "kubectl", "--name", sandbox.name, *words)) == ["ls", "--name"]


def test_the_kubeconfig_works_on_its_own(sandbox: Sandbox, tmp_path: Path) -> None:
    copy = tmp_path / "kubeconfig"
    copy.write_text(sandbox.command("kubeconfig"))
    path = sandbox.command("kubeconfig", "--path").strip()
    assert Path(path).read_text() == copy.read_text()
    assert Path(path).stat().st_mode & 0o077 == 0, "it holds a key"
    assert sandbox.kubectl(f"--kubeconfig={copy}", "get", "nodes", "-o", "name").stdout.count("node/") == 3


def test_logs_are_there_for_every_program(sandbox: Sandbox) -> None:
    assert sandbox.command("logs", "n1/kubelet", "--tail", "5").count("\n") == 5
    assert "kube-apiserver.log <==" in sandbox.command("logs")
    assert "there is no log of 'nonsense'; there are " in refused("sandbox", "logs", "nonsense", "--name", sandbox.name)


def test_a_loaded_image_runs_on_every_node(sandbox: Sandbox, tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    pause = Path(json.loads(sandbox.command("status", "-o", "json"))["kubectl"]).with_name("pause")
    write_image(archive, "test.seltzer.dev/loaded:1", pause)
    sandbox.command("load", str(archive))
    labels = {"test": "loaded"}
    container = {"name": "main", "image": "test.seltzer.dev/loaded:1", "imagePullPolicy": "Never"}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "loaded"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }
    try:
        sandbox.apply(daemon_set)
        until("a pod for every node", lambda: len(sandbox.pods("test=loaded")) == 3)
        pods = sandbox.wait_for_pods("test=loaded")
        assert {pod["spec"]["nodeName"] for pod in pods} == {"n1", "n2", "n3"}
    finally:
        sandbox.delete("daemonset/loaded")


def write_image(archive: Path, name: str, program: Path) -> None:
    """The smallest image there is, as `docker save` writes it."""
    layer = BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(program, "program")
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    config = json.dumps(
        {
            "architecture": machine,
            "os": "linux",
            "config": {"Entrypoint": ["/program"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    )
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}])
    with tarfile.open(archive, "w") as tar:
        for file, content in (
            ("manifest.json", manifest.encode()),
            ("config.json", config.encode()),
            ("layer.tar", layer.getvalue()),
        ):
            member = tarfile.TarInfo(file)
            member.size = len(content)
            tar.addfile(member, BytesIO(content))


def test_up_restarts_what_has_stopped(sandbox: Sandbox) -> None:
    record = json.loads((state_of(sandbox) / "processes" / "kube-scheduler.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)
    until("status says so", lambda: seltzer("sandbox", "status", "--name", sandbox.name).code == 1)
    assert "kube-scheduler" in seltzer("sandbox", "status", "--name", sandbox.name).stdout
    sandbox.command("up")
    assert json.loads(sandbox.command("status", "-o", "json"))["up"] is True


def state_of(sandbox: Sandbox) -> Path:
    return Path(sandbox.command("kubeconfig", "--path").strip()).parent


def test_up_heals_every_node(sandbox: Sandbox) -> None:
    for fault, node in (("kill", "n1"), ("cut", "n2"), ("freeze", "n3")):
        sandbox.command("node", fault, node)
    sandbox.command("up")
    states = [node["state"] for node in json.loads(sandbox.command("status", "-o", "json"))["nodes"]]
    assert states == ["running"] * 3
    for node in ("n1", "n2", "n3"):
        sandbox.wait_for_node(node, "True")


@pytest.mark.parametrize("fault", ["kill", "cut", "freeze", "heal"])
def test_an_unknown_node_is_refused(sandbox: Sandbox, fault: str) -> None:
    for node in ("n4", "n0", "nonsense", "../n1", ""):
        line = refused("sandbox", "node", fault, node, "--name", sandbox.name)
        assert f"there is no node {node!r} in this sandbox; it has n1 to n3" in line


@pytest.mark.parametrize("command", ["status", "kubeconfig", "node kill n1", "load x.tar", "logs"])
def test_a_sandbox_that_is_not_up_says_how_to_start_it(command: str) -> None:
    assert "seltzer sandbox up" in refused("sandbox", *command.split(), "--name", "nowhere")
    assert "seltzer sandbox up" in refused("sandbox", "kubectl", "--name", "nowhere", "get", "pods")


def test_a_taken_port_is_refused(spare: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        line = refused("sandbox", "up", "--name", spare, "--port", port)
    assert f"port {port} on 127.0.0.1 can't be had" in line
    assert "--port" in line


def test_bad_words_are_refused(tmp_path: Path) -> None:
    assert "can't be a sandbox's name" in refused("sandbox", "up", "--name", "Not/A/Name")
    assert "1 to 100 nodes" in refused("sandbox", "up", "--name", "nodes", "--nodes", "0")
    assert "nodes" in refused("sandbox", "up", "--nodes", "many", code=2)
    assert "nonsense" in refused("sandbox", "nonsense", code=2)
    assert "which every node replaces" in refused("sandbox", "up", env={"XDG_STATE_HOME": "/var/lib/x"})


def test_two_commands_at_once_do_not_meet(sandbox: Sandbox) -> None:
    both = [
        subprocess.Popen([SELTZER, "sandbox", "up", "--name", sandbox.name], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    errors = [process.communicate(timeout=300)[1] for process in both]
    codes = [process.returncode for process in both]
    assert 0 in codes
    for code, error in zip(codes, errors, strict=True):
        assert code == 0 or "another command is working on sandbox" in error


def test_a_build_that_fails_names_its_log(tmp_path: Path, spare: str) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(
        '#!/bin/sh\n[ "$1" = version ] && echo go version go1.99.0 && exit\necho no compiler today >&2; exit 1\n'
    )
    go.chmod(0o755)
    env = {"PATH": f"{go.parent}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    line = refused("sandbox", "up", "--name", spare, env=env)
    log = Path(line.rpartition("see ")[2])
    assert "no compiler today" in log.read_text()


def test_after_control_c_up_and_down_simply_work(spare: str) -> None:
    command = [str(SELTZER), "sandbox", "up", "--name", spare, "--nodes", "1"]
    # A shell starts background jobs with SIGINT ignored, and we may be one.
    listen = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=listen)
    assert process.stderr is not None
    for line in process.stderr:
        if "keys and certificates" in line:  # a step is reported when it has ended: the API server is being started now
            break
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=300)[1]
    assert process.returncode == 130
    assert "Traceback" not in rest
    succeed("sandbox", "up", "--name", spare)
    assert json.loads(succeed("sandbox", "status", "--name", spare, "-o", "json"))["up"] is True
    succeed("sandbox", "down", "--name", spare)
    refused("sandbox", "status", "--name", spare)


def test_after_a_reboot_up_simply_works(spare: str) -> None:
    """A reboot leaves files of a sandbox and none of its processes; their ids may be others' by now."""
    succeed("sandbox", "up", "--name", spare, "--nodes", "1")
    before = Sandbox(spare)
    before.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}})
    records = sorted((state_of(before) / "processes").glob("*.json"))
    for file in records:
        record = json.loads(file.read_text())
        os.kill(record["pid"], signal.SIGKILL)
        file.write_text(json.dumps({**record, "pid": os.getpid(), "boot": "another"}))
    assert "is not up" in refused("sandbox", "status", "--name", spare)
    succeed("sandbox", "up", "--name", spare)
    Sandbox(spare).get("configmap", "kept")
