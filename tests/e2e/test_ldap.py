"""Users of a real directory: they appear, change and disappear while jobs run; slapd fails, and nothing is lost."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.harness import Cluster, Sandbox, until
from tests.slapd import PEOPLE, Slapd, group, ldif, user

from seltzer_sandbox.run.layout import Layout
from seltzer_sandbox.run.network import HUB
from seltzer_sandbox.run.pki import Authority
from seltzer_sandbox.run.processes import Registry

FILE = Path(__file__).with_name("ldap.yaml")
# From a change in the directory to the containers: seconds, but minutes on a busy machine.
ARRIVES = 120.0


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ada's."""
    file = tmp_path_factory.mktemp("keys") / "ada"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True, timeout=30)
    return file


@pytest.fixture(scope="module")
def slapd(installed: Sandbox, tmp_path_factory: pytest.TempPathFactory, key: Path) -> Iterator[Slapd]:
    """A directory at the usual port of the address that all nodes and pods of the sandbox reach."""
    hub = Registry(Layout(installed.name).records).get("hub")
    assert hub
    people = [user(name, uid, gidNumber=uid) for name, uid in (("bob", 2002), ("dan", 2004))]
    people.append(user("ada", 2001, gidNumber=2001, sshPublicKey=public(key)))
    groups = [group("ada", 2001), group("bob", 2002), group("dan", 2004), group("lab", 3001, "ada", "bob")]
    folder = tmp_path_factory.mktemp("slapd")
    inside = ("nsenter", "--target", str(hub.pid), "--net")
    directory = Slapd(folder, [*people, *groups], host=HUB, ports=(389, 636), inside=inside)
    directory.start()
    yield directory
    directory.stop()


@pytest.fixture(scope="module")
def cluster(installed: Sandbox, slapd: Slapd) -> Iterator[Cluster]:
    cluster = Cluster(installed, "ldap", "demo", user="ada")
    cluster.create_from(FILE)
    trust(cluster, slapd.authority)
    cluster.wait_ready()
    until("the users are published", lambda: condition(cluster)["reason"] == "Published", ARRIVES)
    homes = "for uid in 2001:ada 2002:bob 2003:cleo; do install -d -o ${uid%:*} -m 700 /home/${uid#*:}; done"
    cluster.kubectl("exec", "deployment/demo-login", "--container=login", "--", "sh", "-c", homes)
    yield cluster
    cluster.delete_later()


def public(key: Path) -> str:
    return key.with_suffix(".pub").read_text().strip()


def trust(cluster: Cluster, authority: str) -> None:
    data = {"ca.crt": authority}
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "directory-authority"}, "data": data})


def set_password(cluster: Cluster, password: str) -> None:
    cluster.patch("secret", "directory-reader", {"stringData": {"password": password}})


def condition(cluster: Cluster) -> dict[str, Any]:
    found = cluster.get("slurmcluster/demo").get("status", {}).get("conditions", [])
    return next((dict(each) for each in found if each["type"] == "UsersReady"), {"reason": "", "message": ""})


def wait_for(cluster: Cluster, reason: str, words: str = "") -> None:
    def as_expected() -> bool:
        found = condition(cluster)
        assert found["reason"] == reason and words in found["message"], found
        return True

    until(f"UsersReady has the reason {reason}", as_expected, ARRIVES)


def names(cluster: Cluster) -> set[str]:
    """The people who may log in, as the containers of all daemons know; each must know the same."""
    found = set()
    for pod, container in (("cpu-0", "slurmd"), ("demo-slurmctld", "slurmctld"), ("demo-login", "login")):
        where = pod if pod == "cpu-0" else f"deployment/{pod}"
        ask = ("exec", where, f"--container={container}", "--", "getent", "passwd", "ada", "bob", "cleo", "dan")
        lines = cluster.kubectl(*ask, check=False).stdout.splitlines()
        found.add(frozenset(line.split(":")[0] for line in lines if "nologin" not in line))
    assert len(found) == 1, found
    return set(found.pop())


def dan_has(uid: int) -> str:
    return f"dn: uid=dan,{PEOPLE}\nchangetype: modify\nreplace: uidNumber\nuidNumber: {uid}\n\n"


def lives(cluster: Cluster) -> dict[str, object]:
    """Each pod with its restarts; without those of trials, which come and go."""
    return {
        name: (pod["metadata"]["uid"], [each["restartCount"] for each in pod["status"]["containerStatuses"]])
        for name, pod in cluster.pods().items()
        if pod["metadata"]["labels"].get("app.kubernetes.io/component") != "trial"
    }


def ssh(cluster: Cluster, key: Path, user: str) -> subprocess.CompletedProcess[str]:
    """What `id -un` says over ssh."""
    with cluster.sandbox.forward("service/demo-login", 22, cluster.namespace) as address:
        host, _, port = address.rpartition(":")
        given = ("UserKnownHostsFile=/dev/null", "StrictHostKeyChecking=no", "BatchMode=yes", "LogLevel=ERROR")
        options = [word for each in (*given, "IdentitiesOnly=yes", "IdentityAgent=none") for word in ("-o", each)]
        line = ["ssh", "-F", "none", *options, "-i", str(key), "-p", port, f"{user}@{host}", "id", "-un"]
        return subprocess.run(line, capture_output=True, text=True, timeout=60, input="", check=False)


def test_a_user_logs_in_with_the_key_in_the_directory_as_long_as_it_is_there(
    cluster: Cluster, slapd: Slapd, key: Path
) -> None:
    until("her key opens", lambda: ssh(cluster, key, "ada").stdout == "ada\n", ARRIVES)
    assert "Permission denied" in ssh(cluster, key, "bob").stderr, "it opens no other account"
    change = f"dn: uid=ada,{PEOPLE}\nchangetype: modify\n"
    slapd.change(f"{change}delete: sshPublicKey\n\n")
    until("her key opens nothing", lambda: "Permission denied" in ssh(cluster, key, "ada").stderr, ARRIVES)
    slapd.change(f"{change}add: sshPublicKey\nsshPublicKey: {public(key)}\n\n")
    until("it is back", lambda: ssh(cluster, key, "ada").stdout == "ada\n", ARRIVES)


def test_people_of_a_directory_come_and_go_and_it_may_fail_while_jobs_run(cluster: Cluster, slapd: Slapd) -> None:
    before = lives(cluster)
    until("the containers know all", lambda: names(cluster) == {"ada", "bob", "dan"}, ARRIVES)
    assert cluster.login("srun", "--chdir=/", "id").strip() == "uid=2001(ada) gid=2001(ada) groups=2001(ada),3001(lab)"
    assert re.search(r"^ada +2001 .* ldap ", cluster.seltzer("users", "demo").stdout, re.MULTILINE)
    words = ("sbatch", "--parsable", "--chdir=/", "--output=/dev/null", "--wrap=sleep 600")
    job = cluster.login(*words, user="bob").strip()
    cluster.wait_for_job(job, "RUNNING")

    # Cleo comes, bob goes, and Ada gets another shell. Dan gets another ID, and keeps the one that his files have.
    slapd.change(
        f"dn: uid=bob,{PEOPLE}\nchangetype: delete\n\n"
        f"dn: uid=ada,{PEOPLE}\nchangetype: modify\nreplace: loginShell\nloginShell: /bin/sh\n\n"
        + dan_has(2999)
        + ldif([user("cleo", 2003, gidNumber=2003), group("cleo", 2003)], "changetype: add")
    )
    until("the containers know of the change", lambda: names(cluster) == {"ada", "cleo", "dan"}, ARRIVES)
    assert cluster.login("srun", "--chdir=/", "id", "-un", user="cleo").strip() == "cleo"
    assert cluster.login("getent", "passwd", "ada").strip().endswith(":/bin/sh")
    assert cluster.run(*words, user="bob").code != 0, "bob is nobody any more"
    assert cluster.jobs()[job] == "RUNNING"
    wait_for(cluster, "EntriesRefused", "dan has uid 2004, not 2999")
    assert "dan has uid 2004, not 2999" in cluster.seltzer("users", "demo").stdout
    assert cluster.login("id", "-u", "dan").strip() == "2004"

    # The directory dies. Everybody stays, and works on.
    slapd.stop()
    wait_for(cluster, "SourceFailed", "ldap can't be used since")
    assert "ldaps://10.90.0.1 can't be reached: nothing listens there" in condition(cluster)["message"]
    assert names(cluster) == {"ada", "cleo", "dan"}
    assert cluster.login("srun", "--chdir=/", "id", "-un").strip() == "ada"
    slapd.change(dan_has(2004))
    slapd.run()
    wait_for(cluster, "Published")
    assert cluster.jobs()[job] == "RUNNING"
    assert lives(cluster) == before, "no pod was replaced, and no container restarted"


def test_a_wrong_password_and_a_strange_certificate_are_named_and_mended_at_once(
    cluster: Cluster, slapd: Slapd, tmp_path: Path
) -> None:
    known = names(cluster)
    set_password(cluster, "guess")
    wait_for(cluster, "SourceFailed", "it doesn't accept the DN and password: correct the Secret that bindSecret names")
    set_password(cluster, "secret")
    wait_for(cluster, "Published")

    Authority(tmp_path, "ca").create()
    trust(cluster, (tmp_path / "ca.crt").read_text())
    wait_for(cluster, "SourceFailed", "ldaps://10.90.0.1 isn't trusted: its certificate isn't signed by an authority")
    trust(cluster, slapd.authority)
    wait_for(cluster, "Published")

    # Nobody at all is no answer.
    cluster.patch("slurmcluster", "demo", {"spec": {"users": {"ldap": {"userFilter": "(uid=nobody-here)"}}}})
    wait_for(cluster, "SourceFailed", "returned no users below dc=example,dc=com")
    cluster.patch("slurmcluster", "demo", {"spec": {"users": {"ldap": {"userFilter": None}}}})
    wait_for(cluster, "Published")
    assert names(cluster) == known
