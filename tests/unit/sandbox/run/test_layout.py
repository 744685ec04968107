"""A sandbox has a name that fits everywhere, one owner at a time, and files that are whole."""

from __future__ import annotations

import string
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seltzer.errors import SeltzerError
from seltzer_sandbox.run import layout
from seltzer_sandbox.run.layout import Layout, Spec, node_number

ENDS = string.ascii_lowercase + string.digits
SPEC = Spec(nodes=3, port=6443, binaries="/cache/bin", template="/cache/templates/one")
HOLD = "from seltzer_sandbox.run.layout import Layout\nwith Layout('some').lock(): print('held', flush=True); input()"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def fits(name: str) -> bool:
    return 1 <= len(name) <= 30 and set(name) <= set(ENDS + "-") and not name.startswith("-") and not name.endswith("-")


@given(st.text(ENDS + "-", min_size=1, max_size=32) | st.text(ENDS + "-._/ \nA", max_size=8) | st.text(max_size=8))
@example("a" * 30)
@example("a" * 31)
@example("a-b")
@example("a-")
@example("-a")
@example("a\n")
def test_a_name_is_good_for_files_cgroups_and_hosts_or_refused(name: str) -> None:
    if fits(name):
        assert Layout(name).name == name
    else:
        with pytest.raises(SeltzerError, match="can't be a sandbox's name"):
            Layout(name)


@given(st.text(ENDS, min_size=1, max_size=30), st.text(ENDS, min_size=1, max_size=30))
def test_different_sandboxes_share_no_file(one: str, other: str) -> None:
    folders = {Layout(name).folder for name in {one, other}}
    assert len(folders) == len({one, other})
    assert len({folder.parent for folder in folders}) == 1


@given(st.integers(1, 100), st.integers(1, 100))
def test_a_nodes_name_is_its_number_if_there_is_such_a_node(number: int, nodes: int) -> None:
    if number <= nodes:
        assert node_number(f"n{number}", nodes) == number
    else:
        with pytest.raises(SeltzerError, match=rf"no node 'n{number}' .* it has n1"):
            node_number(f"n{number}", nodes)


@pytest.mark.parametrize("name", ["n0", "n01", "1", "n", "", "N1", "n1 ", "n1\n", "n-1", "node1", "n1/sys", "n٣"])
def test_what_is_no_nodes_name_is_refused(name: str) -> None:
    with pytest.raises(SeltzerError, match="no node"):
        node_number(name, 100)


def test_what_up_was_asked_for_is_kept() -> None:
    here = Layout("some")
    assert here.read() is None
    here.make()
    assert here.read() is None
    here.write(SPEC)
    assert here.read() == SPEC
    assert layout.existing() == ["some"]
    assert [file.name for file in here.folder.iterdir() if file.is_file()] == ["sandbox.json"]


@pytest.mark.parametrize("content", [b"", b'{"nodes": 3', b"null", b'{"nodes": "three"}', b"\0\0\0\0"])
def test_a_broken_file_is_reported_with_the_way_out(content: bytes) -> None:
    here = Layout("some")
    here.make()
    (here.folder / "sandbox.json").write_bytes(content)
    with pytest.raises(SeltzerError, match=r"sandbox\.json can't be read; 'seltzer sandbox down --name some'"):
        here.read()


def test_only_root_reads_what_is_in_a_sandbox() -> None:
    here = Layout("some")
    here.make()
    assert here.folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "XDG_STATE_HOME"])
@pytest.mark.parametrize("folder", ["/var/lib/jenkins", "/run/user/1000", "/var/log", "/var/run/x"])
def test_folders_that_a_node_hides_are_refused(monkeypatch: pytest.MonkeyPatch, variable: str, folder: str) -> None:
    monkeypatch.setenv(variable, folder)
    with pytest.raises(SeltzerError, match=rf"{folder}/.* set XDG_CACHE_HOME and XDG_STATE_HOME"):
        Layout("some").make()
    assert not (Path(folder) / "seltzer").exists()


@pytest.mark.parametrize("folder", ["var/library", "runner", "var/lib"])
def test_folders_that_only_look_alike_are_accepted(home: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / folder))
    Layout("some").make()


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of the sandbox `some`."""
    with subprocess.Popen([sys.executable, "-c", HOLD], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_one_command_at_a_time_works_on_a_sandbox_however_it_ends(holder: subprocess.Popen[str]) -> None:
    with pytest.raises(SeltzerError, match="another command is working on sandbox 'some'"), Layout("some").lock():
        pass
    with Layout("other").lock():
        pass
    holder.kill()
    holder.wait()
    with Layout("some").lock():
        pass


def test_a_lock_is_given_back_after_an_error() -> None:
    with pytest.raises(ValueError, match="oops"), Layout("some").lock():
        raise ValueError("oops")
    with Layout("some").lock(), pytest.raises(SeltzerError), Layout("some").lock():
        pass
