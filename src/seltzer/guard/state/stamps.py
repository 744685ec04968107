"""Who started, ended and saved what, and when: a line each in `seltzer.stamps`, beside the state that it is about.

It shows afterwards that no two controllers wrote one state: a line of an epoch never comes after a line of a later
one. A fenced guard can't write one, since the path that it knows is gone, and a file that it had open before is no
longer the one that has the name: who begins an epoch begins with a file of their own.
"""

from __future__ import annotations

import os
from typing import Literal

from seltzer.guard import log
from seltzer.guard.kube.report import now
from seltzer.guard.state.epoch import Epoch

NAME = "seltzer.stamps"
LIMIT = 256 << 10
_HALF = f"{NAME}.half"  # not `.new`: those are Slurm's
_DETAIL = 200

What = Literal["start", "stop", "crash", "save"]


class Stamps:
    """Those of one epoch, by one guard. Failing to write one is said once, and changes nothing."""

    def __init__(self, epoch: Epoch, identity: str) -> None:
        self._file = epoch.path / NAME
        self._who = f"epoch={epoch.number} by={identity}"
        self._ours = False  # whether we have made the file, so that nobody before us has it open
        self._trouble = ""

    def write(self, what: What, detail: str) -> None:
        line = f"{now()} {self._who} {what} {' '.join(detail.split())[:_DETAIL]}"
        try:
            self._append(f"{line.rstrip()}\n".encode(errors="replace"))
        except OSError as error:
            if str(error) != self._trouble:
                log.say(f"nothing is written into {NAME}: {error}")
            self._trouble = str(error)
        else:
            self._trouble = ""

    def _append(self, line: bytes) -> None:
        if not self._ours or self._file.stat().st_size + len(line) > LIMIT:
            self._renew()
            self._ours = True
        with self._file.open("ab", buffering=0) as file:
            file.write(line)

    def _renew(self) -> None:
        """A new file with what was in the old one, or with its younger half."""
        try:
            lines = self._file.read_bytes()
        except FileNotFoundError:
            lines = b""
        if len(lines) > LIMIT // 2:
            lines = lines[-LIMIT // 2 :].partition(b"\n")[2]
        half = self._file.with_name(_HALF)
        half.unlink(missing_ok=True)
        descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(lines)
        half.rename(self._file)
