"""slurmd's start script: which connections it takes for slurmd's."""

from __future__ import annotations

import re
import subprocess
from importlib import resources
from pathlib import Path

SCRIPT = resources.files("seltzer.build").joinpath("slurmd.sh").read_text()
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ROOT, USER = 0, 1000


def socket(address: str, owner: int, waiting: int, state: str = "0A") -> str:
    """A line of /proc/net/tcp or tcp6, as the kernel writes it."""
    queues = f"00000000:{waiting:08X} 00:00000000 00000000"
    return f"   0: {address}:1AA2 {'0' * len(address)}:0000 {state} {queues} {owner:5d}        0 7 1\n"


def answers(question: str, folder: Path, tcp: str = "", tcp6: str = "") -> bool:
    """What a function of the script says of these sockets."""
    script = SCRIPT.replace("/proc/net/", f"{folder}/")
    functions = "\n".join(re.findall(r"^\w+\(\) \{\n.*?^\}$", script, re.MULTILINE | re.DOTALL))
    (folder / "tcp").write_text(HEAD + tcp)
    (folder / "tcp6").write_text(HEAD + tcp6)
    return not subprocess.run(["bash", "-c", f"port=1AA2\n{functions}\n{question}"]).returncode


def test_a_slurmd_that_takes_no_connections_is_deaf(tmp_path: Path) -> None:
    idle, waiting = socket("00000000", ROOT, 0), socket("00000000", ROOT, 0x10)
    assert not answers("is_deaf", tmp_path, idle)
    assert answers("is_deaf", tmp_path, waiting)
    assert answers("is_deaf", tmp_path, tcp6=socket("0" * 32, ROOT, 1))
    assert not answers("is_deaf", tmp_path, socket("00000000", ROOT, 1, "01")), "a connection that it has taken"


def test_the_socket_of_a_job_at_slurmds_port_is_not_slurmds(tmp_path: Path) -> None:
    """slurmd listens on IPv4, and a job may on IPv6: one that takes no connections would end slurmd."""
    jobs = socket("0" * 32, USER, 1)
    assert not answers("is_deaf", tmp_path, socket("00000000", ROOT, 0), jobs)
    assert not answers("listens", tmp_path, tcp6=jobs)
    assert answers("listens", tmp_path, socket("00000000", ROOT, 0))


def test_the_program_that_watches_memory_is_started_again(tmp_path: Path) -> None:
    program = tmp_path / "memory"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    function = re.search(r"^watch_memory\(\) \{\n.*?^\}$", SCRIPT, re.MULTILINE | re.DOTALL)
    assert function
    script = f"MEMORY={program}\nrounds=0\nsleep() {{ ((++rounds < 2)) || exit; }}\n{function[0]}\nwatch_memory"
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True).stdout
    assert said == f"seltzer: {program} ended with code 3 and is started again\n" * 2
