"""One sandbox for all end-to-end tests; a test that breaks something mends it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.harness import Sandbox, seltzer, succeed

NAME = "e2e"


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
