"""Login pods: sshd for the users, and sackd, which signs their requests to Slurm."""

from __future__ import annotations

import base64
from importlib import resources as files

from seltzer.api.common import seconds
from seltzer.api.core import Secret
from seltzer.api.labels import LOGIN_CONFIG
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build import clients, names, node_names, pods, users, volumes
from seltzer.build.images import Images
from seltzer.build.names import Manifest
from seltzer.plan.users.accounts import BUILT_IN_USER

from .base import Component, Ingress, Log, deployed

NAME = "login"
PORT = 22
_KEY = "ssh_host_ed25519_key"
_CONFIG = "/etc/seltzer/login"
_MORE_KEYS = "/etc/seltzer/authorized-keys"
_HOST_KEY = "/etc/seltzer/host-key"
OWN_HOST_KEY = "/run/sshd/host_key"
"""Where the login container has its host key."""
_LEAVE_SECONDS = 30
MAKE_HOME = f"{_CONFIG}/make-home"
"""The script in login pods that makes a user's home directory."""

# How long sshd and sackd may take to end once nobody is logged in.
_GRACE = 30

# StrictModes would refuse the folders that Kubernetes mounts, because their modes are open to all. It isn't needed: the
# mounts are read-only, and sshd reads no file that belongs to a user.
_SSHD_CONFIG = f"""\
Port {PORT}
HostKey {OWN_HOST_KEY}
PidFile none
UseDNS no
StrictModes no
AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin no
PrintMotd no
PrintLastLog no
AuthorizedKeysFile {users.KEYS_FOLDER}/%u {_MORE_KEYS}/%u
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

# Scripts of the pods, by their names in the ConfigMap.
_SCRIPTS = {"make-home": "make_home.sh", "motd": "motd.sh", "leave": "leave.sh"}
_GREETING = f'case $- in *i*) [ -e ~/.hushlogin ] || [ -n "$TMUX" ] || sh {_CONFIG}/motd ;; esac'

# A copy of the host key: sshd refuses one that others can read, as Kubernetes makes it where a podTemplate has an
# fsGroup.
# PerSourcePenalties=no: sshd would block an address after failed logins. Behind a Service, a load balancer or a
# forwarded port all users share one address, also with probes that only connect. Keys can't be guessed, and blocking
# gains nothing. OpenSSH before 9.8 doesn't know the option and exits: `sshd -t` finds out.
_START = f"""\
(umask 077 && cat {_HOST_KEY}/{_KEY} >{OWN_HOST_KEY}) || exit
cat {_CONFIG}/pam >/etc/pam.d/sshd
echo '{_GREETING}' >/etc/profile.d/seltzer.sh
ulimit -S -l "$(ulimit -H -l)"
set -- -f {_CONFIG}/sshd_config -o PerSourcePenalties=no
/usr/sbin/sshd -t "$@" 2>/dev/null || set -- -f {_CONFIG}/sshd_config
exec /usr/sbin/sshd -D -e "$@"
"""

# sackd outlives the sessions: without it no Slurm command works. While sshd runs, it listens.
_SSHD_LISTENS = f"grep -qE ':{PORT:04X} [0-9A-F]+:[0-9A-F]+ 0A ' /proc/net/tcp /proc/net/tcp6"
_AFTER_SSHD = f"while {_SSHD_LISTENS}; do sleep 1; done; kill -INT 1"

# Until sackd has both, every Slurm command fails, and users who log in would think that there is no cluster.
_FETCHED = ["/bin/sh", "-c", "test -S /run/slurm/sack.socket && test -e /run/slurm/conf/slurm.conf"]


def applied(cluster: SlurmCluster, images: Images) -> list[Manifest]:
    """The managed objects. With 0 replicas all of them exist, without pods."""
    name = COMPONENT.named(cluster)
    login = cluster.spec.login
    config_map = names.manifest("ConfigMap", "v1", cluster, NAME, name)
    data = {"sshd_config": _sshd_config(cluster), "pam": _PAM, **scripts()}
    return [
        pods.service_account(cluster, NAME, name),
        {**config_map, "data": data},
        _service(cluster),
        pods.deployment(cluster, NAME, name, login.replicas, _pod(cluster, images)),
    ]


def scripts() -> dict[str, str]:
    """The scripts of the login pods, by name."""
    folder = files.files("seltzer.build")
    return {name: folder.joinpath(file).read_text() for name, file in _SCRIPTS.items()}


def _sshd_config(cluster: SlurmCluster) -> str:
    """PAM makes home directories, and is left out where there are none to make."""
    return f"UsePAM {'yes' if cluster.spec.home else 'no'}\n{_SSHD_CONFIG}"


def _service(cluster: SlurmCluster) -> Manifest:
    service = cluster.spec.login.service
    head = names.manifest("Service", "v1", cluster, NAME, COMPONENT.named(cluster), annotations=service.annotations)
    port = {"name": "ssh", "port": PORT, "protocol": "TCP", "targetPort": "ssh"}
    return {**head, "spec": {"type": service.type, "selector": names.selector(cluster, NAME), "ports": [port]}}


def _pod(cluster: SlurmCluster, images: Images) -> Manifest:
    spec = {
        "serviceAccountName": COMPONENT.named(cluster),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": seconds(cluster.spec.login.session_timeout) + _GRACE,
        "affinity": pods.spread(names.selector(cluster, NAME)),
        # No fsGroup: Kubernetes would give everybody's files on the home volume to that group.
        "securityContext": dict(pods.SECCOMP),
        "initContainers": [_key(cluster, images)],
        "containers": [_sshd(cluster, images), _sackd(cluster, images)],
        "volumes": _volumes(cluster),
    }
    pod = pods.customised(
        spec,
        [cluster.spec.pod_template, cluster.spec.login.pod_template],
        NAME,
        labels=names.labels(cluster, NAME),
        # sshd reads users' keys at each login, but its own configuration only once: a change replaces the pods.
        annotations={names.CHECKSUM: pods.checksum(_sshd_config(cluster), _PAM)},
    )
    spec = node_names.searched(pod["spec"], cluster, images)
    return {**pod, "spec": pods.leave_dead_nodes(spec, _LEAVE_SECONDS)}


def _sshd(cluster: SlurmCluster, images: Images) -> Manifest:
    login = cluster.spec.login
    mounts = [
        {"name": "slurm", "mountPath": "/run/slurm", "readOnly": True},
        {"name": "config", "mountPath": _CONFIG, "readOnly": True},
        {"name": "host-key", "mountPath": _HOST_KEY, "readOnly": True},
        {"name": "user-keys", "mountPath": users.KEYS_FOLDER, "readOnly": True},
        users.mount(),
    ]
    if login.authorized_keys_secret:
        mounts.append({"name": "authorized-keys", "mountPath": _MORE_KEYS, "readOnly": True})
    mounts += [mount for _, mount in volumes.of_login(cluster)]
    leave = ["/bin/sh", f"{_CONFIG}/leave", str(seconds(login.session_timeout))]
    return {
        "name": NAME,
        "image": login.image or images.of(NAME),
        "imagePullPolicy": images.pull_policy,
        "command": ["/bin/sh", "-c", _START],
        "ports": [{"name": "ssh", "containerPort": PORT, "protocol": "TCP"}],
        # No readiness probe: once sshd listens it keeps listening, and a probe every second would fill its log.
        "startupProbe": {"tcpSocket": {"port": "ssh"}, "periodSeconds": 1, "failureThreshold": 60},
        "resources": pods.resources(login.resources, cpu="20m", memory="32Mi"),
        "lifecycle": {"preStop": {"exec": {"command": leave}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            # To switch to the user who logs in, to give them a terminal (sshd refuses without an audit record), to
            # confine its own unauthenticated part with chroot, and to listen on port 22.
            "capabilities": {
                "drop": ["ALL"],
                "add": ["AUDIT_WRITE", "CHOWN", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID", "SYS_CHROOT"],
            },
        },
        "volumeMounts": mounts,
    }


def _key(cluster: SlurmCluster, images: Images) -> Manifest:
    """Copies Slurm's key for sackd, which accepts only a key that nobody else can read, and isn't root."""
    user = pods.SLURM_USER
    copy = f"umask 377 && cat /keys/{names.SLURM_KEY} >/copy/{names.SLURM_KEY} && chown {user}:{user} /copy/*"
    return {
        "name": "key",
        "image": cluster.spec.login.image or images.of(NAME),
        "imagePullPolicy": images.pull_policy,
        # A container that is started again finds its copy.
        "command": ["/bin/sh", "-c", f"rm -f /copy/*; {copy}"],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {**pods.NO_ROOT, "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}},
        "volumeMounts": [
            {"name": "keys", "mountPath": "/keys", "readOnly": True},
            {"name": "sack-key", "mountPath": "/copy"},
        ],
    }


def _sackd(cluster: SlurmCluster, images: Images) -> Manifest:
    """Fetches the configuration and signs the users' requests. Users never see the key."""
    user = pods.SLURM_USER
    return {
        "name": "sackd",
        "image": cluster.spec.login.image or images.of(NAME),
        "imagePullPolicy": images.pull_policy,
        "command": clients.after_slurmctld("/usr/sbin/sackd", "-D", *clients.conf_server(cluster)),
        "env": clients.environment(cluster),
        "startupProbe": {"exec": {"command": _FETCHED}, "periodSeconds": 1, "failureThreshold": 3600},
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", _AFTER_SSHD]}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {"runAsNonRoot": True, "runAsUser": user, "runAsGroup": user, **pods.NO_ROOT},
        "volumeMounts": [
            {"name": "sack-key", "mountPath": "/etc/slurm", "readOnly": True},
            {"name": "slurm", "mountPath": "/run/slurm"},
            users.mount(),
        ],
    }


def _volumes(cluster: SlurmCluster) -> list[Manifest]:
    found: list[Manifest] = [
        pods.secret_volume("keys", names.keys(cluster), 0o400, names.SLURM_KEY),
        {"name": "sack-key", "emptyDir": {"medium": "Memory"}},
        {"name": "slurm", "emptyDir": {}},
        {"name": "config", "configMap": {"name": COMPONENT.named(cluster), "defaultMode": 0o444}},
        pods.secret_volume("host-key", COMPONENT.named(cluster), 0o400, _KEY),
        users.cluster_volume(cluster),
        # sshd reads the keys as the user who logs in.
        users.keys_volume(cluster),
        *(volume for volume, _ in volumes.of_login(cluster)),
    ]
    more = cluster.spec.login.authorized_keys_secret
    if more:
        # Under the user's name, so that they open no other account. Optional: while the Secret is missing, `user` can
        # log in with the other keys.
        volume = pods.secret_volume("authorized-keys", more.name, 0o444)
        items = [{"key": "authorized_keys", "path": BUILT_IN_USER.name}]
        found.append({**volume, "secret": {**volume["secret"], "items": items, "optional": True}})
    return found


def host_key(secret: Secret) -> bytes:
    """The private key by which ssh knows the login pods, from their Secret."""
    return base64.b64decode(secret.data.get(_KEY, ""))


def _unwanted(cluster: SlurmCluster) -> str:
    return "spec.login.replicas is 0" if cluster.spec.login.replicas == 0 else ""


COMPONENT = Component(
    name=NAME,
    ports={"ssh": PORT},
    ingress=(
        # From anywhere: a key is enough to log in.
        Ingress(ports=("ssh",)),
        # srun and sackd listen for answers on ports that they choose.
        Ingress(("slurmctld", "slurmd")),
    ),
    log=Log(NAME),
    applied=applied,
    # The key that identifies all login pods to their users' ssh.
    secret={_KEY: "openssh-ed25519"},
    config_annotation=LOGIN_CONFIG,
    condition=deployed(NAME, "LoginReady", "people can log in"),
    unwanted=_unwanted,
)
