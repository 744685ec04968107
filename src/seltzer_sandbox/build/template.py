"""A template: a containerd root folder with all images, from which every node starts.

Importing 400 MB into three nodes takes 19 s; starting from a template takes a tenth of a second. A node gets copies of
containerd's databases, hard links to the blobs, and symbolic links to the unpacked layers, which it only reads.
Images that a node imports later are stored in its own folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from seltzer import paths
from seltzer.errors import SeltzerError
from seltzer.progress import Progress
from seltzer_sandbox import shell
from seltzer_sandbox.build import gobuild

IMPORT_DEADLINE = 300.0
_CONFIG = """version = 4
disabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"]
"""
_BLOBS = Path("io.containerd.content.v1.content/blobs/sha256")
_LAYERS = Path("io.containerd.snapshotter.v1.overlayfs/snapshots")


def place(archive: Path) -> Path:
    """The folder for the template of these images, made or not."""
    # The layout of a root folder may change with containerd: each version gets its own template.
    return paths.cache() / "templates" / f"{archive.stem}-{gobuild.module_digest('containerd')}"


def make(progress: Progress, binaries: Path, archive: Path) -> Path:
    """Make a template with the images of `archive`, unless it is in the cache."""
    target = place(archive)
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            progress.step("unpack the images once, for all nodes"),
            tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-", ignore_cleanup_errors=True) as scratch,
            # Not in the cache: the path of a socket is limited to 107 characters.
            tempfile.TemporaryDirectory(prefix="seltzer-", ignore_cleanup_errors=True) as run,
        ):
            _fill(Path(scratch), Path(run), binaries, archive)
            (Path(scratch) / "root").rename(target)
    return target


def _fill(scratch: Path, run: Path, binaries: Path, archive: Path) -> None:
    log = paths.logs() / "template.log"
    config = run / "config.toml"
    config.write_text(_CONFIG)
    address = run / "containerd.sock"
    daemon: list[str | Path] = [binaries / "containerd", "--config", config, "--root", scratch / "root"]
    daemon += ["--state", run / "state", "--address", address, "--log-level", "warn"]
    # In its own mount namespace: the mounts it unpacks with disappear when it ends.
    command = ["unshare", "--mount", "--propagation", "private", "--kill-child", "--fork", *map(str, daemon)]
    environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}"}
    with log.open("ab") as sink, subprocess.Popen(command, stdout=sink, stderr=sink, env=environment) as process:
        try:
            _wait_for(address, process, log)
            client: list[str | Path] = [binaries / "ctr", "--address", address, "--namespace", "k8s.io"]
            command_line = [*client, "images", "import", "--local", "--all-platforms=false", archive]
            shell.run(command_line, doing="unpacking the images", log=log, deadline=IMPORT_DEADLINE)
            _stop(process)
        finally:
            process.kill()


def _wait_for(address: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 20
    while not address.exists():
        if process.poll() is not None or time.monotonic() > until:
            raise SeltzerError(f"the containerd that unpacks the images did not start; see {log}")
        time.sleep(0.02)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End containerd, the child of unshare, with SIGTERM: it must close its databases cleanly."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), 15)
    process.wait(timeout=20)


def take(template: Path, root: Path) -> None:
    """Create a node's containerd root from the template, unless it exists. An incomplete one is replaced."""
    if root.exists():
        return
    scratch = root.with_name(f".{root.name}.new")
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(template, scratch, ignore=_leave_out(template), symlinks=True)
    (scratch / _BLOBS).mkdir(parents=True)
    for blob in (template / _BLOBS).iterdir():
        _link(blob, scratch / _BLOBS / blob.name)
    (scratch / _LAYERS).mkdir(parents=True)
    for layer in (template / _LAYERS).iterdir():
        (scratch / _LAYERS / layer.name).symlink_to(layer)
    scratch.rename(root)


def _leave_out(template: Path) -> Callable[[str, list[str]], list[str]]:
    linked = {(str(template / path.parent), path.name) for path in (_BLOBS, _LAYERS)}
    return lambda folder, names: [name for name in names if (str(folder), name) in linked]


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # the cache and the state folder are on different file systems
        shutil.copyfile(source, target)


def prune(in_use: set[str]) -> None:
    """Remove all templates except those that a sandbox uses."""
    folder = paths.cache() / "templates"
    for entry in folder.iterdir() if folder.exists() else ():
        if str(entry) not in in_use:
            shutil.rmtree(entry, ignore_errors=True)
