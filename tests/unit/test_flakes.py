"""`make flakes` counts the failures of every test, and blames the right one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import flakes
from tests.flakes import Run

JUNIT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="tests.unit.test_a" name="test_well" file="tests/unit/test_a.py"/>
<testcase classname="tests.unit.test_a" name="test_skipped" file="tests/unit/test_a.py"><skipped/></testcase>
<testcase classname="tests.unit.test_a" name="test_bad[a - b.c]" file="tests/unit/test_a.py"><failure/></testcase>
<testcase classname="tests.unit.test_a.TestIt" name="test_it" file="tests/unit/test_a.py"><failure/></testcase>
<testcase classname="tests.unit.test_a.TestIt" name="test_it" file="tests/unit/test_a.py"><error/></testcase>
</testsuite></testsuites>"""


def test_tests_have_the_names_that_pytest_takes() -> None:
    failed = ("tests/unit/test_a.py::test_bad[a - b.c]", "tests/unit/test_a.py::TestIt::test_it")
    assert flakes.outcome(JUNIT) == (1, failed)


def test_the_test_that_fails_most_often_comes_first() -> None:
    runs = [Run(9, ("b",), 1.0), Run(10, (), 1.0), Run(8, ("a", "c"), 1.0), *(Run(9, ("c",), 1.0) for _ in range(9))]
    assert list(flakes.report(runs)) == [
        "3 tests failed in 11 of 12 runs:",
        "  10 of 12  c",
        "   1 of 12  a",
        "   1 of 12  b",
    ]


def test_a_suite_that_never_fails_is_reported_in_a_line() -> None:
    assert list(flakes.report([Run(10, (), 1.0)] * 3)) == ["no test failed in 3 runs"]


def test_each_run_tells_what_failed_and_where_one_can_read_why() -> None:
    assert list(flakes.progress(2, 20, Run(10, (), 61.4), Path("log"))) == ["run 2 of 20: 10 passed, 0 failed in 61 s"]
    assert list(flakes.progress(3, 20, Run(9, ("a",), 1.0), Path("log")))[1:] == ["  a", "  its output is in log"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--runs", "0"], "argument --runs: '0' is no number from 1 to 10000"),
        (["--runs", "1.5"], "argument --runs: '1.5' is no number from 1 to 10000"),
        (["--hogs", "-1"], "argument --hogs: '-1' is no number from 0 to 1000"),
        (["--hogs", "many"], "argument --hogs: 'many' is no number from 0 to 1000"),
        (["--hogs", "9" * 5000], "is no number from 0 to 1000"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused_in_a_line(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        flakes.main([*words, "--", "tests/unit"])
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert complaint in said and said.count("\n") == 1


def test_a_test_that_fails_now_and_then_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(flakes, "LOGS", tmp_path / "logs")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_some.py").write_text(
        "from pathlib import Path\n"
        "def test_good(): pass\n"
        "def test_later():\n    been, _ = Path('been').exists(), Path('been').touch()\n    assert been\n"
    )
    alone = ["-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(tmp_path)]
    assert flakes.main(["--runs", "2", "--hogs", "1", "--", *alone, "test_some.py"]) == 1
    said = capfd.readouterr().out
    assert "run 1 of 2: 1 passed, 1 failed" in said and "run 2 of 2: 2 passed, 0 failed" in said
    assert said.endswith("1 test failed in 1 of 2 runs:\n  1 of 2  test_some.py::test_later\n")
    assert "assert been" in (tmp_path / "logs" / "run-1.txt").read_text()
    assert flakes.main(["--runs", "1", "--hogs", "0", "--", *alone, "no-such-file.py"]) == 1
    assert "(pytest itself: exit code 4)" in capfd.readouterr().out
