"""slurm.conf: values can't break out, and what is written is read back."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seltzer.slurm.conf import Conf, ConfError, Include, Line, parse, render

KEYS = st.from_regex(r"[A-Za-z0-9_.]{1,8}", fullmatch=True)
NASTY = st.text(alphabet="ab \\#\"'=\t\n\r\0é,[]+", max_size=12)
VALUES = st.text(max_size=12) | NASTY
LINES = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=3).map(lambda pairs: Line(tuple(pairs)))
INCLUDES = st.from_regex(r"[!-~]{1,8}", fullmatch=True).map(Include)
CONFS = st.lists(LINES | INCLUDES, max_size=4).map(lambda lines: Conf(tuple(lines)))


@given(CONFS, st.text(max_size=20))
@example(Conf.of([("A", "a\\"), ("B", "\\#"), ("C", "")]), "a\\")
def test_what_is_written_is_read_back_or_refused(conf: Conf, comment: str) -> None:
    try:
        text = render(conf, comment)
    except ConfError as error:
        assert str(error).isprintable()
    else:
        text.encode()
        assert parse(text) == conf


@given(st.text(alphabet="abcXYZ 0189\\#'=\t,[]()%$é/-+*", max_size=20))
def test_without_quotes_and_control_characters_every_value_can_be_written(value: str) -> None:
    conf = Conf((Line((("Reason", value), ("State", "UP"))),))
    assert parse(render(conf)) == conf


@given(st.text(alphabet="aK=\"\\# \t\n'", max_size=30) | st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse(text)
    except ConfError as error:
        assert str(error).startswith("slurm.conf line ")
        assert str(error).isprintable()


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("auth/slurm", "auth/slurm"),
        ("", '""'),
        ("a b", '"a b"'),
        ("a\tb", '"a\tb"'),
        ("a#b", r"a\#b"),
        ("# b", r'"\# b"'),
        ("a\\", r"a\\"),
        (r"\#", r"\\\#"),
        ('a"b', 'a"b'),
        ("jwt_key=/etc/slurm/jwt.key", "jwt_key=/etc/slurm/jwt.key"),
        ("größe", '"größe"'),
    ],
)
def test_a_value_is_quoted_only_where_it_must_be(value: str, written: str) -> None:
    assert render(Conf.of([("AuthInfo", value)])) == f"AuthInfo={written}\n"


@pytest.mark.parametrize(
    "value", ['"a"', '"', 'a "b"', 'a" Nodes=ALL', "a\nSlurmUser=root", "a\0", "a\r", "a\x1b", "\ud800"]
)
def test_what_slurm_could_not_read_back_is_refused_by_the_keys_name(value: str) -> None:
    with pytest.raises(ConfError, match=r"^AuthInfo: Slurm's configuration can't hold") as caught:
        render(Conf.of([("AuthInfo", value)]))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("key", ["", "a b", "a=b", "a\n", "#a", "ä", "a-b"])
def test_a_key_can_not_break_out_either(key: str) -> None:
    with pytest.raises(ConfError, match="can't be a key"):
        render(Conf.of([(key, "x")]))


@pytest.mark.parametrize("path", ["", "a b", "a\nSlurmUser=root", "é"])
def test_nor_can_a_path(path: str) -> None:
    with pytest.raises(ConfError, match=r"^Include: "):
        render(Conf((Include(path),)))


def test_a_line_needs_a_pair() -> None:
    with pytest.raises(ConfError, match="needs a key"):
        render(Conf((Line(()),)))


def test_a_comment_stays_a_comment() -> None:
    conf = Conf.of([("ClusterName", "demo")])
    text = render(conf, "Made by Seltzer.\nSlurmUser=root\\\n\rx")
    assert text == "# Made by Seltzer.\n# SlurmUser=root\\\n# ?x\nClusterName=demo\n"
    assert parse(text) == conf


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("  Key\t=  value  # why", [("Key", "value")]),
        ("K=a L=b", [("K", "a"), ("L", "b")]),
        ("K=a \\\n  L=b", [("K", "a"), ("L", "b")]),
        ("K=a\\ \nb", [("K", "ab")]),
        ("K=a\\", [("K", "a")]),
        ("K=a\\\\", [("K", "a\\")]),
        ("K=a \\ # why\nL=b", [("K", "a"), ("L", "b")]),
        ("# why \\\nK=a", [("K", "a")]),
        ('K="a # b"', [("K", '"a')]),
        ('K="a \\# b"', [("K", "a # b")]),
        ('K="a"b', [("K", '"a"b')]),
        ('K="a\\"b"', [("K", '"a"b"')]),
        ("K= L=x", [("K", "L=x")]),
        ("K=a\r\n", [("K", "a")]),
        ('K=""', [("K", "")]),
    ],
)
def test_text_is_read_as_slurm_reads_it(text: str, pairs: list[tuple[str, str]]) -> None:
    assert parse(text) == Conf((Line(tuple(pairs)),))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("A=1\n\ngarbage", "gres.conf line 3: expected Key=Value; "),
        ("A=1\\\n\nB=a b", "gres.conf line 3: expected Key=Value after B; "),
        ("A=", "expected Key=Value"),
        ("A=b\\\nc d", "gres.conf line 1: expected Key=Value after A"),
        ("A+=b", r"reads A\+= as A=; write that"),
        ("A=b\0", "NUL"),
        ("Include a b", "Include takes one path"),
        ("Include = b", "Include takes one path"),
        ("Include ", "Include takes one path"),
        (" Include a", "expected Key=Value"),
    ],
)
def test_what_slurm_can_not_read_gets_one_line_that_says_where(text: str, reason: str) -> None:
    with pytest.raises(ConfError, match=reason):
        parse(text, "gres.conf")


def test_keys_are_found_in_upper_and_lower_case_and_the_last_one_counts() -> None:
    conf = parse("slurmuser=a\nInclude nodes.conf\nSlurmUser=b\nNodeName=n1 CPUs=2 cpus=3\nnodename=n2\n")
    assert conf.get("SLURMUSER") == "b"
    assert conf.get("CPUs") is None
    assert [line.value for line in conf.about("NodeName")] == ["n1", "n2"]
    assert conf.about("NodeName")[0].get("CPUS") == "3"
    assert Include("nodes.conf") in conf.lines
