"""The configuration of sshd in login pods: who may log in, what a session is, and what its processes may take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from seltzer.api.common import seconds
from seltzer.api.login import LoginPods, LoginSet, SessionLimits
from seltzer.api.slurmcluster import SlurmCluster

from . import quantity, users

PORT: Final = 22
OWN_HOST_KEY: Final = "/run/sshd/host_key"
"""Where the login container has its host key."""
CONFIG: Final = "/etc/seltzer/login"
"""Where the login container has these files and its scripts."""
MORE_KEYS: Final = "/etc/seltzer/authorized-keys"
MAKE_HOME: Final = f"{CONFIG}/make-home"
"""The script in login pods that makes a user's home directory."""

_KEYS = f"AuthorizedKeysFile {users.KEYS_FOLDER}/%u {MORE_KEYS}/%u"
# StrictModes would refuse the folders that Kubernetes mounts, because their modes are open to all. It isn't needed: the
# mounts are read-only, and sshd reads no file that belongs to a user.
_SSHD = f"""\
Port {PORT}
HostKey {OWN_HOST_KEY}
PidFile none
UseDNS no
StrictModes no
AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin no
# A whole class logs in at once: by default sshd drops connections from the eleventh on that isn't logged in yet.
MaxStartups 100:30:300
PrintMotd no
PrintLastLog no
AllowAgentForwarding yes
AllowTcpForwarding yes
AcceptEnv COLORTERM
# The only locale of the image: with another one, as the user's machine may have it, tmux and others don't start.
SetEnv LANG=C.UTF-8
Subsystem sftp internal-sftp
"""

# Only keys authenticate, and nothing here grants more than that. The script says on the terminal what is wrong with a
# home directory; if it fails, sshd refuses the session.
_PAM = f"""\
auth     required pam_deny.so
account  required pam_permit.so
password required pam_deny.so
session  required pam_exec.so type=open_session quiet stdout /bin/sh {MAKE_HOME}
"""
_PAM_LIMITS = f"session  required pam_limits.so conf={CONFIG}/limits\n"


def files(cluster: SlurmCluster, pods: LoginPods) -> dict[str, str]:
    """The files below CONFIG, by name. A change replaces the pods: sshd reads its configuration once."""
    limits = _limits(pods.limits)
    pam = "yes" if cluster.spec.home or limits else "no"
    return {
        "sshd_config": f"UsePAM {pam}\n{_SSHD}{_who(pods)}",
        "pam": _PAM + (_PAM_LIMITS if limits else ""),
        **({"limits": limits} if limits else {}),
    }


def _who(pods: LoginPods) -> str:
    """Whose keys count. Match blocks are last in the file: each ends with the next one."""
    users, groups = (pods.users, pods.groups) if isinstance(pods, LoginSet) else ((), ())
    if not users and not groups:
        return f"{_KEYS}\n"
    return f"AuthorizedKeysFile none\n{_match('User', users)}{_match('Group', groups)}"


def _match(what: str, names: Sequence[str]) -> str:
    return f"Match {what} {','.join(names)}\n    {_KEYS}\n" if names else ""


def _limits(limits: SessionLimits) -> str:
    """As pam_limits reads them: minutes of CPU time, and KiB of memory."""
    lines = []
    if limits.cpu_time is not None:
        lines.append(f"* - cpu {max(1, -(-seconds(limits.cpu_time) // 60))}\n")
    if limits.memory is not None:
        lines.append(f"* - as {int(quantity.parse(limits.memory) / 1024)}\n")
    return "".join(lines)
