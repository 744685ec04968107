"""Several sandboxes at once: one for each worker of pytest-xdist.

`make test` runs `--dist loadfile --no-loadscope-reorder`: workers take whole modules, in the order of `longest_first`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# A worker that begins one of these last keeps the others waiting: the modules that take a minute or more.
LONGEST_FIRST = (
    "test_submissions",
    "test_campaign",
    "test_mpi",
    "test_home",
    "test_users",
    "test_meddling",
    "test_failover",
    "test_config",
    "test_state",
    "test_kept_jobs",
    "test_names",
    "test_ldap",
    "test_bad_input",
    "test_operator_killed",
    "test_updates",
    "test_operator",
    "test_nodes",
    "test_deletion",
    "test_drain",
    "test_crash_plans",
    "test_fence",
    "test_scaling",
    "test_cluster_life",
    "test_login",
    "test_commands",
    "test_node_faults",
    "test_top",
    "test_cli",
)
# Counted: a sandbox of three nodes has 37 inotify instances, since its programs watch files; a spare one has up to 28.
_INSTANCES, _SPARE = 37, 28
_LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")


def worker() -> str:
    """The name of this worker, such as gw0; empty where pytest runs without workers."""
    return os.environ.get("PYTEST_XDIST_WORKER", "")


def longest_first(items: list[pytest.Item]) -> None:
    """Sort the modules so that the long ones begin early."""
    places = {module: place for place, module in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


def check_room() -> None:
    """Fail with what to do where the kernel doesn't give all sandboxes of this run what they need.

    A kubelet without inotify ends, and nothing says why. The limit is the machine's: tests only read it.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    allowed, needed = int(_LIMIT.read_text()), _INSTANCES * workers + _SPARE
    if allowed < needed:
        pytest.fail(
            f"{workers} sandboxes need {needed} inotify instances and fs.inotify.max_user_instances is {allowed}: "
            "run fewer with 'make test sandboxes=1', or ask who runs this machine for more"
        )
