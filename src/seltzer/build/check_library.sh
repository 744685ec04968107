# The checks that spec.checks of a NodeSet can `use`. A function prints what is wrong and returns 1, or returns 0.

# $1: at most so many seconds between the clocks of this machine and of slurmctld's. Slurm refuses messages that are five
# minutes off, and files on shared volumes are confused much sooner. If slurmctld doesn't answer, nothing is known.
check_clock() {
    local most=${1:-5} answer here theirs off
    answer=$(timeout -k 1 20 sdiag 2>&1)
    here=$(date +%s)
    if [[ $answer =~ sdiag\ output\ at\ [^\(]*\(([0-9]+)\) ]]; then
        theirs=${BASH_REMATCH[1]}
        off=$((here - theirs))
        ((off <= most && -off <= most)) && return
        echo "the clock is $((off < 0 ? -off : off)) s $( ((off < 0)) && echo behind || echo ahead of) slurmctld's"
        return 1
    fi
    case $answer in
    *xpired* | *clock*) echo "slurmctld refuses this machine's clock: ${answer##*$'\n'}" && return 1 ;;
    esac
    return 0
}

# $1 …: paths, each with what has to be free there: /tmp=5%, of space and of inodes, or /tmp=20G.
check_disk() {
    local each path least needed size blocks free inodes left percent broken=0
    (($#)) || set -- / /tmp
    for each in "$@"; do
        path=${each%%=*} least=5%
        [[ $each == *=* ]] && least=${each#*=}
        if ! read -r size blocks free inodes left < <(stat -f -c '%S %b %a %c %d' -- "$path" 2>/dev/null); then
            echo "$path isn't there"
            broken=1
            continue
        fi
        percent=$((blocks ? free * 100 / blocks : 100))
        if [[ $least == *% ]]; then
            ((percent >= ${least%\%})) || { echo "$path has $percent% free, and needs $least" && broken=1; }
            # Some file systems have as many inodes as they need, and say 0.
            percent=$((inodes ? left * 100 / inodes : 100))
            ((percent >= ${least%\%})) || { echo "$path has $percent% of its inodes free, and needs $least" && broken=1; }
        elif ! needed=$(numfmt --from=auto "${least%B}" 2>/dev/null); then
            echo "$least isn't a size: write 5%, 500M or 20Gi"
            broken=1
        elif ((free * size < needed)); then
            echo "$path has $(numfmt --to=iec-i "$((free * size))") free, and needs $least"
            broken=1
        fi
    done
    return $broken
}

# $1: how many GPUs there have to be.
check_gpu() {
    local least=${1:-1} found=0 answer device index errors remapping broken=0
    for device in /dev/nvidia[0-9]* /dev/dri/renderD[0-9]*; do
        # Where /dev is the machine's, NVIDIA's GPUs have both.
        [[ -c $device ]] || continue
        [[ $device == /dev/dri/* && -e /dev/nvidiactl ]] || found=$((found + 1))
    done
    if ((found < least)); then
        echo "there are $found GPUs, and should be $least"
        return 1
    fi
    command -v nvidia-smi >/dev/null || return 0
    if ! answer=$(nvidia-smi -L 2>&1); then
        echo "nvidia-smi: ${answer##*$'\n'}"
        return 1
    fi
    found=$(grep -c '^GPU [0-9]' <<<"$answer")
    if ((found < least)); then
        echo "nvidia-smi knows $found GPUs, and should know $least: $(grep -v '^GPU [0-9]\|^ ' <<<"$answer" | head -n 1)"
        return 1
    fi
    answer=$(nvidia-smi --format=csv,noheader,nounits \
        --query-gpu=index,ecc.errors.uncorrected.volatile.total,remapped_rows.failure 2>&1) || return 0
    while IFS=', ' read -r index errors remapping; do
        if [[ $errors =~ ^[1-9][0-9]*$ ]]; then
            echo "GPU $index has $errors memory errors that could not be corrected"
            broken=1
        elif [[ $remapping =~ ^([1-9]|[Yy]es) ]]; then
            echo "GPU $index has no spare memory left to replace what is broken"
            broken=1
        fi
    done <<<"$answer"
    return $broken
}

# The mounted file systems, one per line: type and path.
mounted() {
    local path rest
    while read -r _ _ _ _ path rest; do
        rest=${rest##* - }
        printf '%s %b\n' "${rest%% *}" "$path"
    done </proc/self/mountinfo
}

# $1 …: paths that have to be mounted; without any, all network file systems. A hung mount hangs whoever looks at it, so
# nobody waits for who looks.
check_mounts() {
    local path kind broken=0 given=$# waited busy
    local -A looks=()
    (($#)) || while read -r kind path; do
        case $kind in
        nfs | nfs4 | cifs | smb3 | ceph | lustre | gpfs | beegfs* | pvfs2 | wekafs | glusterfs | afs | 9p | virtiofs | fuse*)
            set -- "$@" "$path"
            ;;
        esac
    done < <(mounted)
    for path in "$@"; do
        if ((given)) && ! mounted | grep -q "^[^ ]* $path\$"; then
            echo "nothing is mounted at $path"
            broken=1
            continue
        fi
        stat -f -- "$path" >/dev/null 2>&1 && stat -- "$path/." >/dev/null 2>&1 &
        looks[$path]=$!
    done
    for ((waited = 0; waited < 50; waited++)); do
        busy=0
        for path in "${!looks[@]}"; do kill -0 "${looks[$path]}" 2>/dev/null && busy=1; done
        ((busy)) || break
        sleep 0.2
    done
    for path in "${!looks[@]}"; do
        if kill -0 "${looks[$path]}" 2>/dev/null; then
            kill -KILL "${looks[$path]}" 2>/dev/null
            echo "$path doesn't answer"
            broken=1
        elif ! wait "${looks[$path]}"; then
            echo "$path can't be read"
            broken=1
        fi
    done
    return $broken
}

# $1 …: names that have to be known, and names with a port that has to accept connections; beside slurmctld's.
check_network() {
    local each name port broken=0 tried
    for each in "${SELTZER_HOST:+$SELTZER_HOST:$SELTZER_PORT}" "$@"; do
        [[ $each ]] || continue
        name=${each%:*} port=
        [[ $each == *:* ]] && port=${each##*:}
        # A restart of slurmctld or of DNS is no fault of this node.
        for ((tried = 0; tried < 4; tried++)); do
            ((tried)) && sleep 2
            if ! timeout -k 1 5 getent hosts "$name" >/dev/null; then
                each="the name $name isn't known"
            elif [[ $port ]] && ! timeout -k 1 2 bash -c 'exec 3<>"/dev/tcp/$1/$2"' bash "$name" "$port" 2>/dev/null; then
                each="$name accepts no connections at port $port"
            else
                continue 2
            fi
        done
        echo "$each"
        broken=1
    done
    return $broken
}
