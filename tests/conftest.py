"""One sandbox for all tests that need one; a test that breaks something mends it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from tests.harness import Sandbox, seltzer, succeed

from seltzer.sandbox import commands
from seltzer.sandbox.demo.cluster import DemoCluster

NAME = "e2e"

# No test depends on how fast the machine is, those that Hypothesis drives included.
_usual = settings.get_profile("ci" if os.environ.get("CI") else "default")
settings.register_profile("seltzer", _usual, deadline=None)
settings.load_profile("seltzer")


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    seltzer("sandbox", "down", "--name", NAME)  # what a run that was killed has left may be made of old images
    succeed("sandbox", "up", "--name", NAME)
    yield Sandbox(NAME)
    succeed("sandbox", "down", "--name", NAME)


@pytest.fixture
def spare() -> Iterator[str]:
    """The name of a sandbox that isn't there, before or after the test."""
    name = "e2e-spare"
    seltzer("sandbox", "down", "--name", name)
    yield name
    seltzer("sandbox", "down", "--name", name)


@pytest.fixture(scope="session")
def slurm(sandbox: Sandbox) -> DemoCluster:
    """Real Slurm on the sandbox, with two compute nodes."""
    succeed("demo", "--name", sandbox.name)
    return DemoCluster(commands.find(sandbox.name))
