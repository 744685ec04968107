"""Which options a job loses when it is put back, according to its script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seltzer.guard.recovery.directives import unkept, without

CASES: dict[str, tuple[str, list[str]]] = {
    "nothing": ("#SBATCH --time=5 -n 2", []),
    "a value behind =": ("#SBATCH --deadline=2030-01-01", ["--deadline"]),
    "a value behind a space": ("#SBATCH --signal B:INT@60 --nice", ["--signal"]),
    "no space behind #SBATCH": ("#SBATCH--deadline=2030-01-01", ["--deadline"]),
    "shortened": ("#SBATCH --dead=2030-01-01 --dist=block", ["--deadline", "--distribution"]),
    "names that only begin alike": ("#SBATCH --wait --clusters=a --container=x --no-requeue --output=o --res=r", []),
    "short": ("#SBATCH -m block", ["--distribution"]),
    "short, with its value": ("#SBATCH -mblock -koff", ["--distribution", "--no-kill"]),
    "short ones in one word": ("#SBATCH -Hk", ["--no-kill"]),
    "a letter of a value": ("#SBATCH -Jmk -N1 -pm", []),
    "twice": ("#SBATCH --signal=INT\n#SBATCH --signal=USR1", ["--signal"]),
    "in quotes": ("#SBATCH --comment='--signal=INT' --profile=all", ["--profile"]),
    "a quote that isn't closed": ("#SBATCH --comment='a --signal=INT", ["--signal"]),
    "behind a comment": ("#SBATCH --time=5 # --signal=INT", []),
    "behind comments and empty lines": ("# one\n\n  # two\n#SBATCH --oom-kill-step=1", ["--oom-kill-step"]),
    "behind a command": ("cd /tmp\n#SBATCH --signal=INT", []),
    "indented": (" #SBATCH --signal=INT", []),
    "switched off": ("##SBATCH --signal=INT", []),
}


@pytest.mark.parametrize("name", CASES)
def test_options_that_no_plugin_sees_are_found_as_sbatch_reads_them(name: str) -> None:
    lines, found = CASES[name]
    assert list(unkept(f"#!/bin/sh\n{lines}\ntrue\n")) == found


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("", ""),
        ("#SBATCH --deadline=1", "; without --deadline, which no plugin sees"),
        ("#SBATCH -k -m a --signal=1", "; without --no-kill, --distribution and --signal, which no plugin sees"),
    ],
)
def test_they_are_reported(lines: str, words: str) -> None:
    assert without(lines) == words


@given(st.text() | st.text(alphabet="#SBATCH-mk ='\"\\\n"))
def test_no_script_is_too_strange(script: str) -> None:
    without(script)
