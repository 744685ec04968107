"""One sandbox per pytest process for all tests that need one; a test that breaks something mends it."""

from __future__ import annotations

# First, since it replaces clocks that others keep references to.
import tests.virtual_time  # noqa: F401

# isort: split
import asyncio
import os
from collections.abc import Callable, Generator, Iterator, Mapping

import pytest
from hypothesis import HealthCheck, settings
from tests import postmortem, side_by_side
from tests.harness import Cluster, Sandbox, seltzer, succeed
from tests.virtual_time import VirtualLoop

from seltzer_sandbox.run.layout import Layout

# Runs side by side need a sandbox each, and so do the workers of one run.
NAME = "-".join(filter(None, (os.environ.get("SELTZER_TEST_SANDBOX", "e2e"), side_by_side.worker())))

# Each machine pretends to have so many.
GPUS = 4

# No test depends on how fast the machine is, those that Hypothesis drives included.
_usual = settings.get_profile("ci" if os.environ.get("CI") else "default")
settings.register_profile("seltzer", _usual, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("seltzer")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Async unit tests run in virtual time unless they are marked `real_time`, others if marked `virtual_time`."""
    virtual = "unit" in item.path.parts and not item.get_closest_marker("real_time")
    if virtual or item.get_closest_marker("virtual_time"):
        return {"virtual": VirtualLoop}
    return {"real": asyncio.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if side_by_side.worker():
        side_by_side.longest_first(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and "unit" not in item.path.parts and Layout(NAME).read() is not None:
        report.sections.append(("what it looked like then", postmortem.look(NAME)))
    return report


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    side_by_side.check_room()
    seltzer("sandbox", "down", "--name", NAME)  # what a run that was killed has left may be made of old images
    succeed("sandbox", "up", "--name", NAME, "--gpus", str(GPUS))
    sandbox = Sandbox(NAME)
    yield sandbox
    try:
        sandbox.settle()
    finally:
        succeed("sandbox", "down", "--name", NAME)


@pytest.fixture
def spare() -> Iterator[str]:
    """The name of a sandbox that isn't there, before or after the test."""
    name = f"{NAME}-spare"
    seltzer("sandbox", "down", "--name", name)
    yield name
    seltzer("sandbox", "down", "--name", name)


@pytest.fixture(scope="session")
def installed(sandbox: Sandbox) -> Sandbox:
    """The sandbox with Seltzer's operator on it, as `seltzer install` leaves it."""
    sandbox.seltzer("install")
    return sandbox


@pytest.fixture(scope="module")
def unattended(sandbox: Sandbox) -> Iterator[Sandbox]:
    """The sandbox while no operator acts on what tests write. Clusters that are there go on running."""
    sandbox.settle()
    system = ("--namespace", "seltzer-system")
    operator = ("deployment/seltzer-operator", *system)
    there = sandbox.kubectl("get", *operator, check=False).code == 0
    if there:
        sandbox.kubectl("scale", *operator, "--replicas=0")
        sandbox.kubectl("wait", "--for=delete", "pods", "--all", *system, "--timeout=180s")
    yield sandbox
    if there:
        sandbox.kubectl("scale", *operator, "--replicas=2")
        sandbox.kubectl("rollout", "status", *operator, "--timeout=180s")


@pytest.fixture(scope="session")
def slurm(installed: Sandbox) -> Cluster:
    """Real Slurm with the nodes cpu-0 and cpu-1, for tests that leave these as they were. It goes with the sandbox."""
    cluster = Cluster(installed, "slurm-contract", "demo")
    cluster.create(cpu={"replicas": 2})
    cluster.wait_ready()
    return cluster
