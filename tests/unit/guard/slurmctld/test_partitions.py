"""Which partitions are UP: a person's word is kept, and what is declared counts when it changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes.guard.rig import until
from tests.programs import write_program

from seltzer.guard.processes import Processes
from seltzer.guard.settings import Places, Settings, Times
from seltzer.guard.slurmctld import partitions
from seltzer.guard.slurmctld.partitions import PartitionUpdater

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
def test_what_has_changed_is_sent(before: dict[str, str], after: dict[str, str], told: dict[str, str]) -> None:
    assert partitions.changes(before, after) == told


def test_what_was_written_is_read_and_nonsense_is_nothing(tmp_path: Path) -> None:
    assert partitions.read(tmp_path) == {}
    partitions.write(tmp_path, {"a": "UP"})
    assert partitions.read(tmp_path) == {"a": "UP"}
    for nonsense in ("[1]", "{", "7"):
        (tmp_path / "seltzer.partitions").write_text(nonsense)
        assert partitions.read(tmp_path) == {}
    partitions.write(tmp_path / "gone", {"a": "UP"})  # fenced: nothing is written, and nothing is raised


Tell = Callable[[bytes], PartitionUpdater]


@pytest.fixture
def tell(tmp_path: Path) -> Tell:
    """scontrol fails while there is a file with the name of the partition."""
    scontrol = write_program(
        tmp_path / "scontrol",
        f'#!/bin/sh\ncd {tmp_path}\necho "$@" >> said\n[ ! -e "down-${{2#PartitionName=}}" ] || exit 1\n'
        # Each save is later than the one before, however fast they come.
        '[ -e unsaved ] || { echo "$@" > part_state; touch -d "@$(wc -l < said)" part_state; }\n',
    )
    places = dataclasses.replace(Places(), etc=tmp_path, scontrol=str(scontrol))
    settings = Settings("ns", "lease", "slice", "pod", "address", places, Times(partitions=600))

    def hear(reason: str, message: str) -> None:
        (tmp_path / "heard").write_text(f"{reason}: {message}")

    return lambda conf: PartitionUpdater(tmp_path, conf, settings, Processes(), hear)


def said(folder: Path) -> list[str]:
    return (folder / "said").read_text().splitlines() if (folder / "said").exists() else []


ONE = b"PartitionName=a Nodes=x\nPartitionName=b Nodes=x\n"
TWO = b"PartitionName=a Nodes=x State=DRAIN\nPartitionName=b Nodes=x State=DRAIN\nPartitionName=new\n"
A, B = (f"update PartitionName={name} State=DRAIN" for name in "ab")


def test_slurmctld_is_told_once_and_again_if_it_did_not_listen(tmp_path: Path, tell: Tell) -> None:
    one = b"PartitionName=a Nodes=x\n"
    two = b"PartitionName=a Nodes=x State=DRAIN\n"
    tell(one).end()
    assert (said(tmp_path), partitions.read(tmp_path)) == ([], {"a": "UP"})
    (tmp_path / "down-a").touch()
    teller = tell(two)
    until("it was tried", lambda: said(tmp_path))
    teller.end()
    assert partitions.read(tmp_path) == {"a": "UP"}
    assert not (tmp_path / "heard").exists(), "nothing has been done"
    (tmp_path / "down-a").unlink()
    tell(two)
    until("it is written down", lambda: partitions.read(tmp_path) == {"a": "DRAIN"})
    tell(two).end()
    assert said(tmp_path) == [A] * 2
    heard = (tmp_path / "heard").read_text()
    assert heard == "PartitionsSet: the declared states have changed: partition a is now DRAIN"


def test_a_partition_that_slurmctld_refuses_affects_no_other_and_is_sent_alone_the_next_time(
    tmp_path: Path, tell: Tell
) -> None:
    tell(ONE).end()
    (tmp_path / "down-a").touch()
    tell(TWO)
    until("the other is written down", lambda: partitions.read(tmp_path) == {"a": "UP", "b": "DRAIN", "new": "UP"})
    (tmp_path / "down-a").unlink()
    tell(TWO)
    until("both are", lambda: partitions.read(tmp_path) == {"a": "DRAIN", "b": "DRAIN", "new": "UP"})
    assert said(tmp_path) == [A, B, A], "what a person has made of the other since isn't undone"


def test_what_a_killed_slurmctld_has_not_saved_is_told_to_the_next_one(tmp_path: Path, tell: Tell) -> None:
    (tmp_path / "part_state").write_text("as it was")
    (tmp_path / "unsaved").touch()
    tell(ONE).end()
    teller = tell(TWO)
    until("people hear of it", (tmp_path / "heard").exists)
    teller.end()  # killed
    assert partitions.read(tmp_path) == {"a": "UP", "b": "UP"}
    (tmp_path / "heard").unlink()
    (tmp_path / "part_state").rename(tmp_path / "part_state.old")  # for a moment, in every save
    teller = tell(TWO)
    until("people hear of it again", (tmp_path / "heard").exists)
    assert said(tmp_path) == [A, B] * 2
    assert partitions.read(tmp_path) == {"a": "UP", "b": "UP"}
    (tmp_path / "part_state").write_text("saved when it ended")
    teller.end()
    assert partitions.read(tmp_path) == {"a": "DRAIN", "b": "DRAIN", "new": "UP"}
