"""A configuration is tried by a slurmctld that bothers nobody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fakes.guard.nursery import FAKES, SOURCES
from tests.fakes.guard.rig import alive, until
from tests.fakes.ports import Port

from seltzer.guard.slurmctld.config import Config
from seltzer.guard.slurmctld.trial import harmless

# `trial` takes signals, so it gets a process of its own, as in its pod.
RUN = """
import itertools, json, sys, types
from pathlib import Path
from seltzer.guard.slurmctld import child, trial
from seltzer.guard.processes import Processes
from seltzer.guard.settings import Places, Times
given = json.loads(sys.argv[1])
folders = {name: Path(given[name]) for name in ("config", "keys", "state", "etc", "termination_log")}
places = Places(**folders, slurmctld=tuple(given["slurmctld"]), trial_port=given["trial_port"])

class Heard(trial.Child):
    def __init__(self, *args):
        super().__init__(*args)
        heard.append(self)

# Time stands still until slurmctld was heard to say that it hangs; then it passes with every look.
heard, looks = [], itertools.count(1)
hangs = lambda: any("does not answer" in line for each in heard for line in each.lines)
trial.Child = Heard
child.LAST_LINES = 600.0
trial.time = types.SimpleNamespace(monotonic=lambda: float(next(looks)) if hangs() else 0.0)
sys.exit(trial.run(places, Times(trial=given["trial"], probe=0.01), Processes()))
"""


class Trial:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("config", "state", "etc"):
            (folder / name).mkdir()
        (folder / "config" / "seltzer.digest").write_text("d")
        self._port = Port()

    def start(self, *lines: str, seconds: float = 10) -> subprocess.Popen[str]:
        text = "\n".join(["SlurmctldPort=1", f"FakeJournal={self.folder}/journal", *lines])
        (self.folder / "config" / "slurm.conf").write_text(text)
        names = {name: str(self.folder / name) for name in ("config", "keys", "state", "etc", "termination_log")}
        slurmctld = [sys.executable, "-S", str(FAKES / "slurmctld.py")]
        given = {**names, "slurmctld": slurmctld, "trial_port": self._port.number, "trial": seconds}
        return subprocess.Popen(
            [sys.executable, "-S", "-c", RUN, json.dumps(given)],
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *lines: str, seconds: float = 10) -> tuple[int, str]:
        """The exit code and the one line, which is printed and left for the pod's status."""
        process = self.start(*lines, seconds=seconds)
        printed, _ = process.communicate()
        assert printed.splitlines() == [(self.folder / "termination_log").read_text()]
        return process.returncode, printed.strip()

    @property
    def pid(self) -> int:
        return int((self.folder / "journal").read_text().split()[1])


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


def test_a_good_configuration_is_good_and_nothing_is_left_of_the_trial(trial: Trial) -> None:
    assert trial.run() == (0, "slurmctld starts with this configuration")
    assert not alive(trial.pid)


def test_a_bad_one_is_bad_in_slurms_own_words(trial: Trial) -> None:
    code, line = trial.run("Foo=1")
    assert code == 1
    assert line == (
        "error: _parse_next_key: Parsing error at unrecognized key: Foo; fatal: Unable to process configuration file"
    )


def test_a_slurmctld_that_does_not_answer_is_not_waited_for_for_ever(trial: Trial) -> None:
    code, line = trial.run("FakeHang=1", seconds=0.5)
    assert (code, line) == (1, "slurmctld didn't answer in 0.5 s: error: the name server does not answer")
    assert not alive(trial.pid)


def test_no_configuration_is_a_bad_one(trial: Trial) -> None:
    (trial.folder / "config" / "seltzer.digest").unlink()
    code, line = trial.run()
    assert code == 1 and "needs slurm.conf" in line


def test_a_trial_can_be_ended(trial: Trial) -> None:
    process = trial.start("FakeHang=1", seconds=1e6)
    until("slurmctld hangs", lambda: (trial.folder / "journal").exists() and (trial.folder / "journal").read_text())
    process.terminate()
    assert process.wait() == 1
    assert not alive(trial.pid)


def made_harmless(text: str, **files: str) -> dict[str, str]:
    found = {"slurm.conf": text, **files}
    config = Config("", "", {name: content.encode() for name, content in found.items()})
    return {name: content.decode() for name, content in harmless(config).items()}


def test_what_reaches_out_is_left_out_and_lines_keep_their_numbers() -> None:
    text = """\
ClusterName=demo
# a comment
accountingstoragetype=accounting_storage/slurmdbd
AccountingStorageHost = \\
   dbd
AccountingStorageTRES=gres/gpu
JobCompType=jobcomp/elasticsearch # there
SlurmctldParameters=enable_configless,\\
  idle_on_node_suspend
NodeName=a[1-3] CPUs=2 State=UNKNOWN # three nodes
Epilog=/etc/\\#epilog"""
    assert made_harmless(text)["slurm.conf"].split("\n") == [
        "ClusterName=demo",
        "",
        "",
        "",
        "",
        "",
        "",
        "SlurmctldParameters=enable_configless,  idle_on_node_suspend",
        "",
        "NodeName=a[1-3] CPUs=2 State=UNKNOWN  State=FUTURE",
        "Epilog=/etc/\\#epilog",
    ]


def test_what_only_accounting_counts_is_not_weighed() -> None:
    weights = 'PriorityWeightTRES=GRES/gpu=9\nPartitionName=a TRESBillingWeights="CPU=1.0,GRES/gpu=2" Default=YES'
    assert made_harmless(weights)["slurm.conf"] == weights
    made = made_harmless(f"AccountingStorageTRES=gres/gpu\n{weights}")
    assert made["slurm.conf"] == "\n\nPartitionName=a  Default=YES"


def test_included_files_are_part_of_it_and_others_are_not() -> None:
    more = {"nodes.conf": "NodeName=a\nInclude nodes.conf\nInclude absent.conf", "gres.conf": "NodeName=a Name=gpu"}
    made = made_harmless("include nodes.conf", **more)
    assert made["nodes.conf"].startswith("NodeName=a State=FUTURE\n")
    assert made["gres.conf"] == "NodeName=a Name=gpu"
