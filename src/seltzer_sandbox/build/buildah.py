"""buildah with a storage of its own in the cache; the machine's containers and mounts stay as they are."""

from __future__ import annotations

import json
import resource
import shutil
from pathlib import Path

from seltzer_sandbox import shell

# Killed as soon as our thread is gone, with everything below it, and whatever was mounted goes with the namespace:
# buildah itself leaves mounts behind when it is interrupted, and some when it isn't.
CONFINED = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"),
)
# buildah keeps a cache of its own where the machine's containers live, wherever its storage is: show it another place.
_ELSEWHERE = 'mkdir -p /var/lib/containers && mount --bind "$HIDE" /var/lib/containers && unset HIDE && exec "$@"'


def limits() -> list[str]:
    """Options of `from` and `build` that keep our own limits: buildah would raise them, which not every root may do."""
    options = []
    for name, kind in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        soft, hard = resource.getrlimit(kind)
        options += ["--ulimit", f"{name}={soft}:{hard}"]
    return options


class Buildah:
    """One storage folder. Several builds may run in it at once; one process at a time may use it (see images.py)."""

    def __init__(self, folder: Path, logs: Path) -> None:
        self.folder = folder
        self.scratch = folder / "tmp"
        self._settings = folder / "containers.conf"
        self._logs = logs

    def open(self) -> None:
        """Clear away what an interrupted build left: its working containers, temporary files, notes of mounts."""
        for leftover in (self.scratch, self.folder / "run"):
            shutil.rmtree(leftover, ignore_errors=True)
        for folder in (self.scratch, self.folder / "var"):
            folder.mkdir(parents=True, exist_ok=True)
        # buildah prepares a network that our builds do without, and leaves files of it in the machine's /etc otherwise.
        networks = json.dumps(str(self.folder / "networks"), ensure_ascii=False)
        self._settings.write_text(f"[network]\nnetwork_config_dir = {networks}\n", encoding="utf-8")
        if (self.folder / "root").exists():
            self.run("rm", "--all", doing="clearing up after an earlier build", log="storage", deadline=120)

    def run(self, *arguments: str | Path, doing: str, log: str, deadline: float) -> str:
        """Run one buildah command; what it says is in the log file `images-<log>.log`."""
        return shell.run(
            [
                *(*CONFINED, "sh", "-c", _ELSEWHERE, "sh"),
                *("buildah", "--root", self.folder / "root", "--runroot", self.folder / "run"),
                *("--storage-driver", "overlay"),
                *arguments,
            ],
            doing=doing,
            log=self.log(log),
            deadline=deadline,
            env={
                "CONTAINERS_CONF": str(self._settings),
                "HIDE": str(self.folder / "var"),
                "TMPDIR": str(self.scratch),
            },
        )

    def log(self, name: str) -> Path:
        return self._logs / f"images-{name}.log"

    def tags(self) -> set[str]:
        """The names of all images in the storage."""
        listed = self.run(
            *("images", "--noheading", "--format", "{{.Name}}:{{.Tag}}"),
            doing="listing the images that are built",
            log="storage",
            deadline=60,
        )
        return set(listed.split())
