"""Records each start, end and save of slurmctld and its guard: one line each in `seltzer.stamps`, beside the state.

It proves afterwards that no two controllers wrote one state: a line of an epoch never follows a line of a later one. A
fenced guard can't add a line, since its path is gone. A file that it opened before no longer has the name: a guard that
begins an epoch begins with a new file.
"""

from __future__ import annotations

import os
from typing import Literal

from seltzer.guard import log
from seltzer.guard.kube.report import now
from seltzer.guard.state.epoch import Epoch

NAME = "seltzer.stamps"
LIMIT = 256 << 10
_HALF = f"{NAME}.half"  # not `.new`: that suffix is Slurm's
_DETAIL = 200

What = Literal["start", "stop", "crash", "save"]


class Stamps:
    """The stamps of one epoch by one guard. A failure to write is logged once, and changes nothing."""

    def __init__(self, epoch: Epoch, identity: str) -> None:
        self._file = epoch.path / NAME
        self._who = f"epoch={epoch.number} by={identity}"
        self._ours = False  # whether we created the file, so that no previous guard has it open
        self._trouble = ""

    def write(self, what: What, detail: str) -> None:
        line = f"{now()} {self._who} {what} {' '.join(detail.split())[:_DETAIL]}"
        try:
            self._append(f"{line.rstrip()}\n".encode(errors="replace"))
        except OSError as error:
            if str(error) != self._trouble:
                log.say(f"can't write to {NAME}: {error}")
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
        """Create a new file with the contents of the old one, or with its newer half."""
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
