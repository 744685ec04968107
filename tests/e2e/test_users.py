"""Users of the spec and of a ConfigMap: jobs, ssh, changes under running pods, removal, and what is refused."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.harness import PATIENCE, Answer, Cluster, Sandbox, until

FILE = Path(__file__).with_name("users.yaml")
CONTAINERS = ("slurmctld", "slurmrestd", "login", "sackd", "slurmd")


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    cluster = Cluster(installed, "users", "demo", user="alice")
    cluster.create_from(FILE)
    cluster.wait_ready()
    until("the users are published", lambda: condition(cluster)["reason"] == "Published")
    homes = "for each in alice bob carol; do install -d -o $each -g $each -m 700 /home/$each; done"
    cluster.kubectl("exec", "deployment/demo-login", "--container=login", "--", "sh", "-c", homes)
    yield cluster
    cluster.delete_later()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    folder = tmp_path_factory.mktemp("keys")
    made = {name: folder / name for name in ("alice", "bob")}
    for file in made.values():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True, timeout=30)
    return made


def condition(cluster: Cluster) -> dict[str, Any]:
    """UsersReady, once it is about the cluster as it is now."""
    found = cluster.get(f"slurmcluster/{cluster.name}")
    for each in found.get("status", {}).get("conditions", []):
        if each["type"] == "UsersReady" and each["observedGeneration"] == found["metadata"]["generation"]:
            return dict(each)
    return {"reason": "", "message": "", "status": ""}


def inline(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.get("slurmcluster/demo")["spec"]["users"]["inline"]
    return found


def change(cluster: Cluster, *users: Mapping[str, Any], without: tuple[str, ...] = ()) -> None:
    """Add users to the spec, or take some out."""
    known = {each["name"]: each for each in inline(cluster)["users"]} | {each["name"]: dict(each) for each in users}
    listed = [each for name, each in known.items() if name not in without]
    cluster.patch("slurmcluster", "demo", {"spec": {"users": {"inline": {"users": listed}}}})


def people(cluster: Cluster, text: str) -> None:
    """Replace the ConfigMap's text."""
    cluster.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "people"}, "data": {"users.yaml": text}}
    )


def containers(cluster: Cluster) -> dict[str, tuple[str, str]]:
    """Pod and container of every daemon, by a name for people."""
    pods = cluster.pods().items()
    return {
        f"{name}/{each['name']}": (name, each["name"])
        for name, pod in pods
        for each in pod["spec"]["containers"]
        if each["name"] in CONTAINERS
    }


def everywhere(cluster: Cluster, *command: str) -> dict[str, str]:
    """What a command prints in the container of every daemon."""

    def ask(where: tuple[str, str]) -> str:
        return cluster.kubectl("exec", where[0], f"--container={where[1]}", "--", *command, check=False).stdout

    found = containers(cluster)
    with ThreadPoolExecutor(len(found)) as several:
        return dict(zip(found, several.map(ask, found.values()), strict=True))


def lives(cluster: Cluster) -> dict[str, object]:
    """What would change if a pod were replaced or a container restarted."""
    return {
        name: (pod["metadata"]["uid"], [each["restartCount"] for each in pod["status"]["containerStatuses"]])
        for name, pod in cluster.pods().items()
    }


def ssh(cluster: Cluster, key: Path, user: str, *command: str, service: str = "demo-login") -> Answer:
    with cluster.sandbox.forward(f"service/{service}", 22, cluster.namespace) as address:
        host, _, port = address.rpartition(":")
        quiet = ("UserKnownHostsFile=/dev/null", "StrictHostKeyChecking=no", "BatchMode=yes", "LogLevel=ERROR")
        options = [word for each in (*quiet, "IdentitiesOnly=yes", "IdentityAgent=none") for word in ("-o", each)]
        line = ["ssh", "-F", "none", *options, "-i", str(key), "-p", port, f"{user}@{host}", *command]
        done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, input="", check=False)
        return Answer(done.returncode, done.stdout, done.stderr)


def test_the_containers_of_all_daemons_know_the_same_users(cluster: Cluster) -> None:
    found = everywhere(cluster, "getent", "passwd", "alice", "bob", "carol")
    assert {name.partition("/")[2] for name in found} == set(CONTAINERS)
    assert set(found.values()) == {
        "alice:*:2001:2001:Alice Example:/home/alice:/bin/bash\n"
        "bob:*:2002:2002::/home/bob:/bin/bash\n"
        "carol:*:2003:2003::/home/carol:/bin/bash\n"
    }


def test_jobs_run_as_their_users_with_all_their_groups(cluster: Cluster) -> None:
    ids = {user: cluster.login("srun", "id", user=user).strip() for user in ("alice", "bob", "carol")}
    assert ids == {
        "alice": "uid=2001(alice) gid=2001(alice) groups=2001(alice),3001(team)",
        "bob": "uid=2002(bob) gid=2002(bob) groups=2002(bob)",
        "carol": "uid=2003(carol) gid=2003(carol) groups=2003(carol),3001(team),3002(lab)",
    }


def test_who_is_not_in_the_spec_neither_logs_in_nor_submits(cluster: Cluster) -> None:
    """The images have no such user, and a number isn't enough."""
    assert "user" not in cluster.login("getent", "passwd", user="alice").split(":")
    assert cluster.run("true", user="user").code != 0
    become = ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups")
    words = ("exec", "deployment/demo-login", "--container=login", "--", *become, "sbatch", "--wrap=true")
    answer = cluster.kubectl(*words, check=False)
    assert answer.code != 0
    assert "no longer a user of this cluster" in answer.stderr


def test_nobody_reads_the_job_script_of_somebody_else(cluster: Cluster) -> None:
    job = cluster.login(
        *("sbatch", "--parsable", "--nodelist=cpu-0", "--output=/dev/null", "--wrap=sleep 300 # secret"), user="alice"
    ).strip()
    cluster.wait_for_job(job, "RUNNING")
    assert "secret" in cluster.login("scontrol", "write", "batch_script", job, "-", user="alice")
    asked = cluster.run("scontrol", "write", "batch_script", job, "-", user="bob")
    assert "secret" not in asked.stdout + asked.stderr
    read = ("srun", "--nodelist=cpu-0", "cat", f"/var/spool/slurmd/job{int(job):05}/slurm_script")
    own = (read[0], f"--jobid={job}", "--overlap", *read[1:])
    until("the script is on the node", lambda: "secret" in cluster.login(*own, user="alice"))
    answer = cluster.run(*read, user="bob")
    assert "Permission denied" in answer.stderr
    assert "secret" not in answer.stdout
    cluster.login("scancel", job, user="alice")


def test_a_key_opens_the_account_of_its_user_and_no_other(cluster: Cluster, keys: Mapping[str, Path]) -> None:
    known = {each["name"]: each for each in inline(cluster)["users"]}
    lines = {name: file.with_suffix(".pub").read_text().strip() for name, file in keys.items()}
    change(cluster, *({**known[name], "authorizedKeys": [line]} for name, line in lines.items()))
    until("alice's key opens", lambda: ssh(cluster, keys["alice"], "alice", "true").code == 0)
    assert ssh(cluster, keys["bob"], "bob", "id", "-un").stdout == "bob\n"
    for name, account in (("alice", "bob"), ("bob", "alice"), ("alice", "carol"), ("alice", "root"), ("bob", "slurm")):
        answer = ssh(cluster, keys[name], account, "id")
        assert "Permission denied (publickey)" in answer.stderr, f"{name} as {account}: {answer}"


def test_a_login_set_has_users_and_limits_of_its_own(cluster: Cluster, keys: Mapping[str, Path]) -> None:
    staff = {"name": "staff", "users": ["alice"], "limits": {"memory": "2Gi", "cpuTime": "30m"}}
    cluster.patch("slurmcluster", "demo", {"spec": {"logins": [staff]}})
    service = "demo-login-staff"
    until("the set is ready", lambda: replicas(cluster, service) == 1)
    answer = ssh(cluster, keys["alice"], "alice", "ulimit -H -v; ulimit -H -t; srun id -un", service=service)
    assert answer.stdout == f"{2 * 1024 * 1024}\n{30 * 60}\nalice\n", answer.stderr
    assert "Permission denied (publickey)" in ssh(cluster, keys["bob"], "bob", "id", service=service).stderr
    assert ssh(cluster, keys["bob"], "bob", "id", "-un").stdout == "bob\n", "the other set is open to all"
    there = cluster.seltzer("shell", "--login", "staff", "--user", "bob", "demo", "hostname")
    assert there.stdout.startswith(f"{service}-")
    change_of_group = {**staff, "users": [], "groups": ["team"], "replicas": 2}
    cluster.patch("slurmcluster", "demo", {"spec": {"logins": [change_of_group]}})
    until("the change is out", lambda: replicas(cluster, service) == 2)
    assert ssh(cluster, keys["alice"], "alice", "id", "-un", service=service).stdout == "alice\n"
    assert "Permission denied (publickey)" in ssh(cluster, keys["bob"], "bob", "id", service=service).stderr


def test_a_login_set_that_is_taken_out_leaves_nothing(cluster: Cluster) -> None:
    kinds, of_set = "deployments,services,configmaps,networkpolicies,pods", "app.kubernetes.io/component=login-staff"
    listed = ("get", kinds, "--selector", of_set, "--output=name")
    assert len(cluster.kubectl(*listed).stdout.split()) >= 5
    cluster.patch("slurmcluster", "demo", {"spec": {"logins": []}})
    until("all is gone", lambda: not cluster.kubectl(*listed).stdout.split())
    assert cluster.login("srun", "id", "-un", user="alice") == "alice\n"


def replicas(cluster: Cluster, deployment: str) -> int:
    """How many pods of the set are ready and as the spec says now; 0 until there is one."""
    found = cluster.kubectl("get", "deployment", deployment, "--output=json", check=False)
    if found.code:
        return 0
    status = json.loads(found.stdout)
    current = status["metadata"]["generation"] == status["status"].get("observedGeneration")
    only = status["status"].get("replicas", 0) == status["status"].get("updatedReplicas", 0)
    return int(status["status"].get("readyReplicas", 0)) if current and only else 0


def test_a_change_reaches_every_container_and_restarts_none(cluster: Cluster) -> None:
    before = lives(cluster)
    change(cluster, {"name": "dave", "uid": 2004, "groups": ["team"]})
    until("all know dave", lambda: set(everywhere(cluster, "id", "-nG", "dave").values()) == {"dave team\n"})
    alice = next(each for each in inline(cluster)["users"] if each["name"] == "alice")
    change(cluster, {**alice, "groups": ["team", "lab"]})
    until("a job has the new group, too", lambda: "3002(lab)" in cluster.login("srun", "id", user="alice"))
    assert lives(cluster) == before


def test_a_removed_user_is_out_and_their_job_goes_on(cluster: Cluster, keys: Mapping[str, Path]) -> None:
    script = "until [ -e /tmp/now ]; do sleep 0.2; done; sbatch --wrap=true >/tmp/said 2>&1; sleep 1; exit 0"
    options = ("--parsable", "--nodelist=cpu-0", "--chdir=/tmp", "--output=/dev/null")
    job = cluster.login("sbatch", *options, f"--wrap={script}", user="bob").strip()
    cluster.wait_for_job(job, "RUNNING")
    after = (
        "sbatch",
        "--parsable",
        "--chdir=/tmp",
        "--output=/dev/null",
        f"--dependency=afterany:{job}",
        "--wrap=true",
    )
    queued = cluster.login(*after, user="bob").strip()
    needs_login = cluster.login(*after, "--export=NONE", user="bob").strip()
    change(cluster, without=("bob",))
    gone = "bob:*:2002:2002::/home/bob:/usr/sbin/nologin\n"
    until("bob is out", lambda: set(everywhere(cluster, "getent", "passwd", "bob").values()) == {gone})
    assert "Permission denied (publickey)" in ssh(cluster, keys["bob"], "bob", "id").stderr
    assert ssh(cluster, keys["alice"], "alice", "true").code == 0
    assert cluster.jobs()[job] == "RUNNING"
    assert "bob" in cluster.login("squeue", "--noheader", "--format=%u", user="alice").split()
    cluster.kubectl("exec", "cpu-0", "--", "touch", "/tmp/now")
    cluster.wait_for_job(job, "COMPLETED")
    said = cluster.kubectl("exec", "cpu-0", "--", "cat", "/tmp/said").stdout
    assert "no longer a user of this cluster" in said
    cluster.wait_for_job(queued, "COMPLETED")
    # Their login shell is nologin now, from which slurmd gets the login environment.
    held = "user_env_retrieval_failed_requeued_held"
    until("the other queued job is held", lambda: cluster.job(needs_login)["Reason"] == held)
    cluster.login("scancel", needs_login, user="root")
    told = cluster.told("SlurmCluster", "demo")
    assert "bob may no longer log in" in told["UsersRemoved"]


def test_nobody_else_gets_the_id_of_a_removed_user(cluster: Cluster) -> None:
    change(cluster, {"name": "eve", "uid": 2002})
    until("eve is refused", lambda: "uid 2002 belongs to bob" in condition(cluster)["message"])
    assert "ConfigMap demo-uids" in condition(cluster)["message"], "it says how to release an ID"
    rows = {row.split()[0]: row for row in cluster.seltzer("users", "demo").stdout.splitlines()}
    assert rows["bob"].split()[-1] == "removed"
    assert "refused: uid 2002 belongs to bob" in rows["eve"]
    assert rows["alice"].split()[:3] == ["alice", "2001", "alice,team,lab"]
    change(cluster, without=("eve",))
    until("all is well again", lambda: condition(cluster)["status"] == "True")


BAD = """
users:
  - {name: carol, uid: 2003, groups: [lab]}
  - {name: frank, uid: 500}
  - {name: grace, uid: 2003}
  - {name: root, uid: 2010}
  - {name: henry, uid: 2011, shel: /bin/sh}
  - {name: ivan, uid: 2012}
  - {name: alice, uid: 2013}
groups:
  - {name: lab, gid: 3002}
"""


def test_bad_entries_of_a_config_map_harm_no_other(cluster: Cluster) -> None:
    people(cluster, BAD)
    until("ivan is known", lambda: set(everywhere(cluster, "id", "-u", "ivan").values()) == {"2012\n"})
    refused = {each["name"]: each["why"] for each in cluster.get("slurmcluster/demo")["status"]["users"]["refusals"]}
    assert set(refused) == {"frank", "grace", "root", "henry", "alice"}
    assert "uid 500 belongs to the system" in refused["frank"]
    assert "uid 2003 belongs to carol" in refused["grace"]
    assert "shel" in refused["henry"]
    assert condition(cluster)["reason"] == "EntriesRefused"
    assert set(everywhere(cluster, "id", "-u", "alice", "carol").values()) == {"2001\n2003\n"}


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        pytest.param(lambda cluster: people(cluster, "users: [}"), "isn't YAML", id="broken"),
        pytest.param(lambda cluster: people(cluster, "users: []"), "lists no users", id="empty"),
        pytest.param(
            lambda cluster: cluster.sandbox.delete("configmap", "people", "-n", "users"), "no ConfigMap", id="gone"
        ),
    ],
)
def test_a_source_that_fails_changes_nothing(cluster: Cluster, spoil: Any, why: str) -> None:
    before = everywhere(cluster, "getent", "passwd", "carol", "ivan")
    spoil(cluster)
    until("the condition says so", lambda: why in condition(cluster)["message"])
    found = condition(cluster)
    assert (found["status"], found["reason"]) == ("False", "SourceFailed")
    assert "its users stay as they were" in found["message"]
    assert everywhere(cluster, "getent", "passwd", "carol", "ivan") == before


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ({"name": "zoe", "uid": 999}, "should be greater than or equal to 1000"),
        ({"name": "zoe", "uid": 2001}, "two users with one uid could read each other's files"),
        ({"name": "Zoe", "uid": 2020}, "not a name that Slurm and the shell can use"),
        (
            {"name": "zoe", "uid": 2020, "authorizedKeys": ["k" * 1_048_576]},
            "Too long: may not be more than 2048 bytes",
        ),
        ({"name": "zoe", "uid": 2020, "shell": "zsh"}, "not the full path of a program"),
    ],
)
def test_the_api_server_refuses_what_can_be_seen_at_once(cluster: Cluster, user: dict[str, Any], why: str) -> None:
    spec = yaml.safe_load(FILE.read_text().partition("---")[0])
    spec["spec"]["users"]["inline"]["users"].append(user)
    with pytest.raises(AssertionError) as refused:
        cluster.apply(spec)
    assert why in str(refused.value)
