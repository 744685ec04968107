"""The guard with the test's folders, ports and times: `guard_main.py SETTINGS PORT`, settings as JSON.

It inherits orphans as PID 1 would.
"""

from __future__ import annotations

import ctypes
import http.client
import json
import sys
from pathlib import Path
from typing import Any

from seltzer.guard import jobs
from seltzer.guard.api import Api
from seltzer.guard.processes import Processes
from seltzer.guard.settings import Places, Settings, Times
from seltzer.guard.supervisor import Supervisor

PR_SET_CHILD_SUBREAPER = 36


def settings(given: dict[str, Any]) -> Settings:
    places, times = given.pop("places"), given.pop("times")
    for name in ("config", "keys", "state", "link", "etc", "cores", "verdict"):
        places[name] = Path(places[name])
    return Settings(**given, places=Places(**places), times=Times(**times))


def main(given: str, port: int) -> int:
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    found = settings(json.loads(given))
    api = Api(lambda: http.client.HTTPConnection("127.0.0.1", port, timeout=found.times.api), lambda: "token")
    processes = Processes()
    supervisor = Supervisor(found, api, processes)
    jobs.serve(found, processes, supervisor.unready)
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
