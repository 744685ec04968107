"""What users can ask of sbatch, srun and salloc, and what becomes of it: the table of test_submissions.py.

A table is a text. A line without indentation is an outcome, and those below it are what ends so, several in a line with
bars between them. An outcome is one of these, or several with "or"; after a colon comes a part of what is printed:

- a state of Slurm: so the job ends
- PENDING and a reason: the job waits, and is cancelled when all other rows are done
- error: the command fails, and there is no job
- done: the command succeeds without a job

In a row, $ROW is its job's name, $LONG has 100 kB, $ODD has control characters, quotes and letters of other alphabets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

COMMANDS = ("sbatch", "srun", "salloc")
# As bash writes it.
ODD = r"""$'\001\x1b[31m\t\n\'\\"`$(false);|&*? \xc3\xa9\xe4\xb8\xad\xf0\x9f\xa7\x83\xff'"""
_BATCH = "sbatch --parsable --job-name=$ROW --time=5 --output=/dev/null"
_ONE = {
    "sbatch": f"{_BATCH} {{words}} --wrap=true",
    "srun": "srun --job-name=$ROW --time=5 {words} true",
    "salloc": "salloc --job-name=$ROW --time=5 {words} true",
}


@dataclass(frozen=True)
class Row:
    """A line of bash, what has to become of it, and whose it is."""

    line: str
    outcome: str
    user: str = "user"

    @property
    def waits(self) -> bool:
        """Takes long however fast the machine is: only the backfill scheduler starts heterogeneous jobs, every 30 s.

        Those are in a partition of their own, since all jobs that come later wait for them.
        """
        return self.outcome.startswith("PENDING") or " : " in self.line


def _cases(table: str) -> Iterator[tuple[str, str]]:
    """Each row's words and outcome."""
    outcome = ""
    for line in table.strip().splitlines():
        if line.startswith(" "):
            yield from ((words.strip(), outcome) for words in line.split(" | "))
        else:
            outcome = line


def _options(command: str, table: str) -> Iterator[Row]:
    return (Row(_ONE[command].format(words=words), outcome) for words, outcome in _cases(table))


def _lines(table: str, user: str) -> Iterator[Row]:
    """Whole lines of bash, in which SBATCH, SRUN and SALLOC stand for the commands with the row's name."""
    short = {"SBATCH": _BATCH, "SRUN": "srun --job-name=$ROW", "SALLOC": "salloc --job-name=$ROW"}
    for line, outcome in _cases(table):
        words = (short.get(word, word) for word in line.split(" "))
        yield Row(" ".join(words), outcome, user)


# Of all three commands.
COMMON = r"""
COMPLETED
    --account=root | --account= | --acctg-freq=task=0 | --bb=nonsense | --begin=now-3600 | --chdir=/tmp | --chdir=
    --cluster-constraint=nonsense | --comment="$ODD" | --segment=1 | --spread-segments | --consolidate-segments
    --constraint=cpu | --prefer=cpu | --container-id=nonsense | --container-type=nonsense | --context=nonsense
    --contiguous | --core-spec=1 | --core-spec=65535 | --thread-spec=1 | --thread-spec=99999 | --cores-per-socket=1
    --sockets-per-node=1 | --threads-per-core=1 | --extra-node-info=1:1:1 | --cpu-freq=low | --cpus-per-task=2
    --deadline=now+7200 | --delay-boot=1 | --dependency=singleton | --distribution=block | --distribution=plane=2
    --exclude=cpu-0 | --exclusive | --exclusive=user | --exclusive=mcs | --extra="$ODD" | --gpu-bind=none
    --gpu-freq=low | --gres=none | --gres-flags=enforce-binding | --hint=nomultithread | --licenses=
    --mail-type=ALL --mail-user=nobody@nowhere.invalid | --mail-type=END --mail-user="$ODD" | --mcs-label=nonsense
    --mem=1 | --mem=0 | --mem-per-cpu=1 | --mem-bind=local | --mincpus=2 | --network=nonsense | --nice=10
    --nice=nonsense | --no-kill | --nodelist=cpu-0 | --nodes=2 | --nodes=-1 | --nodes=1-2 | --ntasks=3
    --ntasks-per-core=1 | --ntasks-per-node=2 | --ntasks-per-socket=1 | --tasks-per-node=1 | --oom-kill-step=1
    --overcommit | --oversubscribe | --partition=cpu | --partition= | --priority=1 | --priority=TOP | --profile=none
    --profile=all | --qos=nonsense | --quiet | --signal=USR1@60 | --signal=99@1 | --signal=-1 | --spread-job
    --stepmgr | --switches=1 | --switches=1@nonsense | --time=1 | --time=0 | --time=-5 | --time=UNLIMITED
    --time=99999-0 | --time-min=1 | --tmp=0 | --tres-bind=gres/gpu:none | --tres-per-task=cpu=1
    --tres-per-task=nonsense | --use-min-nodes | --verbose | --wckey=nonsense
FAILED: Requested node configuration is not available
    --constraint='[cpu*99999]'
FAILED: can not be satisfied
    --cores-per-socket=99999 | --mem=99999999G | --mem-per-cpu=99999999T | --mincpus=99999 | --tmp=99999999
PENDING BeginTime
    --begin=now+3600
PENDING JobHeldUser
    --hold
PENDING PartitionConfig
    --cpus-per-task=65536 | --nodes=99999 | --ntasks=1000 | --ntasks-per-node=99999
done
    --gres=help | --job-name="$ODD" | --usage | --version | --help | --autocomplete=--
error
    --hint=help | --power=nonsense | --nonsense | --=
error: --mem-update requires MARGIN@DELAY format
    --mem-update=1
error: Invalid --
    --acctg-freq=task=-1 | --acctg-freq=nonsense | --bbf=/nonexistent | --begin=nonsense | --segment=-1
    --deadline=nonsense | --delay-boot=nonsense | --distribution=nonsense | --exclusive=nonsense
    --gres-flags=nonsense | --mail-type=nonsense | --mem=-1 | --mem=nonsense | --mem-per-cpu=-1 | --nice=-10
    --nice=99999999999 | --oom-kill-step=7 | --signal=nonsense | --time=nonsense | --tmp=-1
error: Invalid Trackable RESource (TRES) specification
    --tres-bind=nonsense
error: Invalid feature specification
    --constraint=nonsense | --constraint='('
error: Invalid generic resource (gres) specification
    --cpus-per-gpu=1 | --gpus=1 | --gpus-per-node=1 | --gpus-per-socket=1 | --gpus-per-task=1 | --mem-per-gpu=1
    --gpus=-1 | --gres=nonsense:99999999999
error: Invalid license specification
    --licenses=nonsense:1 | --resources=nonsense
error: Invalid node name specified
    --exclude=nonsense | --exclude='cpu-[' | --exclude='cpu-[0-99999999]' | --exclude=$LONG | --nodelist=nonsense
error: Invalid numeric value
    --core-spec=-1 | --sockets-per-node=0 | --threads-per-core=-3 | --extra-node-info=nonsense | --cpus-per-task=0
    --cpus-per-task=-1 | --mincpus=-2 | --ntasks=0 | --ntasks=-1 | --ntasks=nonsense | --ntasks=
    --ntasks-per-core=-1 | --switches=-1
error: Invalid plane size or size not specified
    --distribution=plane=-2
error: Invalid preferred feature specification
    --prefer=nonsense
error: Invalid time-min specification (exceeds job's time or other limits)
    --time-min=99999
error: Job dependency problem
    --dependency=afterok:999999 | --dependency=afterok:-1 | --dependency=nonsense | --dependency=$LONG
error: Maximum node count 1 is less than minimum node count 2
    --nodes=2-1
error: Pathname of a file, directory or other parameter too long
    --account=$LONG | --comment=$LONG | --job-name=$LONG
error: Preemption is required but is disabled on this system
    --signal=R:9@1
error: Priority must be >= 0
    --priority=-1
error: Problem talking to database
    --cluster=nonsense | --clusters=all
error: Requested reservation is invalid
    --reservation=nonsense
error: Requested time limit is invalid (missing or exceeds some limit)
    --deadline=now-7200
error: Too many hosts in range `0-999999'
    --nodelist='cpu-[0-999999]'
error: a control character
    --constraint="$ODD" | --partition="$ODD"
error: error opening file /nonexistent
    --nodefile=/nonexistent | --nodelist=/nonexistent
error: invalid --profile=nonsense option
    --profile=nonsense
error: invalid option
    -Y
error: invalid partition specified: nonsense
    --partition=nonsense
error: is not a valid node count
    --nodes=nonsense | --nodes=99999999999999999999
error: needs either a GRES GPU specification
    --ntasks-per-gpu=1 | --ntasks-per-tres=1
error: rebooting of nodes is only allowed for admins
    --reboot
error: too large for
    --cpus-per-task=99999999999 | --ntasks=2147483647 | --ntasks=4294967295
error: unrecognized --
    --cpu-freq=nonsense | --hint=nonsense | --mem-bind=nonsense
"""
SBATCH = r"""
COMPLETED
    --chdir=/nonexistent | --chdir=/root | --chdir=/proc/1/root | --chdir=/dev/full | --container=/nonexistent
    --job-name= | --array=0-1 | --array=0-1%1 | --array=1,1,1 | --wait-all-nodes=1 | --export=ALL | --export=NONE
    --export=NIL | --export=FOO=1 | --export=HOME | --export= | --export=ALL,=x | --export="$ODD"
    --export=FOO=$LONG | --export=SLURM_GET_USER_ENV=1 | --export=LD_PRELOAD=/nonexistent.so
    --export=PATH=/nonexistent | --export-file=/etc/passwd | --export-file=/dev/null | --get-user-env | --ignore-pbs
    --no-requeue | --requeue | --wait | --parsable | --input=/dev/null | --input=/tmp | --input=none
    --open-mode=append | --open-mode=truncate | --output=/dev/full | --output=/tmp/$ROW-%j-%N-%u | --output=none
    --output="$ODD" | --output=%%% | --output=%99999999j | --error=/dev/full | --propagate | --propagate=NONE
    --propagate=NPROC,AS | --signal=B:USR1@60
FAILED
    --input=/nonexistent | --input=/etc/slurm/slurm.key | --output=/nonexistent/out | --output=/root/out
    --output=/tmp | --error=/nonexistent/err | --output=/etc/slurm/slurm.key | --output=/proc/1/mem
FAILED: Node count specification invalid
    --nodes=0
done
    --test-only
error
    --get-user-env=10L | --get-user-env=nonsense
error: --gid only permitted by root user
    --gid=0 | --gid=1000 | --gid=nonsense
error: --uid only permitted by root user
    --uid=0 | --uid=1000 | --uid=nonsense
error: --wrap option not permitted with --external option
    --external
error: Bad rlimit name: nonsense
    --propagate=nonsense
error: Could not open user environment file -1
    --export-file=-1
error: Could not open user environment file /nonexistent
    --export-file=/nonexistent
error: Invalid --
    --kill-on-invalid-dep=nonsense | --wait-all-nodes=7 | --requeue=nonsense | --open-mode=nonsense
    --signal=RB:15@65536
error: Invalid job array specification
    --array=5-1 | --array=0-99999999 | --array=-1 | --array=nonsense | --array=0-7:0
error: Job --batch option is invalid or not a subset of --constraint
    --batch=cpu | --batch=nonsense
error: Job dependency problem
    --kill-on-invalid-dep=yes --dependency=afterok:999999
error: Pathname of a file, directory or other parameter too long
    --chdir=$LONG | --output=$LONG
error: Requested operation not supported on this system
    --requeue=expedite
error: Slurmstepd step management must be enabled to use --resv-ports for job allocations
    --resv-ports
error: With Arbitrary distribution you need to specify a nodelist or hostfile with the -w option
    --distribution=arbitrary
"""
SRUN = r"""
COMPLETED
    --chdir=/nonexistent | --chdir=/root | --chdir=/proc/1/root | --chdir=/dev/full | --container=/nonexistent
    --resv-ports | --accel-bind=g | --accel-bind=nonsense | --bcast=/tmp/$ROW | --bcast | --bcast-exclude=/lib
    --bcast=/tmp/$ROW --compress=lz4 | --compress=nonsense | --bcast=/tmp/$ROW --send-libs=yes | --cpu-bind=none
    --cpu-bind=cores | --cpu-bind=map_cpu:99999 | --cpu-bind=mask_cpu:0xffffffffffffffffffffffffffffffffffff
    --disable-status | --exact | --whole | --external-launcher | --ignore-signals=INT | --interactive
    --kill-on-bad-exit | --kill-on-bad-exit=0 | --kill-on-bad-exit=7 | --label | --mpi=none | --mpi=pmi2
    --msg-timeout=100 | --overlap | --preserve-env | --pty | --pty=99 | --quit-on-interrupt
    --prolog=/nonexistent | --epilog=/bin/false | --epilog=/nonexistent | --task-epilog=/bin/false
    --task-epilog=/nonexistent | --threads=1 | --threads=99999 | --treewidth=1 | --treewidth=0 | --treewidth=off
    --unbuffered | --wait=1 | --x11=nonsense | --export=ALL | --input=/dev/null | --input=none | --input=all
    --input=0 | --input=/tmp | --open-mode=append | --output=none | --output=/dev/full | --output=0
    --output=%j-%t-%n | --output=/tmp/$ROW-%t | --error=none | --propagate=NONE
CANCELLED: Could not open stderr file: No such file or directory
    --error=/nonexistent/err
CANCELLED: Could not open stdin file: No such file or directory
    --input=/nonexistent | --input=7
CANCELLED: Could not open stdout file: File name too long
    --output=$LONG
CANCELLED: Could not open stdout file: Is a directory
    --output=/tmp
CANCELLED: Could not open stdout file: No such file or directory
    --output=/nonexistent/out
CANCELLED: Could not open stdout file: Permission denied
    --output=/etc/slurm/slurm.key
CANCELLED: No such file or directory
    --bcast=/nonexistent/x
CANCELLED: Read-only file system
    --bcast=/etc/slurm/slurm.key
COMPLETED or FAILED
    --prolog=/bin/false
FAILED: --task-prolog failed status=1
    --task-prolog=/bin/false
COMPLETED or FAILED
    --immediate
FAILED: Improperly formed environment variable ([31m
    --export="$ODD"
FAILED: execve(): true: No such file or directory
    --export=NONE | --export=NIL | --export=FOO=1 | --export=FOO=$LONG
FAILED: user task_prolog did not exit normally. reason: Run command failed - configuration error
    --task-prolog=/nonexistent | --task-prolog=/dev/zero
done
    --job-name= | --mpi=list | --test-only
error
    --kill-on-invalid-dep=yes --dependency=afterok:999999 | --kill-on-invalid-dep=nonsense | --cpu-bind=help
    --cpu=1
error: --async is only valid for steps submitted within an existing job allocation.
    --async
error: --het-group expected to be used within an HetJob allocation
    --het-group=0 | --het-group=7
error: --parsable requires --async.
    --parsable
error: --relative option invalid for job allocation request
    --relative=0 | --relative=99
error: --wait-for-children only compatible with proctrack/cgroup plugin
    --wait-for-children
error: Bad rlimit name: nonsense
    --propagate=nonsense
error: Could not open multi_prog config file true
    --multi-prog
error: Invalid --
    --send-libs=nonsense | --treewidth=-1 | --open-mode=nonsense
error: Invalid numeric value
    --immediate=-1 | --msg-timeout=-1 | --msg-timeout=nonsense | --relative=-1 | --threads=0 | --threads=-1
    --wait=-1
error: Invalid range: `nonsense'
    --pack-group=nonsense
error: Invalid signal name or number: nonsense
    --ignore-signals=nonsense
error: JobID can not be a negative number
    --jobid=-1
error: JobID can not be zero
    --jobid=nonsense
error: MPI: Cannot create context for mpi/nonsense
    --mpi=nonsense
error: MPI: Cannot create context for mpi/pmix
    --mpi=pmix
error: No DISPLAY variable set
    --x11
error: Node count specification invalid
    --nodes=0
error: Pathname of a file, directory or other parameter too long
    --chdir=$LONG
error: Unable to confirm allocation for job 999999: Invalid job id specified
    --jobid=999999
error: Use of --slurmd-debug is allowed only for root and SlurmUser(slurm)
    --slurmd-debug=4 | --slurmd-debug=99 | --slurmd-debug=nonsense
error: cannot stat
    --no-allocate --nodelist=cpu-0
error: invalid number of tasks (-n 0)
    --distribution=arbitrary
error: must specify a node list with -Z, --no-allocate.
    --no-allocate
error: unrecognized --
    --cpu-bind=nonsense
"""
SALLOC = r"""
COMPLETED
    --bell | --no-bell | --kill-command | --kill-command=9 | --wait-all-nodes=1 | --x11=nonsense
COMPLETED or FAILED
    --immediate
done
    --job-name=
error
    --chdir=$LONG | --kill-on-invalid-dep=yes --dependency=afterok:999999 | --kill-on-invalid-dep=nonsense
error: --container requires LaunchParameters=use_interactive_step
    --container=/nonexistent
error: Invalid --
    --kill-command=nonsense | --wait-all-nodes=7
error: Invalid numeric value
    --immediate=-1
error: No DISPLAY variable set
    --x11
error: Node count specification invalid
    --nodes=0
error: Slurmstepd step management must be enabled to use --resv-ports for job allocations
    --resv-ports
error: With Arbitrary distribution you need to specify a nodelist or hostfile with the -w option
    --distribution=arbitrary
error: chdir(/dev/full): Not a directory
    --chdir=/dev/full
error: chdir(/nonexistent): No such file or directory
    --chdir=/nonexistent
error: chdir(/proc/1/root): Permission denied
    --chdir=/proc/1/root
error: chdir(/root): Permission denied
    --chdir=/root
error: error opening file /nonexistent
    --nodefile=/nonexistent
"""
# Scripts, environments, limits and programs.
LINES = r"""
COMPLETED
    (echo '#!/bin/sh'; yes '# ..............' 2>&1 |head -c 4100000) >/tmp/$ROW.sh; SBATCH /tmp/$ROW.sh
    SBATCH --wrap=
    for i in 0 1 2 3 4 5 6 7 8 9; do export LONG$i=$LONG; done; SBATCH --wrap='test ${#LONG9} = 100000'
    for i in 0 1 2 3 4 5 6 7 8 9; do export LONG$i=$LONG; done; SRUN sh -c 'test ${#LONG9} = 100000'
    ulimit -v 100000; SBATCH --propagate=AS --wrap=true
    ulimit -l 0; SBATCH --propagate --wrap=true
    SBATCH --wrap='setsid sleep 3000 >/dev/null 2>&1 &'
    SBATCH --wrap='for i in $(seq 100); do (setsid sleep 3000 &) & done; wait'
    SRUN sh -c 'setsid sleep 3000 </dev/null >/dev/null 2>&1 & true'
    SBATCH --wrap='test -z "$LD_PRELOAD"'
    SBATCH --export=NONE --wrap='test -z "$LD_PRELOAD"'
    SRUN sh -c 'test -z "$LD_PRELOAD"'
    LD_PRELOAD=/nonexistent.so SBATCH --wrap='test "$LD_PRELOAD" = /nonexistent.so'
    PATH=/usr/bin:/x LD_LIBRARY_PATH=/nonexistent IFS=x BASH_ENV=/nonexistent ENV=/nonexistent SBATCH --wrap=true
    SBATCH_EXPORT=NONE SBATCH --wrap=true
    SBATCH_GET_USER_ENV=1 SBATCH --wrap=true
    SLURM_GET_USER_ENV=1 SBATCH --wrap=true
    SLURM_EXPORT_ENV=NONE SRUN /bin/true
    SLURM_NNODES=99999 SRUN true
    SLURM_DEBUG=99 SRUN true
    SLURM_UMASK=777 SLURM_PRIO_PROCESS=-20 SLURM_RLIMIT_NOFILE=1 SLURM_RLIMIT_AS=1 SBATCH --wrap=true
    SLURM_STEP_ID=7 SLURM_NODELIST=nonsense SLURM_PROCID=-1 SBATCH --wrap=true
    SRUN true $LONG
    echo '0-3 true' >/tmp/$ROW.mp; SRUN -n4 --multi-prog /tmp/$ROW.mp
    srun -Q -w cpu-0 mkfifo /tmp/$ROW; SBATCH -w cpu-0 --input=/tmp/$ROW --wrap=cat
    SBATCH -p other : -p other --wrap=true
    SALLOC srun true
COMPLETED: launch failed
    SRUN --mpi=cray_shasta true
CANCELLED
    SALLOC --no-shell && scancel --name=$ROW
CANCELLED or FAILED or error
    timeout 3 SRUN --debugger-test true
FAILED
    printf '#!' >/tmp/$ROW.sh; SBATCH /tmp/$ROW.sh
    printf '#!/nonexistent\n' >/tmp/$ROW.sh; SBATCH /tmp/$ROW.sh
    printf '#!/etc/passwd\n' >/tmp/$ROW.sh; SBATCH /tmp/$ROW.sh
    srun -Q -w cpu-0 mkfifo /tmp/$ROW; SBATCH -w cpu-0 --output=/tmp/$ROW --wrap=true
    SBATCH --output=/run/slurm/sack.socket --wrap=true
    SBATCH --wrap='exit 3'
    SBATCH --wrap='kill -9 $$'
    SBATCH --wrap=$LONG
    SBATCH --wrap="$ODD"
    SBATCH --nodes=2 --wrap='srun sh -c "setsid sleep 3000 & exit 1"'
    ulimit -n 5; SBATCH --propagate=NOFILE --wrap=true
    ulimit -u 0; SBATCH --propagate=NPROC --wrap='true & wait'
    ulimit -t 1; SBATCH --propagate=CPU --wrap='while :; do :; done'
    umask 777; SBATCH --output=/tmp/$ROW --wrap=true
    SRUN sh -c 'kill -SEGV $$'
    SRUN --ntasks=4 --kill-on-bad-exit=1 sh -c 'test $SLURM_PROCID = 0 || sleep 300; exit 3'
    SRUN sh -c 'scontrol reconfigure || exit 7'
    SALLOC false
FAILED: Invalid user id
    SRUN sh -c 'scontrol update nodename=cpu-0 state=down reason=x || exit 7'
    SRUN sh -c 'scontrol shutdown || exit 7'
FAILED: RebootProgram isn't defined
    SRUN sh -c 'scontrol reboot cpu-1 || exit 7'
FAILED: user task_prolog did not exit normally
    SLURM_TASK_PROLOG=/nonexistent SRUN true
FAILED: execve()
    SRUN /nonexistent
    SRUN /tmp
    SRUN /etc/passwd
    SRUN "$ODD"
    echo '0 /nonexistent' >/tmp/$ROW.mp; SRUN --multi-prog /tmp/$ROW.mp
CANCELLED or FAILED: REQUEST_FILE_BCAST
    srun -Q -w cpu-0 mkfifo /tmp/$ROW; SRUN -w cpu-0 --bcast=/tmp/$ROW true
FAILED: Unable to create step
    SALLOC srun --overlap --ntasks=99999 true
PENDING PartitionConfig
    printf '#!/bin/sh\n#PBS -l nodes=99999\n' >/tmp/$ROW.sh; SBATCH /tmp/$ROW.sh
error
    printf '#!/bin/sh\n#SBATCH --nonsense\n' >/tmp/$ROW.sh; SBATCH /tmp/$ROW.sh
    SRUN --ctrl-comm-ifhn=x --mpi-combine=yes --slurmd=x true
    SALLOC --get-user-env true
error: This does not look like a batch script
    printf 'true\n' >/tmp/$ROW.sh; SBATCH /tmp/$ROW.sh
    SBATCH /bin/true
error: Batch script contains DOS line breaks
    printf '#!/bin/sh\r\ntrue\r\n' >/tmp/$ROW.sh; SBATCH /tmp/$ROW.sh
error: Batch script is empty!
    : >/tmp/$ROW.sh; SBATCH /tmp/$ROW.sh
    SBATCH /tmp
error: does not allow scripts
    printf '#!/bin/sh\nexit 0\n\0\0' >/tmp/$ROW.sh; SBATCH /tmp/$ROW.sh
error: too long
    printf '#!/bin/sh\n#SBATCH --comment='$LONG'\n' >/tmp/$ROW.sh; SBATCH /tmp/$ROW.sh
    (echo '#!/bin/sh'; yes '# ..............' 2>&1 |head -c 5000000) >/tmp/$ROW.sh; SBATCH /tmp/$ROW.sh
error: Unable to open file /nonexistent
    SBATCH /nonexistent
error: cannot stat file /nonexistent
    SLURM_CONF=/nonexistent timeout 2 SRUN true
error: auth/jwt is not supported for use with srun
    SLURM_JWT=nonsense SRUN true
error: Invalid numeric value
    SLURM_NTASKS=-1 SRUN true
error: unrecognized --cpu-bind
    SLURM_CPU_BIND=nonsense SRUN true
error: Invalid job id specified
    SLURM_JOB_ID=999999 SRUN true
error: Cannot create context for mpi/nonsense
    SLURM_MPI_TYPE=nonsense SRUN true
error: Invalid job array specification
    SBATCH_ARRAY_INX=nonsense SBATCH_PARTITION=nonsense SBATCH --wrap=true
error: No command given to execute
    SRUN
error: invalid
    echo nonsense >/tmp/$ROW.mp; SRUN --multi-prog /tmp/$ROW.mp
error: Invalid task range specification
    printf 'no task\n%.0s' {1..10000} >/tmp/$ROW.mp; SRUN --multi-prog /tmp/$ROW.mp
error: Invalid task id
    echo '0-99999999 true' >/tmp/$ROW.mp; SRUN -n4 --multi-prog /tmp/$ROW.mp
error: Use of --slurmd-debug is allowed only for root
    SRUN --slurmd-debug=verbose true
"""
# --reboot is missing here: it makes the node DOWN, as docs/slurm.md says.
ROOT = r"""
COMPLETED
    SBATCH --uid=user --wrap='test $(id -u) = 1000'
    SBATCH --uid=user --gid=0 --wrap='test $(id -u) = 1000'
    SBATCH --uid=user --export=NONE --wrap='test $HOME = /home/user'
    SBATCH --gid=user --wrap=true
    SBATCH --export=NONE --wrap=true
    SBATCH --nice=-100 --wrap=true
    SBATCH --priority=TOP --wrap=true
    SRUN --slurmd-debug=4 true
error: Invalid --uid specification
    SBATCH --uid=99999 --wrap=true
    SBATCH --uid=nonsense --wrap=true
error: cannot stat
    SRUN --no-allocate --nodelist=cpu-0 true
error
    SRUN --uid=1000 true
    SALLOC --uid=user true
"""
# Has neither a shell nor a home.
NO_LOGIN = r"""
COMPLETED
    SBATCH --chdir=/ --wrap=true
PENDING user env retrieval failed requeued held
    SBATCH --chdir=/ --export=NONE --wrap=true
    SBATCH --chdir=/ --get-user-env --wrap=true
"""
ROWS = (
    *(row for command in COMMANDS for row in _options(command, COMMON)),
    *_options("sbatch", SBATCH),
    *_options("srun", SRUN),
    *_options("salloc", SALLOC),
    *_lines(LINES, "user"),
    *_lines(ROOT, "root"),
    *_lines(NO_LOGIN, "slurmrestd"),
)
