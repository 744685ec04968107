"""buildah with its own storage in the cache; it does not touch the machine's containers or mounts."""

from __future__ import annotations

import json
import resource
import shutil
from pathlib import Path

from seltzer_sandbox import shell

# The kernel kills the process tree when our thread ends, and mounts disappear with the mount namespace. Without this,
# buildah leaves mounts behind when it is interrupted, and sometimes when it is not.
CONFINED = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"),
)
# buildah keeps a cache in /var/lib/containers even with another storage folder: mount our own folder over it.
_ELSEWHERE = 'mkdir -p /var/lib/containers && mount --bind "$HIDE" /var/lib/containers && unset HIDE && exec "$@"'


def limits() -> list[str]:
    """Options of `from` and `build` that keep our own limits: buildah raises them, and not every root may do that."""
    options = []
    for name, kind in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        soft, hard = resource.getrlimit(kind)
        options += ["--ulimit", f"{name}={soft}:{hard}"]
    return options


class Buildah:
    """One storage folder. One process at a time may use it (`images` holds the lock), with any number of builds."""

    def __init__(self, folder: Path, logs: Path) -> None:
        self.folder = folder
        self.scratch = folder / "tmp"
        self._settings = folder / "containers.conf"
        self._logs = logs

    def open(self) -> None:
        """Remove what an interrupted build left behind: working containers, temporary files, mount records."""
        for leftover in (self.scratch, self.folder / "run"):
            shutil.rmtree(leftover, ignore_errors=True)
        for folder in (self.scratch, self.folder / "var"):
            folder.mkdir(parents=True, exist_ok=True)
        # buildah prepares a network that our builds do not use. Keep its files out of the machine's /etc.
        networks = json.dumps(str(self.folder / "networks"), ensure_ascii=False)
        self._settings.write_text(f"[network]\nnetwork_config_dir = {networks}\n", encoding="utf-8")
        if (self.folder / "root").exists():
            self.run("rm", "--all", doing="clearing up after an earlier build", log="storage", deadline=120)

    def run(self, *arguments: str | Path, doing: str, log: str, deadline: float) -> str:
        """Run one buildah command; its output goes to the log file `images-<log>.log`."""
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
