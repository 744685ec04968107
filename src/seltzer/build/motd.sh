#!/bin/sh
# Greets a person who logs in with the state of the cluster: at most three questions to Slurm, each with a deadline.
readonly PATIENCE=2

ask() {
    timeout -k 1 $PATIENCE "$@" 2>/dev/null
}

name=$(sed -n 's/^ClusterName=//p' /run/slurm/conf/slurm.conf 2>/dev/null | head -n 1)
if ! nodes=$(ask sinfo --all --Node --noheader --format='%N %T'); then
    echo "${name:-Slurm}: slurmctld doesn't answer right now. Jobs that run go on; try again in a while."
    exit 0
fi
# A node is in several lines if it is in several partitions. A state may have a mark behind it, such as idle~.
printf '%s\n' "$nodes" | sort -u | awk -v name="${name:-cluster}" '
    NF == 2 { all++; sub(/[^a-z]+$/, "", $2); count[$2]++ }
    END {
        bad = count["down"] + count["drained"] + count["draining"] + count["fail"] + count["failing"] + count["error"]
        printf "%s: %d of %d nodes idle", name, count["idle"], all
        if (bad) printf ", %d down or drained", bad
        print "."
    }'
ask squeue --me --noheader --states=running,pending --format=%T | awk '
    { count[$1]++ }
    END { if (NR) printf "Your jobs: %d running, %d pending.\n", count["RUNNING"], count["PENDING"] }'
# Why nodes are out of service, the first few.
ask sinfo --all --list-reasons --noheader --format='  %N: %E' | sort -u | head -n 3
exit 0
