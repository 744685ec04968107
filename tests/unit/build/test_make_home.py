"""The script that makes home directories: whose a directory is, and who can take it away."""

from __future__ import annotations

import re
import subprocess
from importlib import resources
from pathlib import Path

import pytest
from tests.programs import write_program

SCRIPT = resources.files("seltzer.build").joinpath("make_home.sh").read_text()
ROOT, USER, OTHER = 0, 2001, 2002


def function(name: str) -> str:
    found = re.search(rf"^{name}\(\) \{{\n.*?^\}}$", SCRIPT, re.MULTILINE | re.DOTALL)
    assert found
    return found[0]


def owner(of_link: int, of_target: int) -> int:
    """Whom the script takes for the owner of a home that is a link."""
    stat = f'stat() {{ case "$*" in *-L*) echo {of_target} ;; *) echo {of_link} ;; esac; }}'
    command = f"home=/home/alice uid={USER}\n{stat}\n{function('owner')}\nowner"
    return int(subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("maker", [ROOT, USER])
def test_a_home_may_be_a_link_of_its_user_or_of_an_administrator(maker: int) -> None:
    assert owner(maker, USER) == USER
    assert owner(maker, OTHER) == OTHER


def test_a_link_that_another_user_made_is_not_a_users_home() -> None:
    """It leads to a directory of the user's now, and to one with another user's .bashrc after that."""
    assert owner(OTHER, USER) == OTHER


def test_a_home_that_another_node_makes_between_two_looks_is_the_users(tmp_path: Path) -> None:
    first = f"owner() {{ if [ -e {tmp_path}/looked ]; then echo {USER}; else : >{tmp_path}/looked; fi; }}"
    command = f"user=alice uid={USER} home={tmp_path}\n{first}\n{function('check')}\ncheck"
    answer = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (answer.returncode, answer.stdout) == (0, "")


@pytest.mark.parametrize(("mode", "changes"), [("777", True), ("2777", True), ("755", False), ("1777", False)])
def test_a_new_volume_where_all_may_write_lets_nobody_take_the_name_of_another(mode: str, changes: bool) -> None:
    found = re.search(r"^case \$\(stat .*?^esac$", SCRIPT, re.MULTILINE | re.DOTALL)
    assert found
    command = f'stat() {{ echo 0:{mode}; }}\nchmod() {{ echo "$*" >&3; }}\n{found[0]}'
    answer = subprocess.run(["sh", "-c", f"exec 3>&1\n{command}"], capture_output=True, text=True, check=True)
    assert answer.stdout == ("go-w /home\n" if changes else "")


@pytest.fixture
def dead_file_server(tmp_path: Path) -> Path:
    """The script on a machine with /home from a file server that is down: whoever looks at it never returns."""
    programs = tmp_path / "bin"
    programs.mkdir()
    write_program(programs / "getent", "#!/bin/sh\necho 'alice:*:2001:2001::/home/alice:/bin/sh'\n")
    write_program(programs / "grep", "#!/bin/sh\nexit 0\n")
    write_program(programs / "stat", f"#!/bin/sh\n: >{tmp_path}/asked\nexec sleep infinity\n")
    # The deadline has passed as soon as the script hangs.
    wait = f"until [ -e {tmp_path}/asked ]; do sleep 0.01; done"
    write_program(programs / "timeout", f'#!/bin/sh\n/usr/bin/timeout "$@" &\n{wait}\nkill $!\nwait\nexit 124\n')
    path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin\n"
    assert path in SCRIPT
    (tmp_path / "make_home").write_text(SCRIPT.replace(path, f"PATH={programs}:/usr/bin:/bin\n"))
    return tmp_path / "make_home"


def test_a_login_is_refused_while_the_file_server_does_not_answer(dead_file_server: Path) -> None:
    answer = subprocess.run(["sh", str(dead_file_server), "alice"], capture_output=True, text=True)
    assert answer.returncode == 1
    assert answer.stdout.startswith("/home doesn't answer: its file server may be down.")


def test_a_prolog_does_not_fail_while_the_file_server_does_not_answer(dead_file_server: Path) -> None:
    """slurmctld would drain the node."""
    env = {"SLURM_JOB_ID": "7", "SLURM_JOB_USER": "alice"}
    # Its parent's stderr is slurmd's log. The colon keeps the shell from becoming the script.
    line = ["sh", "-c", 'sh "$1"; echo $?', "sh", str(dead_file_server)]
    answer = subprocess.run(line, env=env, capture_output=True, text=True)
    assert answer.stdout == "0\n"
    assert answer.stderr.startswith("seltzer: job 7: /home doesn't answer")
