"""A job's line in the journal is the job: what slurmrestd makes of it is the same job again, on real Slurm."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from tests.harness import REST_API, Cluster, Sandbox

from seltzer.slurm.http import Http
from seltzer.slurm.token import sign

pytestmark = pytest.mark.e2e

CONF = """
GresTypes=gpu
Licenses=matlab:10
SelectTypeParameters=CR_Core_Memory
JobSubmitPlugins=lua
NodeName=fake[0-7] NodeAddr=127.0.0.1 CPUs=16 RealMemory=64000 TmpDisk=1000 Gres=gpu:4 Features=big,fast State=DOWN
PartitionName=fake Nodes=fake[0-7] Default=YES State=DOWN
PartitionName=other Nodes=fake[0-7] State=DOWN
"""
SITE = """
function slurm_job_submit(job, partitions, uid)
    if job.name == "refuse" then
        slurm.log_user("the site says no")
        return slurm.ERROR
    elseif job.name == "break" then
        return job.name.no.such.thing
    elseif job.name == "change" then
        job.comment = "changed for " .. uid
    end
    return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid)
    return slurm.SUCCESS
end
"""

KEPT = [
    "",
    "--hold",
    "--array=1-10%3",
    "--array=1,5,9-12:2 --mail-type=BEGIN,END,ARRAY_TASKS",
    "--begin=now+1000 --time=5 --time-min=1 --no-requeue",
    "--time=UNLIMITED --requeue --nice=5",
    "--ntasks=3 --cpus-per-task=2 --nodes=1-2 --mem-per-cpu=100",
    "--nodes=3 --mem=1G --tmp=100 --contiguous",
    "--ntasks=4 --nodes=2 --ntasks-per-node=2 --mem=0",
    "--ntasks=4 --overcommit",
    "--ntasks=4 --ntasks-per-core=1 --threads-per-core=1",
    "--extra-node-info=1:2:1",
    "--hint=nomultithread --mincpus=2",
    "--exclusive",
    "--exclusive=user",
    "--oversubscribe",
    "--partition=fake,other --use-min-nodes --nodes=1-3",
    "--constraint=big --batch=big --exclude=fake3 --nodelist=fake[0-1]",
    "--prefer=fast",
    "--dependency=afterany:1 --kill-on-invalid-dep=yes",
    "--dependency=afterok:1 --kill-on-invalid-dep=no",
    "--gres=gpu:1 --gres-flags=enforce-binding",
    "--gres=gpu:1 --gres-flags=disable-binding",
    "--gpus=2 --cpus-per-gpu=2 --mem-per-gpu=100 --gpu-bind=closest --gpu-freq=high",
    "--gpus-per-node=2 --spread-job --switches=1@60",
    "--gpus-per-task=1 --ntasks=2",
    "--ntasks-per-gpu=1 --gpus=2",
    "--gpus-per-socket=1 --sockets-per-node=1",
    "--tres-per-task=cpu=3,gres/gpu:1 --ntasks=2",
    "--licenses=matlab:2 --wckey=key --extra=more --network=net --segment=1",
    "--output=/tmp/o-%j.txt --error=/tmp/e-%A_%a.txt --input=/dev/zero --chdir=/tmp --mail-user=a@b --mail-type=ALL",
    '--comment="a \'comment\', = \\"wörld\\"" --acctg-freq=task=30 --delay-boot=10',
    "--cpu-freq=high",
    "--cpu-freq=low-high:Performance",
    "--core-spec=1",
    "--thread-spec=1",
    "--priority=77 --container=/tmp/bundle --export=NONE",
]
"""What users give sbatch."""

LOST = {
    "--deadline=now+2hours --time=10": "deadline",
    "--profile=task": "profile",
    "--cluster-constraint=big": "cluster_features",
}
"""Options that Lua can't see, with what shows of them in a job's record."""

# A job that is put back is another one in these.
OTHER = {
    *("job_id", "array_job_id", "sluid", "step_id", "submit_line", "allocating_node", "state_description"),
    *("submit_time", "eligible_time", "accrue_time", "last_sched_evaluation", "start_time", "end_time"),
    *("preemptable_time", "stderr_expanded", "stdout_expanded", "state_reason", "association_id"),
}
# How far the scheduler has come with it.
SCHEDULING = {
    *("DEPENDENT", "PARTITION_ASSIGNED", "BACKFILL_ATTEMPTED", "SCHEDULING_ATTEMPTED"),
    *("ACCRUE_COUNT_CLEARED", "JOB_ACCRUE_TIME_RESET"),
}


@dataclass(frozen=True)
class Job:
    """A job as it was submitted, its line in the journal, and what became of the line."""

    line: Mapping[str, Any]
    record: Mapping[str, Any]
    again: Mapping[str, Any]
    environment: tuple[str, ...]
    environment_again: tuple[str, ...]


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    """Eight nodes that aren't there, so that jobs wait; a site with a script of its own."""
    cluster = Cluster(installed, "journal", "demo")
    cluster.create({"config": {"slurm.conf": CONF, "job_submit.lua": SITE}, "controller": {"keepJobs": True}})
    cluster.wait_ready()
    yield cluster
    cluster.delete_later()


@pytest.fixture(scope="module")
def jobs(cluster: Cluster) -> dict[str, Job]:
    """All jobs, by what sbatch was given, each submitted again from its line."""
    asked = [*KEPT, *LOST]
    script = "".join(f"sbatch --parsable {options} --wrap=true; " for options in asked)
    ids = cluster.login("sh", "-ec", script).split()
    lines = journal(cluster)
    before = directories(cluster)
    found = {options: before[int(id)] for options, id in zip(asked, ids, strict=True)}
    again = asyncio.run(put_back(cluster, [(lines[key_of(env)], text, env) for text, env in found.values()]))
    assert journal(cluster).keys() == lines.keys(), "what is put back has its line"
    records, after = show(cluster), directories(cluster)
    return {
        options: Job(lines[key_of(env)], records[int(old)], records[new], env, after[new][1])
        for (options, (_, env)), old, new in zip(found.items(), ids, again, strict=True)
    }


def journal(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """The lines about submissions, by their keys."""
    text = cluster.in_controller("cat", "/run/slurmctld-state/seltzer.journal").stdout
    lines = [json.loads(line) for line in text.split("\n") if line]
    return {line["key"]: line for line in lines if "key" in line}


def directories(cluster: Cluster) -> dict[int, tuple[str, tuple[str, ...]]]:
    """Each job's script and environment, as they are on the state volume."""
    read = """
import json, pathlib
jobs = pathlib.Path("/run/slurmctld-state").glob("hash.*/job.*")
texts = {job.name[4:]: ((job / "script").read_text(), (job / "environment").read_bytes()[4:].decode()) for job in jobs}
print(json.dumps(texts))
"""
    found: dict[str, list[str]] = json.loads(cluster.in_controller("python3", "-c", read).stdout)
    return {
        int(id): (script.rstrip("\0"), tuple(part for part in environment.split("\0") if part))
        for id, (script, environment) in found.items()
    }


def key_of(environment: tuple[str, ...]) -> str:
    return next(each for each in environment if each.startswith("SELTZER_JOB=")).partition("=")[2]


async def put_back(cluster: Cluster, jobs: list[tuple[dict[str, Any], str, tuple[str, ...]]]) -> list[int]:
    """Submit lines again, as the guard does; the new jobs' IDs."""
    headers = {"X-SLURM-USER-TOKEN": sign(cluster.key(), "root"), "Content-Type": "application/json"}
    ids = []
    with cluster.sandbox.forward(f"service/{cluster.name}-slurmrestd", 6820, cluster.namespace) as address:
        http = Http(f"http://{address}", deadline=30)
        for line, script, environment in jobs:
            job = {**line["options"], "environment": [f"SELTZER_PUT_BACK={line['key']}", *environment]}
            body = json.dumps({"script": script, "job": job}).encode()
            answer = await http.exchange("POST", f"/slurm/{REST_API}/job/submit", headers=headers, body=body)
            said = json.loads(answer.body)
            assert not said["errors"], f"{line}: {said['errors']}"
            ids.append(said["job_id"])
    return ids


def show(cluster: Cluster) -> dict[int, dict[str, Any]]:
    """All jobs' records, as JSON and as people see them."""
    known = {job["job_id"]: job for job in json.loads(cluster.login("scontrol", "--json", "show", "jobs"))["jobs"]}
    for job in known.values():
        job["flags"] = set(job["flags"]) - SCHEDULING
    for text in cluster.login("scontrol", "--oneliner", "show", "jobs").splitlines():
        (id,) = re.findall(r"^JobId=(\d+)", text)
        known[int(id)]["OOMKillStep"] = re.findall(r" OOMKillStep=(\S+)", text)
        known[int(id)]["Reason"] = "JobHeldUser" in text
    return known


def differences(job: Job) -> set[str]:
    fields = (job.record.keys() | job.again.keys()) - OTHER
    return {name for name in fields if job.record.get(name) != job.again.get(name)}


@pytest.mark.parametrize("options", KEPT)
def test_a_job_comes_back_as_it_was(jobs: Mapping[str, Job], options: str) -> None:
    job = jobs[options]
    assert not {name: (job.record.get(name), job.again.get(name)) for name in differences(job)}
    assert "cannot" not in job.line


@pytest.mark.parametrize("options", LOST)
def test_what_lua_cannot_see_is_lost(jobs: Mapping[str, Job], options: str) -> None:
    """As docs/decisions/0014 says. Once Slurm shows it to Lua, it can be kept."""
    assert differences(jobs[options]) == {LOST[options]}


def test_a_job_that_is_put_back_keeps_its_environment_and_key(jobs: Mapping[str, Job]) -> None:
    for job in jobs.values():
        assert set(job.environment_again) == {*job.environment, "SELTZER_PUT_BACK="}


def test_a_part_of_a_heterogeneous_job_says_that_it_is_one(cluster: Cluster) -> None:
    script = "#!/bin/sh\n#SBATCH --ntasks=1\n#SBATCH hetjob\n#SBATCH --ntasks=2\n"
    cluster.login("sh", "-ec", f"printf '{script}' | sbatch --job-name=parts")
    found = [line for line in journal(cluster).values() if line["options"]["name"] == "parts"]
    assert found and all("heterogeneous" in line["cannot"] for line in found)


def test_jobs_without_a_script_have_no_line(cluster: Cluster) -> None:
    before = journal(cluster)
    cluster.run("timeout", "1", "salloc", "--job-name=interactive", "true")
    assert journal(cluster) == before


def test_a_change_is_noted(cluster: Cluster) -> None:
    job = cluster.sbatch("true", "--hold")
    cluster.login("scontrol", "release", job)
    lines = cluster.in_controller("cat", "/run/slurmctld-state/seltzer.journal").stdout.splitlines()
    assert json.loads(lines[-1])["modified"] == job


FORGED = "forged\n[2026-11-16T03:13:36.000] _job_complete: JobId=7 done"


@pytest.mark.parametrize("field", ["JobName", "Comment", "WorkDir", "MailUser", "StdOut", "Extra", "Partition"])
def test_no_change_writes_a_line_of_its_own_into_the_log(cluster: Cluster, field: str) -> None:
    job = cluster.sbatch("true", "--hold")
    answer = cluster.run("scontrol", "update", f"JobId={job}", f"{field}={FORGED}")
    assert answer.code != 0 and "a control character" in answer.stderr
    assert "forged" not in cluster.in_controller("cat", "/run/slurmctld-state/slurmctld.log").stdout


# --- the site's own script -----------------------------------------------------------------------------------------


def test_a_site_that_says_no_is_heard(cluster: Cluster) -> None:
    before = journal(cluster)
    for forged in ("NOTHING=1", "SELTZER_PUT_BACK=k-1", "SELTZER_JOB=k-1"):
        answer = cluster.run("env", forged, "sbatch", "--job-name=refuse", "--wrap=true")
        assert answer.code != 0
        assert "the site says no" in answer.stderr
    assert journal(cluster) == before


def test_a_site_that_breaks_breaks_as_ever(cluster: Cluster) -> None:
    answer = cluster.run("sbatch", "--job-name=break", "--wrap=true")
    assert answer.code != 0
    assert "job_submit.lua:7:" in answer.stderr, "the site's file, and the line in it"


def test_what_a_site_changes_is_written_down(cluster: Cluster) -> None:
    cluster.sbatch("true", "--job-name=change")
    found = [line["options"] for line in journal(cluster).values() if line["options"]["name"] == "change"]
    assert [options["comment"] for options in found] == ["changed for 1000"]
