"""Guards with the test's folders, ports and times. Each is a fork of this process, which has imported everything: a
guard that is started so takes a fraction of the time.

A line of JSON asks, and a line answers. `{"settings": …, "port": …, "clock": …, "env": …, "stderr": …}` starts a guard,
and is answered with its process id; `{"poll": ID}` with the code that it exited with, and null as long as it runs;
`{"sweep": true}` ends every process that ended guards have left, as the kernel does with a container's, and is answered
with their number.
"""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import signal
import struct
import sys
import traceback
from pathlib import Path
from typing import Any

from seltzer.guard import http_server
from seltzer.guard.kube import lease
from seltzer.guard.kube.client import KubeClient
from seltzer.guard.processes import Processes
from seltzer.guard.settings import Places, Settings, Times
from seltzer.guard.slurmctld import child, reregistration, slurmctld_run
from seltzer.guard.supervisor import Supervisor

PR_SET_CHILD_SUBREAPER = 36


def serve() -> None:
    inherit_orphans()
    codes: dict[int, int] = {}
    guards: set[int] = set()
    for line in sys.stdin:
        asked = json.loads(line)
        answer: int | None
        if "poll" in asked:
            answer = poll(asked["poll"], codes)
        elif "sweep" in asked:
            answer = sweep(guards)
        else:
            answer = start(asked)
            guards.add(answer)
        print(json.dumps(answer), flush=True)


def inherit_orphans() -> None:
    """Orphans become our children, as they become PID 1's."""
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def sweep(guards: set[int]) -> int:
    """Kill all our children but the guards, until there are none: those that they leave become ours too."""
    swept = 0
    while left := {int(pid) for pid in Path("/proc/thread-self/children").read_text().split()} - guards:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        swept += len(left)
    return swept


def poll(pid: int, codes: dict[int, int]) -> int | None:
    if pid not in codes:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            return None
        codes[pid] = os.waitstatus_to_exitcode(status)
    return codes[pid]


def start(asked: dict[str, Any]) -> int:
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.environ.clear()
        os.environ.update(asked["env"])
        said = os.open(asked["stderr"], os.O_WRONLY | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, file in enumerate((nothing, said, said)):
            os.dup2(file, number)
        clock = Clock(asked["clock"])
        for module in (lease, slurmctld_run, reregistration):
            vars(module)["time"] = clock
        child.LAST_LINES = 600.0
        code = guard(settings(asked["settings"]), asked["port"])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)  # and not back into `serve`


class Clock:
    """What a Lease's duration, a probation and a grace are measured with. It stands still until the test moves it, so
    that none of them ends because the machine is slow. In place of the module `time`."""

    def __init__(self, file: str) -> None:
        self._file = os.open(file, os.O_RDONLY)

    def monotonic(self) -> float:
        (now,) = struct.unpack("d", os.pread(self._file, 8, 0))
        return float(now)


def settings(given: dict[str, Any]) -> Settings:
    places, times = given.pop("places"), given.pop("times")
    for name in ("config", "keys", "state", "link", "etc", "cores", "termination_log"):
        places[name] = Path(places[name])
    return Settings(**given, places=Places(**places), times=Times(**times))


def guard(found: Settings, port: int) -> int:
    inherit_orphans()
    api = KubeClient(lambda: http.client.HTTPConnection("127.0.0.1", port, timeout=found.times.api), lambda: "token")
    processes = Processes()
    supervisor = Supervisor(found, api, processes)
    http_server.serve(found, processes, supervisor.unready)
    return supervisor.run()


if __name__ == "__main__":
    serve()
