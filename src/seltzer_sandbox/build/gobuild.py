"""Build Kubernetes and everything under it from pinned Go modules, once per version."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tempfile
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from seltzer import paths
from seltzer.errors import SeltzerError
from seltzer.progress import Progress
from seltzer_sandbox import shell
from seltzer_sandbox.build import golang
from seltzer_sandbox.build.together import Together

SOURCES = Path(__file__).parent / "go"
BUILD_DEADLINE = 45 * 60.0
DISK_NEEDED = 6 << 30  # Go's module and build caches while Kubernetes is compiled; dropped afterwards


@dataclass(frozen=True)
class Module:
    """One folder under go/: what is built from it, and under which further names it is called."""

    folder: str
    title: str
    outputs: tuple[str, ...]
    packages: tuple[str, ...] = (".",)
    tags: str = ""
    ldflags: str = "-s -w"
    called: tuple[str, ...] = ()


def kubernetes_ldflags(version: str) -> str:
    major, minor, _ = version.removeprefix("v").split(".")
    variables = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    settings = (f"-X k8s.io/component-base/version.{name}={value}" for name, value in variables.items())
    return " ".join(("-s -w", *settings))


def required(folder: str, module: str) -> str:
    """The version of `module` that a folder's go.mod pins: versions are written down there and nowhere else."""
    for line in (SOURCES / folder / "go.mod").read_text().splitlines():
        words = line.removeprefix("require ").split()
        if len(words) >= 2 and words[0] == module:
            return words[1]
    raise SeltzerError(f"{folder}/go.mod does not require {module}")


def kubernetes_version() -> str:
    return required("kubernetes", "k8s.io/kubernetes")


def modules() -> tuple[Module, ...]:
    """The small ones that images are made of come first, so that images can be built while Kubernetes is."""
    kubernetes = kubernetes_version()
    return (
        Module("tools", "pause and forward", ("pause", "forward"), packages=("./...",)),
        Module("coredns", "CoreDNS", ("coredns",)),
        Module("etcd", "etcd", ("etcd",)),
        Module("cni", "CNI plugins", ("host-local", "loopback", "portmap", "ptp"), packages=("tool",)),
        Module(
            "containerd",
            "containerd",
            ("containerd", "containerd-shim-runc-v2", "ctr"),
            packages=("tool",),
            tags="no_btrfs no_zfs no_devmapper",
        ),
        Module("volumes", "volume provisioner", ("volumes",)),
        Module(
            "kubernetes",
            f"Kubernetes {kubernetes} (the longest step by far)",
            ("kubernetes",),
            ldflags=kubernetes_ldflags(kubernetes),
            called=(
                "kube-apiserver",
                "kube-controller-manager",
                "kube-proxy",
                "kube-scheduler",
                "kubectl",
                "kubelet",
            ),
        ),
    )


def kwok() -> Module:
    """Kubernetes nodes that are only written down. No sandbox needs it: the bench asks for it by itself."""
    return Module("kwok", "KWOK", ("kwok",), packages=("tool",))


def digest(module: Module) -> str:
    """Changes with anything that could change the output: sources, pins, flags."""
    summed = hashlib.sha256(f"{module!r} {platform.machine()}".encode())
    folder = SOURCES / module.folder
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        summed.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes() + b"\0")
    return summed.hexdigest()[:16]


def module_digest(folder: str) -> str:
    return next(digest(module) for module in modules() if module.folder == folder)


def place() -> Path:
    """Where the programs are, or will be, that our sources make now."""
    summed = hashlib.sha256("".join(digest(module) for module in modules()).encode()).hexdigest()[:16]
    return paths.cache() / "bin" / f"all-{summed}"


def build(progress: Progress) -> Path:
    """Return a folder with every program in it, having built the ones that aren't in the cache."""
    wanted = modules()
    _build_missing(progress, wanted)
    return _collect(wanted)


def build_one(progress: Progress, module: Module) -> Path:
    """Return the folder with one module's programs, having built them if they aren't in the cache."""
    if not _output(module).exists():
        # Go's caches are shared with every other build, and dropped by the one that is done first.
        with paths.alone("sandboxes", progress.note):
            _build_missing(progress, (module,))
    return _output(module)


def _build_missing(progress: Progress, wanted: tuple[Module, ...]) -> None:
    missing = [module for module in wanted if not _output(module).exists()]
    if missing:
        _check_disk()
        compiler = golang.go(progress)
        # Two at a time: one module's single-threaded link fills the gaps of another's compilation.
        with Together(2) as jobs:
            for module in missing:
                jobs.start(_build, progress, compiler, module)
        _drop_build_caches()


def _build(progress: Progress, compiler: Path, module: Module) -> None:
    log = paths.logs() / f"build-{module.folder}.log"
    target = _output(module)
    target.parent.mkdir(parents=True, exist_ok=True)
    command: list[str | Path] = [compiler, "build", "-trimpath", "-ldflags", module.ldflags]
    with progress.step(f"build {module.title}"), _scratch(target.parent) as scratch:
        command += ["-tags", module.tags, "-o", f"{scratch}/", *module.packages]
        shell.run(
            command,
            doing=f"building {module.title}",
            log=log,
            deadline=BUILD_DEADLINE,
            cwd=SOURCES / module.folder,
            env=_environment(),
        )
        for name in module.outputs:
            if not (Path(scratch) / name).exists():
                raise SeltzerError(f"building {module.title}: no {name} came out of it; see {log}")
        for name in module.called:
            (Path(scratch) / name).symlink_to(module.outputs[0])
        # The rename is what makes it count: a build that was interrupted leaves nothing that looks finished.
        Path(scratch).rename(target)


def _environment() -> dict[str, str]:
    """Caches of our own, dropped when all is built: 5 GB that nobody would look for in their home folder."""
    return {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOCACHE": str(paths.cache() / "go-build"),
        "GOMODCACHE": str(paths.cache() / "go-mod"),
        "GOWORK": "off",
        "GOOS": "",
        "GOARCH": "",
        "GOROOT": "",
    }


def _collect(wanted: tuple[Module, ...]) -> Path:
    """One folder with hard links to all programs: a PATH entry, and a context that images can copy from."""
    folder = place()
    if folder.exists():
        return folder
    with _scratch(folder.parent) as scratch:
        for module in wanted:
            for program in _output(module).iterdir():
                os.link(program, Path(scratch) / program.name, follow_symlinks=False)
        Path(scratch).rename(folder)
    return folder


def _scratch(parent: Path) -> AbstractContextManager[str]:
    parent.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=parent, prefix=".new-", ignore_cleanup_errors=True)


def _output(module: Module) -> Path:
    return paths.cache() / "bin" / f"{module.folder}-{digest(module)}"


def _drop_build_caches() -> None:
    for name in ("go-build", "go-mod"):
        folder = paths.cache() / name
        # Go makes its module cache read-only, to protect it from editors.
        for inner, _, _ in os.walk(folder):
            Path(inner).chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)


def _check_disk() -> None:
    paths.cache().mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(paths.cache()).free
    if free < DISK_NEEDED:
        raise SeltzerError(
            f"building takes up to {DISK_NEEDED >> 30} GiB of disk and {paths.cache()} has {free >> 30} GiB free; "
            "free some, or set XDG_CACHE_HOME to a folder on a larger disk"
        )
