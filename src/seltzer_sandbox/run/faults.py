"""Real faults of a node. Kubernetes is not notified: it has to detect them."""

from __future__ import annotations

from seltzer.errors import SeltzerError
from seltzer_sandbox.run import network
from seltzer_sandbox.run.cluster import Sandbox
from seltzer_sandbox.run.processes import Record, wait_gone


def kill(sandbox: Sandbox, number: int) -> None:
    """Like a power failure: all programs and containers end at once, and no connection is closed."""
    record = _running(sandbox, number)
    network.set_link(sandbox.hub().pid, number, up=False)
    record.kill()
    _thaw(sandbox, number)
    if not wait_gone([record], 10.0):
        raise SeltzerError(f"n{number} would not end; see /proc/{record.pid}/stack")


def cut(sandbox: Sandbox, number: int) -> None:
    """Like a pulled cable: everything on the node keeps running, and nothing can reach it."""
    _running(sandbox, number)
    network.set_link(sandbox.hub().pid, number, up=False)


def freeze(sandbox: Sandbox, number: int) -> None:
    """Like a paused virtual machine: all processes stop, and later continue with stale state."""
    _running(sandbox, number)
    sandbox.cgroups.freeze(f"n{number}", True)


def heal(sandbox: Sandbox, number: int) -> None:
    """Undo any of these faults."""
    sandbox.hub()
    _thaw(sandbox, number)
    sandbox.start_node(number)


def state(sandbox: Sandbox, number: int, links: dict[str, bool]) -> str:
    """The fault of the node, as the kernel shows it: "killed", "frozen", "cut", or "running" if it has none."""
    name = f"n{number}"
    if sandbox.registry.get(name) is None:
        return "killed"
    if sandbox.cgroups.frozen(name):
        return "frozen"
    return "running" if links.get(name) else "cut"


def _running(sandbox: Sandbox, number: int) -> Record:
    sandbox.hub()
    record = sandbox.registry.get(f"n{number}")
    if record is None:
        raise SeltzerError(f"n{number} is not running; bring it back with 'seltzer sandbox node heal n{number}'")
    return record


def _thaw(sandbox: Sandbox, number: int) -> None:
    if sandbox.cgroups.frozen(f"n{number}"):
        sandbox.cgroups.freeze(f"n{number}", False)
