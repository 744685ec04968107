"""scripts/setup.sh: what it says to a machine that won't do, and what it leaves alone.

Its functions are sourced; a test puts its own words in place of the commands and files they look at.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.programs import write_program

REPO = Path(__file__).parents[2]
TRIXIE = 'ID=debian\nVERSION_ID="13"\nPRETTY_NAME="Debian 13 (trixie)"\n'


def sourced(script: str, **env: str) -> subprocess.CompletedProcess[str]:
    # setup.sh tells apart being run and being sourced by $0, which is "bash" here.
    return subprocess.run(
        ["bash", "-c", f". scripts/setup.sh; {script}"],
        cwd=REPO,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def refusal(script: str, **env: str) -> str:
    """The one line that it ends with."""
    done = sourced(script, **env)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    return done.stderr.strip()


@pytest.fixture
def os_release(tmp_path: Path) -> Path:
    return tmp_path / "os-release"


@pytest.mark.parametrize(
    "text",
    [
        TRIXIE,
        'ID=debian\nVERSION_ID="12"\n',
        "ID=debian\nPRETTY_NAME='Debian forky/sid'\n",  # testing has no VERSION_ID
        'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n',
        'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="26.04"\n',
        'ID=linuxmint\nID_LIKE="ubuntu debian"\nVERSION_ID="22"\n',
    ],
)
def test_debian_ubuntu_and_their_children_are_welcome(os_release: Path, text: str) -> None:
    os_release.write_text(text)
    done = sourced(f"os_release={os_release}; check_system")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            'ID=debian\nVERSION_ID="11"\nPRETTY_NAME="Debian GNU/Linux 11"\n',
            "Seltzer needs Debian 12 or newer; this is Debian GNU/Linux 11",
        ),
        (
            'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n',
            "Seltzer needs Ubuntu 24.04 or newer; this is Ubuntu 22.04.5 LTS",
        ),
        (
            'ID=fedora\nVERSION_ID=44\nPRETTY_NAME="Fedora Linux 44"\n',
            "Seltzer needs Debian 12+ or Ubuntu 24.04+; this is Fedora Linux 44",
        ),
        ("", "Seltzer needs Debian 12+ or Ubuntu 24.04+; this is an unknown system"),
    ],
)
def test_another_system_gets_one_clear_line(os_release: Path, text: str, line: str) -> None:
    os_release.write_text(text)
    assert refusal(f"os_release={os_release}; check_system") == line


def test_a_machine_without_os_release_gets_one_clear_line(os_release: Path) -> None:
    assert refusal(f"os_release={os_release}; check_system").endswith("this is an unknown system")


@pytest.mark.parametrize("machine", ["Darwin arm64", "Linux armv7l", "Linux i686"])
def test_another_architecture_gets_one_clear_line(machine: str) -> None:
    line = refusal(f"uname() {{ echo {machine}; }}; check_system")
    assert line == f"Seltzer needs Linux on x86_64 or aarch64; this is {machine}"


def test_someone_who_is_not_root_gets_one_clear_line() -> None:
    assert refusal("id() { echo 1000; }; check_root").endswith("run this as root")
    assert sourced("id() { echo 0; }; check_root").returncode == 0


def with_memory(folder: Path, gib: float) -> str:
    (folder / "meminfo").write_text(f"MemTotal: {int(gib * 1024 * 1024)} kB\nMemFree: 1 kB\n")
    return f"meminfo={folder / 'meminfo'}; check_memory"


def test_too_little_memory_gets_one_clear_line_and_a_way_around(tmp_path: Path) -> None:
    line = refusal(with_memory(tmp_path, 4))
    assert line.startswith("Seltzer needs 6 GiB of memory; this machine has 4.0 GiB")
    assert sourced(with_memory(tmp_path, 4), SELTZER_SKIP_CHECKS="1").returncode == 0


@pytest.mark.parametrize("gib", [5.6, 6, 23])
def test_a_machine_sold_with_6_gib_is_enough(tmp_path: Path, gib: float) -> None:
    assert sourced(with_memory(tmp_path, gib)).returncode == 0


def with_disk(free_gib: int) -> str:
    return f"df() {{ echo Avail; echo {free_gib * 1024}; }}; check_disk"


def test_an_empty_cache_needs_more_disk_than_a_full_one(tmp_path: Path) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path / "not/yet/there")}
    assert refusal(with_disk(14), **cache).startswith(
        f"Seltzer needs 15 GiB of free disk for {tmp_path}/not/yet/there/seltzer; there are 14.0 GiB"
    )
    assert sourced(with_disk(15), **cache).returncode == 0

    (tmp_path / "not/yet/there/seltzer/uv").mkdir(parents=True)
    assert refusal(with_disk(14), **cache), "uv alone doesn't make it a full one"
    (tmp_path / "not/yet/there/seltzer/bin").mkdir()
    assert sourced(with_disk(14), **cache).returncode == 0
    assert refusal(with_disk(4), **cache).startswith("Seltzer needs 5 GiB")
    assert sourced(with_disk(4), SELTZER_SKIP_CHECKS="1", **cache).returncode == 0


def test_the_cache_and_state_folders_are_those_of_the_python_side(tmp_path: Path) -> None:
    show = 'echo "$cache $state"'
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": "relative", "XDG_STATE_HOME": str(tmp_path / "s")}
    assert sourced(show, **home).stdout == f"{tmp_path}/.cache/seltzer {tmp_path}/s/seltzer\n"


def test_only_what_is_missing_is_installed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    needs = f"needs=(bash:bash no-such-tool:tools no-other-tool:tools {tmp_path}/file:a {tmp_path}/gone:b)"
    assert sourced(f"{needs}; missing_packages").stdout.split() == ["b", "tools"]


def test_a_python_that_is_too_old_or_without_venv_is_passed_over(tmp_path: Path) -> None:
    for name in ("python3", "python3.14", "python3.13", "python3.12"):
        write_program(tmp_path / name, "#!/bin/sh\nexit 1\n")
    write_program(tmp_path / "python3.11", "#!/bin/sh\necho /good/python\n")
    assert sourced("find_python", PATH=f"{tmp_path}:{os.environ['PATH']}").stdout == "/good/python\n"


def test_a_step_that_fails_at_its_first_command_stops_there_and_names_the_log(tmp_path: Path) -> None:
    (tmp_path / "seltzer/logs").mkdir(parents=True)
    done = sourced("work() { echo trying; false; echo never; }; step 'do it' work", XDG_STATE_HOME=str(tmp_path))
    log = tmp_path / "seltzer/logs/setup.log"
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"setup: could not do it; see {log}"
    assert "trying" in log.read_text()
    assert "never" not in log.read_text()


def test_in_a_log_a_step_is_one_line_when_it_has_ended(tmp_path: Path) -> None:
    (tmp_path / "seltzer/logs").mkdir(parents=True)
    done = sourced("step 'do it' true", XDG_STATE_HOME=str(tmp_path))
    assert re.fullmatch(r"  ✓ do it \d+\.\d s\n", done.stderr)


def test_a_broken_package_source_does_not_stop_us_but_a_broken_installation_does(tmp_path: Path) -> None:
    fake = """
    dpkg() { :; }
    apt-get() { [[ $* == *" update" ]] && { echo 'E: The repository is not signed.'; return 100; }
                echo "$@"; [[ $* == *" good" ]]; }
    set -e; install_packages """
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    installed = sourced(fake + "good", **env)
    assert installed.returncode == 0
    assert "install --yes --no-install-recommends --no-remove good" in installed.stdout
    assert "E: The repository is not signed." in installed.stdout, "the log tells it"
    assert sourced(fake + "bad", **env).returncode != 0


def test_services_are_not_started_by_what_is_installed(tmp_path: Path) -> None:
    fake = 'dpkg() { :; }; apt-get() { printf "%s\\n" "$@"; }; install_packages x'
    words = sourced(fake, XDG_CACHE_HOME=str(tmp_path)).stdout.splitlines()
    path = next(word for word in words if word.startswith("DPkg::Path=")).removeprefix("DPkg::Path=")
    for name in ("invoke-rc.d", "deb-systemd-invoke"):
        found = subprocess.run(["bash", "-c", f"command -v {name}"], env={"PATH": path}, capture_output=True, text=True)
        assert found.stdout == f"{tmp_path}/seltzer/quiet/{name}\n"
        assert subprocess.run([found.stdout.strip(), "nftables", "start"]).returncode == 0


def uv_settings(tmp_path: Path, config: str, **env: str) -> dict[str, str]:
    """What uv is told by a machine where `pip config list` says this."""
    (tmp_path / "config").write_text(config)
    write_program(tmp_path / "python", f'#!/bin/sh\n[ "$*" = "-m pip config list" ] && cat {tmp_path}/config\n')
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_", "SSL_", "ALL_"))}
    done = subprocess.run(
        ["bash", "-c", f". scripts/setup.sh; uv={tmp_path}/uv; use_pip_settings; env -0"],
        cwd=REPO,
        env={**keep, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    seen = dict(item.split("=", 1) for item in done.stdout.split("\0") if item)
    return {name: value for name, value in seen.items() if name.startswith(("UV_", "SSL_", "ALL_"))}


def test_uv_gets_the_machines_settings_for_pip(tmp_path: Path) -> None:
    config = r"""
:env:.find-links='/one /two'
global.cert='/etc/ca.pem'
global.extra-index-url='\nhttps://a.example/simple\nhttps://b.example/simple'
global.index-url='https://mirror.example/simple'
global.timeout='60'
global.trusted-host='mirror.example'
"""
    assert uv_settings(tmp_path, config) == {
        "SSL_CERT_FILE": "/etc/ca.pem",
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_FIND_LINKS": "/one,/two",
        "UV_HTTP_TIMEOUT": "60",
        "UV_INDEX": "https://a.example/simple https://b.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_INSECURE_HOST": "mirror.example",
        "UV_SYSTEM_CERTS": "true",
    }


def test_uvs_own_settings_win_and_then_the_environment(tmp_path: Path) -> None:
    config = ":env:.index-url='https://env.example'\nglobal.index-url='https://file.example'\n"
    assert uv_settings(tmp_path, config)["UV_DEFAULT_INDEX"] == "https://env.example"
    told = uv_settings(tmp_path, config, UV_DEFAULT_INDEX="https://uv.example")
    assert told["UV_DEFAULT_INDEX"] == "https://uv.example"


def test_a_machine_without_pip_settings_gets_none(tmp_path: Path) -> None:
    assert uv_settings(tmp_path, "") == {"UV_SYSTEM_CERTS": "true"}
