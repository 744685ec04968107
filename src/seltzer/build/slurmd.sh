# The first process of slurmd's container; its words are slurmd's command. Jobs outlive slurmd, since their slurmstepds
# are processes of their own: a slurmd that ends or hangs is started again in place, and no job notices.
readonly LOOKS=5 EVERY=3
# In a volume of the pod, which outlives its containers.
readonly WAIT=22 LIVED=/dev/shm/seltzer.slurmd-lived
# What slurmd misses in an unprivileged container: without it, an `sbatch --export=NONE` ends slurmd (images/slurm/slurmd.c).
readonly LIBRARY=/usr/lib/seltzer/slurmd.so
# Ends jobs that use more memory than they asked for, and one job instead of all when the pod is out of memory.
readonly MEMORY=/usr/lib/seltzer/memory
port=$(printf %04X "$SELTZER_SLURMD_PORT")
ending=
trap ending=1 TERM
# Jobs have slurmd's limits. RDMA needs all the locked memory that the container may have.
ulimit -S -l "$(ulimit -H -l)" 2>/dev/null

# Volumes have no sticky bit: users could remove each other's shared memory, and the file above.
chmod 1777 /dev/shm 2>/dev/null

job_runs() {
    local file name
    for file in /proc/[0-9]*/comm; do
        { read -r name <"$file"; } 2>/dev/null && [[ $name == slurmstepd ]] && return
    done
    return 1
}

# Whether slurmd's listening socket (0A) has $1 to read. A job may listen at slurmd's port on IPv6: slurmd's socket is
# root's, with user ID 0.
has_to_read() {
    grep -qE ":$port [0-9A-F]+:[0-9A-F]+ 0A [0-9A-F]+:$1 [^ ]+ [^ ]+ +0 " /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# Whether the kernel has connections that slurmd hasn't taken; kubelet makes one every second.
is_deaf() {
    has_to_read '0*[1-9A-F][0-9A-F]*'
}

# Before it executes itself again, slurmd waits for users' login shells, up to two minutes, and takes no connections. A
# shell that hangs must not keep a node: its job is held, and slurmd goes on.
end_logins() {
    local process name
    for process in /proc/[0-9]*; do
        { read -r name <"$process/comm"; } 2>/dev/null && [[ $name == seltzer-login ]] && kill -KILL "${process#/proc/}"
    done
}

watch_memory() {
    while :; do
        "$MEMORY"
        echo "seltzer: $MEMORY ended with code $? and is started again"
        sleep 1
    done
}

# Whether jobs can come.
listens() {
    has_to_read '[0-9A-F]+'
}

if [[ -x $MEMORY ]]; then watch_memory & fi

# All jobs went with the container before this one. slurmctld puts them back when a slurmd registers without them, but
# lets those be that it started less than 20 s before (BatchStartTimeout and MessageTimeout): they would run in its books
# alone, for a quarter of an hour.
if [[ -e $LIVED ]]; then
    echo "seltzer: the container was started again, without its jobs; slurmd waits for $WAIT s, so that slurmctld notices"
    for ((waited = 0; waited < WAIT; waited++)); do
        [[ $ending ]] && exit
        sleep 1
    done
fi

# A slurmd that can't fetch its configuration ends, and Kubernetes starts it again ever later; so it starts when there
# is somebody to ask. A connection to a dead address would hang for minutes.
until timeout 2 bash -c 'exec 3<>"/dev/tcp/$SELTZER_HOST/$SELTZER_PORT"' 2>/dev/null; do
    [[ $ending ]] && exit
    sleep 0.2
done

while :; do
    started=$SECONDS deaf=0
    if [[ -e $LIBRARY ]]; then
        LD_PRELOAD="$LIBRARY${LD_PRELOAD:+ $LD_PRELOAD}" "$@" &
    else
        "$@" &
    fi
    slurmd=$!
    while kill -0 "$slurmd" 2>/dev/null; do
        if [[ $ending ]] && ! job_runs; then
            kill "$slurmd"
            wait "$slurmd"
            exit 0
        fi
        if is_deaf; then deaf=$((deaf + 1)); else deaf=0; fi
        if ((deaf == LOOKS - 2)); then end_logins; fi
        if ((deaf >= LOOKS)); then
            echo "seltzer: slurmd takes no connections and is started again; its jobs go on"
            kill -KILL "$slurmd"
        fi
        # Not through a link that a user may have put there.
        if [[ ! -e $LIVED ]] && listens; then ( set -C; : >"$LIVED" ) 2>/dev/null; fi
        pause=$EVERY
        [[ -e $LIVED ]] || pause=0.2
        [[ $ending ]] && pause=1
        sleep "$pause" &
        wait -n "$slurmd" $!
    done
    wait "$slurmd"
    code=$?
    if ! job_runs; then
        [[ $ending ]] && exit 0
        # One that can't start is Kubernetes' to start again, ever later, and to tell about.
        ((SECONDS - started < 10)) && exit "$code"
    fi
    echo "seltzer: slurmd ended with code $code and is started again; its jobs go on"
    ((SECONDS - started < 10)) && sleep 2
done
