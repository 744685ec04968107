"""The paths of the guard's HTTP server."""

from __future__ import annotations

from seltzer.wire import guard_api


def test_a_hostlist_is_one_part_of_the_path() -> None:
    assert guard_api.jobs("cpu-[0-3],gpu-1") == "/jobs/cpu-%5B0-3%5D%2Cgpu-1"


def test_addresses_follow_their_port() -> None:
    assert guard_api.alive(6818, ["10.0.0.1", "fd00::1"]) == "/alive/6818/10.0.0.1,fd00::1"
