"""Login with a real ssh client: from this machine, and from a pod; with keys of the spec and of a Secret."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.harness import Cluster, Sandbox, pod, until
from tests.ssh_client import Keys, Ssh, host_key

SPACE = "login"
# Kubelets bring a changed Secret when they next look, which may be minutes later; what is in the spec comes at once.
KUBELET = 300.0
# The limit of locked memory that the sandbox can give its containers.
RAISED = "ulimit -l unlimited 2>/dev/null; ulimit -H -l"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def cluster(installed: Sandbox, keys: Keys) -> Iterator[Cluster]:
    cluster = Cluster(installed, SPACE, "demo")
    login = {"authorizedKeys": [keys.public("ada")], "authorizedKeysSecret": {"name": "more-keys"}}
    installed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    cluster.apply(secret(keys.public("grace")))
    cluster.create({"login": login}, cpu={"replicas": 1})
    cluster.apply(pod("elsewhere", "exec sleep infinity"))
    cluster.wait_ready()
    cluster.sandbox.wait_for_pods("test=elsewhere", SPACE)
    yield cluster
    cluster.delete_later()


def secret(*lines: str) -> dict[str, object]:
    data = {"authorized_keys": "".join(f"{line}\n" for line in lines)}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "more-keys"}, "stringData": data}


@pytest.fixture(scope="module")
def ssh(cluster: Cluster, keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Ssh:
    """A client who was told the cluster's host key."""
    client = Ssh(cluster, keys, tmp_path_factory.mktemp("ssh"))
    client.know(host_key(cluster))
    return client


def test_a_key_of_the_spec_opens_a_session_in_which_jobs_run(ssh: Ssh) -> None:
    answer = ssh.from_here("ada", "id -un; pwd; srun hostname; sbatch --parsable --output=/dev/null --wrap=true")
    assert answer.code == 0, answer.stderr
    assert answer.stdout.splitlines()[:3] == ["user", "/home/user", "cpu-0"]
    assert answer.stdout.splitlines()[3].isdigit()


def test_a_pod_reaches_the_login_service_by_its_name(ssh: Ssh) -> None:
    answer = ssh.from_a_pod("ada", "srun hostname; exit 5")
    assert (answer.code, answer.stdout) == (5, "cpu-0\n"), answer.stderr


def test_a_key_of_the_secret_opens_a_session_too(ssh: Ssh) -> None:
    assert ssh.from_here("grace", "whoami").stdout == "user\n"


def test_a_terminal_is_given(ssh: Ssh) -> None:
    assert ssh.from_here("ada", "tty", options=("-tt",)).stdout.startswith("/dev/pts/")


@pytest.mark.parametrize("user", ["root", "slurm", "nobody-here"])
def test_root_slurm_and_strangers_are_refused(ssh: Ssh, user: str) -> None:
    answer = ssh.from_here("ada", "id", user=user)
    assert answer.code == 255
    assert "Permission denied (publickey)" in answer.stderr


def test_nobody_gets_in_without_a_key_that_was_given(ssh: Ssh) -> None:
    assert "Permission denied (publickey)" in ssh.from_here("mallory", "id").stderr
    methods = ("-oPubkeyAuthentication=no", "-oPreferredAuthentications=password,keyboard-interactive")
    answer = ssh.from_here("ada", "id", options=methods)
    assert answer.code == 255
    assert "Permission denied (publickey)" in answer.stderr, "no password is asked for"


def test_who_fails_locks_nobody_else_out_of_the_same_address(ssh: Ssh) -> None:
    """By its own defaults sshd refuses an address for a while after four such tries."""
    with ThreadPoolExecutor(4) as several:
        refused = several.map(lambda _: ssh.from_here("mallory", "id").stderr, range(8))
    assert all("Permission denied (publickey)" in said for said in refused)
    assert ssh.from_here("ada", "whoami").stdout == "user\n"


def test_a_person_is_greeted_with_the_state_of_the_cluster(ssh: Ssh) -> None:

    def greeting() -> str | None:
        """Once the node is idle: a job of the tests before may be COMPLETING."""
        said = ssh.from_here("ada", options=("-tt",), stdin="exit\n").stdout
        return said if "demo: 1 of 1 nodes idle." in said else None

    assert "Debian" not in until("the state of the cluster is shown", greeting)


def test_slurms_options_are_completed(ssh: Ssh) -> None:
    """Only the shell's completion makes --vers the option's whole name."""
    assert "--version" in ssh.from_here("ada", options=("-tt",), stdin="sbatch --vers\t\nexit\n").stdout


@pytest.fixture(scope="module")
def crontab(cluster: Cluster) -> None:
    """An entry for every minute. It is stored early and looked at late: meanwhile its time comes."""
    cluster.login("sh", "-c", "echo '* * * * * hostname >>/tmp/ticks' | scrontab -")


def cron_jobs(cluster: Cluster) -> int:
    """How many jobs of crontabs wait or run."""
    jobs = cluster.login("scontrol", "--oneliner", "show", "jobs").splitlines()
    return sum("CronJob=Yes" in job.split() and "JobState=CANCELLED" not in job.split() for job in jobs)


def test_a_crontab_is_stored_and_waits_in_the_queue(cluster: Cluster, crontab: None) -> None:
    assert "* * * * * hostname >>/tmp/ticks" in cluster.login("scrontab", "-l").splitlines()
    assert cron_jobs(cluster) == 1


def test_files_go_both_ways_and_tools_are_there(ssh: Ssh, tmp_path: Path) -> None:
    """scp, sftp, rsync; rsync goes from the pod to itself by ssh, with the agent of the person."""
    (tmp_path / "data").write_text("1\n")
    assert ssh.copy("ada", str(tmp_path / "data"), "user@HOST:/tmp/data").code == 0
    assert ssh.copy("ada", "-O", "-r", "user@HOST:/tmp/data", str(tmp_path / "back")).code == 0, "as old clients do"
    assert (tmp_path / "back").read_text() == "1\n"
    script = (
        "set -e; ssh-add -l; options='-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR';"
        'rsync -e "ssh $options" /tmp/data localhost:/tmp/there; cat /tmp/there;'
        "tmux new-session -d 'sleep 60'; tmux list-sessions | wc -l; tmux kill-server;"
        "for tool in python3 vim nano less git curl htop file xz unzip seltzer-none;"
        "do command -v $tool || echo none; done;"
        "man -w sbatch slurm.conf; bash -lc 'type -t module'"
    )
    with ssh.agent("ada"):
        answer = ssh.from_here("ada", script, options=("-A",))
    assert answer.code == 0, answer.stderr
    lines = answer.stdout.splitlines()
    assert "ED25519" in lines[0]
    assert lines[1:3] == ["1", "1"]
    assert lines.count("none") == 1
    assert lines[-3:] == ["/usr/share/man/man1/sbatch.1.gz", "/usr/share/man/man5/slurm.conf.5.gz", "function"]


def test_rsync_goes_through_the_entry_that_seltzer_prints(cluster: Cluster, keys: Keys, tmp_path: Path) -> None:
    """From this machine to the pod and back, as the guide for the first hour has it."""
    mine = f"    IdentityFile {keys.private('ada')}\n    IdentitiesOnly yes\n    BatchMode yes\n"
    (tmp_path / "config").write_text(cluster.seltzer("ssh", "--print", "demo", "user").stdout + mine)
    (tmp_path / "tree" / "below").mkdir(parents=True)
    (tmp_path / "tree" / "below" / "file").write_text("1\n")
    rsync = f"rsync -a -e 'ssh -F {tmp_path}/config'"
    there_and_back = f"{rsync} {tmp_path}/tree demo:/tmp/ && {rsync} demo:/tmp/tree/ {tmp_path}/back"
    answer = cluster.sandbox.shell(there_and_back)
    assert answer.code == 0, answer.stderr
    assert (tmp_path / "back" / "below" / "file").read_text() == "1\n"


def test_a_job_has_the_limits_of_its_node_not_those_of_the_submitting_shell(cluster: Cluster, ssh: Ssh) -> None:
    of_slurmd = "for each in /proc/[0-9]*; do grep -qx slurmd $each/comm && grep 'open files' $each/limits; done"
    node = cluster.kubectl("exec", "cpu-0", "--container=slurmd", "--", "sh", "-c", of_slurmd, check=False).stdout
    answer = ssh.from_here("ada", "ulimit -n 321; ulimit -n; srun sh -c 'ulimit -n'")
    assert answer.stdout.split() == ["321", node.split()[3]], answer.stderr


def test_sessions_and_jobs_may_lock_as_much_memory_as_the_machine_allows(ssh: Ssh) -> None:
    """RDMA needs it. Without CAP_SYS_RESOURCE the sandbox can't raise the limit that it was started with."""
    most = subprocess.run(["sh", "-c", RAISED], capture_output=True, text=True, check=True).stdout.strip()
    assert ssh.from_here("ada", "ulimit -l; srun sh -c 'ulimit -l'").stdout.split() == [most, most]


def test_a_port_on_a_node_is_forwarded(cluster: Cluster, ssh: Ssh) -> None:
    """As for a notebook that runs in a job."""
    server = "import socket; s = socket.create_server(('', 8888)); s.accept()[0].sendall(b'hello')"
    job = cluster.login("sbatch", "--parsable", "--output=/dev/null", f'--wrap=python3 -c "{server}"').strip()

    def listens() -> str:
        words = ("exec", "cpu-0", "-c", "slurmd", "--", "grep", ":22B8 ", "/proc/net/tcp")
        return cluster.kubectl(*words, check=False).stdout

    until("the job listens", listens)
    assert ssh.from_here("ada", options=("-W", "cpu-0:8888")).stdout == "hello"
    cluster.wait_for_job(job, "COMPLETED")


def test_seltzer_ssh_and_cp_need_neither_an_address_nor_an_answer(cluster: Cluster, keys: Keys, tmp_path: Path) -> None:
    identity = ("-i", str(keys.private("ada")), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-q")
    answer = cluster.seltzer("ssh", "demo", "user", *identity, "--", "id -un; exit 7", check=False)
    assert (answer.code, answer.stdout) == (7, "user\n"), answer.stderr
    (tmp_path / "one").write_text("1\n")
    cluster.seltzer("cp", *identity, str(tmp_path / "one"), "demo:/tmp/one")
    cluster.seltzer("cp", *identity, "user@demo:/tmp/one", str(tmp_path / "two"))
    assert (tmp_path / "two").read_text() == "1\n"
    entry = cluster.seltzer("ssh", "--print", "demo").stdout
    assert host_key(cluster).rpartition(" ")[0] in entry or host_key(cluster) in entry
    assert "names a cluster" in cluster.seltzer("cp", "here", "there", check=False).stderr


def test_users_use_a_reservation_that_an_administrator_made(cluster: Cluster) -> None:
    reservation = (
        "reservation=class",
        "users=user",
        "nodes=cpu-0",
        "starttime=now",
        "duration=60",
        "flags=ignore_jobs",
    )
    cluster.login("scontrol", "create", *reservation, user="root")
    assert cluster.login("srun", "--reservation=class", "hostname") == "cpu-0\n"
    cluster.login("scontrol", "delete", "reservation=class", user="root")


def test_seff_measures_a_job_that_runs_and_says_what_is_not_known_of_one_that_ended(cluster: Cluster) -> None:
    burn = "x=$(head -c 64M /dev/zero | tr '\\0' x); while :; do :; done"
    job = cluster.login("sbatch", "--parsable", "--acctg-freq=task=1", "--output=/dev/null", "--wrap", burn).strip()

    def measured() -> bool:
        said = cluster.login("seff", job)
        used = re.search(r"^CPU Utilized so far: 00:(\d\d):(\d\d)$", said, re.MULTILINE)
        share = re.search(r"^CPU Efficiency so far: (\S+)% of", said, re.MULTILINE)
        held = re.search(r"^Memory Utilized so far: (\S+) MB$", said, re.MULTILINE)
        # How large the share is depends on what else the machine does.
        burnt = used and (int(used[1]) or int(used[2]) >= 2)
        return bool(burnt and share and float(share[1]) > 0 and held and float(held[1]) > 64)

    until("seff shows the CPU and the memory of the job", measured)
    cluster.login("scancel", job)
    until("the job has ended", lambda: "State: CANCELLED (exit code 0)" in cluster.login("seff", job))
    assert "CPU Utilized: unknown: this cluster keeps no accounting" in cluster.login("seff", job)
    assert "job 999999 isn't known" in cluster.login("sh", "-c", "seff 999999 2>&1 || true")


def test_a_changed_list_of_keys_counts_without_a_new_pod(cluster: Cluster, ssh: Ssh, keys: Keys) -> None:
    before = cluster.pods()
    cluster.apply(secret(keys.public("barbara")))
    cluster.patch("slurmcluster", "demo", {"spec": {"login": {"authorizedKeys": [keys.public("edsger")]}}})
    until("the new key of the spec opens, soon", lambda: ssh.from_here("edsger", "true").code == 0, 120)
    until("the new key of the Secret opens", lambda: ssh.from_here("barbara", "true").code == 0, KUBELET)
    assert "Permission denied" in ssh.from_here("ada", "true").stderr
    assert "Permission denied" in ssh.from_here("grace", "true").stderr
    logins = {name for name in cluster.pods() if "login" in name}
    assert logins == {name for name in before if "login" in name}


def test_a_pod_that_is_replaced_waits_for_a_session_in_which_slurm_still_answers(cluster: Cluster, ssh: Ssh) -> None:
    (old,) = (name for name in cluster.pods() if "login" in name)
    script = "touch /tmp/in; until [ -e /tmp/go ]; do sleep 0.2; done; srun hostname"
    with ThreadPoolExecutor(1) as side:
        session = side.submit(ssh.from_a_pod, "edsger", script)
        inside = ("exec", old, "--container=login", "--")
        until("the session is there", lambda: cluster.kubectl(*inside, "test", "-e", "/tmp/in", check=False).code == 0)
        cluster.sandbox.kubectl("--namespace", SPACE, "delete", "pod", old, "--wait=false")
        until("another pod is there", lambda: {name for name in cluster.pods() if "login" in name} - {old})
        cluster.wait("deployment/demo-login", "Available")
        cluster.kubectl(*inside, "touch", "/tmp/go")
        answer = session.result(180)
    assert (answer.code, answer.stdout) == (0, "cpu-0\n"), answer.stderr
    until("it goes when nobody is left", lambda: not cluster.get(f"pod/{old}"), 180)


def test_the_host_key_outlives_the_pod(cluster: Cluster, ssh: Ssh) -> None:
    (old,) = (name for name in cluster.pods() if "login" in name)
    cluster.sandbox.delete("pod", old, "--namespace", SPACE)
    until("another pod is there", lambda: {name for name in cluster.pods() if "login" in name} - {old})
    cluster.wait("deployment/demo-login", "Available")
    until("it answers with the key that is known", lambda: ssh.from_here("edsger", "true").code == 0)
    until("its Service leads there", lambda: ssh.from_a_pod("barbara", "srun hostname").stdout == "cpu-0\n")


def test_the_crontab_has_run_by_now_and_ends_when_it_is_removed(cluster: Cluster, crontab: None) -> None:
    ticks = ("exec", "cpu-0", "--container=slurmd", "--", "cat", "/tmp/ticks")
    until("it has run", lambda: cluster.kubectl(*ticks).stdout.startswith("cpu-0\n"), 240)
    cluster.login("scrontab", "-r")
    assert "hostname" not in cluster.run("scrontab", "-l").stdout
    until("its job is gone", lambda: cron_jobs(cluster) == 0)
