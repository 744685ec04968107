"""slurmctld as its guard sees it: answers /readyz, executes itself anew on SIGHUP, saves its state and ends on SIGTERM.

`slurmctld.py -D -f slurm.conf`. What happens to it is written into the file that FakeJournal names, a line each.
An unknown key is fatal, as in Slurm; keys that begin with Fake ask for faults.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

KNOWN = (
    *("SlurmctldPort", "StateSaveLocation", "PartitionName", "SlurmctldLogFile", "SlurmctldDebug"),
    "LogTimeFormat",
    *("SchedulerType", "SchedulerParameters", "FirstJobId", "MaxJobCount", "MaxJobId"),
)


def main(words: list[str]) -> int:
    if words == ["-V"]:
        print("slurm 26.05.5")
        return 0
    assert words[:2] == ["-D", "-f"]
    conf = read(Path(words[2]))
    state = Path(conf["StateSaveLocation"])
    home = state.resolve().name

    def note(event: str) -> None:
        with Path(conf["FakeJournal"]).open("a") as journal:
            journal.write(f"{event} {os.getpid()} {home} {conf.get('PartitionName', '')}\n")

    note("start")
    if "FakeHang" in conf:
        print("slurmctld: error: the name server does not answer", file=sys.stderr, flush=True)
        signal.pause()
    if "FakeOrphan" in conf:
        orphan(Path(conf["FakeOrphan"]))
    stop = {signal.SIGTERM, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    threading.Thread(
        target=answer, args=(int(conf.get("SlurmctldPort") or os.environ["FAKE_PORT"]),), daemon=True
    ).start()
    if "FakeDie" in conf:
        threading.Thread(target=die, args=(float(conf["FakeDie"]),), daemon=True).start()
    while True:
        got = signal.sigwait(stop)
        if got == signal.SIGTERM and "FakeDeaf" in conf:
            note("deaf")
            continue
        try:
            # In one step, as Slurm does: between its truncation and its content a file would look saved twice.
            (state / "job_state.new").write_text("jobs")
            (state / "job_state.new").rename(state / "job_state")
        except OSError:
            note("unsaved")
        if got == signal.SIGTERM:
            note("end")
            return 0
        note("reconfigure")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, stop)
        os.execv(sys.executable, [sys.executable, "-S", *sys.argv])


def read(file: Path) -> dict[str, str]:
    found = dict(line.split("=", 1) for line in file.read_text().splitlines() if line and line[0] != "#")
    for key in found:
        if key not in KNOWN and not key.startswith("Fake"):
            print(
                f"[2026-01-02T03:04:05.678] error: _parse_next_key: Parsing error at unrecognized key: {key}\n"
                "[2026-01-02T03:04:05.678] fatal: Unable to process configuration file",
                file=sys.stderr,
            )
            sys.exit(1)
    return found


def answer(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as server:
        while True:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 204 NO CONTENT\r\n\r\n")


def die(after: float) -> None:
    time.sleep(after)
    print("[2026-01-02T03:04:05.678] fatal: asked to die", file=sys.stderr, flush=True)
    os._exit(1)


def orphan(file: Path) -> None:
    """A grandchild that nobody waits for, and its process id in the file once it is an orphan."""
    here = "while kill -0 $$ 2>/dev/null; do sleep 0.01; done"  # $$ is the parent, also in there
    script = f"({here}; echo $BASHPID > {file}.half; mv {file}.half {file}) &"
    subprocess.run(["bash", "-c", script], check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
