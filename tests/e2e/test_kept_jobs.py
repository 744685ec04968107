"""slurmctld is killed right after it acknowledged something: nothing of that is lost, and nothing runs twice."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest
from tests.harness import Cluster, Sandbox, until

from seltzer.wire import job_ids

SLURMCTLD = "pgrep -o -f '^slurmctld -D'"
LOG = "/run/slurmctld-state/slurmctld.log"
# What slurmctld writes the jobs to, before it renames it.
HALF = "/run/slurmctld-state/job_state.new"
ALL = "/run/slurmctld-state/seltzer.recoveries"
# What a job that is put back can't have as it was.
NEW = {"SubmitTime", "EligibleTime", "AccrueTime", "LastSchedEval", "AllocNode:Sid"}
# What it has depends on whether the scheduler has looked at it.
SCHEDULED = {"Priority", "Reason", "NumNodes", "Scheduler"}
REASONS = {
    "JobsPutBack": "put-back",
    "JobsRequeued": "requeued",
    "JobsHeld": "held",
    "JobsKept": "kept",
    "JobsRan": "ran",
    "JobsCancelled": "cancelled",
    "JobsLost": "lost",
}
RAN = "echo $SLURM_JOB_ID >> /tmp/ran.$(id -u)"

# Everything that is submitted here waits, each for a reason of its own.
SUBMIT = f"""
cd /tmp
submit() {{ sbatch --parsable --output=/dev/null "$@"; }}
export MARK="a value
with two lines"
plain=$(submit --nodes=2 --exclusive --job-name=plain --wrap '{RAN}; test ${{#MARK}} = 22')
array=$(submit --array=1-20:3%2 --begin=now+1hour --wrap '{RAN}')
held=$(submit --hold --mem=64 --time=7 --nice=11 --wrap '{RAN}')
later=$(submit --begin=now+2hours --ntasks=2 --cpus-per-task=1 --no-requeue --wrap '{RAN}')
dependent=$(submit --dependency=afterany:$later --job-name='a name' --comment='a comment' --wrap '{RAN}')
cancelled=$(submit --hold --wrap '{RAN}'); scancel $cancelled
changed=$(submit --hold --wrap '{RAN}'); scontrol update JobId=$changed TimeLimit=5
echo '{{"plain":"'$plain'","array":"'$array'","held":"'$held'","later":"'$later'","dependent":"'$dependent'",'
echo '"cancelled":"'$cancelled'","changed":"'$changed'"}}'
"""
# The last line says that it is time for the kill.
SUBMIT_AS_TWO = """
for user in user daemon; do
    setpriv --reuid=$user --regid=$user --init-groups --reset-env bash -c "$1" | paste --serial --delimiters=
done
scontrol --oneliner show jobs
scontrol update JobId="$2" AdminComment=now
"""


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    cluster = Cluster(installed, "kept-jobs", "demo")
    cluster.create(cpu={"replicas": 2})
    cluster.wait_ready()
    yield cluster
    cluster.delete_later()


@pytest.fixture(autouse=True)
def calm(cluster: Cluster) -> None:
    """Each test begins after the re-registration that follows the repair of the one before.

    It is a reconfigure: it saves everything, and leaves what is released meanwhile to the backfill scheduler.
    """

    def called() -> bool:
        repaired = recovered(cluster).get("time", "")
        news = json.loads(told(cluster, "news") or "[]")
        return not repaired or any(each["reason"] == "NodesCalled" and each["time"] > repaired for each in news)

    until("all nodes have registered again after the last crash", called)


def records(lines: str) -> dict[str, dict[str, str]]:
    """What slurmctld knows about each job, by its ID, as far as it doesn't depend on when it was submitted."""
    found = {}
    for line in lines.splitlines():
        text = re.sub(r" SubmitLine=.*? WorkDir=", " WorkDir=", line)
        words = dict(word.partition("=")[::2] for word in text.split())
        found[words["JobId"]] = {key: value for key, value in words.items() if key not in NEW | SCHEDULED}
    return found


def saved(cluster: Cluster) -> float:
    """When slurmctld last saved its jobs."""
    return float(cluster.in_controller("stat", "-Lc", "%.6Y", "/run/slurmctld-state/job_state").stdout)


def wait_until_saved(cluster: Cluster) -> None:
    """Wait until all that has happened so far is saved."""
    before = float(cluster.in_controller("date", "+%s.%6N").stdout)
    cluster.sbatch("true", "--hold", "--comment=save")
    until("slurmctld has saved its state", lambda: saved(cluster) > before)


def told(cluster: Cluster, name: str) -> str:
    """An annotation of the Lease."""
    annotations = cluster.get(f"lease/{cluster.name}-slurmctld")["metadata"]["annotations"]
    return str(annotations.get(f"seltzer.dev/{name}", ""))


def recovered(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told(cluster, "recovered") or "{}")
    return found


@contextmanager
def killed(cluster: Cluster, *when: str) -> Iterator[dict[str, str]]:
    """SIGKILL to slurmctld as soon as all of this is in its log; what became of which job, once all is repaired.

    Nothing of what happens inside is saved, however long it takes: slurmctld's next save waits for a reader.
    """
    wait_until_saved(cluster)
    before = recovered(cluster).get("time")
    cluster.in_controller("mkfifo", "--mode=600", HALF)
    seen = " && ".join(f"grep -qF '{each}' {LOG}" for each in when)
    # The next slurmctld must not wait for a reader, too.
    kill = f"p=$({SLURMCTLD}) && kill -STOP $p && rm {HALF} && kill -9 $p"
    watch = f"for _ in $(seq 20000); do {seen} && {kill} && exit; sleep 0.01; done; exit 1"
    outcomes: dict[str, str] = {}
    try:
        with ThreadPoolExecutor(1) as pool:
            killing = pool.submit(cluster.in_controller, "bash", "-c", watch)
            yield outcomes
            killing.result()
    finally:
        cluster.in_controller("rm", "--force", HALF)

    def new() -> dict[str, Any] | None:
        found = recovered(cluster)
        return found if found.get("time", before) != before else None

    found = until("the guard tells which jobs it found", new)
    assert not found["more"]
    # It is started once more when all is repaired.
    until("slurmctld runs", lambda: told(cluster, "phase") == "running")
    until("slurmctld answers", lambda: cluster.run("scontrol", "ping").code == 0)
    outcomes.update(by_job(found))
    assert by_job(json.loads(cluster.in_controller("cat", ALL).stdout)[-1]) == outcomes
    until("Events name them", lambda: outcomes.items() <= named_by_events(cluster).items())
    until("status names them", lambda: named_by_status(cluster) == outcomes)
    for group in found["groups"]:
        shown = cluster.seltzer("status", cluster.name, check=False).stdout
        assert group["why"].rstrip(".") in shown
        assert any(group["why"].rstrip(".") in each["message"] for each in cluster.events())


def by_job(recovery: dict[str, Any]) -> dict[str, str]:
    """What became of each job, as the guard tells it."""
    return {job: group["outcome"] for group in recovery["groups"] for job in job_ids.expand(group["jobs"])}


def named_by_events(cluster: Cluster) -> dict[str, str]:
    """The jobs of `jobs 7, 9-12 (why), 20 (why): words`, with what became of each by the last Event."""
    found = {}
    for event in cluster.events():
        if outcome := REASONS.get(event["reason"]):
            ids = re.sub(r"^jobs? | \([^)]*\)| ", "", re.sub(r": [^:]*$", "", event["message"]))
            found.update(dict.fromkeys(job_ids.expand(ids), outcome))
    return found


def named_by_status(cluster: Cluster) -> dict[str, str]:
    """The jobs of the newest recovery that `seltzer status` prints."""
    _, _, shown = cluster.seltzer("status", cluster.name, check=False).stdout.partition("recovered jobs")
    found, outcome = {}, ""
    for line in shown.splitlines()[1:]:
        if head := re.fullmatch(r"│   [├└]── ([a-z-]+)  \d+ jobs?: .*", line):
            outcome = head[1]
        elif ids := re.fullmatch(r"│   [│ ]   [├└]── .*: (.*)", line):
            found.update(dict.fromkeys(job_ids.expand(ids[1].replace(", ", ",")), outcome))
        else:
            break
    return found


def runs(cluster: Cluster) -> Counter[str]:
    """How often each job's script has run."""
    found: Counter[str] = Counter()
    for pod in cluster.pods("cpu"):
        answer = cluster.kubectl("exec", pod, "--", "sh", "-c", "cat /tmp/ran.* 2>/dev/null; true")
        found.update(answer.stdout.split())
    return found


def works(cluster: Cluster) -> bool:
    """Whether anything of any job still runs on a node."""
    script = "cat /proc/[0-9]*/comm 2>/dev/null | grep -c slurmstepd; true"
    return any(
        cluster.kubectl("exec", pod, "--", "sh", "-c", script).stdout.strip() != "0" for pod in cluster.pods("cpu")
    )


def test_jobs_acknowledged_right_before_a_kill_are_put_back_as_they_were(cluster: Cluster) -> None:
    busy = cluster.hold("--exclusive", "--nodes=1")
    with killed(cluster, "setting admin_comment to now") as outcomes:
        words = ("bash", "-c", SUBMIT_AS_TWO, "bash", SUBMIT, busy)
        first, second, *before_lines = cluster.login(*words, user="root").splitlines()
    jobs = [json.loads(first), json.loads(second)]
    before = records("\n".join(before_lines))
    after = records(cluster.login("scontrol", "--oneliner", "show", "jobs", user="root"))

    for job in jobs:
        for name in ("plain", "array", "held", "later", "dependent"):
            assert outcomes.get(job[name]) == "put-back", f"{name}: {outcomes}"
            assert after[job[name]] == before[job[name]], name
        assert outcomes[job["cancelled"]] == "cancelled"
        assert job["cancelled"] not in after, "it isn't submitted again only to be cancelled again"
        assert outcomes[job["changed"]] == "held"
        assert "it had been changed" in cluster.login("scontrol", "show", "job", job["changed"], user="root")
    highest = max(int(job) for each in jobs for job in each.values())
    assert int(cluster.sbatch("true", "--hold")) > highest, "no ID is given out twice"

    cluster.release(busy)
    for job in jobs:
        cluster.wait_for_job(job["plain"], "COMPLETED")
    count = runs(cluster)
    assert [count[job["plain"]] for job in jobs] == [1, 1]


def test_what_had_ended_or_been_cancelled_or_may_not_be_requeued_does_not_run_again(cluster: Cluster) -> None:
    ends = cluster.hold("--job-name=ends")
    starts = cluster.sbatch(f"{RAN}; sleep 300", "--hold", "--no-requeue", "--job-name=starts")
    cancelled = cluster.sbatch(RAN, "--hold", "--job-name=cancelled")

    script = f"""
    scancel {cancelled}
    scontrol release {starts}
    scancel --batch --signal=USR1 {ends}
    """
    with killed(cluster, f"Allocate JobId={starts} ", f"_job_complete: JobId={ends} done") as outcomes:
        cluster.login("bash", "-c", script)

    assert outcomes == {**outcomes, ends: "ran", starts: "held", cancelled: "cancelled"}
    cluster.wait_for_job(ends, "COMPLETED")
    cluster.wait_for_job(cancelled, "CANCELLED")
    held = cluster.job(starts)
    assert (held["JobState"], held["Reason"]) == ("PENDING", "JobHeldUser")
    assert "it had started on cpu-" in cluster.login("scontrol", "show", "job", starts)

    # Its first run ends when its node has registered; until then the node would refuse a second one, and it takes a
    # start in the same second for the one that was ended ("Job credential revoked").
    until("its first run has ended", lambda: not works(cluster))
    ended = int(time.time())
    until("the second in which it ended is over", lambda: time.time() >= ended + 2)
    cluster.login("scontrol", "release", starts)
    cluster.wait_for_job(starts, "RUNNING")
    assert runs(cluster)[starts] <= 2, "again only since a person wants it to"
    cluster.login("scancel", starts)


def test_what_had_started_and_may_be_requeued_starts_over_with_a_restart_count(cluster: Cluster) -> None:
    waits = f"{RAN}; test $SLURM_RESTART_COUNT || sleep 300"
    saved = cluster.sbatch(waits, "--hold", "--job-name=saved")
    waiting = cluster.sbatch("true", "--hold")
    with killed(cluster, "setting comment to both run") as outcomes:
        cluster.login("scontrol", "release", saved)
        forgotten = cluster.sbatch(waits)
        until("both run", lambda: {saved, forgotten} <= runs(cluster).keys())
        cluster.login("scontrol", "update", f"JobId={waiting}", "Comment=both run")
    assert outcomes == {**outcomes, saved: "requeued", forgotten: "requeued"}

    for job in (saved, forgotten):
        cluster.wait_for_job(job, "COMPLETED")
        assert cluster.job(job)["Restarts"] == "1"
    count = runs(cluster)
    assert (count[saved], count[forgotten]) == (2, 2)


def test_crontabs_go_on_after_a_kill(cluster: Cluster) -> None:
    """Of one that a job of it has started and ended isn't saved; of the other one nothing is."""
    start = "scontrol update PartitionName=cpu State=UP"
    cluster.login("scontrol", "update", "PartitionName=cpu", "State=DOWN", user="root")
    cluster.login("sh", "-c", f"echo '* * * * * {RAN}' | scrontab -")
    [cron] = from_crontab(cluster)
    until("its time has come", lambda: cluster.job(cron)["Reason"] == "PartitionDown")
    script = f"""
    {start}
    echo '@daily true' | setpriv --reuid=daemon --regid=daemon --init-groups scrontab -
    """
    with killed(cluster, f"_job_complete: JobId={cron} done", "from crontab entry from uid=1,") as outcomes:
        cluster.login("bash", "-c", script, user="root")
    cluster.login(*start.split(), user="root")

    assert outcomes[cron] == "requeued"
    assert [job for job, outcome in outcomes.items() if outcome == "requeued" and job != cron], "the other one"
    assert cluster.login("scrontab", "-l") == f"* * * * * {RAN}\n", "nothing is disabled"
    for user in ("user", "daemon"):
        [(job, begins)] = until("it waits", lambda: from_crontab(cluster, user)).items()  # noqa: B023 (asked at once)
        assert job not in outcomes and begins > saved(cluster) - 5, "it has a next time"
    assert runs(cluster)[cron] == 1
    for user in ("user", "daemon"):
        cluster.login("scrontab", "-r", user=user)


def test_a_run_of_a_crontab_whose_end_was_not_saved_is_over(cluster: Cluster) -> None:
    """Left alone, slurmctld would believe for a quarter of an hour that it goes on."""
    cluster.login("sh", "-c", f"echo '* * * * * {RAN}; until test -e /tmp/go; do sleep 0.1; done' | scrontab -")
    [cron] = from_crontab(cluster, states="PENDING,RUNNING")
    cluster.wait_for_job(cron, "RUNNING")
    cluster.login("scontrol", "update", "PartitionName=cpu", "State=DOWN", user="root")  # no second run comes
    with killed(cluster, f"Requeuing JobId={cron}") as outcomes:
        for pod in cluster.pods("cpu"):
            cluster.kubectl("exec", pod, "--", "touch", "/tmp/go")
    assert outcomes == {cron: "ran"}

    until("it has a next time", lambda: cron in from_crontab(cluster))
    assert cluster.login("scrontab", "-l").startswith("* * * * * "), "nothing is disabled"
    assert runs(cluster)[cron] == 1
    cluster.login("scrontab", "-r")
    cluster.login("scontrol", "update", "PartitionName=cpu", "State=UP", user="root")


def from_crontab(cluster: Cluster, user: str = "user", states: str = "PENDING") -> dict[str, float]:
    """The jobs of the user's crontab in these states, and when each starts."""
    words = ("--noheader", f"--states={states}", f"--user={user}", "--Format=JobID:|,CronJob:|,StartTime:|")
    lines = [line.split("|") for line in cluster.login("squeue", *words, user="root").splitlines()]
    return {job: datetime.fromisoformat(f"{start}+00:00").timestamp() for job, cron, start, _ in lines if cron == "Yes"}


def test_a_restart_that_is_no_crash_finds_nothing(cluster: Cluster) -> None:
    before = recovered(cluster)
    waiting = cluster.sbatch("true", "--hold")
    old = told(cluster, "started")
    cluster.in_controller("bash", "-c", f"kill $({SLURMCTLD})")
    until("another one is started", lambda: told(cluster, "started") != old and told(cluster, "phase") == "running")
    assert cluster.jobs()[waiting] == "PENDING"
    assert recovered(cluster) == before


def test_without_keep_jobs_the_scripts_are_kept(cluster: Cluster) -> None:
    cluster.patch("slurmcluster", "demo", {"spec": {"controller": {"keepJobs": False}}})
    until("the journal is off", lambda: cluster.setting("JobSubmitPlugins") != "lua")
    cluster.kubectl("rollout", "status", "deployment/demo-slurmctld", "--timeout=180s")
    until("slurmctld answers", lambda: cluster.run("scontrol", "ping").code == 0)
    waiting = cluster.sbatch("true", "--hold")
    script = f"""
    sbatch --parsable --hold --output=/dev/null --wrap 'echo this is kept'
    scontrol update JobId={waiting} Comment=now
    """
    with killed(cluster, "setting comment to now") as outcomes:
        job = cluster.login("bash", "-c", script).strip()
    assert outcomes[job] == "kept"
    kept = cluster.in_controller("cat", f"/var/spool/slurmctld/lost/job.{job}/script").stdout
    assert "echo this is kept" in kept
    assert int(cluster.sbatch("true", "--hold")) > int(job)
