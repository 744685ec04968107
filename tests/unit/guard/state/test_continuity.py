"""slurmctld goes on from what the cluster wrote last, or not at all."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import pytest

from seltzer.guard.state import continuity, epoch
from seltzer.guard.state.continuity import Written
from seltzer.guard.state.epoch import Blocked, LostRace
from seltzer.wire.annotations import EPOCH, SAVED

NOBODY = 65534
LEASE = "-n ns lease/demo-slurmctld"


def made(folder: Path, saved: int | None, file: str = "job_state") -> Path:
    folder.mkdir()
    if saved is not None:
        (folder / file).write_text("jobs")
        os.utime(folder / file, ns=(saved, saved))
    return folder


def yes() -> bool:
    return True


@pytest.mark.parametrize(
    ("annotations", "known"),
    [
        ({}, Written(0, 0)),
        ({EPOCH: "3"}, Written(3, 0)),
        ({EPOCH: "3", SAVED: "1700000000000000001"}, Written(3, 1700000000000000001)),
        ({EPOCH: "-1", SAVED: "yes"}, Written(0, 0)),
        ({EPOCH: "²", SAVED: "9" * 50}, Written(0, 0)),
    ],
)
def test_what_the_lease_tells(annotations: dict[str, str], known: Written) -> None:
    assert continuity.written(annotations) == known


@pytest.mark.parametrize(
    ("number", "saved", "known"),
    [
        (3, 100, Written()),
        (3, None, Written(3)),
        (3, 100, Written(3, 100)),
        (3, 10**9, Written(3, 2 * 10**9)),
        (3, 200, Written(3, 100)),
        (4, 10**9, Written(3, 9 * 10**9)),
    ],
    ids=[
        "a Lease that knows nothing",
        "never saved",
        "the last save",
        "by another clock",
        "a save not told",
        "an epoch not told",
    ],
)
def test_what_is_not_older_than_the_lease_says_is_gone_on_from(
    tmp_path: Path, number: int, saved: int | None, known: Written
) -> None:
    continuity.check(made(tmp_path / f"epoch-{number}", saved), known, "", LEASE)


@pytest.mark.parametrize(
    ("number", "saved", "known", "why"),
    [
        (3, 100, Written(7), "has epoch-3, but this cluster has written epoch-7"),
        (3, None, Written(3, 9 * 10**9), "epoch-3 has no job_state"),
        (3, 10**9, Written(3, 4 * 10**9), "job_state in epoch-3 is 3.0 s older"),
        (3, 10**9, Written(3, 9 * 3600 * 10**9), "job_state in epoch-3 is 9.0 hours older"),
    ],
)
def test_an_older_state_is_refused_until_a_person_accepts_this_one(
    tmp_path: Path, number: int, saved: int | None, known: Written, why: str
) -> None:
    folder = made(tmp_path / f"epoch-{number}", saved)
    for accepted in ("", "true", "epoch-1", f"epoch-{known.epoch + 1}0", "empty"):
        with pytest.raises(Blocked, match=why) as error:
            continuity.check(folder, known, accepted, LEASE)
    command = f"kubectl annotate --overwrite -n ns lease/demo-slurmctld seltzer.dev/accept-state=epoch-{number}"
    assert str(error.value).endswith(command)
    continuity.check(folder, known, f"epoch-{number}", LEASE)


def test_an_empty_volume_is_a_new_cluster_only_if_the_cluster_never_wrote(tmp_path: Path) -> None:
    continuity.check(None, Written(), "", LEASE)
    with pytest.raises(Blocked, match=r"is empty, but this cluster has written epoch-2.*accept-state=empty$"):
        continuity.check(None, Written(2), "", LEASE)
    continuity.check(None, Written(2), "empty", LEASE)


def test_the_queue_is_in_the_old_file_while_it_is_saved(tmp_path: Path) -> None:
    folder = made(tmp_path / "epoch-1", 100, "job_state.old")
    assert continuity.saved(folder) == 100
    made(tmp_path / "other", 200)
    (tmp_path / "other" / "job_state").rename(folder / "job_state")
    assert continuity.saved(folder) == 200
    assert continuity.saved(tmp_path / "nowhere") == 0


def why_blocked(folder: Path) -> str:
    """What a guard says that isn't root, who reads everything; in a process of its own, since there is no way back."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            continuity.check(folder, Written(), "epoch-1", LEASE)
        except Blocked as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as said:
        return said.read()


def test_a_file_that_can_not_be_read_is_named() -> None:
    with tempfile.TemporaryDirectory() as place:  # pytest's own folder is closed to others
        folder = made(Path(place) / "epoch-1", 100)
        (folder / "node_state").write_text("nodes")
        for each in (Path(place), folder, *folder.iterdir()):
            each.chmod(0o755)
            if os.getuid() == 0:
                os.chown(each, NOBODY, NOBODY)
        assert why_blocked(folder) == ""
        (folder / "node_state").chmod(0)
        said = why_blocked(folder)
        assert re.search(r"user \d+ can't read node_state in .* \(Permission denied\).*chown", said)


def test_a_file_that_gives_an_error_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(tmp_path / "epoch-1", 100)
    (folder / "hash.0").mkdir()
    (folder / "link").symlink_to("nowhere")
    continuity.usable(folder)

    def broken(file: Path, mode: str) -> object:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "open", broken)
    with pytest.raises(Blocked, match=r"user \d+ can't read job_state in .* \(Input/output error\)"):
        continuity.usable(folder)


def test_logs_are_no_state(tmp_path: Path) -> None:
    for name, size in {"job_state": 10, "node_state.old": 5, "slurmctld.log": 1000, "seltzer.journal": 1000}.items():
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / "hash.1").mkdir()
    assert continuity.size(tmp_path) == 15


def test_a_state_that_is_refused_is_left_as_it_was(tmp_path: Path) -> None:
    made(tmp_path / "epoch-3", 100)

    def refuse(found: Path | None) -> None:
        assert found == tmp_path / "epoch-3"
        raise Blocked("no")

    with pytest.raises(Blocked):
        epoch.begin(tmp_path, yes, check=refuse)
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-3"]


def test_who_sleeps_in_the_check_finds_the_name_gone(tmp_path: Path) -> None:
    made(tmp_path / "epoch-3", 100)
    with pytest.raises(LostRace):
        epoch.begin(tmp_path, yes, check=lambda found: epoch.begin(tmp_path, yes))
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-4"]


def test_what_is_wrong_with_a_state_that_is_another_ones_by_now_is_nobody_s_concern(tmp_path: Path) -> None:
    made(tmp_path / "epoch-3", 100)

    def late(found: Path | None) -> None:
        epoch.begin(tmp_path, yes)
        continuity.check(found, Written(3, 9 * 10**9), "", LEASE)

    with pytest.raises(LostRace):
        epoch.begin(tmp_path, yes, check=late)


@pytest.mark.parametrize("found", [None, 3, 9])
def test_numbers_only_grow(tmp_path: Path, found: int | None) -> None:
    if found:
        made(tmp_path / f"epoch-{found}", 100)
    ours = epoch.begin(tmp_path, yes, above=7)
    assert ours.number == (10 if found == 9 else 8)
    assert [path.name for path in tmp_path.glob("epoch-*")] == [f"epoch-{ours.number}"]
