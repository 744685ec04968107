"""The groups of a user, as slurmctld's image looks them up: in several threads at once."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "images" / "slurm" / "nss_groups.c"
SUCCESS, NOT_FOUND, UNAVAILABLE = 1, 0, -1
ALICE = 2001

Groups = Callable[..., tuple[int, list[int]]]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nss") / "group"


@pytest.fixture(scope="module")
def groups(file: Path) -> Groups:
    """Asks the library as getgrouplist(3) does: with room for one group that is taken by the primary group."""
    library = file.with_name("nss_groups.so")
    flags = ("-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f'-DGROUPS="{file}"')
    subprocess.run(["gcc", *flags, "-o", library, SOURCE], check=True)
    function = ctypes.CDLL(str(library))._nss_seltzer_groups_initgroups_dyn
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]

    def ask(user: str, primary: int = ALICE, limit: int = -1) -> tuple[int, list[int]]:
        count, size, error = ctypes.c_long(1), ctypes.c_long(1), ctypes.c_int()
        room = ctypes.cast(libc.malloc(4), ctypes.POINTER(ctypes.c_uint32))
        room[0] = primary
        counts = ctypes.byref(count), ctypes.byref(size), ctypes.byref(room)
        code = function(user.encode(), ctypes.c_uint32(primary), *counts, ctypes.c_long(limit), ctypes.byref(error))
        found = room[: count.value]
        libc.free(room)
        return code, found

    return ask


def test_all_groups_that_name_a_user_are_found(groups: Groups, file: Path) -> None:
    lines = ["alice:*:2001:", "team:*:3001:alice,bob", "lab:*:3002:bob", "all:*:3003:carol,alice", "wheel:*:10:alice"]
    file.write_text("\n".join([*lines, "alices:*:3004:alicea,alic", "own:*:2001:alice", "", "broken:alice", "x:*:y"]))
    assert groups("alice") == (SUCCESS, [2001, 3001, 3003])
    assert groups("bob") == (SUCCESS, [2001, 3001, 3002])
    assert groups("nobody") == (NOT_FOUND, [2001])


def test_no_more_groups_are_found_than_there_may_be(groups: Groups, file: Path) -> None:
    file.write_text("".join(f"g{n}:*:{3000 + n}:alice\n" for n in range(100)))
    assert groups("alice", limit=7)[1] == [ALICE, *range(3000, 3006)]


def test_without_a_file_nothing_is_known(groups: Groups, file: Path) -> None:
    file.unlink(missing_ok=True)
    assert groups("alice") == (UNAVAILABLE, [ALICE])


def test_several_threads_all_find_all_groups(groups: Groups, file: Path) -> None:
    """With libnss-extrausers they share one open file, and slurmctld crashes."""
    members = ",".join(["alice", *(f"user{n}" for n in range(100))])
    file.write_text("".join(f"g{n}:*:{3000 + n}:{members}\n" for n in range(100)))
    with ThreadPoolExecutor(4) as several:
        found = list(several.map(groups, ["alice"] * 200))
    assert found == [(SUCCESS, [ALICE, *range(3000, 3100)])] * 200
