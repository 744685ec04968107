"""Programs that tests write themselves."""

from __future__ import annotations

import subprocess
from pathlib import Path

_WRITE = 'cat > "$1.new" && chmod 755 "$1.new" && mv "$1.new" "$1"'


def write_program(path: Path, text: str) -> Path:
    """Write an executable file, or replace one in a single step.

    Another process writes it. If this one did, a child that a thread forks at that moment would hold the file open for
    writing, and the kernel would refuse to run it: "Text file busy".
    """
    subprocess.run(["sh", "-c", _WRITE, "sh", str(path)], input=text, text=True, check=True)
    return path
