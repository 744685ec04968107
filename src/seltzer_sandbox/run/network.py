"""The addresses of a sandbox, and its links. All are inside namespaces: every sandbox uses the same addresses.

The hub has a bridge and runs the control plane. A veth pair connects each node to the bridge, and each node has a /24
for its pods.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import threading

from seltzer.errors import SeltzerError

HUB = "10.90.0.1"
POD_RANGE = "10.91.0.0/16"
SERVICE_RANGE = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
DNS_SERVICE = "10.96.0.10"
API_PORT = 6443
MOST_NODES = 100
_CLONE_NEWNET = 0x40000000


def node_address(number: int) -> str:
    return f"10.90.0.{10 + number}"


def pod_range(number: int) -> str:
    return f"10.91.{number}.0/24"


def set_up_hub(hub: int) -> None:
    """Create the bridge, unless it exists."""
    new = [] if "br0" in links(hub) else ["link add br0 type bridge"]
    _ip(hub, [*new, f"addr replace {HUB}/24 dev br0", "link set br0 up", "link set lo up"])


def link_node(hub: int, node: int, number: int, numbers: list[int]) -> None:
    """Create what is missing of a node's link to the hub, its addresses and its routes to the other nodes."""
    name = f"n{number}"
    if name not in links(hub):
        # Both ends are created inside their namespaces: no link ever appears on the host.
        peer = ["peer", "name", "eth0", "netns", str(node)]
        _run(["ip", "link", "add", name, "netns", str(hub), "type", "veth", *peer])
    _ip(
        hub,
        [
            f"link set {name} master br0 up",
            f"route replace {pod_range(number)} via {node_address(number)}",
        ],
    )
    _ip(
        node,
        [
            "link set lo up",
            f"addr replace {node_address(number)}/24 dev eth0",
            "link set eth0 up",
            f"route replace default via {HUB}",
            *(f"route replace {pod_range(n)} via {node_address(n)}" for n in numbers if n != number),
        ],
    )


def drop_link(hub: int, number: int) -> None:
    """Remove the link of a node that is gone. The kernel may remove it at the same moment."""
    try:
        if f"n{number}" in links(hub):
            _ip(hub, [f"link del n{number}"])
    except SeltzerError:
        if f"n{number}" in links(hub):
            raise


def set_link(hub: int, number: int, up: bool) -> None:
    _ip(hub, [f"link set n{number} {'up' if up else 'down'}"])


def links(hub: int) -> dict[str, bool]:
    """The hub's links and whether each is administratively up."""
    shown = _run(["nsenter", "--target", str(hub), "-n", "ip", "-oneline", "link", "show"])
    found = {}
    for line in shown.splitlines():
        _, name, rest = line.split(":", 2)
        flags = rest[rest.index("<") + 1 : rest.index(">")].split(",")
        found[name.strip().split("@")[0]] = "UP" in flags
    return found


def dns_answers(node: int, name: str, deadline: float = 1.0) -> bool:
    """Whether the cluster's DNS resolves a name for a program on that node."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.rstrip(".").split("."))
    query = b"\x5e\x17\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + labels + b"\x00\x00\x01\x00\x01"
    try:
        with socket_in(node) as asking:
            asking.settimeout(deadline)
            asking.connect((DNS_SERVICE, 53))
            asking.send(query)
            answer = asking.recv(512)
    except OSError:
        return False
    return len(answer) > 12 and answer[:2] == query[:2] and answer[3] & 0x0F == 0 and answer[7] > 0


def socket_in(process: int) -> socket.socket:
    """A UDP socket in a process's network namespace. Only a temporary thread enters the namespace."""
    made: list[socket.socket] = []
    libc = ctypes.CDLL(None, use_errno=True)

    def enter() -> None:
        try:
            namespace = os.open(f"/proc/{process}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            if libc.setns(namespace, _CLONE_NEWNET) == 0:
                made.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        finally:
            os.close(namespace)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if not made:
        raise OSError(f"could not enter the network of process {process}")
    return made[0]


def listen(port: int) -> socket.socket:
    """A listening socket on the host's loopback, for the forwarder; port 0 takes a free one."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        raise SeltzerError(
            f"port {port} on 127.0.0.1 can't be had ({error.strerror}); choose another with --port"
        ) from None
    listener.listen(128)
    return listener


def _ip(inside: int, lines: list[str]) -> None:
    if lines:
        _run(["nsenter", "--target", str(inside), "-n", "ip", "-batch", "-"], "\n".join(lines) + "\n")


def _run(command: list[str], stdin: str = "") -> str:
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=10, check=False)
    except subprocess.TimeoutExpired:
        raise SeltzerError(f"setting up the sandbox's network: {' '.join(command)} did not end within 10 s") from None
    if done.returncode != 0:
        said = done.stderr.strip().partition("\n")[0] or f"{command[0]} failed with {done.returncode}"
        raise SeltzerError(f"setting up the sandbox's network: {said}")
    return done.stdout
