"""No job submission ends slurmd, drains a node, harms other jobs or leaves anything behind."""

from __future__ import annotations

import base64
import io
import re
import shlex
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import pytest
from tests.e2e import submissions
from tests.e2e.submissions import COMMANDS, Row
from tests.harness import Answer, Cluster, Sandbox, until

NODES = ("cpu-0", "cpu-1", "other-0", "other-1")
# Runs on the login pod as root. Each row is run as its user, in that user's home, with files for what it prints. Rows
# whose jobs wait run beside the others; all that is pending in the end is cancelled.
DRIVER = r"""
rm -rf /tmp/rows; mkdir -m 777 /tmp/rows
ulimit -f 100000  # of 1 KiB: a row that prints without end must not fill the machine
row() {  # number, user, line
    timeout --kill-after=5 200 setpriv --reuid="$2" --regid="$2" --init-groups --reset-env \
        bash -c "ROW=row-$1; . /tmp/rows/texts; cd; $3" >"/tmp/rows/$1.out" 2>"/tmp/rows/$1.err" </dev/null
    echo $? >"/tmp/rows/$1.rc"
}
busy() {
    squeue --noheader --states=CONFIGURING,RUNNING,COMPLETING,SUSPENDED,STOPPED --format=%i
    squeue --noheader --states=PENDING --format=%r | grep -xE 'None|Resources|Priority'
}
"""
FINISH = r"""
for ((waited = 0; waited < 600; waited++)); do [[ $(busy) ]] || break; sleep 0.2; done
squeue --states=PENDING,RUNNING --noheader --format='%F %T %r %.40j' >/tmp/rows/waiting
scancel --state=PENDING; scancel --state=RUNNING
wait
squeue --states=all --noheader --format='%F %T %r %.40j' >/tmp/rows/ended
tar --create --directory=/tmp/rows . | base64
"""
AT_ONCE = 8
# One command takes so many: on a slow machine all of them take longer than a command may.
ROWS_PER_RUN = 100


@dataclass(frozen=True)
class Result:
    """What a row did: its exit code, what it printed, and the states of its job."""

    code: int
    text: str
    states: frozenset[str]

    @property
    def outcome(self) -> str:
        """In the words of the table."""
        if not self.states:
            return "error" if self.code else "done"
        return ",".join(sorted(self.states))


def run_rows(cluster: Cluster, rows: Mapping[int, Row]) -> dict[int, Result]:
    """Run all of them on the login pod, several at once; the result of each by its number."""
    waiting: list[str] = []
    others: list[str] = []
    for number, row in rows.items():
        lines = waiting if row.waits else others
        lines.append(f"row {number} {row.user} {shlex.quote(row.line)} &")
    texts = f"LONG={'x' * 100_000}\nODD={submissions.ODD}\n"
    lines = [
        DRIVER,
        f"cat >/tmp/rows/texts <<'EOT'\n{texts}EOT",
        "(", *waiting, "wait", ") &", "waiting=$!",
        "(",
        *(f"while (( $(jobs -pr | wc -l) >= {AT_ONCE} )); do wait -n; done; {each}" for each in others),
        "wait", ")",
        FINISH,
    ]  # fmt: skip
    login = (
        "--namespace",
        cluster.namespace,
        "exec",
        "--stdin",
        f"deployment/{cluster.name}-login",
        "--container=login",
    )
    answer = cluster.sandbox.kubectl(*login, "--", "bash", "-s", stdin="\n".join(lines))
    return _results(rows, answer)


def _results(rows: Mapping[int, Row], answer: Answer) -> dict[int, Result]:
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(answer.stdout))) as tar:

        def read(name: str) -> str:
            file = tar.extractfile(f"./{name}")
            assert file
            return file.read().decode(errors="replace")

        waiting, ended = (_jobs(read(name)) for name in ("waiting", "ended"))
        found = {}
        for number, row in rows.items():
            text = read(f"{number}.out")
            job = re.match(r"\d+", text)
            key = job[0] if job and "sbatch " in row.line else f"row-{number}"
            states = waiting.get(key) or ended.get(key) or frozenset()
            found[number] = Result(int(read(f"{number}.rc")), text + read(f"{number}.err"), states)
        return found


def _jobs(listed: str) -> dict[str, frozenset[str]]:
    """The states of jobs, by their IDs and by the names that rows give them."""
    found: dict[str, frozenset[str]] = {}
    for line in listed.splitlines():
        if match := re.fullmatch(r"(\d+) ([A-Z_]+) (\S.*?) +(\S*)", line):
            job, state, reason, name = match.groups()
            words = f"{state} {reason}" if state == "PENDING" else state
            for key in (job, name):
                found[key] = found.get(key, frozenset()) | {words}
    return found


@dataclass(frozen=True)
class Node:
    """What must be the same before and after all submissions: the slurmd process, and what is on the node beside it."""

    slurmd: str
    state: str
    processes: str
    spool: str


LOOK = r"""
for process in /proc/[0-9]*; do
    { read -r name <"$process/comm"; } 2>/dev/null || continue
    [[ $name == slurmd ]] && echo "${process#/proc/} $(cut -d' ' -f22 "$process/stat")"
done | sort -n | head -1
echo ---
find /proc -maxdepth 1 -name '[0-9]*' \( -uid +999 -o -uid 402 \) ! -uid 65535 2>/dev/null | while read -r process; do
    tr '\0' ' ' <"$process/cmdline"; echo
done
echo ---
ls /var/spool/slurmd | grep -E '^job|\.[0-9]+$'
exit 0
"""


def look(cluster: Cluster) -> dict[str, Node]:
    """The nodes, once no job is left on them."""

    def idle() -> bool:
        left = cluster.login("squeue", "--noheader", "--format=%i %T %r", user="root")
        return not left and set(cluster.slurm_nodes().values()) == {"IDLE+DYNAMIC_NORM"}

    until("no job is left and each node is idle", idle)
    states = cluster.slurm_nodes()
    found = {}
    for name in NODES:
        answer = cluster.kubectl("exec", name, "--container=slurmd", "--", "bash", "-c", LOOK).stdout
        slurmd, processes, spool = answer.split("---\n")
        found[name] = Node(slurmd, states[name], processes, spool)
    return found


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    cluster = Cluster(installed, "submissions", "demo")
    # More CPUs than the machine has, so that many jobs run at once.
    resources = {"requests": {"cpu": "100m"}, "limits": {"cpu": "32"}}
    # For logins that hang. On cpu they may take as long as this machine needs.
    limit = {"name": "SELTZER_LOGIN_TIMEOUT", "value": "5"}
    template = {"spec": {"containers": [{"name": "slurmd", "env": [limit]}]}}
    cluster.create(
        cpu={"replicas": 2, "resources": resources, "partition": {"options": "Default=YES"}},
        other={"replicas": 2, "resources": resources, "podTemplate": template},
    )
    cluster.wait_ready()
    yield cluster
    cluster.delete_later()


@pytest.fixture(autouse=True)
def unharmed(cluster: Cluster) -> Iterator[None]:
    """Whatever a test submits, slurmd and slurmctld stay the same processes and nothing is left on any node."""
    before, slurmctld = look(cluster), cluster.slurmctld()
    yield
    with suppress(AssertionError):  # a node is idle before the last process of its job has ended
        until("the nodes are as before", lambda: look(cluster) == before)
    assert look(cluster) == before
    assert cluster.slurmctld() == slurmctld


def test_the_table_has_every_option_of_the_real_commands(cluster: Cluster) -> None:
    for command in COMMANDS:
        words = [cluster.login(command, *ask) for ask in (["--help"], ["--usage"], ["--autocomplete=--"])]
        real = set(re.findall(r"(?<!\S)\[?(--[a-z][a-z0-9-]*)", " ".join(words)))
        lines = " ".join(row.line for row in submissions.ROWS if f"{command} " in row.line)
        assert real - set(re.findall(r"(?<!\S)(--[a-z][a-z0-9-]*)", lines)) == set(), f"{command}: add rows for these"


def test_every_submission_ends_as_the_table_says(cluster: Cluster) -> None:
    rows = dict(enumerate(submissions.ROWS))
    results: dict[int, Result] = {}
    for start in range(0, len(rows), ROWS_PER_RUN):
        part = {number: rows[number] for number in range(start, min(start + ROWS_PER_RUN, len(rows)))}
        results |= run_rows(cluster, part)
    wrong = [f"{row.line[:200]}: {why}" for number, row in rows.items() if (why := differs(row, results[number]))]
    assert not wrong, "\n".join(wrong)


def differs(row: Row, result: Result) -> str:
    """What is wrong with a result; empty where it is as the table says."""
    outcome, _, text = row.outcome.partition(": ")
    if result.outcome not in outcome.split(" or "):
        return f"expected {outcome}, not {result.outcome} (exit code {result.code}): {result.text[-300:]}"
    if text not in result.text:
        return f"expected {text!r} in {result.text[-300:]}"
    return ""


@pytest.fixture
def profile(cluster: Cluster) -> Iterator[Callable[[str], None]]:
    """Writes the user's ~/.profile on all nodes."""

    def everywhere(*command: str) -> None:
        for partition in ("cpu", "other"):
            cluster.login("srun", f"--partition={partition}", "--nodes=2", *command)

    def write(text: str) -> None:
        everywhere("sh", "-c", 'printf "%s\\n" "$1" >~/.profile', "sh", text)

    yield write
    everywhere("sh", "-c", "rm -f ~/.profile")


def test_a_job_has_its_users_login_environment_where_it_asks_for_it(
    cluster: Cluster, profile: Callable[[str], None]
) -> None:
    profile("export FROM_PROFILE=yes")
    script = '--wrap=test "$FROM_PROFILE" = "$1" -a "$HOME" = /home/user -a -z "$LD_PRELOAD"'
    wait = ("sbatch", "--wait", "--output=/dev/null")
    for option in ("--export=NONE", "--export=FOO=1", "--get-user-env"):
        cluster.login(*wait, option, script.replace("$1", "yes"))
    cluster.login(*wait, "--export=ALL", script.replace("$1", ""))


def test_a_login_shell_that_hangs_holds_its_job_and_leaves_nothing(
    cluster: Cluster, profile: Callable[[str], None]
) -> None:
    profile("setsid sleep 1000 & (sleep 1001 &); sleep 1002")
    hangs = cluster.sbatch("true", "--export=NONE", "--partition=other", "--nodelist=other-0")
    until("it is held", lambda: cluster.job(hangs)["Reason"] == "user_env_retrieval_failed_requeued_held")
    assert cluster.job(hangs)["JobState"] == "PENDING"
    cluster.login("scancel", hangs)


def test_a_login_shell_that_hangs_keeps_slurmd_from_neither_other_jobs_nor_a_new_configuration(
    cluster: Cluster, profile: Callable[[str], None]
) -> None:
    profile("sleep 1003")
    hangs = cluster.sbatch("true", "--export=NONE", "--nodelist=cpu-0")
    beside = ("srun", "--nodelist=cpu-0", "pgrep", "-fx", "sleep 1003")
    until("another job runs beside it", lambda: cluster.login(*beside))
    cluster.in_controller("scontrol", "reconfigure")
    until("it is held", lambda: cluster.job(hangs)["Reason"] == "user_env_retrieval_failed_requeued_held")
    cluster.login("srun", "--nodelist=cpu-0", "true")
    cluster.login("scancel", hangs)


ATTACK = r"""
can() { "$@" >/dev/null 2>&1 && echo "can: $*"; }
# Some files of a process that has ended can be opened, and are empty.
reads() { [[ $(head -c 1 "$1" 2>/dev/null | tr '\0' x) ]] && echo "reads $1"; }
for process in /proc/[0-9]*; do
    [[ $(stat -c %u "$process" 2>/dev/null) == "$(id -u)" ]] && continue
    for file in environ maps root/etc/slurm/slurm.key; do reads "$process/$file"; done
    can ls "$process/cwd/"
    can ls "$process/fd/"
    can kill -0 "${process#/proc/}"
done
reads /proc/self/environ # shows that these tests find something
reads /etc/slurm/slurm.key
cd /var/spool/slurmd
for file in job*/slurm_script job*/* cred_state; do reads "$file"; done
can ls job*/
can touch /var/spool/slurmd/x /usr/lib/seltzer/slurmd.so /run/x
for words in "update JobId=$1 Name=x" "requeue $1" "suspend $1" "notify $1 x"; do
    can scontrol $words
done
# It fails with exit code 0.
[[ $(scontrol write batch_script "$1" - 2>/dev/null) ]] && echo "gets the script"
can scancel "$1"
can srun --jobid="$1" --overlap true
can sattach "$1.batch"
"""


def other(cluster: Cluster, *command: str) -> Answer:
    """Run a command on a login pod as another user, who has no home."""
    become = (
        "setpriv",
        "--reuid=slurmrestd",
        "--regid=slurmrestd",
        "--clear-groups",
        "--reset-env",
        "env",
        "--chdir=/",
    )
    login = (f"deployment/{cluster.name}-login", "--container=login")
    return cluster.kubectl("exec", *login, "--", *become, *command, check=False)


def test_a_job_can_not_reach_slurms_key_nor_the_jobs_of_others(cluster: Cluster) -> None:
    victim = cluster.hold("--nodelist=cpu-0", "--export=ALL,SECRET=x")
    answer = other(cluster, "srun", "--nodelist=cpu-0", "bash", "-c", f"{ATTACK}\necho tried all", "bash", victim)
    assert answer.stdout == "reads /proc/self/environ\ntried all\n", answer
    cluster.release(victim)


def test_a_job_that_kills_all_it_can_kills_what_is_its_users(cluster: Cluster) -> None:
    victim = cluster.hold("--nodelist=cpu-0")
    script = "for i in {1..200}; do sleep 900 & done; kill -9 -1; echo killed"
    assert other(cluster, "srun", "--nodelist=cpu-0", "bash", "-c", script).stdout == "killed\n"
    assert cluster.jobs()[victim] == "RUNNING"
    cluster.release(victim)


# As many as a job may have: they stay idle.
HOLD_CONNECTIONS = """
import resource, socket, sys, time
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
held = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(min(limit - 64, 2000))]
print("holds", len(held), flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("where", ["slurmd", "slurmctld"])
def test_idle_connections_of_a_job_keep_nobody_waiting(cluster: Cluster, where: str) -> None:
    address = ("localhost", "6818") if where == "slurmd" else (f"{cluster.name}-slurmctld", "6817")
    program = " ".join(map(shlex.quote, ("python3", "-c", HOLD_CONNECTIONS, *address)))
    options = ("--job-name=holds", "--nodelist=cpu-0", f"--output=/tmp/holds.{where}")
    job = cluster.login("sbatch", "--parsable", *options, f"--wrap={program}").strip()
    output = ("exec", "cpu-0", "--container=slurmd", "--", "cat", f"/tmp/holds.{where}")
    until("they are open", lambda: "holds" in cluster.kubectl(*output, check=False).stdout)
    # Slurm's own clients give up after 10 s.
    assert cluster.login("srun", "--nodelist=cpu-0", "hostname", user="root") == "cpu-0\n"
    cluster.login("scancel", job)
