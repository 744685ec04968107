"""`seltzer nodes`: states by name, and a table that fits."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from tests.builders.facts import drained, known, pod
from tests.builders.slurm import job, node
from tests.builders.slurm import snapshot as slurm

from seltzer.cli import nodes, nodes_table
from seltzer.errors import SeltzerError
from seltzer.view import nodes as view
from seltzer.view.facts import Facts


def test_states_are_asked_for_by_name() -> None:
    assert set(nodes.states(None)) == set(view.STATES)
    assert set(nodes.states("Drained, down")) == {"drained", "down"}
    assert {"draining", "drained"} <= set(nodes.states("drain"))
    with pytest.raises(SeltzerError, match="'drainde' is no state of a node; did you mean 'drained'"):
        nodes.states("drainde")


def shown(found: Facts, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    nodes_table.print_rows(console, view.rows(found), len(found.names))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


POOL = known(
    slurm(drained(), node("cpu-1", "MIXED"), job("7", "RUNNING", "cpu-1")), pod("cpu-0"), pod("cpu-1", "n2")
)  # fmt: skip


def test_a_pipe_gets_one_whole_line_per_node() -> None:
    long = known(slurm(drained(reason=f"{'long ' * 100}story")), pod("cpu-0"))
    assert shown(POOL, 100_000) == [
        "NODE   POD      ON  STATE    JOBS  FREE   REASON",
        "cpu-0  Running  n1  drained  -     now    ann 5m ago: bad disk",
        "cpu-1  Running  n2  mixed    7     in 5m",
    ]
    assert shown(long, 100_000)[1].endswith("story")


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 120])
def test_a_table_fits_and_never_loses_a_node_its_state_or_a_reason(width: int) -> None:
    lines = shown(POOL, width)
    assert all(len(line) <= max(width, 48) for line in lines)
    for name, state in (("cpu-0", "drained"), ("cpu-1", "mixed")):
        assert any(line.startswith(name) and state in line for line in lines)
    assert any("bad disk" in line for line in lines)


def test_where_there_is_no_room_beside_a_node_the_reason_comes_below_it() -> None:
    assert shown(POOL, 45)[1:3] == ["cpu-0  Running  n1  drained  -     now", "  ann 5m ago: bad disk"]


def test_gpus_have_a_column_where_there_are_any() -> None:
    gpu = node("gpu-0", "MIXED", gres="gpu:h200:4", gres_used="gpu:h200:1(IDX:0)")
    assert shown(known(slurm(gpu, node("cpu-0")), pod("gpu-0"), pod("cpu-0")), 100_000) == [
        "NODE   POD      ON  STATE  GPUS  JOBS  FREE",
        "cpu-0  Running  n1  idle   -     -     now",
        "gpu-0  Running  n1  mixed  1/4   -     now",
    ]
