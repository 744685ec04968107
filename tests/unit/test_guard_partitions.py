"""Which partitions are UP: a person's word is kept, and what is declared counts when it changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes.guard_rig import until

from seltzer.guard import partitions
from seltzer.guard.partitions import Teller
from seltzer.guard.processes import Processes
from seltzer.guard.settings import Places, Settings, Times

CONF = b"""# PartitionName=not State=DOWN
ClusterName=demo
PartitionName=plain Nodes=set_cpu MaxTime=10
PartitionName=DEFAULT State=drain MaxTime=5
PartitionName=usual Nodes=set_gpu
  partitionname = odd Nodes=x PreviousState=UP state=Inactive
PartitionName=twice State=DOWN State=UP
"""


def test_what_is_not_said_is_as_usual() -> None:
    assert partitions.declared(CONF) == {"plain": "UP", "usual": "DRAIN", "odd": "INACTIVE", "twice": "UP"}
    assert partitions.declared(b"\xff") == {}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({}, {"a": "DRAIN"}, {}),  # nothing is known: what slurmctld has stays
        ({"a": "UP"}, {"a": "UP"}, {}),
        ({"a": "UP"}, {"a": "DRAIN"}, {"a": "DRAIN"}),
        ({"a": "DRAIN"}, {"a": "UP"}, {"a": "UP"}),  # the last NodeSet of it was deleted, and another one came
        ({"a": "DRAIN"}, {}, {}),
        ({"a": "UP"}, {"a": "UP", "b": "DOWN"}, {}),  # a new one has its state from slurm.conf
    ],
)
def test_what_has_changed_is_told(before: dict[str, str], after: dict[str, str], told: dict[str, str]) -> None:
    assert partitions.changes(before, after) == told


def test_what_was_written_is_read_and_nonsense_is_nothing(tmp_path: Path) -> None:
    assert partitions.read(tmp_path) == {}
    partitions.write(tmp_path, {"a": "UP"})
    assert partitions.read(tmp_path) == {"a": "UP"}
    for nonsense in ("[1]", "{", "7"):
        (tmp_path / "seltzer.partitions").write_text(nonsense)
        assert partitions.read(tmp_path) == {}
    partitions.write(tmp_path / "gone", {"a": "UP"})  # fenced: nothing is written, and nothing is raised


Tell = Callable[[bytes], Teller]


@pytest.fixture
def tell(tmp_path: Path) -> Tell:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\n[ ! -e {tmp_path}/down ]\n')
    scontrol.chmod(0o755)
    places = dataclasses.replace(Places(), etc=tmp_path, scontrol=str(scontrol))
    settings = Settings("ns", "lease", "slice", "pod", "address", places, Times(partitions=5))

    def hear(reason: str, message: str) -> None:
        (tmp_path / "heard").write_text(f"{reason}: {message}")

    return lambda conf: Teller(tmp_path, conf, settings, Processes(), hear)


def test_slurmctld_is_told_once_and_again_if_it_did_not_listen(tmp_path: Path, tell: Tell) -> None:
    def said() -> list[str]:
        return (tmp_path / "said").read_text().splitlines() if (tmp_path / "said").exists() else []

    one = b"PartitionName=a Nodes=x\n"
    two = b"PartitionName=a Nodes=x State=DRAIN\n"
    tell(one).end()
    assert (said(), partitions.read(tmp_path)) == ([], {"a": "UP"})
    (tmp_path / "down").touch()
    tell(two)
    until("it was tried", said)
    (tmp_path / "down").unlink()
    assert partitions.read(tmp_path) == {"a": "UP"}
    assert not (tmp_path / "heard").exists(), "nothing has been done"
    tell(two)
    until("it is written down", lambda: partitions.read(tmp_path) == {"a": "DRAIN"})
    tell(two).end()
    assert said() == ["update PartitionName=a State=DRAIN"] * 2
    assert (tmp_path / "heard").read_text() == "PartitionsSet: what is declared has changed: partition a is DRAIN now"
