"""Two people at work: homes of their own on one file server, jobs in two namespaces, and a login pod that is replaced.

people.yaml is what an administrator applies; the volumes that its claims name are made here, for a folder of the
sandbox.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.harness import Answer, Cluster, Sandbox, until
from tests.ssh_client import Keys, Ssh, host_key

from seltzer_sandbox.run.layout import Layout

FILE = Path(__file__).with_name("people.yaml")
SPACE, TEAM = "people", "people-team"
VOLUMES = ("people-homes", "people-team-homes")
PARTITIONS = ("cpu", "gpu")
PEOPLE = ("alice", "bob")
SOMEBODY = 4321
# As in people.yaml, and what sshd and sackd may take once the sessions have ended.
TIMEOUT, GRACE = 10.0, 30.0


def volume(name: str, folder: Path) -> dict[str, Any]:
    """A folder that all machines see, as a volume of the class that nobody provides."""
    everywhere = {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "local": {"path": str(folder)},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [everywhere]}},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def cluster(installed: Sandbox, keys: Keys) -> Iterator[Cluster]:
    folder = Layout(installed.name).volumes / "people"
    folder.mkdir()
    installed.apply(*(volume(name, folder) for name in VOLUMES))
    for space in (SPACE, TEAM):
        installed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
    installed.kubectl("apply", "-f", str(FILE))
    cluster = Cluster(installed, SPACE, "demo", user="alice")
    users = cluster.get("slurmcluster/demo")["spec"]["users"]["inline"]["users"]
    listed = [{**each, "authorizedKeys": [keys.public(each["name"])]} for each in users]
    cluster.patch("slurmcluster", "demo", {"spec": {"users": {"inline": {"users": listed}}}})
    cluster.wait_ready()
    installed.kubectl("wait", "-n", TEAM, "--for=condition=Ready", "nodeset/gpu", "--timeout=180s")
    yield cluster
    cluster.delete_later()
    installed.later(lambda: installed.delete("namespace", TEAM, "--wait=false"))
    installed.later(lambda: installed.delete("pv", *VOLUMES, "--wait=false"))


class Person:
    """Somebody with a key, and what they type."""

    def __init__(self, ssh: Ssh, name: str) -> None:
        self._ssh, self._name = ssh, name

    def types(self, *command: str, terminal: bool = False, stdin: str = "") -> Answer:
        options = ("-tt",) if terminal else ()
        return self._ssh.from_here(self._name, *command, user=self._name, options=options, stdin=stdin)

    def greeting(self) -> str:
        """What a login shell shows first."""
        return self.types(terminal=True, stdin="exit\n").stdout


@pytest.fixture(scope="module")
def people(cluster: Cluster, keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Person]:
    client = Ssh(cluster, keys, tmp_path_factory.mktemp("ssh"))
    client.know(host_key(cluster))
    until("a key opens", lambda: client.from_here("carol", "true", user="carol").code != 255)
    return {name: Person(client, name) for name in (*PEOPLE, "carol")}


def root(cluster: Cluster, command: str) -> str:
    """A command of root on a login pod; in a home directory it would be another user's."""
    return cluster.kubectl("exec", "deployment/demo-login", "--container=login", "--", "sh", "-c", command).stdout


def test_the_first_login_makes_the_home_of_one_and_the_first_job_that_of_the_other(
    cluster: Cluster, people: dict[str, Person]
) -> None:
    assert "alice" not in root(cluster, "ls -A /home").split()
    answer = people["alice"].types("pwd; stat -c %U:%G:%a .; ls -A")
    assert answer.stdout.split() == ["/home/alice", "alice:alice:700", ".bash_logout", ".bashrc", ".profile"]
    assert "bob" not in root(cluster, "ls -A /home").split()
    become = "setpriv --reuid=bob --regid=bob --init-groups --reset-env"
    first_job = "srun --partition=gpu --chdir=/home/bob sh -c 'hostname; pwd; stat -c %U:%G:%a .'"
    assert root(cluster, f"cd / && {become} {first_job}").split() == ["gpu-0", "/home/bob", "bob:bob:700"]
    assert people["bob"].types("stat -c %U:%G:%a ~").stdout.strip() == "bob:bob:700"


def test_the_output_of_everybodys_jobs_is_where_they_submitted_them(
    cluster: Cluster, people: dict[str, Person]
) -> None:
    submitted = {}
    for name in PEOPLE:
        each = "; ".join(f"sbatch --parsable --partition={each} --wrap 'hostname; id -un; pwd'" for each in PARTITIONS)
        answer = people[name].types(f"mkdir -p work && cd work && {each}")
        assert answer.code == 0, answer.stderr
        submitted[name] = answer.stdout.split()
    for name, jobs in submitted.items():
        for job, partition in zip(jobs, PARTITIONS, strict=True):
            file = f"work/slurm-{job}.out"
            cluster.wait_for_job(job, "COMPLETED")
            assert cluster.login("cat", file, user=name).split() == [f"{partition}-0", name, f"/home/{name}/work"]


@pytest.mark.parametrize(("name", "other"), [PEOPLE, PEOPLE[::-1]])
def test_nobody_looks_into_the_home_of_another(people: dict[str, Person], name: str, other: str) -> None:
    """From the login pod, and from a job in either namespace; each sees their own, though its file is open to all."""
    write = "umask 0; echo of $(id -un) >~/file"
    for each in PEOPLE:
        assert people[each].types(write).code == 0
    look = f"cat ~/file; ls /home/{other}; cat /home/{other}/file"
    jobs = (f"srun --partition={partition} sh -c '{look}; true'" for partition in PARTITIONS)
    answer = people[name].types("; ".join([look, *jobs]))
    assert answer.stdout == f"of {name}\n" * 3
    assert answer.stderr.count("Permission denied") == 6


def test_a_greeting_has_ones_own_jobs_and_the_reasons_of_drained_nodes(
    cluster: Cluster, people: dict[str, Person]
) -> None:
    mine = cluster.hold("--partition=cpu")
    held = ("sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true")
    theirs = cluster.login(*held, user="bob").strip()
    cluster.login("scontrol", "update", "nodename=gpu-0", "state=drain", "reason=the fan makes noise", user="root")
    # It leaves out what Slurm doesn't answer in two seconds.
    greets(
        people["alice"],
        "demo: 0 of 2 nodes idle, 1 down or drained.",
        "Your jobs: 1 running, 0 pending.",
        "gpu-0: the fan makes noise",
    )
    greets(people["bob"], "Your jobs: 0 running, 1 pending.")
    cluster.login("scontrol", "update", "nodename=gpu-0", "state=resume", user="root")
    cluster.login("scancel", theirs, user="bob")
    cluster.release(mine)
    said = greets(people["alice"], "2 of 2 nodes idle.")
    assert "Your jobs" not in said
    assert "noise" not in said


def greets(person: Person, *words: str) -> str:
    """The greeting, once it has all these words."""

    def greeting() -> str | None:
        found = person.greeting()
        return found if all(each in found for each in words) else None

    return until(f"the greeting says {words}", greeting)


def test_a_greeting_says_that_slurmctld_is_down_and_people_work_with_their_files(
    cluster: Cluster, people: dict[str, Person]
) -> None:
    cluster.patch("slurmcluster", "demo", {"spec": {"controller": {"hold": True}}})
    down = "demo: slurmctld doesn't answer right now. Jobs that run go on; try again in a while."
    until("it says so", lambda: down in people["alice"].greeting())
    assert people["alice"].types("echo still >~/still; cat ~/still").stdout == "still\n"
    cluster.patch("slurmcluster", "demo", {"spec": {"controller": {"hold": False}}})
    until("it has the cluster's state again", lambda: "2 of 2 nodes idle." in people["alice"].greeting())


def test_ssh_is_refused_while_ones_home_belongs_to_somebody_else(cluster: Cluster, people: dict[str, Person]) -> None:
    assert people["carol"].types("echo in").stdout == "in\n"
    root(cluster, f"chown {SOMEBODY} /home/carol")
    answer = people["carol"].types("echo in")
    assert answer.code not in (0, 255), "she has authenticated, and has no session"
    said = answer.stdout + answer.stderr
    assert f"/home/carol isn't yours: it belongs to user ID {SOMEBODY}" in said
    assert "in\n" not in said.splitlines(keepends=True)
    root(cluster, "chown carol:carol /home/carol")
    assert people["carol"].types("echo in").stdout == "in\n"


def test_a_session_is_told_of_a_replacement_and_ends_within_its_limit(
    cluster: Cluster, people: dict[str, Person]
) -> None:
    (old,) = (name for name in cluster.pods() if "login" in name)
    inside = ("exec", old, "--container=login", "--")
    with ThreadPoolExecutor(1) as side:
        session = side.submit(people["alice"].types, "touch /tmp/in; exec sleep 600", terminal=True)
        until("the session is there", lambda: cluster.kubectl(*inside, "test", "-e", "/tmp/in", check=False).code == 0)
        cluster.kubectl("delete", "pod", old, "--wait=false")
        began = time.monotonic()
        answer = session.result()
        lasted = time.monotonic() - began
    assert "Please log out within 10 s and log in again; your jobs go on." in answer.stdout
    assert answer.code == 255, "the connection ended, not the command"
    assert lasted < TIMEOUT + GRACE, "nothing was killed for exceeding the pod's grace"
    until("the old pod is gone", lambda: not cluster.get(f"pod/{old}"))
    # The new pod may not be Ready yet. What is in the home outlives the old one.
    until("the new pod shows the file", lambda: people["alice"].types("cat ~/file").stdout == "of alice\n")
