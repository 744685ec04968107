"""Whoever comes next renames the state; whoever came too late changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from seltzer.guard.state import epoch
from seltzer.guard.state.epoch import Blocked, LostRace


def names(state: Path) -> list[str]:
    return sorted(path.name for path in state.iterdir() if path.name[0] != ".")


def yes() -> bool:
    return True


def test_a_new_state_is_the_first_epoch_and_each_beginning_is_another(tmp_path: Path) -> None:
    first = epoch.begin(tmp_path, yes)
    assert (first.number, first.path, names(tmp_path)) == (1, tmp_path / "epoch-1", ["epoch-1"])
    (first.path / "job_state").write_text("jobs")
    second = epoch.begin(tmp_path, yes)
    assert (second.number, names(tmp_path)) == (2, ["epoch-2"])
    assert (second.path / "job_state").read_text() == "jobs"
    assert second.ours()
    assert not first.ours()


def test_a_directory_of_the_same_name_is_not_the_same_directory(tmp_path: Path) -> None:
    ours = epoch.begin(tmp_path, yes)
    ours.path.rename(tmp_path / "epoch-2")
    ours.path.mkdir()
    assert not ours.ours()


def test_half_written_files_are_removed(tmp_path: Path) -> None:
    (tmp_path / "epoch-9").mkdir()
    for name in ("job_state", "job_state.new", "node_state.new", "newer", "slurmctld.log.1.half"):
        (tmp_path / "epoch-9" / name).touch()
    assert names(epoch.begin(tmp_path, yes).path) == ["job_state", "newer"]


def test_numbers_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "epoch-9").mkdir()
    for other in ("lost+found", "epoch-", "epoch-x", "epoch-0", "epoch-10.old"):
        (tmp_path / other).mkdir()
    assert epoch.begin(tmp_path, yes).number == 10


def test_two_states_are_not_guessed_about(tmp_path: Path) -> None:
    for name in ("epoch-2", "epoch-10"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "job_state").touch()
    with pytest.raises(Blocked, match="epoch-2, epoch-10"):
        epoch.begin(tmp_path, yes)
    assert names(tmp_path) == ["epoch-10", "epoch-2"]


def test_who_is_not_sure_to_lead_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "epoch-4").mkdir()
    with pytest.raises(LostRace):
        epoch.begin(tmp_path, lambda: False)
    assert names(tmp_path) == ["epoch-4"]


def test_who_sleeps_after_looking_finds_the_name_gone(tmp_path: Path) -> None:
    (tmp_path / "epoch-4").mkdir()

    def sleep() -> bool:
        epoch.begin(tmp_path, yes)  # meanwhile, another one
        return True

    with pytest.raises(LostRace):
        epoch.begin(tmp_path, sleep)
    assert names(tmp_path) == ["epoch-5"]


@pytest.mark.parametrize("beginnings", [1, 2])
def test_who_sleeps_before_making_the_first_epoch_makes_no_second_state(tmp_path: Path, beginnings: int) -> None:
    def sleep() -> bool:
        for _ in range(beginnings):
            epoch.begin(tmp_path, yes)
        return True

    with pytest.raises(LostRace):
        epoch.begin(tmp_path, sleep)
    assert names(tmp_path) == [f"epoch-{beginnings}"]


def test_what_was_about_to_be_the_first_epoch_is_gone_on_with_by_who_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying, pytest.raises(KeyboardInterrupt):
        dying.setattr(Path, "rename", die)
        epoch.begin(tmp_path, yes)
    assert names(tmp_path) == []
    ours = epoch.begin(tmp_path, yes)
    assert (ours.number, ours.ours()) == (1, True)
    assert len(list(tmp_path.glob(".epoch-*"))) == 0


@pytest.mark.parametrize("step", ["symlink_to", "rename"])
@pytest.mark.parametrize("beginnings", [1, 2, 3])
def test_a_name_never_comes_back_whenever_a_sleeper_wakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, beginnings: int
) -> None:
    """It would give the slurmctld that was fenced a place to save and acknowledge."""
    original = getattr(Path, step)
    others: list[epoch.Epoch] = []

    def sleep(self: Path, target: object) -> object:
        monkeypatch.setattr(Path, step, original)
        others.extend(epoch.begin(tmp_path, yes) for _ in range(beginnings))
        return original(self, target)

    monkeypatch.setattr(Path, step, sleep)
    with pytest.raises(LostRace):
        epoch.begin(tmp_path, yes)
    assert names(tmp_path) == [f"epoch-{beginnings}"]
    assert [other.ours() for other in others] == [False] * (beginnings - 1) + [True]


def test_a_state_that_was_taken_away_is_not_made_again(tmp_path: Path) -> None:
    epoch.begin(tmp_path, yes).path.rename(tmp_path / "taken-away")
    todo = r"restore it, or start with an empty one \(rm .*/.origin-0\)"
    with pytest.raises(Blocked, match=rf"had a state, which is gone: {todo}"):
        epoch.begin(tmp_path, yes)
    (tmp_path / ".origin-0").unlink()
    assert epoch.begin(tmp_path, yes).number == 1


def test_the_link_has_one_name_for_ever_and_leads_nowhere_once_somebody_else_has_begun(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    link = tmp_path / "link"
    first = epoch.begin(tmp_path / "state", yes)
    first.link(link)
    (link / "job_state").write_text("jobs")
    second = epoch.begin(tmp_path / "state", yes)
    with pytest.raises(FileNotFoundError):
        (link / "job_state").write_text("too late")
    second.link(link)
    assert (link / "job_state").read_text() == "jobs"


def test_what_the_nodes_were_told_is_known_in_the_next_epoch(tmp_path: Path) -> None:
    ours = epoch.begin(tmp_path, yes)
    assert ours.rolled_out == ""
    ours.set_rolled_out("one")
    ours = epoch.begin(tmp_path, yes)  # after a crash
    assert ours.rolled_out == "one"
    ours.set_rolled_out("two")
    assert ours.rolled_out == "two"
