"""The machines of a sandbox: unnamed namespaces that exist as long as their init process.

The hub's init is an ancestor of all other processes. When it ends, the kernel ends the control plane, the nodes and
their pods, and removes mounts, links and addresses with the last process. Only files and cgroups are left to remove.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seltzer_sandbox.run.processes import Spawn

_UNSHARE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--ipc")

# Both scripts write a line to the file READY when their set-up is complete, then become `pause`.
_HUB = """
set -e
hostname "$NAME"
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
echo 0 > /proc/sys/net/ipv4/conf/default/rp_filter
# Volumes that are mounted here later must appear on every node.
mount --bind "$VOLUMES" "$VOLUMES"
mount --make-shared "$VOLUMES"
echo ready > "/proc/self/fd/$READY"
exec "$PAUSE"
"""

# A node has its own /run, /var/lib and /var/log: its programs use their usual paths.
_NODE = """
set -e
hostname "$NAME"
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
echo 0 > /proc/sys/net/ipv4/conf/default/rp_filter
# The kubelet sets these values for the whole machine, permanently, unless it finds them already set.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \\
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000
do
    file="$FOLDER/sysctl/${setting%=*}"
    mkdir -p "${file%/*}"
    echo "${setting#*=}" > "$file"
    mount --bind "$file" "/proc/sys/${setting%=*}"
done
mount --bind "$FOLDER/run" /run
mount --bind "$FOLDER/varlib" /var/lib
mount --bind "$FOLDER/varlog" /var/log
mount --make-rshared /
echo ready > "/proc/self/fd/$READY"
exec "$PAUSE"
"""

# Folders that a node replaces with its own: neither the cache nor the state folder may be in them.
HIDDEN = (Path("/run"), Path("/var/run"), Path("/var/lib"), Path("/var/log"))


@dataclass(frozen=True)
class Machine:
    """The parameters of a hub or a node."""

    name: str
    folder: Path
    pause: Path
    log: Path
    join: tuple[Path, ...]


def hub(machine: Machine, volumes: Path) -> Spawn:
    environment = {"NAME": machine.name, "VOLUMES": str(volumes), "PAUSE": str(machine.pause)}
    command = (*_UNSHARE, "--propagation", "private", "sh", "-c", _HUB)
    return Spawn(command, machine.log, machine.join, env=environment)


def node(machine: Machine, hub_init: int) -> Spawn:
    """A node's pid and mount namespaces are children of the hub's; its network namespace is not."""
    environment = {"NAME": machine.name, "FOLDER": str(machine.folder), "PAUSE": str(machine.pause)}
    command = (*_UNSHARE, "--propagation", "slave", "sh", "-c", _NODE)
    return Spawn(command, machine.log, machine.join, inside=hub_init, namespaces="mp", env=environment)
