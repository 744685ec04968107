"""Commands of docs/first-hour.md: tests run what people read."""

from __future__ import annotations

import base64
import io
import re
import sysconfig
import tarfile
from pathlib import Path

_GUIDE = Path(__file__).parents[1] / "docs" / "first-hour.md"
_INSTALL = "~/env/bin/pip install submitit\n"
_PACKAGES = ("submitit", "cloudpickle", "typing_extensions.py")


def commands(title: str) -> str:
    """The first block of commands below this heading."""
    found = re.search(rf"^## {re.escape(title)}$.*?^```sh$\n(.*?)^```$", _GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def functions_as_jobs() -> str:
    """The commands, with the packages of this machine: the sandbox has no package index."""
    wanted = commands("Python functions as jobs")
    assert wanted.count(_INSTALL) == 1
    unpack = f"echo {_packages()} | base64 -d | tar --extract --xz --directory ~/env/lib/python3*/site-packages\n"
    return wanted.replace(_INSTALL, unpack)


def _packages() -> str:
    """A small archive, since it is a part of a command."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        for name in _PACKAGES:
            archive.add(Path(sysconfig.get_path("purelib"), name), name, filter=_without_tests)
    return base64.b64encode(packed.getvalue()).decode()


def _without_tests(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "/test_" in member.name or "__pycache__" in member.name else member
