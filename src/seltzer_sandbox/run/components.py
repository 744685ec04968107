"""The command line and configuration files of every component. Pure: no function reads or writes anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from seltzer_sandbox.run import network
from seltzer_sandbox.run.layout import Layout

# How soon Kubernetes detects a lost node: 8 s instead of the default 48 s, without flapping under load.
NODE_GRACE = "8s"
NODE_CHECK = "1s"
NODE_REPORT = "2s"
NODE_LEASE_SECONDS = 8

PAUSE_IMAGE = "seltzer.dev/pause:dev"
REAL_GPUS = "real"

# Containers have the limits of their containerd, and RDMA needs all the locked memory that it can get. Without
# CAP_SYS_RESOURCE a process can't have more than it was started with.
_UNLOCKED = 'ulimit -l unlimited 2>/dev/null || ulimit -S -l "$(ulimit -H -l)"; exec "$@"'
ETCD = "http://127.0.0.1:2379"  # the hub's own loopback: not reachable from outside


# The handler of the RuntimeClass with the same name.
WRITABLE_CGROUPS = "seltzer-cgroups"
_WRITABLE_CGROUPS = f"""
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{WRITABLE_CGROUPS}]
  runtime_type = "io.containerd.runc.v2"
  cgroup_writable = true
"""


@dataclass(frozen=True)
class Component:
    """A program to run, and the files that it reads."""

    name: str
    command: tuple[str, ...]
    files: tuple[tuple[Path, str], ...] = ()


def etcd(layout: Layout) -> Component:
    flags = {
        "name": layout.name,
        "data-dir": layout.etcd,
        "listen-client-urls": ETCD,
        "advertise-client-urls": ETCD,
        "listen-peer-urls": "http://127.0.0.1:2380",
        "initial-advertise-peer-urls": "http://127.0.0.1:2380",
        "initial-cluster": f"{layout.name}=http://127.0.0.1:2380",
        # Nobody keeps a sandbox after a power loss: don't wait for the disk.
        "unsafe-no-fsync": "true",
        "log-level": "warn",
    }
    return Component("etcd", ("etcd", *_flags(flags)))


def apiserver(layout: Layout) -> Component:
    pki = layout.pki
    flags = {
        "etcd-servers": ETCD,
        "bind-address": network.HUB,
        "advertise-address": network.HUB,
        "secure-port": network.API_PORT,
        "service-cluster-ip-range": network.SERVICE_RANGE,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "allow-privileged": "true",
        "client-ca-file": pki / "ca.crt",
        "tls-cert-file": pki / "apiserver.crt",
        "tls-private-key-file": pki / "apiserver.key",
        "kubelet-certificate-authority": pki / "ca.crt",
        "kubelet-client-certificate": pki / "apiserver-kubelet.crt",
        "kubelet-client-key": pki / "apiserver-kubelet.key",
        "kubelet-preferred-address-types": "InternalIP",
        "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
        "service-account-key-file": pki / "service-accounts.pub",
        "service-account-signing-key-file": pki / "service-accounts.key",
        "requestheader-client-ca-file": pki / "front-proxy-ca.crt",
        "requestheader-allowed-names": "front-proxy-client",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-username-headers": "X-Remote-User",
        "proxy-client-cert-file": pki / "front-proxy-client.crt",
        "proxy-client-key-file": pki / "front-proxy-client.key",
        # The hub has no kube-proxy: the API server calls webhooks and aggregated APIs at their pods' addresses.
        "enable-aggregator-routing": "true",
        "max-requests-inflight": 2000,
        "max-mutating-requests-inflight": 1000,
    }
    return Component("kube-apiserver", ("kube-apiserver", *_flags(flags)))


def controller_manager(layout: Layout) -> Component:
    pki = layout.pki
    flags = {
        "kubeconfig": layout.config / "kube-controller-manager.kubeconfig",
        "authentication-kubeconfig": layout.config / "kube-controller-manager.kubeconfig",
        "authorization-kubeconfig": layout.config / "kube-controller-manager.kubeconfig",
        "bind-address": "127.0.0.1",
        "leader-elect": "false",
        "use-service-account-credentials": "true",
        "service-account-private-key-file": pki / "service-accounts.key",
        "root-ca-file": pki / "ca.crt",
        "cluster-signing-cert-file": pki / "ca.crt",
        "cluster-signing-key-file": pki / "ca.key",
        "node-monitor-grace-period": NODE_GRACE,
        "node-monitor-period": NODE_CHECK,
        "kube-api-qps": 1000,
        "kube-api-burst": 1000,
    }
    return Component("kube-controller-manager", ("kube-controller-manager", *_flags(flags)))


def scheduler(layout: Layout) -> Component:
    flags = {
        "kubeconfig": layout.config / "kube-scheduler.kubeconfig",
        "authentication-kubeconfig": layout.config / "kube-scheduler.kubeconfig",
        "authorization-kubeconfig": layout.config / "kube-scheduler.kubeconfig",
        "bind-address": "127.0.0.1",
        "leader-elect": "false",
        "kube-api-qps": 1000,
        "kube-api-burst": 1000,
    }
    return Component("kube-scheduler", ("kube-scheduler", *_flags(flags)))


def volumes(layout: Layout) -> Component:
    flags = {"kubeconfig": layout.config / "volumes.kubeconfig", "folder": layout.volumes}
    return Component("volumes", ("volumes", *_flags(flags)))


def forward(listener: int) -> Component:
    return Component("forward", ("forward", str(listener), f"{network.HUB}:{network.API_PORT}"))


def containerd(layout: Layout, number: int, binaries: Path, *, unified: bool) -> Component:
    """`unified`: the machine has cgroup v2, and a second runtime handler lets containers write their own cgroups."""
    folder = layout.node(number) / "config"
    config = f"""version = 4
disabled_plugins = ["io.containerd.nri.v1.nri"]

[plugins."io.containerd.cri.v1.runtime"]
  # Without CAP_SYS_RESOURCE a container's oom_score_adj can't be lower than ours.
  restrict_oom_score_adj = true
  # A profile would be loaded into the host's kernel and remain there.
  disable_apparmor = true

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = [{_toml(binaries)}]
  conf_dir = {_toml(folder / "cni")}

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE_IMAGE}"
{_WRITABLE_CGROUPS if unified else ""}"""
    plugins = [
        {
            # Pods are routed, not bridged: pod-to-Service traffic on one node then needs no br_netfilter,
            # which would also affect the host's bridges.
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": network.pod_range(number)}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    cni = {"cniVersion": "1.0.0", "name": "sandbox", "plugins": plugins}
    return Component(
        f"n{number}/containerd",
        ("sh", "-c", _UNLOCKED, "sh", "containerd", "--config", str(folder / "containerd.toml"), "--log-level", "warn"),
        ((folder / "containerd.toml", config), (folder / "cni" / "10-sandbox.conflist", json.dumps(cni, indent=1))),
    )


def kubelet(layout: Layout, number: int, cgroup_root: str) -> Component:
    folder = layout.node(number) / "config"
    name = f"n{number}"
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": network.node_address(number),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(layout.pki / f"{name}.crt"),
        "tlsPrivateKeyFile": str(layout.pki / f"{name}.key"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup_root,
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [network.DNS_SERVICE],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "resolvConf": str(folder / "resolv.conf"),
        "oomScoreAdj": 0,
        # The nodes share one disk: evicting one node's pods would not free it.
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "maxPods": 250,
        "nodeLeaseDurationSeconds": NODE_LEASE_SECONDS,
        "nodeStatusUpdateFrequency": NODE_REPORT,
        "serializeImagePulls": False,
    }
    zone = f"zone-{'abc'[(number - 1) % 3]}"
    labels = {
        "topology.kubernetes.io/region": "sandbox",
        "topology.kubernetes.io/zone": zone,
        "topology.seltzer.dev/rack": f"{zone}-rack-{(number - 1) // 3 % 2 + 1}",
    }
    flags = {
        "config": folder / "kubelet.yaml",
        "kubeconfig": folder / "kubelet.kubeconfig",
        "hostname-override": name,
        "node-ip": network.node_address(number),
        "node-labels": ",".join(f"{key}={value}" for key, value in labels.items()),
    }
    files = ((folder / "kubelet.yaml", yaml.safe_dump(config)), (folder / "resolv.conf", ""))
    return Component(f"{name}/kubelet", ("kubelet", *_flags(flags)), files)


def kube_proxy(layout: Layout, number: int) -> Component:
    folder = layout.node(number) / "config"
    config: dict[str, Any] = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(folder / "kube-proxy.kubeconfig"), "qps": 100, "burst": 200},
        "clusterCIDR": network.POD_RANGE,
        "hostnameOverride": f"n{number}",
        "mode": "nftables",
        # Changed Services take effect within 0.1 s instead of up to 3 s.
        "nftables": {"minSyncPeriod": "100ms"},
        # The connection tracking table belongs to the host: leave its size alone.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpCloseWaitTimeout": "0s", "tcpEstablishedTimeout": "0s"},
    }
    path = folder / "kube-proxy.yaml"
    command = ("kube-proxy", *_flags({"config": path}))
    return Component(f"n{number}/kube-proxy", command, ((path, yaml.safe_dump(config)),))


def devices(number: int, gpus: str) -> Component | None:
    """The device plugin of a node; None if it offers nothing."""
    if gpus == REAL_GPUS:
        return Component(f"n{number}/devices", ("devices", "--real")) if number == 1 else None
    if not gpus:
        return None
    offer = {"nvidia.com/gpu": gpus, "nvidia.com/mig-1g.10gb": 2, "amd.com/gpu": 2}
    words = ",".join(f"{resource}={count}" for resource, count in offer.items())
    return Component(f"n{number}/devices", ("devices", f"--offer={words}"))


def _toml(path: Path) -> str:
    """A TOML string: the same as JSON's, except that surrogate pairs are not allowed."""
    return json.dumps(str(path), ensure_ascii=False)


def _flags(flags: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in flags.items()]
