"""`python3 -m seltzer.guard run` supervises slurmctld; `try` checks whether slurmctld starts with a configuration."""

from __future__ import annotations

import os
import sys

from seltzer.guard import log
from seltzer.guard.processes import Processes
from seltzer.guard.settings import Places, Times, from_environment


def main(words: list[str]) -> int:
    if words == ["run"]:
        return _run()
    if words == ["try"]:
        from seltzer.guard.slurmctld import trial

        return trial.run(Places(), Times(), Processes())
    log.say("usage: python3 -m seltzer.guard run|try")
    return 2


def _run() -> int:
    # Imported here: `try` must not wait for imports that only `run` needs.
    from seltzer.guard import http_server, slurmd_probe
    from seltzer.guard.kube.client import in_cluster
    from seltzer.guard.supervisor import Supervisor

    try:
        settings = from_environment(os.environ)
        api = in_cluster(os.environ, settings.times.api)
    except KeyError as error:
        log.say(f"the environment lacks {error.args[0]}")
        return 2
    except ValueError as error:
        log.say(str(error))
        return 2
    processes = Processes()
    supervisor = Supervisor(settings, api, processes)
    try:
        slurmd_probe.raise_file_limit(http_server.AT_ONCE)
        http_server.serve(settings, processes, supervisor.unready)
    except OSError as error:
        # Without this port the operator can't list jobs here; that is no reason not to run slurmctld.
        log.say(f"can't serve HTTP, so jobs can't be listed here: {error}")
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
