"""Every node has addresses of its own, and what the network says is understood."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.ports import Port

from seltzer.errors import SeltzerError
from seltzer_sandbox.run import network

NODES = range(1, network.MOST_NODES + 1)
HUB_NETWORK = ipaddress.ip_interface(f"{network.HUB}/24").network
PODS = ipaddress.ip_network(network.POD_RANGE)
SERVICES = ipaddress.ip_network(network.SERVICE_RANGE)

nodes = st.integers(NODES[0], NODES[-1])


@given(nodes)
def test_a_node_is_on_the_hubs_network_and_its_pods_in_the_pods_range(number: int) -> None:
    address = ipaddress.ip_address(network.node_address(number))
    assert address in HUB_NETWORK
    assert address not in (HUB_NETWORK.network_address, HUB_NETWORK.broadcast_address)
    assert address != ipaddress.ip_address(network.HUB)
    pods = ipaddress.ip_network(network.pod_range(number))
    assert isinstance(pods, ipaddress.IPv4Network) and isinstance(PODS, ipaddress.IPv4Network)
    assert pods.subnet_of(PODS)
    assert pods.num_addresses >= 256, "room for as many pods as the kubelet takes"


def test_nodes_share_neither_an_address_nor_a_pod_range() -> None:
    assert len({network.node_address(number) for number in NODES}) == len(NODES)
    ranges = [ipaddress.ip_network(network.pod_range(number)) for number in NODES]
    assert not [(one, other) for one, other in combinations(ranges, 2) if one.overlaps(other)]


def test_nodes_pods_and_services_do_not_overlap() -> None:
    assert not PODS.overlaps(SERVICES)
    assert not HUB_NETWORK.overlaps(PODS)
    assert not HUB_NETWORK.overlaps(SERVICES)
    assert ipaddress.ip_address(network.DNS_SERVICE) in SERVICES
    assert ipaddress.ip_address(network.API_SERVICE) == SERVICES[1], "Kubernetes takes the first one"


LINKS = """\
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN mode DEFAULT group default qlen 1000\\    link/...
2: br0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP mode DEFAULT group default qlen 1000\\    l
3: n1@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue master br0 state UP mode DEFAULT\\    link/ether
4: n2@if2: <BROADCAST,MULTICAST> mtu 1500 qdisc noqueue master br0 state DOWN mode DEFAULT group default\\    link/et
5: n3@if2: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc noqueue master br0 state LOWERLAYERDOWN\\    link/ether
6: n4@NONE: <BROADCAST,MULTICAST,M-DOWN,LOWER_UP> mtu 1500 qdisc noop state DOWN mode DEFAULT\\    link/ether 6a:b1
"""


class Ip:
    """Stands in for running programs: keeps what was asked for, answers with the links above."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[list[str], str]] = []
        monkeypatch.setattr(network, "_run", self)

    def __call__(self, command: list[str], stdin: str = "") -> str:
        self.asked.append((command, stdin))
        return LINKS if "show" in command else ""

    def lines(self, inside: int) -> list[str]:
        """What was put to `ip` in the namespace of that process."""
        return [line for command, stdin in self.asked if str(inside) in command for line in stdin.splitlines()]


@pytest.fixture
def ip(monkeypatch: pytest.MonkeyPatch) -> Ip:
    return Ip(monkeypatch)


def test_links_are_reported_with_whether_each_is_up(ip: Ip) -> None:
    assert network.links(7) == {"lo": True, "br0": True, "n1": True, "n2": False, "n3": True, "n4": False}


def test_a_node_gets_routes_to_the_pods_of_all_others(ip: Ip) -> None:
    network.link_node(70, 71, 5, [4, 5, 6])
    assert not [line for line in ip.lines(70) if line.startswith("link del")]
    on_node = ip.lines(71)
    for other in (4, 6):
        assert f"route replace {network.pod_range(other)} via {network.node_address(other)}" in on_node
    assert not [line for line in on_node if network.pod_range(5) in line], "its own pods are no neighbours"
    assert [line for line in ip.lines(70) if network.pod_range(5) in line and network.node_address(5) in line]


def test_a_link_that_is_there_is_not_made_again(ip: Ip) -> None:
    network.link_node(70, 71, 2, [1, 2, 3])
    assert not [command for command, _ in ip.asked if command[:3] == ["ip", "link", "add"]]
    assert "link set n2 master br0 up" in ip.lines(70)


def test_the_link_of_a_nodes_earlier_life_can_be_dropped(ip: Ip) -> None:
    network.drop_link(70, 2)
    network.drop_link(70, 9)
    assert [line for line in ip.lines(70) if line.startswith("link del")] == ["link del n2"]


class Wire(socket.socket):
    """A datagram socket on which every question is answered by a function."""

    answer: Callable[[bytes], bytes | None]
    peer: socket.socket
    asked: list[bytes]
    of: Any = None

    def connect(self, address: Any) -> None:
        self.of = address

    def send(self, data: Any, flags: int = 0) -> int:
        self.asked.append(bytes(data))
        answer = self.answer(bytes(data))
        if answer is not None:
            self.peer.send(answer)
        return len(data)


def ask(monkeypatch: pytest.MonkeyPatch, answer: Callable[[bytes], bytes | None]) -> tuple[bool, Wire]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with theirs:
        wire = Wire(fileno=ours.detach())
        wire.answer, wire.peer, wire.asked = answer, theirs, []
        monkeypatch.setattr(network, "socket_in", lambda process: wire)
        said = network.dns_answers(71, "kubernetes.default.svc.cluster.local", deadline=0.05)
    assert wire.fileno() == -1, "the socket was closed"
    return said, wire


def reply(code: int = 0, answers: int = 1) -> Callable[[bytes], bytes]:
    return lambda query: query[:2] + struct.pack("!5H", 0x8180 | code, 1, answers, 0, 0) + query[12:] + b"\0" * 16


def test_the_clusters_dns_is_asked_a_proper_question(monkeypatch: pytest.MonkeyPatch) -> None:
    said, wire = ask(monkeypatch, reply())
    assert said
    assert wire.of == (network.DNS_SERVICE, 53)
    (query,) = wire.asked
    flags, questions, *others = struct.unpack("!5H", query[2:12])
    assert (flags, questions, others) == (0x0100, 1, [0, 0, 0]), "one question, recursion desired"
    assert query[12:] == b"\x0akubernetes\x07default\x03svc\x07cluster\x05local\0" + struct.pack("!2H", 1, 1)


@pytest.mark.parametrize(
    "answer",
    [
        lambda query: None,
        lambda query: b"",
        lambda query: query[:2],
        reply(code=2),
        reply(code=3),
        reply(answers=0),
        lambda query: b"\0\0" + reply()(query)[2:],
    ],
    ids=["nothing", "empty", "cut off", "failure", "no such name", "no address", "to another question"],
)
def test_anything_but_an_address_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[bytes], bytes | None]
) -> None:
    assert not ask(monkeypatch, answer)[0]


def test_a_node_that_cannot_be_entered_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: int) -> socket.socket:
        raise OSError("could not enter")

    monkeypatch.setattr(network, "socket_in", refuse)
    assert not network.dns_answers(71, "some.name")


def test_a_port_that_is_taken_is_reported_with_the_way_out() -> None:
    reserved = Port()
    port = reserved.number
    with network.listen(port) as first:
        assert first.getsockname()[0] == "127.0.0.1", "nobody else's business"
        with pytest.raises(SeltzerError, match=rf"port {port} on 127\.0\.0\.1 .* choose another with --port"):
            network.listen(port)
    network.listen(port).close()
    reserved.give_back()


def test_a_program_that_fails_is_an_error_with_what_it_said() -> None:
    with pytest.raises(SeltzerError, match="network: no such thing"):
        network._run(["sh", "-c", "echo no such thing >&2; echo and more >&2; exit 1"])
    assert network._run(["cat"], "back") == "back"
