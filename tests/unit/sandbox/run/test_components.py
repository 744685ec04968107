"""The components are started with the settings that the sandbox's promises rest on."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from seltzer_sandbox.run import components, network
from seltzer_sandbox.run.components import Component
from seltzer_sandbox.run.layout import Layout

# Anything that a folder may be called, but for what no TOML can hold as JSON writes it.
folders = st.text(
    st.characters(min_codepoint=32, max_codepoint=0xFFFF, exclude_characters="/\x7f", exclude_categories=["Cs"]),
    min_size=1,
    max_size=12,
).map(lambda name: Path("/") / name / "bin")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / 'it\'s a "state"'))
    return Layout("some")


def flags(component: Component) -> dict[str, str]:
    """The flags by name; fails if one is given twice or isn't of the form --name=value."""
    found: dict[str, str] = {}
    for word in component.command[1:]:
        name, equals, value = word.partition("=")
        assert name.startswith("--") and equals and name not in found, word
        found[name.removeprefix("--")] = value
    return found


def config(component: Component, name: str) -> Any:
    (text,) = (content for path, content in component.files if path.name == name)
    return yaml.safe_load(text)


def test_the_api_server_checks_who_may_do_what(here: Layout) -> None:
    given_flags = flags(components.apiserver(here))
    assert set(given_flags["authorization-mode"].split(",")) == {"Node", "RBAC"}
    assert "NodeRestriction" in given_flags["enable-admission-plugins"].split(",")
    assert given_flags["client-ca-file"] == str(here.pki / "ca.crt")


def test_the_api_server_passes_on_who_asks_to_aggregated_apis(here: Layout) -> None:
    given_flags = flags(components.apiserver(here))
    assert given_flags["enable-aggregator-routing"] == "true", "the hub has no kube-proxy"
    assert given_flags["requestheader-client-ca-file"] == str(here.pki / "front-proxy-ca.crt")
    assert given_flags["requestheader-client-ca-file"] != given_flags["client-ca-file"], "or clients could claim a name"
    assert given_flags["proxy-client-cert-file"] == str(here.pki / "front-proxy-client.crt")
    assert given_flags["requestheader-allowed-names"] == "front-proxy-client"


def test_the_api_server_verifies_kubelets_and_is_where_nodes_look_for_it(here: Layout) -> None:
    given_flags = flags(components.apiserver(here))
    assert given_flags["kubelet-certificate-authority"] == str(here.pki / "ca.crt")
    assert given_flags["bind-address"] == given_flags["advertise-address"] == network.HUB
    assert given_flags["secure-port"] == str(network.API_PORT)
    assert given_flags["etcd-servers"] == flags(components.etcd(here))["listen-client-urls"]


def test_tokens_are_signed_and_checked_with_one_key(here: Layout) -> None:
    server, manager = flags(components.apiserver(here)), flags(components.controller_manager(here))
    assert server["service-account-signing-key-file"] == manager["service-account-private-key-file"]
    assert Path(server["service-account-key-file"]).stem == Path(server["service-account-signing-key-file"]).stem


def test_a_lost_node_is_seen_soon_but_not_before_it_could_report(here: Layout) -> None:
    grace = int(flags(components.controller_manager(here))["node-monitor-grace-period"].removesuffix("s"))
    kubelet = config(components.kubelet(here, 1, "/x"), "kubelet.yaml")
    lease = kubelet["nodeLeaseDurationSeconds"]
    assert grace <= 10
    assert lease / 4 * 2 <= grace, "the kubelet renews its lease every quarter of it; one renewal may be lost"


@pytest.mark.parametrize("number", [1, 2, 100])
def test_a_kubelet_lives_in_its_nodes_cgroup_and_address(here: Layout, number: int) -> None:
    component = components.kubelet(here, number, f"/seltzer-some/n{number}")
    kubelet, given_flags = config(component, "kubelet.yaml"), flags(component)
    assert kubelet["cgroupRoot"] == f"/seltzer-some/n{number}"
    assert kubelet["cgroupDriver"] == "cgroupfs"
    assert kubelet["address"] == given_flags["node-ip"] == network.node_address(number)
    assert given_flags["hostname-override"] == f"n{number}"
    assert given_flags["config"] in [str(path) for path, _ in component.files]
    assert kubelet["resolvConf"] in [str(path) for path, _ in component.files]
    assert kubelet["tlsCertFile"] == str(here.pki / f"n{number}.crt")


def test_a_kubelet_lets_nobody_in_without_asking(here: Layout) -> None:
    kubelet = config(components.kubelet(here, 1, "/x"), "kubelet.yaml")
    assert kubelet["authentication"]["anonymous"]["enabled"] is False
    assert kubelet["authentication"]["webhook"]["enabled"] is True
    assert kubelet["authorization"]["mode"] == "Webhook"


def test_no_pod_is_evicted_for_what_another_node_filled(here: Layout) -> None:
    assert config(components.kubelet(here, 1, "/x"), "kubelet.yaml")["evictionHard"] == {}


def labels(here: Layout, number: int) -> dict[str, str]:
    words = flags(components.kubelet(here, number, "/x"))["node-labels"].split(",")
    return dict(word.split("=", 1) for word in words)


def test_three_nodes_are_in_three_zones_and_racks(here: Layout) -> None:
    for label in ("topology.kubernetes.io/zone", "topology.seltzer.dev/rack"):
        assert len({labels(here, number)[label] for number in (1, 2, 3)}) == 3
    assert len({labels(here, number)["topology.kubernetes.io/region"] for number in (1, 2, 3)}) == 1


def test_a_rack_is_in_one_zone_and_a_zone_has_more_than_one(here: Layout) -> None:
    places = [labels(here, number) for number in range(1, 13)]
    zones = {place["topology.seltzer.dev/rack"]: place["topology.kubernetes.io/zone"] for place in places}
    for place in places:
        assert zones[place["topology.seltzer.dev/rack"]] == place["topology.kubernetes.io/zone"]
    assert len(zones) > len(set(zones.values()))


@given(folders)
def test_containerd_finds_its_plugins_whatever_their_folder_is_called(binaries: Path) -> None:
    component = components.containerd(Layout("some"), 1, binaries, unified=False)
    (text,) = (content for path, content in component.files if path.name == "containerd.toml")
    parsed = tomllib.loads(text)
    assert parsed["plugins"]["io.containerd.cri.v1.runtime"]["cni"]["bin_dirs"] == [str(binaries)]
    assert parsed["plugins"]["io.containerd.cri.v1.images"]["pinned_images"] == {"sandbox": components.PAUSE_IMAGE}


@pytest.mark.parametrize("unified", [True, False])
def test_containers_may_write_their_cgroups_where_there_is_version_2(here: Layout, unified: bool) -> None:
    component = components.containerd(here, 1, Path("/bin"), unified=unified)
    (text,) = (content for path, content in component.files if path.name == "containerd.toml")
    runtimes = tomllib.loads(text)["plugins"]["io.containerd.cri.v1.runtime"].get("containerd", {}).get("runtimes", {})
    assert (components.WRITABLE_CGROUPS in runtimes) == unified
    if unified:
        assert runtimes[components.WRITABLE_CGROUPS]["cgroup_writable"] is True
        assert set(runtimes) == {components.WRITABLE_CGROUPS}, "other pods can't write theirs"


def test_containerd_gives_pods_addresses_of_their_node(here: Layout) -> None:
    component = components.containerd(here, 7, Path("/bin"), unified=False)
    texts = {path: content for path, content in component.files}
    (listed,) = (path for path in texts if path.suffix == ".conflist")
    (toml,) = (path for path in texts if path.suffix == ".toml")
    assert tomllib.loads(texts[toml])["plugins"]["io.containerd.cri.v1.runtime"]["cni"]["conf_dir"] == str(
        listed.parent
    )
    assert component.command[component.command.index("--config") + 1] == str(toml)
    first, *_ = json.loads(texts[listed])["plugins"]
    assert first["ipam"]["ranges"] == [[{"subnet": network.pod_range(7)}]]
    assert not first.get("ipMasq"), "pods see each other's own addresses"


def test_containers_may_lock_as_much_memory_as_containerd_can_have(here: Layout) -> None:
    """More than it was started with, if the sandbox has CAP_SYS_RESOURCE."""
    command = components.containerd(here, 1, Path("/bin"), unified=False).command
    before = list(command[: command.index("containerd")])
    look = ["sh", "-c", "ulimit -S -l; ulimit -H -l"]
    lower = ["sh", "-c", 'ulimit -S -l 64; ulimit -H -l 4096; exec "$@"', "sh"]
    found = subprocess.run([*lower, *before, *look], capture_output=True, text=True, check=True)
    soft, hard = found.stdout.split()
    assert soft == hard
    assert hard in ("4096", "unlimited")
    assert not found.stderr


def test_kube_proxy_leaves_the_hosts_connection_table_alone(here: Layout) -> None:
    proxy = config(components.kube_proxy(here, 2), "kube-proxy.yaml")
    assert proxy["mode"] == "nftables"
    assert proxy["hostnameOverride"] == "n2"
    assert (proxy["conntrack"]["maxPerCore"], proxy["conntrack"]["min"]) == (0, 0)
    assert proxy["clusterCIDR"] == network.POD_RANGE


def test_every_component_has_a_name_of_its_own_and_files_in_its_sandbox(here: Layout) -> None:
    everything = [
        components.etcd(here),
        components.apiserver(here),
        components.controller_manager(here),
        components.scheduler(here),
        components.volumes(here),
        components.forward(9),
        *(components.containerd(here, number, Path("/bin"), unified=True) for number in (1, 2)),
        *(components.kubelet(here, number, "/x") for number in (1, 2)),
        *(components.kube_proxy(here, number) for number in (1, 2)),
    ]
    names = [component.name for component in everything]
    paths = [path for component in everything for path, _ in component.files]
    assert len(set(names)) == len(names)
    assert len(set(paths)) == len(paths)
    assert all(path.is_relative_to(here.folder) for path in paths)


def test_nodes_offer_the_gpus_that_the_sandbox_has() -> None:
    assert components.devices(2, "") is None
    pretended = components.devices(2, "4")
    assert pretended and "nvidia.com/gpu=4" in flags(pretended)["offer"]
    assert pretended.name == "n2/devices"


def test_one_node_has_the_gpus_of_the_machine() -> None:
    """Two would give them to two pods."""
    first = components.devices(1, components.REAL_GPUS)
    assert first and first.command == ("devices", "--real")
    assert components.devices(2, components.REAL_GPUS) is None
