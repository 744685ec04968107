"""Our hostlists and Slurm's are the same: compared with `scontrol` on thousands of random ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

import pytest
from tests.harness import Cluster

from seltzer.slurm.hostlist import HostlistError, expand, fold

HOW_MANY = 3000
# All arguments of one command go through a URL.
BATCH_CHARACTERS = 60_000
# Stands between hostlists, so that one command can expand many; no list here has such a name.
BETWEEN = "=="


def hostlists(pick: random.Random) -> Iterator[str]:
    while True:
        yield ",".join("".join(parts(pick)) for _ in range(pick.randint(1, 3)))


def parts(pick: random.Random) -> Iterator[str]:
    yield pick.choice(["", "", "n", "cpu-", "a0", "x.y", "1", "00", "_"])
    for _ in range(pick.choice([0, 1, 1, 1, 2, 2, 3, 4])):
        yield f"[{','.join(range_(pick) for _ in range(pick.choice([1, 1, 2])))}]"
        yield pick.choice(["", "", "b", "-ib", "0", "07"])


def range_(pick: random.Random) -> str:
    low = pick.choice([0, 1, 8, 9, 98, 99, 1000, pick.randint(0, 2000)])
    text = f"{low:0{pick.choice([1, 1, 1, 2, 3, 5])}}"
    if pick.random() < 0.4:
        return text
    return f"{text}-{low + pick.choice([0, 1, 2]):0{pick.choice([1, 1, 3])}}"


def fits(text: str) -> bool:
    """Brackets side by side can make a number too large; that Slurm doesn't keep those is another test."""
    try:
        return bool(expand(text))
    except HostlistError as error:
        assert "64 bits" in str(error)
        return False


def some(seed: int) -> list[str]:
    return list(islice(filter(fits, hostlists(random.Random(seed))), HOW_MANY))  # noqa: S311


def batches(texts: list[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for text in texts:
        if sum(map(len, batch)) + len(text) + 3 * len(batch) > BATCH_CHARACTERS:
            yield batch
            batch = []
        batch.append(text)
    yield batch


def expanded_by_slurm(slurm: Cluster, texts: list[str]) -> list[list[str]]:
    answers: list[list[str]] = []
    for batch in batches(texts):
        answer: list[str] = []
        for name in slurm.login("scontrol", "show", "hostnames", f",{BETWEEN},".join([*batch, ""])).split():
            if name == BETWEEN:
                answers.append(answer)
                answer = []
            else:
                answer.append(name)
    return answers


def test_slurm_expands_them_to_the_same_names_in_the_same_order(slurm: Cluster) -> None:
    texts = some(seed=1)
    assert list(map(expand, texts)) == expanded_by_slurm(slurm, texts)


def test_slurm_expands_what_we_fold_to_the_same_names(slurm: Cluster) -> None:
    folded = [fold(expand(text)) for text in some(seed=2)]
    assert list(map(expand, folded)) == expanded_by_slurm(slurm, folded)


def test_slurm_folds_names_to_the_same_text(slurm: Cluster) -> None:
    """Without leading zeros: where padded and unpadded names mix, Slurm's order depends on the order they came in."""
    pick = random.Random(3)  # noqa: S311
    expected: list[str] = []
    questions: list[str] = []
    for _ in range(150):
        numbers = range(pick.choice([3, 12, 120, 1200]))
        prefixes = [pick.choice(["n", "cpu-", "", "a.", "B", "r9-n", "r10-n", "r-"]) for _ in range(3)]
        unique = {f"{pick.choice(prefixes)}{pick.choice(numbers)}{pick.choice(['', '', '', 'x'])}" for _ in range(20)}
        expected.append(fold(unique))
        questions.append(",".join(pick.sample(sorted(unique), len(unique))))
    ask = 'for names; do scontrol show hostlistsorted "$names"; done'
    assert slurm.login("bash", "-c", ask, "bash", *questions).splitlines() == expected
    # Without sorting it keeps the order it is given; ours is such that it has nothing to add.
    ask = 'for names; do scontrol show hostlist "$names"; done'
    natural = [",".join(expand(text)) for text in expected]
    assert slurm.login("bash", "-c", ask, "bash", *natural).splitlines() == expected


def test_slurm_takes_a_range_as_long_as_ours_and_no_longer(slurm: Cluster) -> None:
    names = [f"n{number}" for number in range(70_000)]
    assert slurm.login("scontrol", "show", "hostnames", fold(names)).split() == names
    assert len(slurm.login("scontrol", "show", "hostnames", "n[0-65535]").split()) == 65_536
    assert slurm.login("scontrol", "show", "hostnames", "n[0-65536]") == ""


REFUSED_BY_BOTH = ["a[1-", "a[", "a[]", "a[,]", "a[1,]", "a[1,,2]", "a[5-1]", "a[1-99999999]", "a[x]", "a[-1]"]
REFUSED_BY_BOTH += ["a[1-2-3]", "a[1-9/2]", "a[1-9:2]", "a[0x1]", "a[1-2],b[3", "a[1-2]b[3", "a[1-2]]b[3]"]
# What Slurm makes of what only we refuse: the reason to refuse it.
REFUSED_BY_US = {
    "a]": "a]",
    "a[[1]]": "a[1]",
    "a[1-]": "a1",
    "a[ 1]": "a01",
    "a[+1]": "a01",
    "a b": "a\nb",
    "a[18446744073709551616]": "a18446744073709551615",
    "a99999999999999999999": "a18446744073709551615",
    "a[18446744073709551614-18446744073709551615]": "",
}


def test_slurm_refuses_what_we_refuse_or_takes_it_for_something_else(slurm: Cluster) -> None:
    for text in [*REFUSED_BY_BOTH, *REFUSED_BY_US]:
        with pytest.raises(HostlistError):
            expand(text)
    # It says so on stderr only: the exit code is 0.
    ask = 'for text; do scontrol show hostnames "$text"; echo ==; done'
    answers = slurm.login("bash", "-c", ask, "bash", *REFUSED_BY_BOTH, *REFUSED_BY_US).split("==\n")
    expected = [*("" for _ in REFUSED_BY_BOTH), *REFUSED_BY_US.values(), ""]
    assert [answer.rstrip("\n") for answer in answers] == expected
