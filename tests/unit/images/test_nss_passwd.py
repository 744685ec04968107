"""Users by their names, as slurmctld's image looks them up: from memory, and always those of the file as it is now."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "images" / "slurm" / "nss_passwd.c"
SUCCESS, NOT_FOUND, UNAVAILABLE, TRY_AGAIN = 1, 0, -1, -2

Find = Callable[..., tuple[int, str]]


class Passwd(ctypes.Structure):
    """As in pwd.h."""

    _fields_ = (
        *((name, ctypes.c_char_p) for name in ("name", "password")),
        *((name, ctypes.c_uint32) for name in ("uid", "gid")),
        *((name, ctypes.c_char_p) for name in ("full_name", "home", "shell")),
    )


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nss") / "passwd"


@pytest.fixture(scope="module")
def find(file: Path) -> Find:
    """The answer of the library, and the user's line as it is read."""
    library = file.with_name("nss_passwd.so")
    flags = ("-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f'-DPASSWD="{file}"')
    subprocess.run(["gcc", *flags, "-o", library, SOURCE], check=True)
    function = ctypes.CDLL(str(library))._nss_seltzer_passwd_getpwnam_r

    def ask(name: str, room: int = 256) -> tuple[int, str]:
        user, error, buffer = Passwd(), ctypes.c_int(), ctypes.create_string_buffer(room)
        code = function(name.encode(), ctypes.byref(user), buffer, ctypes.c_size_t(room), ctypes.byref(error))
        if code != SUCCESS:
            return code, ""
        words = (user.name, user.password, user.uid, user.gid, user.full_name, user.home, user.shell)
        return code, ":".join(each.decode() if isinstance(each, bytes) else str(each) for each in words)

    return ask


def line(name: str, uid: int) -> str:
    return f"{name}:*:{uid}:{uid}:{name.title()}:/home/{name}:/bin/bash"


def write(file: Path, lines: Iterable[str]) -> None:
    """As a kubelet does: another file takes the place of the old one."""
    new = file.with_suffix(".new")
    new.write_text("".join(f"{each}\n" for each in lines))
    new.replace(file)


def test_every_user_is_found_and_nobody_else(find: Find, file: Path) -> None:
    lines = [line(f"user{n}", 2000 + n) for n in range(1000)]
    write(file, lines)
    assert [find(f"user{n}") for n in range(1000)] == [(SUCCESS, each) for each in lines]
    assert [find(name)[0] for name in ("user", "user1000", "user1:*", "")] == [NOT_FOUND] * 4


def test_a_change_is_seen_at_once(find: Find, file: Path) -> None:
    write(file, [line("alice", 2001)])
    assert find("alice") == (SUCCESS, line("alice", 2001))
    write(file, [line("bob", 2002)])
    assert (find("alice")[0], find("bob")) == (NOT_FOUND, (SUCCESS, line("bob", 2002)))
    file.unlink()
    assert find("bob")[0] == UNAVAILABLE, "extrausers is asked next"


@pytest.mark.parametrize("text", ["", "alice", "alice:*:x:1:::", "alice:*:0:0::/:/bin/sh", "alice:*:2001:2001:::sh:x"])
def test_a_line_that_is_none_is_nobody(find: Find, file: Path, text: str) -> None:
    write(file, ["", text, line("bob", 2002)])
    assert (find("alice")[0], find("bob")[0]) == (NOT_FOUND, SUCCESS)


def test_a_buffer_that_is_too_small_is_made_larger(find: Find, file: Path) -> None:
    write(file, [line("alice", 2001)])
    size = len(line("alice", 2001))
    assert (find("alice", size)[0], find("alice", size + 1)[0]) == (TRY_AGAIN, SUCCESS)


def test_several_threads_get_an_answer_or_ask_extrausers(find: Find, file: Path) -> None:
    lines = {f"user{n}": line(f"user{n}", 2000 + n) for n in range(500)}
    write(file, lines.values())
    with ThreadPoolExecutor(4) as several:
        for name, found in zip(lines, several.map(find, lines), strict=True):
            assert found in ((SUCCESS, lines[name]), (UNAVAILABLE, ""))
