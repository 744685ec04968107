# Comes before slurmd.sh where the SlurmCluster has `cgroups: v2`: prepares the cgroups in which Slurm limits its jobs.
#
#   /sys/fs/cgroup          the container. It hands its controllers down, so no process may be in it
#   ├─ seltzer              this process and its children
#   └─ system.slice         slurmd makes it, for itself and the jobs. Slurm looks for its place at process 1, which is this one
#
# A node that can't limit its jobs takes none: the script ends. plan/nodeset/limits.py reads its last line.
readonly TREE=/sys/fs/cgroup MOUNTS=/proc/self/mountinfo NEEDED='cpu cpuset memory pids'

cannot() {
    echo "seltzer: cgroups: $1: $2"
    exit 1
}

# mountinfo: ID, parent, device, root, mount point, its options, optional fields, a dash, type, source, the options of the
# file system. The last mount of the folder is the one that is seen.
mounted='' writable=''
while read -r _ _ _ _ point options rest; do
    [[ $point == "$TREE" ]] && mounted=" $rest" writable=,$options,
done <"$MOUNTS"
[[ $mounted == *' - cgroup2 '* ]] || cannot Version1 "$TREE isn't cgroup v2"
[[ $writable == *,rw,* ]] && mkdir -p "$TREE/seltzer" 2>/dev/null || cannot ReadOnly "$TREE is read-only"
[[ ,${mounted##* }, == *,nsdelegate,* ]] || cannot NoDelegation "$TREE is mounted without nsdelegate"
read -r there <"$TREE/cgroup.controllers"
for each in $NEEDED; do
    [[ " $there " == *" $each "* ]] || cannot NoControllers "$TREE has no controller $each, only: $there"
done

# Other processes may come at any moment: probes, `kubectl exec`. Once controllers are handed down, runc puts them where this
# process is.
hand_down() {
    local process
    while read -r process; do
        { echo "$process" >"$TREE/seltzer/cgroup.procs"; } 2>/dev/null # it may have ended
    done <"$TREE/cgroup.procs"
    { echo "+${NEEDED// / +}" >"$TREE/cgroup.subtree_control"; } 2>/dev/null
}
for ((tries = 1; ; tries++)); do
    hand_down && break
    ((tries < 50)) || cannot NoControllers "$TREE can't hand its controllers down: $(<"$TREE/cgroup.procs")"
    sleep 0.1
done
# Kubernetes has the kernel end the whole container when it is out of memory. The largest process is enough.
{ echo 0 >"$TREE/memory.oom.group"; } 2>/dev/null
