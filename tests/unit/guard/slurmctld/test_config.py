"""The configuration is read and written as one piece, and a bad one is taken back."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from seltzer.guard.slurmctld import config
from seltzer.guard.slurmctld.config import Config, Rollout, Source


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    for folder in ("config", "keys", "etc"):
        (tmp_path / folder).mkdir()
    for name in config.KEYS:
        (tmp_path / "keys" / name).write_text(name)
    put(tmp_path, "d1", **{"slurm.conf": "ClusterName=demo", "cgroup.conf": "CgroupPlugin=disabled"})
    return tmp_path


def put(mounts: Path, digest: str, restart: str = "r1", **files: str) -> None:
    """A new version behind the link, as kubelet makes it."""
    mount = mounts / "config"
    version = mount / f"..{digest}"
    version.mkdir()
    for name, text in {**files, "seltzer.digest": f"{digest}\n", "seltzer.restart": restart}.items():
        (version / name).write_text(text)
    (mount / "..new").symlink_to(version.name)
    (mount / "..new").rename(mount / "..data")


def read(mounts: Path) -> Config:
    return config.read(mounts / "config", mounts / "keys")


def test_files_and_keys_are_copied_and_ours_are_not(mounts: Path) -> None:
    etc = mounts / "etc"
    config.write(read(mounts), etc, "StateSaveLocation=/state/epoch-1\n")
    ours = (config.LOCAL, config.REST, *config.KEYS)
    assert {file.name for file in etc.iterdir()} == {"slurm.conf", "cgroup.conf", *ours}
    assert (etc / "slurm.conf").read_text() == "ClusterName=demo\n\nStateSaveLocation=/state/epoch-1\n"
    assert {stat.S_IMODE((etc / name).stat().st_mode) for name in config.KEYS} == {0o400}


def test_clients_beside_slurmctld_do_not_go_around_by_its_service(mounts: Path) -> None:
    put(mounts, "d2", **{"slurm.conf": "ClusterName=demo\nslurmctldhost = ctl(ctl.ns.svc) # there\nSlurmUser=slurm\n"})
    config.write(read(mounts), mounts / "etc")
    assert "slurmctldhost = ctl(ctl.ns.svc)" in (mounts / "etc" / "slurm.conf").read_text()
    lines = (mounts / "etc" / config.LOCAL).read_text().split()
    assert lines == ["ClusterName=demo", "SlurmctldHost=ctl(127.0.0.1)", "SlurmUser=slurm"]


def test_a_slurmrestd_beside_slurmctld_takes_somebody_else_for_slurm_user(mounts: Path) -> None:
    put(mounts, "d2", **{"slurm.conf": "ClusterName=demo\nSlurmctldHost=ctl(ctl.ns.svc)\nSlurmUser=slurm\n"})
    config.write(read(mounts), mounts / "etc")
    lines = (mounts / "etc" / config.REST).read_text().split()
    assert lines[-1] == "SlurmUser=65534" and "SlurmctldHost=ctl(127.0.0.1)" in lines


def test_a_last_line_that_is_to_be_continued_does_not_swallow_ours(mounts: Path) -> None:
    put(mounts, "d2", **{"slurm.conf": "ClusterName=demo\\"})
    config.write(read(mounts), mounts / "etc", "StateSaveLocation=/state/epoch-1\n")
    lines = (mounts / "etc" / "slurm.conf").read_text().replace("\\\n", "").splitlines()
    assert "StateSaveLocation=/state/epoch-1" in lines


def test_files_that_are_gone_are_removed(mounts: Path) -> None:
    etc = mounts / "etc"
    config.write(read(mounts), etc)
    before = (etc / "slurm.conf").stat().st_ino
    put(mounts, "d2", **{"slurm.conf": "ClusterName=other"})
    config.write(read(mounts), etc)
    assert {file.name for file in etc.iterdir()} == {"slurm.conf", config.LOCAL, config.REST, *config.KEYS}
    assert (etc / "slurm.conf").stat().st_ino != before, "exchanged, not written over"


@pytest.mark.parametrize("missing", ["slurm.conf", "seltzer.digest"])
def test_what_is_no_configuration_is_refused(mounts: Path, missing: str) -> None:
    (mounts / "config" / "..data" / missing).unlink()
    with pytest.raises((ValueError, OSError)):
        read(mounts)


def test_the_newest_is_seen_and_nothing_is_read_twice(mounts: Path) -> None:
    source = Source(mounts / "config", mounts / "keys")
    first = source.latest()
    assert source.latest() is first
    put(mounts, "d2", **{"slurm.conf": "ClusterName=other"})
    assert (source.latest().digest, source.latest().restart) == ("d2", "r1")


def test_a_refused_configuration_is_not_tried_again_until_it_changes(mounts: Path) -> None:
    rollout = Rollout(Source(mounts / "config", mounts / "keys"))
    good = rollout.choose()
    rollout.prove(good)
    put(mounts, "bad", **{"slurm.conf": "Foo=1"})
    bad = rollout.change(good)
    assert bad and bad.digest == "bad"
    assert rollout.refuse(bad, "why")
    assert (rollout.choose(), rollout.change(good), rollout.complaint) == (good, None, "why")
    put(mounts, "better", **{"slurm.conf": ""})
    better = rollout.change(good)
    assert better and (better.digest, rollout.complaint) == ("better", "")


def test_going_back_by_hand_ends_the_complaint(mounts: Path) -> None:
    rollout = Rollout(Source(mounts / "config", mounts / "keys"))
    good = rollout.choose()
    rollout.prove(good)
    put(mounts, "bad", **{"slurm.conf": "Foo=1"})
    assert rollout.refuse(rollout.choose(), "why")
    (mounts / "config" / "..new").symlink_to("..d1")
    (mounts / "config" / "..new").rename(mounts / "config" / "..data")
    assert (rollout.change(good), rollout.complaint) == (None, "")


def test_without_a_good_one_there_is_nothing_to_go_back_to(mounts: Path) -> None:
    rollout = Rollout(Source(mounts / "config", mounts / "keys"))
    first = rollout.choose()
    assert not rollout.refuse(first, "why")
    rollout.prove(first)
    assert not rollout.refuse(first, "it crashed, but not of its configuration")
    assert rollout.complaint == ""
