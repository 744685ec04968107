"""Configuration under a running job: a good change arrives without a restart, a bad one never reaches slurmctld."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from tests.harness import Cluster, Sandbox, until

MANIFEST = Path(__file__).with_name("config.yaml")
SLURM_CONF: str = next(yaml.safe_load_all(MANIFEST.read_text()))["spec"]["config"]["slurm.conf"]


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    """The cluster of config.yaml."""
    cluster = Cluster(installed, "config", "demo")
    cluster.create_from(MANIFEST)
    cluster.wait_ready()
    yield cluster
    cluster.delete_later()


@pytest.fixture(scope="module")
def job(cluster: Cluster) -> str:
    """A job that runs while all of these tests do their worst."""
    job = cluster.sbatch("exec sleep 3600", "--mem=1M")
    cluster.wait_for_job(job, "RUNNING")
    return job


@pytest.fixture(autouse=True)
def as_before(cluster: Cluster, job: str) -> Iterator[None]:
    """Each test begins with the configuration of config.yaml, and none hurts the job."""
    yield
    record = cluster.job(job)
    assert (record["JobState"], record["Restarts"]) == ("RUNNING", "0")
    found = cluster.configure({"slurm.conf": SLURM_CONF})
    assert (found["status"], found["reason"]) == ("True", "Applied"), found["message"]


def digest(cluster: Cluster) -> str:
    """What slurmctld runs with, in the words of its guard."""
    found: str = cluster.get("lease/demo-slurmctld")["metadata"]["annotations"]["seltzer.dev/config"]
    return found


def trials(cluster: Cluster) -> list[str]:
    """The pods and ConfigMaps of trials that are there."""
    selector = "app.kubernetes.io/component=trial"
    return cluster.kubectl("get", "pods,configmaps", f"--selector={selector}", "--output=name").stdout.split()


def test_all_files_of_an_administrator_arrive(cluster: Cluster) -> None:
    assert cluster.setting("SchedulerParameters") == "bf_continue,bf_interval=31"
    assert cluster.setting("DefMemPerCPU") == "16"
    assert "MaxTime=01:00:00" in cluster.login("scontrol", "show", "partition", "everyone")
    assert cluster.login("srun", "--partition=everyone", "--mem=1M", "hostname") == "cpu-0\n"
    refused = cluster.run("sbatch", "--job-name=forbidden", "--wrap=true")
    assert refused.code != 0
    assert "job_submit.lua says no" in refused.stderr
    node = cluster.kubectl("exec", "cpu-0", "--", "sh", "-c", "cat /var/spool/slurmd/conf-cache/*.conf").stdout
    assert "# seen on the nodes" in node
    assert "# no devices here" in node


def test_a_good_change_is_a_reconfigure_and_no_restart(cluster: Cluster) -> None:
    before = cluster.slurmctld()
    found = cluster.configure({"slurm.conf": f"{SLURM_CONF}KillWait=47\n"})
    assert (found["status"], found["reason"], found["message"]) == ("True", "Applied", "slurmctld runs with it")
    assert cluster.setting("KillWait") == "47 sec", "seen on the login pod"
    assert cluster.slurmctld() == before
    assert "jobs go on" in cluster.told("SlurmCluster", "demo")["Reconfiguring"]
    assert until("the trial is cleared away", lambda: trials(cluster) == [])


def test_a_key_that_needs_a_restart_gets_one_that_is_announced(cluster: Cluster) -> None:
    before = cluster.slurmctld()
    found = cluster.configure({"slurm.conf": f"{SLURM_CONF}CommunicationParameters=block_null_hash\n"})
    assert (found["status"], found["reason"]) == ("True", "Applied")
    assert cluster.setting("CommunicationParameters") == "block_null_hash"
    after = cluster.slurmctld()
    assert after != before
    assert after.split()[0] == before.split()[0], "in place: the pod is the same"
    told = cluster.told("SlurmCluster", "demo")["Restarting"]
    assert "since CommunicationParameters can't change otherwise; running jobs go on" in told


BAD = [
    ("NoSuchKey=1", "SlurmRefused", "NoSuchKey"),
    ("SchedulerType=sched/banana", "SlurmRefused", "sched/banana"),
    ("PartitionName=odd Nodes=set_cpu MaxTime=banana", "SlurmRefused", "banana"),
    ("this line says nothing", "Refused", "slurm.conf line 7: expected Key=Value"),
    ("Cluster\\\nName=evil", "Refused", "slurm.conf sets ClusterName, but jobs are accounted under that name"),
    ("SlurmctldH\\ost=evil", "Refused", "slurm.conf sets SlurmctldHost"),
    ('MailProg="/bin/true', "Refused", "MailProg: Slurm's configuration can't hold a value with a quote first"),
    ("PartitionName=cpu Nodes=ALL", "Refused", "which NodeSet cpu has too"),
    ("NodeSet=set_mine Feature=x", "Refused", "choose a name without set_"),
]


@pytest.mark.parametrize(("lines", "reason", "words"), BAD)
def test_what_slurm_would_not_take_never_reaches_it(cluster: Cluster, lines: str, reason: str, words: str) -> None:
    before, known = cluster.slurmctld(), digest(cluster)
    found = cluster.configure({"slurm.conf": f"{SLURM_CONF}{lines}\n"})
    assert (found["status"], found["reason"]) == ("False", reason), found["message"]
    assert words in found["message"]
    assert found["message"].endswith("the cluster goes on with the one before")
    assert (cluster.slurmctld(), digest(cluster)) == (before, known)
    assert cluster.condition("slurmcluster/demo", "Ready")["status"] == "True"
    assert cluster.login("srun", "--mem=1M", "hostname") == "cpu-0\n"
    assert found["message"] in cluster.told("SlurmCluster", "demo")[reason]


ADMISSION = [
    ({"slurm.conf": "ClusterName=evil"}, "remove it, and set spec.clusterName when you create a cluster"),
    ({"slurm.conf": 'MailProg="/bin/true\nStateSaveLocation=/tmp"'}, "remove it, and set spec.controller.storage"),
    ({"slurm.conf": "MailProg=\\\nAuthType=auth/none"}, "slurm.conf sets AuthType, but all daemons authenticate"),
    ({"slurm.conf": "Include /etc/passwd"}, "write its lines into slurm.conf instead"),
    ({"slurm.key": "x"}, "remove the file, since Seltzer generates the keys"),
    ({"../slurm.conf": "x"}, "a key of config isn't a file name"),
]


@pytest.mark.parametrize(("config", "words"), ADMISSION)
def test_what_is_plainly_seltzers_is_refused_when_it_is_applied(
    cluster: Cluster, config: dict[str, str], words: str
) -> None:
    patch = json.dumps({"spec": {"config": config}})
    answer = cluster.kubectl("patch", "slurmcluster", "demo", "--type=merge", f"--patch={patch}", check=False)
    assert answer.code != 0
    assert words in answer.stderr


@pytest.mark.parametrize("file", ["gres.conf", "plugstack.conf"])
def test_no_other_file_leads_to_one_that_nobody_checked(cluster: Cluster, file: str) -> None:
    before = digest(cluster)
    found = cluster.configure({file: "Include /etc/passwd\n"})
    assert (found["status"], found["reason"]) == ("False", "Refused")
    assert f"{file} includes another file, which can't be checked: write its lines into {file}" in found["message"]
    assert digest(cluster) == before
    cluster.configure({file: "# no devices here\n" if file == "gres.conf" else None})


def test_a_partition_option_that_slurm_refuses_is_reported_and_corrected(cluster: Cluster) -> None:
    before = cluster.slurmctld()
    ref = {"clusterRef": {"name": "demo"}, "replicas": 1}
    cluster.apply(cluster.manifest("NodeSet", "odd", {**ref, "partition": {"options": "MaxTime=banana"}}))
    until("the option is refused", lambda: cluster.condition("slurmcluster/demo", "ConfigValid")["status"] == "False")
    found = cluster.condition("slurmcluster/demo", "ConfigValid")
    assert (found["reason"], "banana" in found["message"]) == ("SlurmRefused", True), found["message"]
    assert cluster.login("srun", "--partition=cpu", "--mem=1M", "hostname") == "cpu-0\n"
    # The one before may still be being removed.
    until("the trial is there to be looked at", lambda: len(trials(cluster)) == 2)
    waiting = "waits for partition odd: see the condition ConfigValid of the SlurmCluster"
    until("the NodeSet says why", lambda: waiting in cluster.condition("nodeset/odd", "Ready").get("message", ""))
    cluster.patch("nodeset", "odd", {"spec": {"partition": {"options": "MaxTime=2:00:00"}}})
    cluster.wait("nodeset/odd", "Ready")
    assert cluster.login("srun", "--partition=odd", "--mem=1M", "hostname") == "odd-0\n"
    assert "MaxTime=02:00:00" in cluster.login("scontrol", "show", "partition", "odd")
    assert until("the trials are gone", lambda: trials(cluster) == [])
    assert cluster.slurmctld() == before
    cluster.kubectl("delete", "nodeset", "odd", "--timeout=180s")


def test_what_changes_while_slurmctld_hangs_is_there_when_it_wakes(cluster: Cluster) -> None:
    before = cluster.slurmctld()
    cluster.in_controller("pkill", "-STOP", "-P", "1")
    try:
        until("it is noticed", lambda: cluster.condition("slurmcluster/demo", "ControllerReady")["status"] == "False")
        cluster.patch("slurmcluster", "demo", {"spec": {"config": {"slurm.conf": f"{SLURM_CONF}KillWait=53\n"}}})
        until(
            "it is rolled out", lambda: cluster.condition("slurmcluster/demo", "ConfigValid")["reason"] == "RollingOut"
        )
    finally:
        cluster.in_controller("pkill", "-CONT", "-P", "1")
    assert cluster.config_settled()["reason"] == "Applied"
    cluster.wait_ready()
    assert cluster.setting("KillWait") == "53 sec"
    assert cluster.slurmctld() == before


def test_what_changes_while_there_is_no_slurmctld_is_there_when_it_comes_back(cluster: Cluster) -> None:
    """No Kubernetes node takes its pod for a while."""
    nodes = ("n1", "n2", "n3")
    try:
        cluster.sandbox.kubectl("cordon", *nodes)
        cluster.kubectl("delete", "pod", "--selector=app.kubernetes.io/component=slurmctld", "--timeout=180s")
        cluster.patch("slurmcluster", "demo", {"spec": {"config": {"slurm.conf": f"{SLURM_CONF}KillWait=59\n"}}})
        ref = {"clusterRef": {"name": "demo"}, "replicas": 0}
        cluster.apply(cluster.manifest("NodeSet", "late", {**ref, "partition": {"options": "MaxTime=3:00:00"}}))
        until("it says why", lambda: is_unschedulable(cluster))
        valid = partial(cluster.condition, "slurmcluster/demo", "ConfigValid")
        until("nobody can try it", lambda: valid().get("status") == "Unknown")
    finally:
        cluster.sandbox.kubectl("uncordon", *nodes)
    cluster.wait("slurmcluster/demo", "ControllerReady")
    assert cluster.config_settled()["reason"] == "Applied"
    cluster.wait_ready()
    assert cluster.setting("KillWait") == "59 sec"
    assert "MaxTime=03:00:00" in cluster.login("scontrol", "show", "partition", "late")
    cluster.kubectl("delete", "nodeset", "late", "--timeout=180s")


def is_unschedulable(cluster: Cluster) -> bool:
    told = cluster.condition("slurmcluster/demo", "ControllerReady")
    assert (told["status"], told["reason"]) == ("False", "Unschedulable"), told
    return "add Kubernetes nodes, or ask for less" in told["message"]


def test_a_persons_word_about_a_partition_is_kept_until_another_state_is_declared(cluster: Cluster) -> None:
    def state() -> str:
        answer = cluster.run("scontrol", "--oneliner", "show", "partition", "everyone")
        return dict(word.partition("=")[::2] for word in answer.stdout.split()).get("State", "")

    def declare(options: str) -> None:
        line = "PartitionName=everyone Nodes=set_cpu"
        found = cluster.configure({"slurm.conf": SLURM_CONF.replace(line, f"{line} {options}".rstrip())})
        assert found["reason"] == "Applied", found["message"]

    cluster.in_controller("scontrol", "update", "PartitionName=everyone", "State=DOWN")
    declare("MaxNodes=2")
    assert until("it answers", state) == "DOWN", "a reconfigure has forgotten it"
    before = cluster.slurmctld()
    cluster.in_controller("sh", "-c", "kill -9 $(ps --ppid 1 -o pid=,comm= | awk '/slurmctld/ {print $1}')")
    until("there is a new slurmctld", lambda: cluster.slurmctld() not in ("", before) and state())
    cluster.wait_ready()
    assert until("it answers", state) == "DOWN", "a crash has forgotten it"
    declare("State=INACTIVE")
    until("what is declared counts", lambda: state() == "INACTIVE")
    declare("")
    until("also that nothing is", lambda: state() == "UP")
