"""Jobs as the real squeue prints them."""

from __future__ import annotations

from tests.harness import Cluster, until

from seltzer.slurm import jobs
from seltzer.wire import squeue

NASTY = "a name with | \\ ' and blanks"


def test_the_jobs_on_a_node_and_no_others(slurm: Cluster) -> None:
    def on(node: str) -> list[jobs.JobOnNodes]:
        return jobs.parse(slurm.login("squeue", *squeue.jobs_on_nodes(node)))

    fields = [word for word in squeue.jobs_on_nodes("cpu-0") if not word.startswith(("--nodelist=", "--states="))]
    submit = ("sbatch", "--parsable", "--output=/dev/null", f"--job-name={NASTY}", "--wrap", "sleep 100")
    here = slurm.login(*submit, "--nodelist=cpu-0", "--time=10", "--requeue").strip()
    array = slurm.login(*submit, "--hold", "--array=1-3", "--no-requeue").strip()
    try:
        found = until(
            "the job runs",
            lambda: [job for job in on("cpu-0") if job.state == "RUNNING"] or None,
        )
        (job,) = found
        assert (job.id, job.user, job.partition, job.nodes, job.requeue) == (here, "user", "cpu", ("cpu-0",), True)
        assert job.seconds_left is not None and 500 < job.seconds_left <= 600
        assert on("cpu-1") == []
        (waiting,) = jobs.parse(slurm.login("squeue", *fields, f"--jobs={array}", "--states=all"))
        assert (waiting.state, waiting.nodes, waiting.requeue) == ("PENDING", (), False)
        assert waiting.id.startswith(f"{array}_[")
    finally:
        slurm.login("scancel", here, array)
        until("cpu-0 is free", lambda: slurm.slurm_nodes()["cpu-0"].split("+")[0] == "IDLE")
