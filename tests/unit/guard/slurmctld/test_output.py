"""Of slurmctld's last lines the ones that tell why it ended; these were written by Slurm 26.05."""

from __future__ import annotations

import pytest

from seltzer.guard.slurmctld.output import bare, cause

STAMP = "[2026-11-15T23:53:27.045] "
NOISE = [
    f"{STAMP}error: Configured MailProg is invalid",
    f"{STAMP}error: SlurmctldPidFile 1 specified more than once, latest value used",
]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ([], ""),
        (["one", f"{STAMP}Running as primary controller", ""], "Running as primary controller"),
        ([f"{STAMP}error: a", f"{STAMP}b"], "error: a"),
        (
            [
                f"{STAMP}error: _parse_next_key: Parsing error at unrecognized key: Foo",
                *NOISE,
                f"{STAMP}fatal: Unable to process configuration file",
            ],
            "error: _parse_next_key: Parsing error at unrecognized key: Foo; "
            "fatal: Unable to process configuration file",
        ),
        (
            [*NOISE, f"{STAMP}No job state file", "slurmctld: fatal: Invalid node names in partition st", "aborting"],
            "fatal: Invalid node names in partition st",
        ),
        ([f"{STAMP}error: a", f"{STAMP}b", f"{STAMP}fatal: c"], "fatal: c"),
        ([*(f"error: {n}" for n in range(9)), "fatal: x"], "error: 6; error: 7; error: 8; fatal: x"),
    ],
)
def test_the_words_that_help(said: list[str], told: str) -> None:
    assert cause(said) == told


def test_a_line_is_never_too_long_nor_upsets_a_terminal() -> None:
    assert len(cause(["fatal: " + "x" * 5000])) == 1000
    assert bare("\x1b[31mred\x07") == "?[31mred?"
