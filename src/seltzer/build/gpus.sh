# Runs before slurmd's own script in pods with GPUs; its words are the command that goes on. Tells slurmd which GPUs the
# container has: the driver's files in /proc show those of the whole machine in every pod, so the devices in /dev decide.
readonly CACHE=/var/spool/slurmd/conf-cache OURS=/run/seltzer
# A sandbox that pretends to have GPUs has the driver's files elsewhere.
readonly DRIVER=${SELTZER_NVIDIA:-/proc/driver/nvidia/gpus}
readonly EVERY=${SELTZER_GPU_CHECK:-60} PATIENCE=30
trap 'exit 0' TERM
files=() types=() ids=() flags=nvidia_gpu_env variable=CUDA_VISIBLE_DEVICES

# Whether a device can be opened, within seconds; one that hangs for ever can't be.
opens() {
    [[ -c $1 ]] || return
    ends_well bash -c ': <>"$1"' open "$1"
}

# Runs a command for $PATIENCE seconds at most. `timeout` would wait for a process that hangs in the kernel.
ends_well() {
    local process waited=0
    "$@" >/dev/null 2>&1 &
    process=$!
    while kill -0 "$process" 2>/dev/null; do
        ((waited++ >= PATIENCE * 10)) && { kill -KILL "$process" 2>/dev/null; return 1; }
        sleep 0.1
    done
    wait "$process"
}

# The value of a line such as `Model: NVIDIA H200` of a file.
value() {
    sed -n "s/^$1:[[:space:]]*//p" "$2" 2>/dev/null | head -n 1
}

# The user's name, or the driver's as Slurm itself writes it: NVIDIA H200 is nvidia_h200.
type_of() {
    [[ $SELTZER_GPU_TYPE ]] && printf %s "$SELTZER_GPU_TYPE" && return
    printf %s "${1,,}" | sed 's/[[:space:]]\+/_/g; s/[^-a-z0-9_.]//g'
}

machine_type() {
    local folder
    for folder in "$DRIVER"/*/; do type_of "$(value Model "$folder/information")" && return; done
}

add() {
    files+=("$1") types+=("$2") ids+=("$3")
}

# In the order of their addresses, as CUDA counts them.
find_nvidia() {
    local folder minor id file known=" "
    for folder in "$DRIVER"/*/; do
        minor=$(value 'Device Minor' "$folder/information") id=$(value 'GPU UUID' "$folder/information")
        file=/dev/nvidia$minor
        [[ $minor ]] && opens "$file" || continue
        # A privileged container has all devices of the machine.
        [[ $NVIDIA_VISIBLE_DEVICES == *GPU-* && $NVIDIA_VISIBLE_DEVICES != *$id* ]] && known+="$file " && continue
        add "$file" "$(type_of "$(value Model "$folder/information")")" '(null)'
        known+="$file "
    done
    for file in /dev/nvidia[0-9]*; do
        [[ $known == *" $file "* ]] || ! opens "$file" || add "$file" "$(type_of '')" '(null)'
    done
}

# MIG instances have no device file of their own, and Slurm wants different files: links to their GPU's.
find_mig() {
    local folder id file number=0 model='' profile
    for file in /dev/nvidia[0-9]*; do opens "$file" && break; done
    [[ -c $file ]] || return
    for folder in "$DRIVER"/*/; do
        [[ /dev/nvidia$(value 'Device Minor' "$folder/information") == "$file" ]] && model=$(value Model "$folder/information")
    done
    profile=${model:+${model}_}mig
    [[ $SELTZER_GPU_RESOURCE == */mig-* ]] && profile=${model:-mig}_${SELTZER_GPU_RESOURCE#*/mig-}
    flags+=,env_uuid
    while read -r id; do
        ln -sfn "$file" "$OURS/mig$number"
        add "$OURS/mig$number" "$(type_of "$profile")" "$id"
        number=$((number + 1))
    done < <(mig_ids)
}

mig_ids() {
    local found
    found=$(grep -oE 'MIG-[-0-9a-zA-Z/]+' <<<"$NVIDIA_VISIBLE_DEVICES")
    [[ $found ]] || found=$(timeout "$PATIENCE" nvidia-smi -L 2>/dev/null | grep -oE 'MIG-[-0-9a-f]+')
    [[ $found ]] && printf '%s\n' "$found"
}

find_amd() {
    local file device
    flags=amd_gpu_env variable=ROCR_VISIBLE_DEVICES
    for file in /dev/dri/renderD*; do
        device=/sys/class/drm/${file##*/}/device
        [[ -r $device/vendor && $(<"$device/vendor") != 0x1002 ]] && continue
        opens "$file" && add "$file" "$(type_of "$(cat "$device/product_name" 2>/dev/null)")" '(null)'
    done
}

find_gpus() {
    case $SELTZER_GPU_RESOURCE:$NVIDIA_VISIBLE_DEVICES in
    nvidia.com/mig-* | *:*MIG-*) find_mig ;;
    amd.com/*) find_amd ;;
    nvidia.com/*) find_nvidia ;;
    *)
        find_nvidia
        ((${#files[@]})) || find_amd
        ;;
    esac
}

# What slurmd finds instead of what it would detect itself.
write_gpus() {
    local number other links
    mkdir -p "$CACHE"
    for number in "${!files[@]}"; do
        links=
        # Nothing but the order: slurmd would sort them by their files.
        for other in "${!files[@]}"; do links+=,$([[ $other == "$number" ]] && echo -1 || echo 0); done
        echo "${types[number]:-(null)}|1|(null)|${links#,}|${files[number]}|${ids[number]}|$flags"
    done >"$CACHE/fake_gpus.conf"
    ((${#files[@]} == 0)) || echo "$variable" >"$OURS/gpus"
}

# The node's GPUs for Slurm: all that it was promised, so that Slurm takes no jobs for a node that has fewer.
gres() {
    local promised=${SELTZER_GPU_COUNT:-${#files[@]}} number=0 kind found=
    declare -A counts=()
    ((promised)) || return
    # Slurm keeps the type of a record: that of the machine, where the pod has none of its GPUs.
    [[ ${#files[@]} -gt 0 || $SELTZER_GPU_RESOURCE != nvidia.com/gpu ]] || types=("$(machine_type)")
    for kind in "${types[@]}"; do
        [[ $kind ]] || { counts=() && break; }
        counts[$kind]=$((${counts[$kind]:-0} + 1))
    done
    for kind in "${!counts[@]}"; do
        number=$((number + counts[$kind]))
        found+=,gpu:$kind:${counts[$kind]}
    done
    if ((${#counts[@]} == 0)); then
        found=,gpu:$promised
    elif ((${#counts[@]} == 1)); then
        found=,gpu:$kind:$promised
    elif ((number < promised)); then
        # Which kind is missing isn't known.
        found=${found%:*}:$((${found##*:} + promised - number))
    fi
    [[ $SELTZER_GPU_SHARING ]] && found+=,${SELTZER_GPU_SHARING% *}:$((promised * ${SELTZER_GPU_SHARING#* }))
    printf %s "${found#,}"
}

# Whether slurmctld's configuration, which this fetches, knows GPUs. A node that registers before that has none for good.
is_expected() {
    local type known
    timeout 10 /usr/sbin/slurmd -G -Z -N "$POD_NAME" --conf-server "$SELTZER_HOST:$SELTZER_PORT" --conf CPUs=1 >/dev/null 2>&1
    known=,$(sed -n 's/^GresTypes=//Ip' "$CACHE/slurm.conf" 2>/dev/null | tail -n 1),
    for type in gpu ${SELTZER_GPU_SHARING% *}; do [[ $known == *,$type,* ]] || return; done
}

await_configuration() {
    local waited=0
    until timeout 2 bash -c 'exec 3<>"/dev/tcp/$SELTZER_HOST/$SELTZER_PORT"' 2>/dev/null && is_expected; do
        ((waited++ % 30)) || echo "seltzer: slurmd starts when slurmctld's configuration has GresTypes=gpu"
        sleep 1 &
        wait $!
    done
}

# What is wrong with the GPUs; nothing if nothing is. $1: the driver's own program is asked too.
complaint() {
    local file
    for file in "${files[@]}"; do
        opens "$file" || { echo "GPU check: $file can't be opened" && return; }
    done
    [[ ! $1 ]] || ends_well nvidia-smi -L || echo "GPU check: nvidia-smi -L fails"
}

# Drains the node when a GPU fails twice in a row. A drain that is there stays as it is.
watch_gpus() {
    local before='' now driver=''
    # One that never worked says nothing about the GPUs: its library may not be in the container.
    command -v nvidia-smi >/dev/null && ends_well nvidia-smi -L && driver=1
    while sleep "$EVERY"; do
        now=$(complaint "$driver")
        if [[ $now && $before ]] && ! timeout 20 scontrol --oneliner show node "$POD_NAME" | grep -qE 'State=[^ ]*DRAIN'; then
            echo "seltzer: $now; the node is drained"
            timeout 20 scontrol update "NodeName=$POD_NAME" State=DRAIN "Reason=$now"
        fi
        before=$now
    done
}

mkdir -p "$OURS"
find_gpus
if [[ $SELTZER_GPU_COUNT ]] && ((${#files[@]} > SELTZER_GPU_COUNT)); then
    files=("${files[@]:0:SELTZER_GPU_COUNT}") types=("${types[@]:0:SELTZER_GPU_COUNT}") ids=("${ids[@]:0:SELTZER_GPU_COUNT}")
fi
write_gpus
found=$(gres)
echo "seltzer: ${#files[@]} of ${SELTZER_GPU_COUNT:-${#files[@]}} GPUs: ${files[*]:-none}${found:+ ($found)}"
words=("$@")
if [[ $found ]]; then
    await_configuration
    for number in "${!words[@]}"; do
        [[ $number -gt 0 && ${words[number - 1]} == --conf ]] && words[number]+=" Gres=$found"
    done
    ((${#files[@]} == 0)) || watch_gpus &
fi
trap - TERM
exec "${words[@]}"
