"""Files: a home on the login pod and all nodes, made on first use, and every way in which a volume can be wrong.

home.yaml is what an administrator applies. The volume's directory is made unfriendly as a file server would make it.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.first_hour import functions_as_jobs
from tests.harness import Answer, Cluster, Sandbox, until

from seltzer_sandbox.run.layout import Layout
from seltzer_sandbox.run.processes import Registry

MANIFEST = Path(__file__).with_name("home.yaml")
HOME = "/home/user"
SOMEBODY = 4321
# How Slurm ends a batch job whose output file can't be made.
UNWRITABLE = "0:53"
IDLE = "IDLE+DYNAMIC_NORM"
# Prints what is mounted.
MOUNTED = "cut -d' ' -f5 /proc/self/mountinfo"


@pytest.fixture(scope="module")
def bare(installed: Sandbox) -> Cluster:
    """A cluster whose home has a storage class that nobody knows. It is made first, since it takes its time."""
    cluster = Cluster(installed, "home-bare", "demo")
    cluster.create({"home": {"size": "2Mi", "className": "no-such-class"}}, cpu={"replicas": 1})
    return cluster


@pytest.fixture(scope="module")
def cluster(installed: Sandbox, bare: Cluster) -> Iterator[Cluster]:
    """The cluster of home.yaml."""
    cluster = Cluster(installed, "home", "demo")
    cluster.create_from(MANIFEST)
    cluster.wait("slurmcluster/demo", "HomeReady")
    cluster.wait_ready()
    yield cluster
    cluster.delete_later()
    bare.delete_later()


def shell(cluster: Cluster, command: str, user: str = "user") -> Answer:
    """A command on a login pod, in the user's home."""
    return cluster.seltzer("shell", "--user", user, "demo", "sh", "-c", command, check=False)


def root(cluster: Cluster, command: str) -> str:
    """A command of root on a login pod; in a home directory it would be another user's."""
    return cluster.kubectl("exec", "deployment/demo-login", "--container=login", "--", "sh", "-c", command).stdout


def on_node(cluster: Cluster, *words: str) -> str:
    """A job of somebody who has never been on a login pod: nothing there makes their home."""
    become = ("setpriv", "--reuid=user", "--regid=user", "--init-groups", "--reset-env", "srun", f"--chdir={HOME}")
    return cluster.kubectl("exec", "deployment/demo-login", "--container=login", "--", *become, *words).stdout


def remove_home(cluster: Cluster) -> None:
    """The volume as it was before anybody used it."""
    owner = f"setpriv --reuid=$(stat -c %u {HOME}) --clear-groups"
    remove = f"{owner} find {HOME} -mindepth 1 -delete; rmdir {HOME} 2>/dev/null || {owner} rmdir {HOME}"
    root(cluster, f"cd /; ! stat {HOME} >/dev/null 2>&1 || {{ {remove}; }}")


def batch(cluster: Cluster, script: str, *options: str) -> dict[str, str]:
    """The record of a batch job in its user's home, once it has ended."""
    become = "setpriv --reuid=user --regid=user --init-groups --reset-env"
    submit = shlex.join(["sbatch", "--parsable", f"--chdir={HOME}", *options, f"--wrap={script}"])
    job = root(cluster, f"cd / && {become} {submit}").strip()
    ended = f"scontrol show job {job} | grep -Eq 'JobState=(COMPLETED|FAILED)' && scontrol --oneliner show job {job}"
    return until("the job has ended", lambda: fields(root(cluster, ended)))


def fields(line: str) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in line.split())


def in_node(cluster: Cluster, command: str) -> str:
    """A command of root in the container of the node cpu-0."""
    return cluster.kubectl("exec", "cpu-0", "--container=slurmd", "--", "sh", "-c", command).stdout


def volume_of(cluster: Cluster) -> str:
    """The name of the PersistentVolume with the home directories."""
    found: str = cluster.get("pvc/demo-home")["spec"]["volumeName"]
    return found


@contextmanager
def read_only(cluster: Cluster) -> Iterator[None]:
    """The file server lets nobody write any more: the file system itself is read-only, wherever it is mounted."""
    layout = Layout(cluster.sandbox.name)
    hub = Registry(layout.records).get("hub")
    assert hub
    mount = ["nsenter", f"--target={hub.pid}", "--mount", "mount", "-o"]
    folder = str(layout.volumes / volume_of(cluster))
    subprocess.run([*mount, "remount,ro", folder], check=True, timeout=30)
    try:
        yield
    finally:
        subprocess.run([*mount, "remount,rw", folder], check=True, timeout=30)


@pytest.fixture
def volume(cluster: Cluster) -> Iterator[None]:
    """A volume on which nobody has a home; whatever a test makes of its directory is undone."""
    remove_home(cluster)
    yield
    root(cluster, "chown 0:0 /home && chmod 755 /home")
    remove_home(cluster)


def test_the_output_of_a_job_is_where_it_was_submitted(cluster: Cluster) -> None:
    job = shell(cluster, "mkdir -p project && cd project && sbatch --parsable --wrap 'hostname; pwd'").stdout.strip()

    def output() -> list[str] | None:
        said = shell(cluster, f"cat project/slurm-{job}.out").stdout.splitlines()
        return said if len(said) == 2 else None

    host, folder = until("the output is there", output)
    assert folder == f"{HOME}/project"
    assert host in ("cpu-0", "cpu-1")


def test_python_functions_run_as_jobs_as_the_guide_says(cluster: Cluster) -> None:
    answer = shell(cluster, f"export SUBMITIT_LOG_LEVEL=ERROR; {functions_as_jobs()}")
    assert answer.code == 0, answer.stderr
    values = answer.stdout.split()
    assert values[:3] == ["0.25", "1.0", "0.5"]
    assert "ZeroDivisionError: division by zero" in answer.stdout
    found = shell(cluster, "ls -d inverse-*").stdout.split()
    assert len(found) == 5, f"a job, an array and its three tasks: {found}"


def test_all_nodes_see_one_home_and_the_mounts(cluster: Cluster) -> None:
    root(cluster, "chmod 1777 /scratch && echo 42 >/scratch/data/answer")
    script = "hostname >$(hostname); hostname >/scratch/$(hostname); cat /data/answer; touch /data/mine"
    answer = shell(cluster, f"srun --nodes 2 sh -c '{script}'; cat cpu-0 /scratch/cpu-1")
    assert answer.stdout.split() == ["42", "42", "cpu-0", "cpu-1"]
    assert answer.stderr.count("Read-only file system") == 2


@pytest.mark.usefixtures("volume")
def test_a_home_is_made_by_the_first_job_and_only_its_user_can_read_it(cluster: Cluster) -> None:
    root(cluster, "chmod 777 /home")  # as many storage classes make it
    assert set(on_node(cluster, "--nodes=2", "stat", "-c", "%n:%U:%a", HOME).split()) == {f"{HOME}:user:700"}
    assert shell(cluster, "ls -A | sort").stdout.split() == [".bash_logout", ".bashrc", ".profile"]
    assert root(cluster, "ls -A /home").split() == ["user"], "nothing half-made is left"
    assert root(cluster, "stat -c %a /home").strip() == "755", "nobody can take the name of another user"
    other = "setpriv --reuid=4321 --regid=4321 --clear-groups ls /home/user 2>&1 || true"
    assert "Permission denied" in root(cluster, other)


@pytest.mark.usefixtures("volume")
@pytest.mark.parametrize("mode", ["1777", "1707"], ids=["root cannot give away", "root cannot write"])
def test_a_file_server_that_takes_root_for_nobody_lets_users_make_their_homes(cluster: Cluster, mode: str) -> None:
    """A directory of somebody else: root can't rename what isn't its own in it, or can't even write."""
    root(cluster, f"chmod {mode} /home && chown {SOMEBODY}:0 /home")
    assert on_node(cluster, "sh", "-c", "pwd; stat -c %U:%a .").split() == [HOME, "user:700"]
    assert root(cluster, "stat -c %u /home").strip() == str(SOMEBODY)
    remove_home(cluster)
    assert shell(cluster, "pwd; stat -c %U:%a .").stdout.split() == [HOME, "user:700"]


@pytest.mark.usefixtures("volume")
def test_where_nobody_can_make_a_home_a_person_gets_in_and_is_told_what_to_do(cluster: Cluster) -> None:
    root(cluster, f"chmod 755 /home && chown {SOMEBODY}:0 /home")
    answer = shell(cluster, "sinfo --noheader --format=%D")
    assert "You have no home directory" in answer.stderr
    assert "chmod 1777" in answer.stderr
    assert "Permission denied" in answer.stderr


@pytest.mark.usefixtures("volume")
def test_a_home_of_somebody_else_is_never_used_or_given_away(cluster: Cluster) -> None:
    root(cluster, f"mkdir -m 777 {HOME} && echo mine >{HOME}/file && chown {SOMEBODY} {HOME}")
    answer = shell(cluster, "touch stolen")
    assert answer.code == 1
    assert f"it belongs to user ID {SOMEBODY}" in answer.stderr
    assert root(cluster, f"stat -c %u {HOME}; ls {HOME}").split() == [str(SOMEBODY), "file"]


@pytest.mark.usefixtures("volume")
def test_jobs_of_a_user_whose_home_belongs_to_somebody_else_start_in_tmp(cluster: Cluster) -> None:
    root(cluster, f"mkdir -m 700 {HOME} && chown {SOMEBODY} {HOME}")
    assert on_node(cluster, "pwd") == "/tmp\n"
    job = batch(cluster, "pwd", "--output=/tmp/%j.out", "--nodelist=cpu-0")
    assert job["JobState"] == "COMPLETED"
    assert in_node(cluster, f"cat /tmp/{job['JobId']}.out").splitlines()[-1] == "/tmp"
    assert batch(cluster, "pwd")["ExitCode"] == UNWRITABLE, "its output would be in that directory"
    there = f"setpriv --reuid={SOMEBODY} --clear-groups ls -A {HOME}"
    assert root(cluster, f"stat -c %u {HOME}; {there}").split() == [str(SOMEBODY)], "nothing was put there"
    assert root(cluster, "sinfo --noheader --format=%T") == "idle\n", "no node is drained for it"


def test_without_a_fitting_storage_class_the_cluster_runs_and_says_what_is_missing(bare: Cluster) -> None:
    bare.wait("slurmcluster/demo", "Ready")
    bare.wait("slurmcluster/demo", "LoginReady")
    found = until("it says so", lambda: bare.condition("slurmcluster/demo", "HomeReady").get("message", ""))
    bare.wait("slurmcluster/demo", "HomeReady", "False")
    found = bare.condition("slurmcluster/demo", "HomeReady")["message"]
    assert "no volume of class no-such-class" in found
    assert "set spec.home.className to a class that can make ReadWriteMany volumes" in found
    until("people can log in", lambda: shell(bare, "echo in").stdout == "in\n")


def test_another_class_brings_the_home_and_a_full_one_is_explained(bare: Cluster) -> None:
    bare.patch("slurmcluster", "demo", {"spec": {"home": {"className": "limited"}}})
    bare.wait("slurmcluster/demo", "HomeReady")
    until("a login pod has it", lambda: "/home" in root(bare, MOUNTED).split())
    bare.kubectl("rollout", "status", "deployment/demo-login", "--timeout=180s")
    until("a node has it", lambda: "/home" in in_node(bare, MOUNTED).split())
    until("the pod that had it bound is gone", lambda: not bare.get("pod/demo-home"))
    assert shell(bare, "pwd").stdout == f"{HOME}\n"
    remove_home(bare)
    root(bare, "head -c 8M /dev/zero >/home/everything 2>/dev/null; true")
    answer = shell(bare, "echo in")
    assert "No space left on device" in answer.stderr
    root(bare, "rm /home/everything")
    assert shell(bare, "pwd").stdout == f"{HOME}\n"


def test_a_job_on_a_full_volume_fails_and_the_next_one_does_not(bare: Cluster) -> None:
    assert shell(bare, "pwd").stdout == f"{HOME}\n"
    root(bare, "head -c 8M /dev/zero >/home/everything 2>/dev/null; true")
    job = batch(bare, "echo done || { echo $(hostname): full >/tmp/full; exit 7; }")
    assert (job["JobState"], job["ExitCode"]) == ("FAILED", "7:0"), "the job ran, and its program was told"
    assert in_node(bare, "cat /tmp/full") == "cpu-0: full\n"
    root(bare, "rm /home/everything")
    job = batch(bare, "echo done")
    assert job["JobState"] == "COMPLETED"
    assert shell(bare, f"cat slurm-{job['JobId']}.out").stdout == "done\n"
    assert bare.slurm_nodes() == {"cpu-0": IDLE}


def test_on_a_read_only_volume_people_read_their_files_and_their_jobs_write_elsewhere(bare: Cluster) -> None:
    assert shell(bare, "echo mine >file").code == 0
    with read_only(bare):
        assert shell(bare, "cat file").stdout == "mine\n"
        assert on_node(bare, "sh", "-c", "pwd; cat file").split() == [HOME, "mine"]
        assert batch(bare, "cat file")["ExitCode"] == UNWRITABLE
        job = batch(bare, "cat file", "--output=/tmp/%j.out")
        assert in_node(bare, f"cat /tmp/{job['JobId']}.out") == "mine\n"
        assert bare.slurm_nodes() == {"cpu-0": IDLE}
    remove_home(bare)
    with read_only(bare):
        answer = shell(bare, "pwd")
        assert (answer.code, answer.stdout) == (0, "/\n")
        assert f"{HOME} can't be made (Read-only file system)" in answer.stderr
        assert "Your administrator has to repair the volume" in answer.stderr
        assert "sbatch --output=/tmp/%j.out" in answer.stderr
        assert on_node(bare, "pwd") == "/tmp\n"
    assert on_node(bare, "pwd") == f"{HOME}\n", "it is made as soon as it can be"


def test_a_volume_that_is_lost_is_named_and_running_pods_keep_it(bare: Cluster) -> None:
    name = volume_of(bare)
    bare.sandbox.delete("pv", name, "--wait=false")  # in this order: Kubernetes protects a volume that is in use
    bare.sandbox.kubectl("patch", "pv", name, "--type=merge", '--patch={"metadata":{"finalizers":null}}')
    bare.wait("slurmcluster/demo", "HomeReady", "False")
    found = bare.condition("slurmcluster/demo", "HomeReady")
    assert found["reason"] == "VolumeLost"
    assert f"restore PersistentVolume {name}" in found["message"]
    assert shell(bare, "pwd").stdout == f"{HOME}\n"
    assert batch(bare, "true")["JobState"] == "COMPLETED"
