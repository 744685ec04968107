#!/bin/bash
# Runs the checks of a NodeSet (spec.checks) in slurmd's container, as root. It is mounted beside what it reads: `list`
# has a line `name when onFail interval timeout` for each check, and `check.NAME` is what bash runs.
#
#   runner slurmd COMMAND …   runs the checks of `start`, starts the loop, and becomes slurmd
#   runner loop               runs the checks of `interval`, repeats those that have failed, and reports
#   runner before | after     Prolog and Epilog
#
# The node's record in Slurm is told which checks fail, in its Extra; the operator reads that, and alone resumes a node.
# Whoever finds a failed check drains the node with the same words as the operator would, so that no job comes meanwhile.
readonly HERE=${BASH_SOURCE[0]%/*} STATE=${SELTZER_CHECKS_STATE:-/run/seltzer-checks} PROC=/proc
readonly NODE=${SLURMD_NODENAME:-${POD_NAME-}}
# How much is kept of what a check prints: while it runs, and in Slurm.
readonly KEPT=2000 SHOWN=160
readonly TICK=3 VERIFY=300 SETTLE=20

# The environment of checks and of this script. slurmd's stays as it is.
prepare() {
    export LC_ALL=C PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    unset LD_PRELOAD
    # Before slurmd has fetched the configuration, clients fetch it themselves.
    [[ -e /run/slurm/conf/slurm.conf ]] || export SLURM_CONF_SERVER=${SELTZER_HOST-}:${SELTZER_PORT-}
}

# Seconds since the machine's start: clocks jump.
uptime() {
    local seconds
    read -r seconds _ <"$PROC/uptime"
    echo "${seconds%%.*}"
}

# To the log of slurmd's container, which is the loop's output.
say() {
    echo "seltzer: $*" >>"$PROC/$(<"$STATE/loop")/fd/1"
} 2>/dev/null

# The lines of `list` whose second word is $1, or all.
listed() {
    local name when rest
    while read -r name when rest; do
        [[ -z ${1-} || $when == "$1" ]] && echo "$name $when $rest"
    done <"$HERE/list"
}

# --- one run of one check --------------------------------------------------------------------------------------------

# Keeps the beginning of what comes out of pipe $1/out, and drops the rest: a check that prints without end must neither
# fill the disk nor be ended by its pipe. A process that the check leaves behind may keep the pipe open.
collect() {
    local text='' part code
    exec <"$1/out"
    while ((${#text} < KEPT)); do
        IFS= read -r -d '' -n $((KEPT - ${#text})) -t 0.2 part
        code=$?
        text+=$part
        ((code == 1)) && break
        ((code > 128)) && [[ -e $1/ended ]] && break
    done
    printf '%s' "$text" >"$1/text.new" && mv "$1/text.new" "$1/text"
    exec cat >/dev/null
}

# The first two lines of file $1, as they may stand in a reason of Slurm's and in JSON. ` : ` separates what slurmctld adds.
tidy() {
    local line text='' lines=0
    local -a words
    while IFS= read -r line || [[ $line ]]; do
        line=${line//[^[:print:]]/ } line=${line//[\"\`]/\'} line=${line//\\//}
        line=${line//\{/(} line=${line//\}/)} line=${line//#/}
        read -r -a words <<<"$line"
        line=${words[*]}
        [[ $line ]] || continue
        text+=${text:+; }$line
        ((++lines == 2)) && break
    done <"$1"
    while [[ $text == *' : '* ]]; do text=${text// : /: }; done
    text=${text:0:SHOWN}
    echo "${text%"${text##*[! ]}"}"
} 2>/dev/null

# Whether the process of an earlier run is still there although it was killed: it hangs in the kernel.
hangs() {
    local pid started
    read -r pid started <"$STATE/hung.$1" 2>/dev/null || return
    [[ $(born "$pid") == "$started" ]] && return
    rm -f "$STATE/hung.$1"
    return 1
}

# When process $1 was started: another process may get its ID.
born() {
    local stat
    read -r stat <"$PROC/$1/stat" && stat=${stat##*) } && set -- $stat && [[ $1 != Z ]] && echo "${20}"
} 2>/dev/null

# End the check with process ID $1 and everything that it has started, by its mark $2: daemons leave their session.
end_all() {
    local round file left
    kill -KILL -- "-$1" 2>/dev/null
    for round in 1 2 3; do
        left=
        for file in $(timeout -k 1 5 grep -lzsxF "SELTZER_CHECK=$2" "$PROC"/[0-9]*/environ); do
            file=${file#"$PROC/"}
            kill -KILL "${file%/environ}" 2>/dev/null && left=1
        done
        [[ $left ]] || break
    done
}

# Run check $1 for at most $2 seconds. Prints why it fails; returns 0 if it passes.
run() {
    local name=$1 limit=$2 work mark pid timer collector code=0 text='' tries
    if hangs "$name"; then
        echo "it still hangs"
        return 1
    fi
    work=$(mktemp -d "$STATE/run.XXXXXXXX") && mkfifo "$work/out" || { echo "no space left to run it" && return 1; }
    collect "$work" &
    collector=$!
    mark=$name-$BASHPID-$RANDOM$RANDOM
    SELTZER_CHECK=$mark setsid bash -c '. "$1"; . "$2"' "$name" "$HERE/library" "$HERE/check.$name" \
        >"$work/out" 2>&1 </dev/null &
    pid=$!
    sleep "$limit" &
    timer=$!
    wait -n "$pid" "$timer"
    if kill -0 "$pid" 2>/dev/null; then code=timeout; else wait "$pid" && code=0 || code=$?; fi
    kill -KILL "$timer"
    end_all "$pid" "$mark"
    : >"$work/ended"
    for ((tries = 0; tries < 20; tries++)); do
        [[ -e $work/text ]] && [[ $code != timeout || ! $(born "$pid") ]] && break
        sleep 0.1
    done
    kill -KILL "$collector"
    text=$(tidy "$work/text")
    rm -rf "$work"
    [[ $code == timeout && $(born "$pid") ]] && echo "$pid $(born "$pid")" >"$STATE/hung.$name"
    case $code in
    0) return 0 ;;
    timeout) echo "no result after $limit s${text:+: $text}" ;;
    137) echo "killed, as by a lack of memory${text:+: $text}" ;;
    *) if ((code > 128)); then echo "ended by signal $((code - 128))${text:+: $text}"; else echo "${text:-exit code $code}"; fi ;;
    esac
    return 1
} 2>/dev/null

# Run check $1 with timeout $2 and keep the result. What is kept of a failure is its first reason, until it passes.
attempt() {
    local why
    if why=$(run "$1" "$2"); then
        [[ -e $STATE/adopted ]] || : >"$STATE/passed.$1"
        [[ -e $STATE/failed.$1 ]] && { say "check $1 passes again"; rm -f "$STATE/failed.$1"; }
        return 0
    fi
    if ! [[ -e $STATE/failed.$1 ]]; then
        say "check $1 fails: $why"
        echo "$why" >"$STATE/new.$1.$BASHPID" && mv "$STATE/new.$1.$BASHPID" "$STATE/failed.$1"
    fi
    return 1
}

# Run all checks of `$1` side by side.
attempt_all() {
    local name timeout
    local -a running=()
    while read -r name _ _ _ timeout; do
        attempt "$name" "$timeout" &
        running+=($!)
    done < <(listed "$1")
    ((${#running[@]} == 0)) || wait "${running[@]}"
    return 0
}

# --- what Slurm is told ----------------------------------------------------------------------------------------------

# The failed checks as JSON.
facts() {
    local name parts=''
    while read -r name _; do
        [[ -e $STATE/failed.$name ]] && parts+="${parts:+,}\"$name\":\"$(<"$STATE/failed.$name")\""
    done < <(listed)
    echo "{\"seltzer-checks\":{$parts}}"
}

# The reason of a drain: the first check that fails and drains; empty if none does. $1: only checks of this kind.
cause() {
    local name on_fail
    while read -r name _ on_fail _; do
        [[ $on_fail != comment && -e $STATE/failed.$name ]] || continue
        echo "seltzer: check $name: $(<"$STATE/failed.$name")"
        return
    done < <(listed "${1-}")
}

# Tell Slurm which checks fail, if its record says something else, and drain the node if nobody else has done anything to
# it. Fails if Slurm can't be told, or has no record of the node. In a shell of its own, which lets go of the lock.
report() (
    local record extra='' facts cause state=''
    exec 9>"$STATE/lock"
    flock -w 20 9 || return
    record=$(timeout -k 1 10 scontrol -o show node "$NODE" 2>/dev/null) || return
    [[ $record == "NodeName=$NODE "* ]] || return
    [[ -e $STATE/adopted ]] || adopt "$record"
    facts=$(facts) cause=$(cause)
    [[ $record =~ \ Extra=(\{\"seltzer-checks\":\{[^\}]*\}\}) ]] && extra=${BASH_REMATCH[1]}
    [[ $record =~ \ State=([^ ]+) ]] && state=${BASH_REMATCH[1]}
    # A node that has never failed a check needs no report.
    if [[ $facts != "$extra" && ($facts != *'{}}' || $extra || $record == *' Reason=seltzer: check '*) ]]; then
        local -a change=("nodename=$NODE" "extra=$facts")
        [[ $cause && $state && $state != *@(DRAIN|DOWN|FAIL|ERROR)* ]] && change+=("state=drain" "reason=$cause")
        timeout -k 1 10 scontrol update "${change[@]}" >/dev/null 2>&1 || return
        # slurmctld saves it within seconds. One that was killed before that is told again.
        echo $(($(uptime) + SETTLE)) >"$STATE/again"
    fi
    echo "$facts" >"$STATE/told"
) 2>/dev/null

# What Slurm can't be told doesn't count, and is tried again: by then, a network that was down may be back.
forget() {
    [[ $(facts) == "$(<"$STATE/told")" ]] || rm -f "$STATE/failed.$1"
} 2>/dev/null

# Checks that had failed before the container was started again have to pass: $1 is the node's record.
adopt() {
    local name
    while read -r name _; do
        [[ $1 =~ \ Extra=\{\"seltzer-checks\":\{[^\}]*\"$name\":\"([^\"]*)\" ]] || continue
        [[ -e $STATE/failed.$name || -e $STATE/passed.$name ]] || echo "${BASH_REMATCH[1]}" >"$STATE/failed.$name"
    done < <(listed)
    : >"$STATE/adopted"
}

# --- what slurmd, its loop, and Prolog and Epilog run ------------------------------------------------------------------

# The command of slurmd with a node that begins drained, if it is new to Slurm.
become_slurmd() {
    local why
    local -a words=()
    if ! [[ -e $STATE/started ]]; then
        echo $$ >"$STATE/loop"
        (prepare && attempt_all start && { [[ ! $(cause) ]] || report; })
        : >"$STATE/started"
        (while :; do
            /bin/bash "$HERE/runner" loop
            sleep 5
        done) &
    fi
    why=$(cause)
    while (($#)); do
        words+=("$1")
        if [[ $1 == --conf && $why ]]; then
            words+=("$2 State=DRAIN Reason=\"$why\"")
            shift
        fi
        shift
    done
    exec "${words[@]}"
}

# One run of check $1, and its report.
look() {
    attempt "$1" "$2"
    [[ $(facts) == "$(<"$STATE/told")" ]] && return
    report || { forget "$1" && retry; }
}

retry() {
    echo $(($(uptime) + 5 + RANDOM % 5)) >"$STATE/again"
}

loop() {
    local name when on_fail interval timeout stamp now every verify
    local -A due=() running=()
    echo $BASHPID >"$STATE/loop"
    stamp=$(readlink "$HERE/..data")
    until timeout -k 1 10 scontrol -o show node "$NODE" 2>/dev/null | grep -q "^NodeName=$NODE "; do sleep $TICK; done
    [[ -e /run/slurm/conf/slurm.conf ]] && unset SLURM_CONF_SERVER
    report || retry
    for name in "$STATE"/failed.*; do
        [[ -e $HERE/check.${name##*/failed.} ]] || rm -f "$name"
    done
    verify=$(($(uptime) + VERIFY))
    while :; do
        # Kubernetes has replaced the files.
        [[ $(readlink "$HERE/..data") == "$stamp" ]] || exec /bin/bash "$HERE/runner" loop
        now=$(uptime)
        while read -r name when on_fail interval timeout; do
            every=$interval
            if [[ -e $STATE/failed.$name ]]; then
                ((every > 60)) && every=60
                [[ ${due[$name]-} ]] && ((due[$name] > now + every)) && due[$name]=$((now + every))
            elif [[ $when != interval ]]; then
                continue
            fi
            if ! [[ ${due[$name]-} ]]; then
                # A thousand nodes begin at different moments.
                ((every > 300)) && every=300
                due[$name]=$((now + 1 + RANDOM % every))
            elif ((now >= due[$name])) && ! kill -0 "${running[$name]-}" 2>/dev/null; then
                look "$name" "$timeout" &
                running[$name]=$!
                due[$name]=$((now + every - every / 10 + RANDOM % (every / 5 + 1)))
            fi
        done < <(listed)
        if ((now >= verify)) || { [[ -e $STATE/again ]] && ((now >= $(<"$STATE/again"))); }; then
            verify=$((now + VERIFY + RANDOM % 60))
            rm -f "$STATE/again"
            { report || retry; } &
        fi
        sleep $TICK
    done
} 2>/dev/null

# Before a job, a failed check that drains puts the job back into the queue: Slurm does that if a Prolog fails. By then
# the node is drained with our reason, which slurmctld leaves as it is.
around_job() {
    attempt_all "$1"
    [[ $(facts) == "$(<"$STATE/told")" ]] || report
    [[ $1 == before && $(cause before) ]] && exit 1
    exit 0
} 2>/dev/null

if ! mkdir -p -m 700 "$STATE"; then
    # A node without checks is better than none.
    [[ $1 == slurmd ]] && shift && exec "$@"
    exit 0
fi
case ${1-} in
slurmd) shift && become_slurmd "$@" ;;
loop) prepare && loop ;;
before | after) prepare && around_job "$1" ;;
esac
