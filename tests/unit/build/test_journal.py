"""Our job_submit script, in the Lua that Slurm has: it writes each job down, and it never is in a job's way."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lupa import lua51

from seltzer.build import journal
from seltzer.build.userconf import UserConf
from seltzer.guard.recovery.journal import FROM_CRONTAB

NO_VAL, NO_VAL16, NO_VAL64 = 0xFFFFFFFE, 0xFFFE, 2.0**64
ERROR, REFUSED = -1, 2002
USER = 1000

NUMBERS = {
    "begin_time": 0,
    "bitflags": 0,
    "contiguous": 0,
    "cpu_freq_gov": NO_VAL,
    "cpu_freq_max": NO_VAL,
    "cpu_freq_min": NO_VAL,
    "cpus_per_task": NO_VAL16,
    "cron_job": False,
    "group_id": USER,
    "het_job_offset": NO_VAL,
    "mail_type": 0,
    "max_nodes": NO_VAL,
    "min_cpus": 1,
    "min_nodes": NO_VAL,
    "nice": NO_VAL,
    "num_tasks": NO_VAL,
    "priority": NO_VAL,
    "reboot": NO_VAL16,
    "requeue": NO_VAL16,
    "segment_size": 0,
    "shared": NO_VAL16,
    "time_limit": NO_VAL,
    "user_id": USER,
}
"""What slurmctld shows of a job that asked for nothing."""


@dataclass
class Slurm:
    """slurmctld with our script in its configuration, and perhaps a site's."""

    folder: Path
    logged: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def load(self, site: str | None = None) -> None:
        """As slurmctld does it when it starts. Raises LuaError if slurmctld would complain of the script."""
        kept = journal.keep(_conf({} if site is None else {"job_submit.lua": site}))
        for name, text in kept.files.items():
            text = text.replace("/run/slurmctld-state", str(self.folder / "state"))
            (self.folder / name).write_text(text.replace("/var/lib/extrausers", str(self.folder / "users")))
        self._lua = lua51.LuaRuntime(unpack_returned_tuples=True)
        slurm = self._lua.table_from({"SUCCESS": 0, "ERROR": ERROR})
        slurm["log_error"] = lambda words, *values: self.logged.append(words.replace("%s", "{}").format(*values))
        slurm["log_user"] = self.said.append
        self._global.slurm = slurm
        self._global.dofile(str(self.folder / "job_submit.lua"))
        for required in ("slurm_job_submit", "slurm_job_modify"):
            assert lua51.lua_type(self._global[required]) == "function", f"missing required function {required}"

    @property
    def slurm(self) -> Any:
        """What scripts call slurm."""
        return self._global.slurm

    @property
    def _global(self) -> Any:
        return self._lua.globals()

    def table(self, items: Mapping[Any, Any]) -> Any:
        return self._lua.table_from(dict(items))

    def job(self, environment: Mapping[str, str] | None = None, **wanted: Any) -> Any:
        fields: dict[str, Any] = {**NUMBERS, "script": "#!/bin/sh\n", "name": "a job", **wanted}
        fields["environment"] = self._lua.table_from(dict(environment or {"PATH": "/bin"}))
        return self._lua.table_from({name: value for name, value in fields.items() if value is not None})

    def submit(self, job: Any = None, uid: int = USER) -> Any:
        return self._global.slurm_job_submit(self.job() if job is None else job, self._lua.table(), uid)

    def modify(self, changes: Mapping[str, Any] | None = None, **record: Any) -> Any:
        changes, of = self.table(changes or {}), self._lua.table_from(record)
        return self._global.slurm_job_modify(changes, of, self._lua.table(), USER)

    @property
    def journal(self) -> Path:
        return self.folder / "state" / "seltzer.journal"

    def lines(self) -> list[Any]:
        if not self.journal.exists():
            return []
        return [json.loads(line) for line in self.journal.read_text().splitlines() if line]

    def options(self, **wanted: Any) -> dict[str, Any]:
        """What is written down of a job that wants this."""
        assert self.submit(self.job(**wanted)) == 0
        assert not self.logged
        options: dict[str, Any] = self.lines()[-1]["options"]
        return options


def _conf(files: Mapping[str, str]) -> UserConf:
    settings = {"jobsubmitplugins": ("JobSubmitPlugins", "lua")} if files else {}
    return UserConf(settings, (), files)


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    """Without a script of the site's, unless a test loads one."""
    (tmp_path / "state").mkdir()
    made = Slurm(tmp_path)
    made.load()
    return made


def test_a_job_has_a_line_and_the_lines_key_in_its_environment(slurm: Slurm) -> None:
    job = slurm.job()
    assert slurm.submit(job) == 0
    (line,) = slurm.lines()
    assert (line["v"], line["uid"]) == (1, USER)
    assert line["key"] == job.environment.SELTZER_JOB
    assert line["options"]["user_id"] == str(USER)
    assert not {"script", "environment"} & line["options"].keys(), "they are in the job's directory"


def test_a_removed_user_submits_nothing_and_others_do(slurm: Slurm) -> None:
    removed = slurm.folder / "users" / "removed"
    assert slurm.submit() == 0, "without the file everybody may"
    removed.parent.mkdir()
    removed.write_text(f"{USER}\n1{USER}\n")
    assert slurm.submit() == ERROR
    assert slurm.said == ["you are no longer a user of this cluster: ask its administrator"]
    assert slurm.submit(uid=USER + 1) == 0
    removed.write_text(f"1{USER}\n{USER}1\n")
    assert slurm.submit() == 0, "a number that only begins or ends like it is another"
    assert len(slurm.lines()) == 3


def test_no_key_is_there_twice_whoever_wrote_it(slurm: Slurm) -> None:
    for _ in range(3):
        for _ in range(3):
            slurm.submit()
        slurm.load()
    keys = [line["key"] for line in slurm.lines()]
    assert len(set(keys)) == len(keys) == 9


def test_what_a_job_did_not_ask_for_is_not_written_down(slurm: Slurm) -> None:
    """65534 is how slurmrestd is told to leave it alone; it would say 0 by itself."""
    assert slurm.options(name=None) == {
        "minimum_cpus": 1,
        "user_id": str(USER),
        "group_id": str(USER),
        "oom_kill_step": NO_VAL16,
    }


@pytest.mark.parametrize(
    ("wanted", "option", "value"),
    [
        ({"time_limit": 5}, "time_limit", {"set": True, "infinite": False, "number": 5}),
        ({"time_limit": 0xFFFFFFFF}, "time_limit", {"set": False, "infinite": True, "number": 0}),
        ({"min_mem_per_node": 2**40}, "memory_per_node", {"set": True, "infinite": False, "number": 2**40}),
        ({"begin_time": 1794798815}, "begin_time", {"set": True, "infinite": False, "number": 1794798815}),
        ({"array_inx": "1-10%3"}, "array", "1-10%3"),
        ({"req_nodes": "n[0-1,7]"}, "required_nodes", ["n[0-1,7]"]),
        ({"requeue": 0}, "requeue", False),
        ({"requeue": 1}, "requeue", True),
        ({"contiguous": 1}, "contiguous", True),
        ({"shared": 0}, "shared", ["none"]),
        ({"shared": 2}, "shared", ["user"]),
        ({"priority": 0}, "hold", True),
        ({"priority": 77}, "priority", {"set": True, "infinite": False, "number": 77}),
        ({"nice": 0x80000000 - 10}, "nice", -10),
        ({"cpus_per_task": 2}, "cpus_per_task", 2),
        ({"num_tasks": 65534}, "tasks", 65534),
        ({"core_spec": 2}, "core_specification", 2),
        ({"cpu_freq_max": 0x80000003, "cpu_freq_gov": 0x80800000}, "cpu_frequency", "high:UserSpace"),
        ({"cpu_freq_min": 0x80000001, "cpu_freq_max": 2000000}, "cpu_frequency", "low-2000000"),
        ({"cpu_freq_gov": 0x82000000}, "cpu_frequency", "Performance"),
        ({"bitflags": 1 << 14, "num_tasks": 4}, "overcommit", True),
    ],
)
def test_options_are_written_as_slurmrestd_takes_them(
    slurm: Slurm, wanted: Mapping[str, Any], option: str, value: object
) -> None:
    assert slurm.options(**wanted)[option] == value


@pytest.mark.parametrize(
    ("wanted", "option", "names"),
    [
        (
            {"bitflags": 1 | 1 << 8 | 1 << 14},
            "flags",
            {"KILL_INVALID_DEPENDENCY", "SPREAD_JOB", "EXACT_TASK_COUNT_REQUESTED"},
        ),
        ({"bitflags": 1 << 41}, "flags", {"STEPMGR_ENABLED"}),
        ({"mail_type": 1 | 4 | 1 << 6 | 1 << 9}, "mail_type", {"BEGIN", "FAIL", "TIME=80%", "ARRAY_TASKS"}),
    ],
)
def test_bits_are_written_by_name(slurm: Slurm, wanted: Mapping[str, Any], option: str, names: set[str]) -> None:
    assert set(slurm.options(num_tasks=1, **wanted)[option]) == names


def test_bits_that_are_slurms_own_are_left_to_it(slurm: Slurm) -> None:
    assert not {"flags", "mail_type"} & slurm.options(bitflags=0xF << 25, mail_type=NO_VAL16).keys()


def test_arguments_of_the_script_are_kept_in_their_order(slurm: Slurm) -> None:
    argv = ["/home/user/a.sh", 'b "c"', "", "d"]
    assert slurm.options(argv=slurm.table(dict(enumerate(argv))))["argv"] == argv


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_any_text_comes_back_as_it_was(slurm: Slurm, text: str) -> None:
    slurm.journal.unlink(missing_ok=True)
    nodes = re.sub(r"[\x01-\x1f\x7f]", "-", text)
    options = slurm.options(name=text, exc_nodes=nodes)
    assert (options["name"], options["excluded_nodes"]) == (text, [nodes])


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"het_job_offset": 0}, "it is a part of a heterogeneous job"),
        ({"cron_job": True}, FROM_CRONTAB),
        ({"core_spec": 0}, "slurmrestd takes no --core-spec=0"),
        ({"work_dir": b"/home/caf\xe9"}, "current_working_directory isn't UTF-8"),
    ],
)
def test_a_job_that_cannot_be_submitted_from_its_line_says_so(
    slurm: Slurm, wanted: Mapping[str, Any], why: str
) -> None:
    assert slurm.submit(slurm.job(**wanted)) == 0
    assert slurm.lines()[-1]["cannot"] == why


def test_a_job_without_a_script_is_left_alone(slurm: Slurm) -> None:
    """srun and salloc: they are gone with slurmctld, and have no environment there."""
    job = slurm.job(script=None)
    assert slurm.submit(job) == 0
    assert not slurm.lines()
    assert job.environment.SELTZER_JOB is None


def test_a_change_of_a_job_is_noted(slurm: Slurm) -> None:
    assert slurm.modify(job_id=17, array_job_id=0) == 0
    assert slurm.modify(job_id=19, array_job_id=18) == 0
    assert [line["modified"] for line in slurm.lines()] == ["17", "18"]


# --- nobody but slurmctld writes lines into its log ----------------------------------------------------------------


FORGED = "x\n[2026-11-16T03:13:36.000] _job_complete: JobId=7 done"


@pytest.mark.parametrize(
    "field", ["partition", "features", "req_nodes", "exc_nodes", "account", "qos", "reservation", "licenses", "wckey"]
)
@pytest.mark.parametrize("script", ["#!/bin/sh\n", None])
def test_what_would_be_a_line_of_its_own_in_the_log_is_refused(slurm: Slurm, field: str, script: str | None) -> None:
    forged: dict[str, Any] = {field: FORGED}
    assert slurm.submit(slurm.job(script=script, **forged)) == ERROR
    assert slurm.modify(forged, job_id=1) == ERROR
    assert slurm.said == [f"a control character, such as the end of a line, can't be in a job's {field}"] * 2
    assert not slurm.lines()


@pytest.mark.parametrize("field", ["name", "comment", "work_dir", "std_out", "mail_user", "admin_comment", "extra"])
def test_lines_are_welcome_where_they_are_logged_only_when_they_are_changed(slurm: Slurm, field: str) -> None:
    forged: dict[str, Any] = {field: FORGED}
    assert slurm.submit(slurm.job(**forged)) == 0
    assert slurm.modify(forged, job_id=1) == ERROR
    assert slurm.said == [f"a control character, such as the end of a line, can't be in a job's {field}"]


# --- nothing of ours is in a job's way -----------------------------------------------------------------------------


def _no_folder(slurm: Slurm) -> None:
    (slurm.folder / "state").rename(slurm.folder / "epoch-2")


def _full(slurm: Slurm) -> None:
    slurm.journal.symlink_to("/dev/full")


def _folder_instead(slurm: Slurm) -> None:
    slurm.journal.mkdir()


@pytest.mark.parametrize("broken", [_no_folder, _full, _folder_instead])
def test_a_journal_that_cannot_be_written_refuses_no_job_and_is_reported_once(
    slurm: Slurm, broken: Callable[[Slurm], None]
) -> None:
    broken(slurm)
    for _ in range(5):
        assert slurm.submit() == 0
        assert slurm.modify(job_id=1) == 0
    (said,) = slurm.logged
    assert "can't be put back after a crash" in said


def test_a_job_that_is_not_written_down_has_no_key_of_ours(slurm: Slurm) -> None:
    _full(slurm)
    job = slurm.job({"PATH": "/bin"})
    assert slurm.submit(job) == 0
    assert job.environment.SELTZER_JOB is None


@pytest.mark.parametrize("broken", [_full, _folder_instead])
def test_a_job_that_is_not_written_down_does_not_have_the_key_of_the_job_that_submits_it(
    slurm: Slurm, broken: Callable[[Slurm], None]
) -> None:
    broken(slurm)
    job = slurm.job({"SELTZER_JOB": "k-1"})
    assert slurm.submit(job) == 0
    assert job.environment.SELTZER_JOB == ""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from([*NUMBERS, "name", "argv"]), st.none() | st.booleans() | st.text(), max_size=4))
def test_a_job_that_makes_no_sense_is_not_refused(slurm: Slurm, wanted: Mapping[str, Any]) -> None:
    """Another version of Slurm may show other values."""
    assert slurm.submit(slurm.job(**wanted)) == 0


def test_a_line_that_was_torn_spoils_none_behind_it(slurm: Slurm) -> None:
    slurm.submit()
    with slurm.journal.open("a") as file:
        file.write('{"v":1,"key":"hal')  # and then it was killed
    slurm.load()
    slurm.submit()
    assert slurm.submit() == 0
    lines = [line for line in slurm.journal.read_text().splitlines() if line]
    assert [line.endswith("}") for line in lines] == [True, False, True, True]


def test_once_the_state_has_another_name_nothing_is_written_there(slurm: Slurm) -> None:
    slurm.submit()
    _no_folder(slurm)
    before = (slurm.folder / "epoch-2/seltzer.journal").read_bytes()
    slurm.submit()
    assert (slurm.folder / "epoch-2/seltzer.journal").read_bytes() == before


# --- the site's own script -----------------------------------------------------------------------------------------

SITE = """
counted = 0
local function fix(job) job.partition = job.partition or "cpu" end
function slurm_job_submit(job, partitions, uid)
    counted = counted + 1
    if job.name == "refuse" then slurm.log_user("no") return 2002 end
    if job.name == "odd" then return "not a number" end
    if job.name == "nothing" then return end
    if job.name == "text" then return "2002" end
    if job.name == "error" then error("oh no") end
    fix(job)
    job.admin_comment = "seen by " .. counted .. " for " .. uid
    return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid)
    if record.job_id == 13 then return slurm.ERROR end
    return slurm.SUCCESS
end
"""


def test_a_job_is_written_down_as_the_sites_script_has_changed_it(slurm: Slurm) -> None:
    slurm.load(SITE)
    options = slurm.options()
    assert options["partition"] == "cpu"
    assert options["admin_comment"] == f"seen by 1 for {USER}"


@pytest.mark.parametrize(("name", "code"), [("refuse", REFUSED), ("text", str(REFUSED))])
def test_a_job_that_the_site_refuses_is_refused_and_not_written_down(slurm: Slurm, name: str, code: object) -> None:
    slurm.load(SITE)
    job = slurm.job(name=name)
    assert slurm.submit(job) == code
    assert not slurm.lines()
    assert job.environment.SELTZER_JOB is None


def test_what_the_site_says_to_the_user_is_said(slurm: Slurm) -> None:
    slurm.load(SITE)
    slurm.submit(slurm.job(name="refuse"))
    assert slurm.said == ["no"]


@pytest.mark.parametrize(("name", "code"), [("odd", "not a number"), ("nothing", None)])
def test_an_answer_that_is_no_number_is_a_yes_as_in_slurm(slurm: Slurm, name: str, code: object) -> None:
    slurm.load(SITE)
    assert slurm.submit(slurm.job(name=name)) == code
    assert len(slurm.lines()) == 1


def test_an_error_in_the_sites_script_is_slurms_to_tell(slurm: Slurm) -> None:
    slurm.load(SITE)
    with pytest.raises(lua51.LuaError, match=r"job_submit\.lua:10: oh no"):
        slurm.submit(slurm.job(name="error"))
    assert not slurm.lines()


def test_a_change_that_the_site_refuses_is_refused_and_not_noted(slurm: Slurm) -> None:
    slurm.load(SITE)
    assert slurm.modify(job_id=13) == ERROR
    assert slurm.modify(job_id=14) == 0
    assert [line["modified"] for line in slurm.lines()] == ["14"]


@pytest.mark.parametrize(
    ("site", "words"),
    [
        ("function slurm_job_submit(", r"job_submit\.lua:1: .* expected"),
        ("\nerror('at load')", r"job_submit\.lua:2: at load"),
    ],
)
def test_a_site_script_that_does_not_load_fails_as_it_does_by_itself(slurm: Slurm, site: str, words: str) -> None:
    with pytest.raises(lua51.LuaError, match=words):
        slurm.load(site)


def test_a_site_script_that_lacks_a_function_lacks_it_for_slurm_too(slurm: Slurm) -> None:
    with pytest.raises(AssertionError, match="missing required function slurm_job_modify"):
        slurm.load("function slurm_job_submit() return 0 end")


def test_a_sites_script_cannot_spoil_ours(slurm: Slurm) -> None:
    slurm.load(SITE + "\nstring.format, io.open, pcall, os.time, table.concat = nil, nil, nil, nil, nil\nslurm = nil")
    assert slurm.submit(slurm.job(name="odd")) == "not a number"
    assert len(slurm.lines()) == 1


@pytest.mark.parametrize(("site", "there"), [(None, False), (SITE, True)])
def test_slurms_table_of_all_jobs_stays_where_a_script_may_read_it(slurm: Slurm, site: str | None, there: bool) -> None:
    slurm.load(site)
    slurm.slurm["jobs"] = slurm.table({"17": "a job"})
    slurm.submit()
    assert (slurm.slurm["jobs"] is not None) is there


# --- putting back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uid", [0, os.getuid()])
def test_a_job_that_is_put_back_is_not_judged_again_and_keeps_its_key(slurm: Slurm, uid: int) -> None:
    slurm.load(SITE)
    job = slurm.job({"SELTZER_JOB": "k-1", "SELTZER_PUT_BACK": "k-1"}, name="refuse")
    assert slurm.submit(job, uid) == 0
    assert job.environment.SELTZER_JOB == "k-1"
    assert not slurm.lines()


def test_jobs_that_a_put_back_job_submits_are_ordinary(slurm: Slurm) -> None:
    job = slurm.job({"SELTZER_PUT_BACK": "k-1"})
    slurm.submit(job, 0)
    slurm.submit(slurm.job(dict(job.environment)), 0)
    (line,) = slurm.lines()
    assert line["key"] != "k-1"


@pytest.mark.parametrize("forged", ["SELTZER_PUT_BACK", "SELTZER_JOB"])
def test_a_user_who_forges_a_variable_gains_nothing(slurm: Slurm, forged: str) -> None:
    slurm.load(SITE)
    assert slurm.submit(slurm.job({forged: "k-1"}, name="refuse")) == REFUSED
    job = slurm.job({forged: "k-1"})
    assert slurm.submit(job) == 0
    (line,) = slurm.lines()
    assert job.environment.SELTZER_JOB == line["key"] != "k-1"
