"""What we understand of Slurm's answers."""

from __future__ import annotations

import msgspec
import pytest
from tests.fakes.slurm_node import record

from seltzer.slurm.models import Node, Number, plain


def node(*state: str, **fields: object) -> Node:
    return msgspec.json.decode(msgspec.json.encode(record("n1", list(state), **fields)), type=Node)


@pytest.mark.parametrize(
    ("wrapped", "expected"),
    [
        (Number(set=True, number=7), 7),
        (Number(set=True, number=2.0), 2),
        (Number(set=True, number=0), 0),
        (Number(number=7), None),
        (Number(set=True, infinite=True, number=7), None),
        (7, 7),
        (None, None),
    ],
)
def test_wrapped_numbers_become_plain(wrapped: Number | int | None, expected: int | None) -> None:
    assert plain(wrapped) == expected


def test_the_base_state_is_told_from_flags() -> None:
    assert node("DRAIN", "MIXED", "DYNAMIC_NORM").base == "MIXED"
    assert node("SOMETHING_NEW").base == "UNKNOWN"


@pytest.mark.parametrize(
    ("state", "cpus", "occupied"),
    [
        (["IDLE", "DRAIN"], 0, False),
        (["MIXED", "DRAIN"], 1, True),
        (["ALLOCATED"], 0, True),
        (["IDLE", "COMPLETING"], 0, True),
        (["DOWN"], 2, True),
        (["DOWN"], 0, False),
    ],
)
def test_a_node_is_occupied_until_its_last_job_is_cleaned_up(state: list[str], cpus: int, occupied: bool) -> None:
    assert node(*state, alloc_cpus=cpus).occupied is occupied


def test_two_nodes_differ_only_in_what_we_look_at() -> None:
    assert node("IDLE", cpu_load=1) == node("IDLE", cpu_load=999)
    assert node("IDLE") != node("IDLE", reason="x")


@pytest.mark.parametrize(
    ("gres", "used", "expected"),
    [
        ("", "", (0, 0)),
        ("gpu:2", "gpu:0", (2, 0)),
        ("gpu:nvidia_h200:8(S:0-1)", "gpu:nvidia_h200:3(IDX:0,2,5)", (8, 3)),
        ("gpu:a100:2,gpu:h200:4", "gpu:a100:1(IDX:0),gpu:h200:4(IDX:2-5)", (6, 5)),
        ("gpu:h200:2,shard:h200:8", "gpu:h200:0(IDX:N/A),shard:h200:3(3/4,0/4)", (2, 0)),
        ("license:3,mygpu:4", "license:0,mygpu:0", (0, 0)),
    ],
)
def test_gpus_are_counted_whatever_their_type(gres: str, used: str, expected: tuple[int, int]) -> None:
    one = node(gres=gres, gres_used=used)
    assert (one.gpus, one.used_gpus) == expected
