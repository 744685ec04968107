"""`down` leaves the machine as it was before `up`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tests.harness import Sandbox, succeed, until

from seltzer import paths
from seltzer_sandbox.run.layout import Layout


def test_down_leaves_the_machine_as_it_was(spare: str) -> None:
    before = machine(spare)
    succeed("sandbox", "up", "--name", spare, "--nodes", "2")
    during = machine(spare)
    assert all(during[kind] - before[kind] for kind in ("processes", "namespaces", "cgroups", "files")), (
        "it saw nothing"
    )
    assert during["links"] == before["links"], "no link of ours on the host"
    assert during["rules"] == before["rules"], "no rule of ours on the host"
    assert during["routes"] == before["routes"], "no route of ours on the host"
    assert during["mounts"] == before["mounts"], "no mount of ours on the host"
    assert during["settings"] == before["settings"], "no setting of the kernel changed"
    # Faults must not keep anything alive: frozen processes take no signals, for example.
    Sandbox(spare).command("node", "freeze", "n1")
    Sandbox(spare).command("node", "cut", "n2")
    during = machine(spare)
    succeed("sandbox", "down", "--name", spare)

    left: dict[str, set[str]] = {}

    def as_before() -> bool:
        # The kernel clears namespaces away in its own time.
        left.update({kind: things - before[kind] for kind, things in machine(spare).items()})
        for kind in ("processes", "namespaces"):
            left[kind] &= during[kind]  # what others of the machine have started since is theirs
        return not any(left.values())

    try:
        until("nothing is left", as_before)
    except AssertionError:
        raise AssertionError(f"left behind: { {kind: things for kind, things in left.items() if things} }") from None


def test_sandboxes_live_side_by_side(sandbox: Sandbox, spare: str) -> None:
    succeed("sandbox", "up", "--name", spare, "--nodes", "1")
    other = Sandbox(spare)
    other.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "elsewhere"}})
    assert sandbox.kubectl("get", "configmap", "elsewhere", check=False).code != 0
    succeed("sandbox", "up", "--name", spare, "--nodes", "2")
    assert other.ready("n2") == "True", "a sandbox can grow"
    succeed("sandbox", "down", "--name", spare)
    for node in ("n1", "n2", "n3"):
        sandbox.wait_for_node(node, "True")


def machine(name: str) -> dict[str, set[str]]:
    """Everything of the machine that this sandbox could leave something in; not what belongs to others beside it."""
    found = processes(name)
    return {
        "processes": set(found.values()),
        "namespaces": namespaces(found) | named_namespaces(),
        "mounts": {line for line in Path("/proc/self/mountinfo").read_text().splitlines() if not is_systemds(line)},
        "links": {line.split(":")[1] for line in output("ip", "-oneline", "link").splitlines()},
        "routes": set(output("ip", "route", "show", "table", "all").splitlines()),
        "rules": rules(),
        "settings": settings(),
        "cgroups": {folder for folder, _, _ in os.walk("/sys/fs/cgroup") if not of_others(folder, name)},
        "files": {str(path) for path in (paths.state() / "sandboxes").glob("*") if not is_another(path.name, name)},
    }


def of_others(cgroup: str, name: str) -> bool:
    """Whether another sandbox, or a unit of systemd that these tests aren't in, has this cgroup or line of
    /proc/PID/cgroup.
    """
    if owner := re.search(r"/(seltzer-[a-z0-9-]+)", cgroup):
        return owner[1] != Layout(name).cgroup
    unit = re.search(r"/((system|user|machine)\.slice|init\.scope)(/|$)", cgroup)
    ours = {line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines()} - {"/"}
    return unit is not None and not any(each in cgroup for each in ours)


def is_systemds(mount: str) -> bool:
    """Whether systemd makes and removes this mount with units and sessions that come and go."""
    return mount.split()[4].startswith(("/run/credentials/", "/run/user/"))


def is_another(file: str, name: str) -> bool:
    """Whether a file of the state folder is another sandbox's: its folder or its lock."""
    owner = file.removeprefix(".").removesuffix(".lock")
    return owner != name and re.fullmatch(r"[a-z0-9-]+", owner) is not None


def processes(name: str) -> dict[str, str]:
    """All by their ids but the kernel's own, this one and its children, other sandboxes' and those of other workers."""
    parents, found = {}, {}
    for line in output("ps", "-e", "-o", "pid=,ppid=,lstart=,args=").splitlines():
        pid, parents[pid], rest = line.split(None, 2)
        if "2" not in (pid, parents[pid]) and parents[pid] != str(os.getpid()):
            found[pid] = f"{pid} {rest}"
    strangers = {pid for pid in found if is_a_workers(pid, parents)}
    for pid in set(found) - strangers:
        with suppress(OSError):  # it has just ended
            if any(of_others(line, name) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()):
                strangers.add(pid)
    return {pid: line for pid, line in found.items() if pid not in strangers}


def is_a_workers(pid: str, parents: dict[str, str]) -> bool:
    """Whether another worker of this test run has started it. What outlives its parent is nobody's child."""
    run = str(os.getppid()) if "PYTEST_XDIST_WORKER" in os.environ else ""
    ancestors = [pid]
    while parents.get(ancestors[-1], "0") != "0":
        ancestors.append(parents[ancestors[-1]])
    return run in ancestors and str(os.getpid()) not in ancestors


def namespaces(processes: Iterable[str]) -> set[str]:
    """Those that these processes are in. Not by lsns, which fails when a process ends while it looks."""
    found: set[str] = set()
    for process in processes:
        with suppress(OSError):
            found.update(str(link.readlink()) for link in Path(f"/proc/{process}/ns").iterdir())
    return found


def settings() -> set[str]:
    """The kernel's settings that are nobody's own. The kubelet likes to change some of them."""
    found = set()
    for folder in ("vm", "kernel"):
        for path in sorted(Path("/proc/sys", folder).rglob("*")):
            try:
                found.add(f"{path}={path.read_text()}")
            except OSError:
                continue
    changing = ("random/uuid", "ns_last_pid", "random/entropy_avail", "pty/nr", "perf_event_max")
    return {setting for setting in found if not any(word in setting for word in changing)}


def named_namespaces() -> set[str]:
    folder = Path("/run/netns")
    return {str(path) for path in folder.iterdir()} if folder.exists() else set()


def rules() -> set[str]:
    """The host's, without what they have counted."""
    found = set(output("nft", "list", "ruleset").splitlines())
    if shutil.which("iptables-save"):
        found |= {line for line in output("iptables-save").splitlines() if not line.startswith("#")}
    return {re.sub(r"packets \d+ bytes \d+|\[\d+:\d+\]", "", line) for line in found}


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
