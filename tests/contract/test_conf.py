"""Slurm reads from our files what we wrote, and we read from any file what Slurm reads.

Commands read slurm.conf before they do anything else. Two values can be seen without a slurmctld, in the error that a
wrong one gets: AuthType, alone on its line, and a partition's State, among other pairs.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator

from tests.harness import Cluster

from seltzer.slurm.conf import Conf, ConfError, Include, Line, parse, render

START = [("ClusterName", "x"), ("SlurmctldHost", "localhost")]
# A file in base64 each; the answer is in base64 too, since anything can be in it.
ASK = """
set -eu; folder=$(mktemp -d); cd "$folder"; trap 'rm -r "$folder"' EXIT
printf 'AuthType=auth/from-include\\n' > 'inc#lude.conf'
for file; do
  base64 -d <<< "$file" > slurm.conf
  SLURM_CONF=$folder/slurm.conf timeout 5 scontrol ping 2>&1 | base64 --wrap=0; echo
done
"""
AUTH = "error: cannot create auth context for "
STATE = 'error: Bad value "'
PIECES = ["a", "b", "K", "=", " ", "\t", "\\", "\\", "#", '"', '"', "'", "é", ",", "[", "%s", "$HOME", "K=v", "\u00a0"]


def answers(slurm: Cluster, files: list[str]) -> Iterator[str]:
    """What Slurm said to each file; 400 files of this size fit into one command."""
    for at in range(0, len(files), 400):
        encoded = [base64.b64encode(text.encode()).decode() for text in files[at : at + 400]]
        for line in slurm.login("bash", "-c", ASK, "bash", *encoded).splitlines():
            yield base64.b64decode(line).decode()


def between(text: str, start: str, end: str) -> str | None:
    """What stands between the two, if both are there."""
    _, found, rest = text.partition(start)
    value, ended, _ = rest.rpartition(end)
    return value if found and ended else None


def auth_type(answer: str) -> str | None:
    return between(answer, AUTH, "\nscontrol: fatal: failed to initialize auth plugin")


def soups(seed: int, pieces: list[str]) -> Iterator[str]:
    pick = random.Random(seed)  # noqa: S311
    while True:
        yield "".join(pick.choice(pieces) for _ in range(pick.randint(0, 9)))


def writable(values: Iterator[str], how_many: int) -> list[str]:
    found: list[str] = []
    while len(found) < how_many:
        value = f"auth/{next(values)}"
        try:
            render(Conf.of([("AuthType", value)]))
        except ConfError:
            continue
        found.append(value)
    return found


def test_slurm_reads_back_any_value_that_is_written(slurm: Cluster) -> None:
    values = writable(soups(1, PIECES), 200)
    files = [render(Conf.of([*START, ("AuthType", value)]), "a comment \\") for value in values]
    assert list(map(auth_type, answers(slurm, files))) == values


def test_slurm_reads_back_any_value_among_other_pairs(slurm: Cluster) -> None:
    values = writable(soups(2, PIECES), 150)
    others = [(("Nodes", "ALL"), ("AllowAccounts", other)) for other in values[1:] + values[:1]]
    files = [
        render(Conf((*Conf.of(START).lines, Line((("PartitionName", "p"), first, ("State", value), second)))))
        for value, (first, second) in zip(values, others, strict=True)
    ]
    assert [between(answer, STATE, '" for State\n') for answer in answers(slurm, files)] == values


def test_we_read_any_line_as_slurm_does(slurm: Cluster) -> None:
    pieces = soups(3, [*PIECES, "\n", "\\\n", "\\ \n", "\r", " # "])
    texts = [f"AuthType=auth/{next(pieces)}" for _ in range(150)]
    texts += [f'AuthType="auth/{next(pieces)}"{next(pieces)}' for _ in range(150)]
    read = 0
    for text, answer in zip(texts, answers(slurm, [render(Conf.of(START)) + text for text in texts]), strict=True):
        try:
            conf = parse(text)
        except ConfError:
            assert "fatal: Unable to process configuration file" in answer, text
            continue
        # After AuthType=x Slurm wants no second pair, and it knows no K.
        if len(conf.lines) > 1 or len(conf.lines[0].pairs) > 1:  # type: ignore[union-attr]
            assert "fatal: Unable to process configuration file" in answer, text
            continue
        value = conf.get("AuthType") or ""
        assert auth_type(answer) == (value if value.startswith("auth/") else f"auth/{value}"), text
        read += 1
    assert read > 50


def test_slurm_knows_no_way_to_write_what_is_refused(slurm: Cluster) -> None:
    tries = ['AuthType="auth/a\\"b"', 'AuthType="auth/a\nb"', 'AuthType="auth/a\\\nb"', "AuthType='auth/a b'"]
    said = [auth_type(answer) for answer in answers(slurm, [render(Conf.of(START)) + text for text in tries])]
    assert said == ['auth/"auth/a"b"', None, "auth/ab", None]


def test_slurm_follows_an_include_and_starts_with_a_whole_file(slurm: Cluster) -> None:
    others = [
        ("SlurmctldParameters", "enable_configless"),
        ("AuthInfo", "a b # c \\"),
        ("Epilog", ""),
        ("MailProg", "x" * 20_000),
        ("TaskPluginParam", ""),
    ]
    nodes = Line((("NodeName", "n[1-2]"), ("CPUs", "2"), ("Feature", "a,b"), ("Reason", "it's # \\ = 50% é")))
    fine = Conf((*Conf.of([*START, *others]).lines, nodes, Line((("PartitionName", "p"), ("Nodes", "n[1-2]")))))
    included = Conf((*Conf.of(START).lines, Include("inc#lude.conf")))
    first, second = answers(slurm, [render(fine), render(included)])
    assert first.startswith("Slurmctld(primary) at")
    assert auth_type(second) == "auth/from-include"
