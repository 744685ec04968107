"""One candidate of test_lease.py, as a process of its own: writes down when it led, by the clock that all share.

`python candidate.py KUBECONFIG LEASE IDENTITY LOG`. While it leads it appends `IDENTITY TIME` to the log, TIME being
read before it asks whether it leads: a moment at which it would have written. The test stops, wakes and ends it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path

from seltzer.kube.client import Client
from seltzer.kube.config import from_kubeconfig
from seltzer.kube.lease import Election, Times
from seltzer.kube.resource import Key

TIMES = Times(duration=1.0, renew=0.2, retry=0.1, margin=0.3)


async def main(kubeconfig: str, lease: str, identity: str, log: Path) -> None:
    task = asyncio.current_task()
    assert task
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # a polite end
    async with Client(from_kubeconfig([Path(kubeconfig)])) as client:
        election = Election(client, Key("default", lease), identity, TIMES)

        async def lead() -> None:
            while True:
                now = time.monotonic()  # one clock for all processes of a machine
                if election.leading:
                    with log.open("a") as file:
                        file.write(f"{identity} {now:.6f}\n")
                await asyncio.sleep(0.005)

        await election.run(lead)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])))
