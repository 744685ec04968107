"""Build Kubernetes and the programs it needs from pinned Go modules, once per version."""

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
from seltzer_sandbox.build.parallel import ParallelJobs

SOURCES = Path(__file__).parent / "go"
BUILD_DEADLINE = 45 * 60.0
DISK_NEEDED = 6 << 30  # Go's module and build caches while it compiles Kubernetes; removed afterwards


@dataclass(frozen=True)
class Module:
    """One folder under go/: its packages, the programs they build, and further names for the first program."""

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
    """The version of `module` that a folder's go.mod pins. Versions are defined nowhere else."""
    for line in (SOURCES / folder / "go.mod").read_text().splitlines():
        words = line.removeprefix("require ").split()
        if len(words) >= 2 and words[0] == module:
            return words[1]
    raise SeltzerError(f"{folder}/go.mod does not require {module}")


def kubernetes_version() -> str:
    return required("kubernetes", "k8s.io/kubernetes")


def modules() -> tuple[Module, ...]:
    """All modules of a sandbox, in build order; the small ones come first."""
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
        Module("devices", "device plugin", ("devices",)),
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
    """KWOK simulates nodes. No sandbox uses it; the benchmark builds it with `build_one`."""
    return Module("kwok", "KWOK", ("kwok",), packages=("tool",))


def digest(module: Module) -> str:
    """A digest of everything that determines the output: sources, pinned versions, flags."""
    summed = hashlib.sha256(f"{module!r} {platform.machine()}".encode())
    folder = SOURCES / module.folder
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        summed.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes() + b"\0")
    return summed.hexdigest()[:16]


def module_digest(folder: str) -> str:
    return next(digest(module) for module in modules() if module.folder == folder)


def place() -> Path:
    """The folder for the programs of the current sources, built or not."""
    summed = hashlib.sha256("".join(digest(module) for module in modules()).encode()).hexdigest()[:16]
    return paths.cache() / "bin" / f"all-{summed}"


def folders() -> list[Path]:
    """The folders with the programs of each module, of the current sources."""
    return [_output(module) for module in modules()]


def build(progress: Progress) -> Path:
    """Build the programs that are missing from the cache; returns a folder with all of them."""
    wanted = modules()
    _build_missing(progress, wanted)
    return _collect(wanted)


def build_one(progress: Progress, module: Module) -> Path:
    """Build one module unless it is in the cache; returns the folder with its programs."""
    if not _output(module).exists():
        # All builds share Go's caches, and the first to finish removes them: only one may run.
        with paths.alone("sandboxes", progress.note):
            _build_missing(progress, (module,))
    return _output(module)


def _build_missing(progress: Progress, wanted: tuple[Module, ...]) -> None:
    missing = [module for module in wanted if not _output(module).exists()]
    if missing:
        _check_disk()
        compiler = golang.go(progress)
        # Two at a time: while one module links on a single thread, another compiles.
        with ParallelJobs(2) as jobs:
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
        # The rename completes the build: an interrupted one never leaves a folder that looks finished.
        Path(scratch).rename(target)


def _environment() -> dict[str, str]:
    """Go's caches go into our cache folder and are removed after the build: they take 5 GB."""
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
    """One folder with hard links to all programs, for PATH and as a build context for images."""
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
        # Go makes its module cache read-only.
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
