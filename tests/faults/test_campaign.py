"""The fault campaign's short form: its cheapest and most telling rows, once each. `make faults` runs all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.campaign import results
from tests.faults.campaign.book import Book
from tests.faults.campaign.repeat import Row
from tests.faults.campaign.rig import Rig
from tests.faults.campaign.shape import POOL
from tests.faults.campaign.table import FAULTS, Fault
from tests.harness import Sandbox

ROWS = (
    "slurmctld SIGKILL after 50 submissions",
    "pod deleted",
    "node frozen and woken, with a standby",
    "a bad config",
)
SEED = 1

# A slow machine keeps no more in flight: the first end before the last are submitted.
IN_FLIGHT = 30


@pytest.fixture(scope="module")
def steady(installed: Sandbox) -> Iterator[Sandbox]:
    """The sandbox while the operator and DNS are on the node that no fault hits."""
    rig = Rig(installed)
    rig.settle_operator()
    yield installed
    rig.settle_operator(None)


@pytest.fixture
def pool(steady: Sandbox) -> Iterator[Rig]:
    """Not there any longer than it takes: the machine is small."""
    rig = Rig(steady, POOL, in_flight=IN_FLIGHT, namespace="campaign-pool")
    rig.create()
    steady.settle()  # what is measured here has the sandbox to itself
    yield rig
    rig.end()
    rig.cluster.delete_later()


@pytest.fixture(scope="module")
def rig(steady: Sandbox) -> Iterator[Rig]:
    rig = Rig(steady, in_flight=IN_FLIGHT, namespace="campaign")
    rig.create()
    steady.settle()  # what is measured here has the sandbox to itself
    yield rig
    rig.end()
    rig.cluster.delete_later()


@pytest.fixture(scope="module")
def book() -> Book:
    return Book()


def row_of(name: str) -> Fault:
    return next(fault for fault in FAULTS if fault.name == name)


def test_a_lost_node_costs_seconds_and_no_job_and_none_runs_twice(pool: Rig, tmp_path: Path) -> None:
    one = Row(pool, Book(), row_of("slurmd node cut"), SEED, tmp_path).repeat(0, operator=True)
    assert not one.failure, f"{one.failure}\nmore in {tmp_path}"
    assert one.whole_s is not None and one.checks["names"] == "ok"
    assert one.requeued and one.failed, "jobs of both kinds were on it"
    assert not one.lost and not one.twice and not one.killed


@pytest.mark.parametrize("name", ROWS)
def test_a_fault_costs_seconds_and_no_job(rig: Rig, book: Book, name: str, tmp_path: Path) -> None:
    fault = row_of(name)
    row = Row(rig, book, fault, SEED, tmp_path)
    one = row.repeat(0, operator=name != "pod deleted")
    row.drain(one)
    assert not one.failure, f"{one.failure}\nmore in {tmp_path}"
    assert one.acknowledged and one.answer_s is not None and one.job_s is not None
    assert not one.lost, "an acknowledged job is a kept job"
    assert not one.twice
    assert results.row(fault, [one], {})["n"] == 1
