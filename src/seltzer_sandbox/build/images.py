"""Build the images of images/ and pack them into one archive that containerd and Docker can load.

An image is rebuilt when its inputs change: its Dockerfile, the files that it copies, the base. Its name in buildah's
storage and in the layer pool contains their digest. An image that exists is therefore current, even after an
interrupted run.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from seltzer import paths
from seltzer.errors import SeltzerError
from seltzer.progress import Progress
from seltzer_sandbox.build import base, package_sources
from seltzer_sandbox.build.buildah import Buildah, limits
from seltzer_sandbox.build.parallel import ParallelJobs
from seltzer_sandbox.build.pool import Pool

BUILD_DEADLINE = 900.0
WORKERS = 3  # on two cores: 39 s instead of 79 s one after the other, since builds wait for downloads
_KEPT = 3  # archives: the current one, and two for other branches or checkouts
_FIXED_TIME = 1577836800  # the age of a copied file must not invalidate a layer


@dataclass(frozen=True)
class Image:
    """An image and the digest of its inputs."""

    name: str
    digest: str

    @property
    def short(self) -> str:
        return self.name.rpartition("/")[2].partition(":")[0]

    @property
    def stored(self) -> str:
        """Its name in buildah's storage."""
        return f"localhost/seltzer/{self.short}:{self.digest[:32]}"


@dataclass(frozen=True)
class Recipe:
    """The inputs of an image: a Dockerfile, the files of its build context by name, and a target."""

    name: str
    dockerfile: Path
    context: Mapping[str, Path]
    target: str | None = None
    on_base: bool = True

    def image(self, on: str) -> Image:
        """The image that this recipe makes from the current files on the given base."""
        digest = hashlib.sha256()
        for word in (self.target or "", on if self.on_base else ""):
            digest.update(f"{word}\0".encode())
        for name, file in sorted({"Dockerfile": self.dockerfile, **self.context}.items()):
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            digest.update(f"{name}\0{_mode(file):o}\0{content}\0".encode())
        return Image(f"seltzer.dev/{self.name}:dev", digest.hexdigest())


def archive(progress: Progress, binaries: Path, *, refresh: bool = False) -> Path:
    """One archive with all images; its name contains the digest of all inputs.

    `binaries` is the folder with the static programs `pause` and `coredns`. If nothing has changed, this only reads
    the inputs. `refresh` rebuilds everything with the current packages of Debian.
    """
    folder = paths.cache() / "images"
    recipes = _recipes(binaries)
    if not refresh and (found := ready(binaries)):
        return found
    with paths.alone("images", progress.note):
        if not refresh and (found := ready(binaries)):  # another process built it while we waited for the lock
            return found
        built = _build(progress, recipes, refresh)
        target = folder / f"{_digest(built)}.tar"
        with progress.step("pack the images"):
            _pool().pack({image.digest: image.name for image in built}, target)
        _prune(folder)
    return target


def with_mpi(progress: Progress, binaries: Path, on: str) -> Path:
    """An archive of the image `<on>-mpi`, on top of `slurmd` or `login`. Sandboxes have it only if it is loaded."""
    name, recipes = f"{on}-mpi", _recipes(binaries)
    source = checkout() / "images" / "slurm-mpi"
    recipe = Recipe(name, source / "Dockerfile", {"install-mpi": source / "install-mpi"}, name)

    def archive_on(below: Image) -> Path:
        digest = recipe.image(below.digest).digest
        return paths.cache() / "images" / "mpi" / f"{name}-{digest[:32]}.tar"

    if found := base.find(_folder()):
        (below,) = [each.image(found.image) for each in recipes if each.name == on]
        if archive_on(below).exists():
            return archive_on(below)
    if found and found.inputs == base.OFFLINE:
        raise SeltzerError(f"{name} isn't part of an offline archive, which can't build it")
    with paths.alone("images", progress.note):
        (below,) = [image for image in _build(progress, recipes, refresh=False) if image.short == on]
        target = archive_on(below)
        target.parent.mkdir(parents=True, exist_ok=True)
        buildah = Buildah(_folder(), paths.logs())
        buildah.open()
        tag = f"localhost/seltzer/{name}:dev"
        with progress.step(f"image {name}"), _secrets(buildah) as secrets:
            bases = [word for each in (on.upper(), "PMIX") for word in ("--build-arg", f"{each}={below.stored}")]
            _bud(buildah, recipe, tag, [*secrets, *bases])
            for old in target.parent.glob(f"{name}-*.tar"):
                old.unlink()
            scratch = target.with_suffix(".new")
            scratch.unlink(missing_ok=True)
            words = ("push", "--quiet", tag, f"docker-archive:{scratch}:seltzer.dev/{name}:dev")
            buildah.run(*words, doing=f"packing {name}", log="pack", deadline=BUILD_DEADLINE)
            scratch.rename(target)
    return target


def build_alone(progress: Progress, buildah: Buildah, recipe: Recipe, target: Path) -> None:
    """Build an image that isn't part of a sandbox, and save it as an archive. The caller holds the lock `images`."""
    tag = f"localhost/seltzer/{recipe.name}:dev"
    with progress.step(f"image {recipe.name}"), _secrets(buildah) as secrets:
        _bud(buildah, recipe, tag, secrets)
        push = ("push", "--quiet", tag, f"docker-archive:{target}")
        buildah.run(*push, doing=f"packing {recipe.name}", log="pack", deadline=BUILD_DEADLINE)


def ready(binaries: Path) -> Path | None:
    """The archive that `archive` would return, or None if it would have to build something."""
    on = base.find(_folder())
    if on is None:
        return None
    target = paths.cache() / "images" / f"{_digest([recipe.image(on.image) for recipe in _recipes(binaries)])}.tar"
    if not target.exists():
        return None
    os.utime(target)  # mark it as used: the oldest are removed first
    return target


def check_builder() -> None:
    """Images can be built here: say what to do where they can't."""
    if shutil.which("buildah"):
        return
    found = base.find(_folder())
    if found and found.inputs == base.OFFLINE:
        raise SeltzerError(
            "this offline archive has the images of the sources that it was packed from, and they have changed since; "
            "undo the change, or pack an archive again where there is a network"
        )
    raise SeltzerError("buildah not found; 'make setup' installs what the sandbox needs")


def _build(progress: Progress, recipes: list[Recipe], refresh: bool) -> list[Image]:
    check_builder()
    buildah = Buildah(_folder(), paths.logs())
    buildah.open()
    present = buildah.tags()
    found = None if refresh else base.find(buildah.folder)
    if found is None or base.TAG not in present:
        found = base.make(progress, buildah)
        present = buildah.tags()
    images = [recipe.image(found.image) for recipe in recipes]
    pool = _pool()
    missing = [
        (recipe, image)
        for recipe, image in zip(recipes, images, strict=True)
        if image.stored not in present or not pool.has(image.digest)
    ]
    if missing:
        with _secrets(buildah) as secrets, ParallelJobs(WORKERS) as jobs:
            _start(progress, buildah, jobs, missing, secrets)
        _drop_old(buildah, images, present)
        pool.keep({image.digest for image in images})
    return images


def _start(
    progress: Progress, buildah: Buildah, jobs: ParallelJobs, missing: list[tuple[Recipe, Image]], secrets: list[str]
) -> None:
    """Start all builds. Slurm's images wait for their shared layer, which determines Slurm's version."""
    shared: Future[str] | None = None
    if slurm := [recipe for recipe, _ in missing if recipe.target]:
        shared = jobs.start(_build_slurm, progress, buildah, slurm[0], secrets)
    for recipe, image in sorted(missing, key=lambda pair: pair[0].target is not None):
        arguments = secrets
        if recipe.target and shared:
            arguments = [*secrets, "--build-arg", f"SLURM_VERSION={shared.result()}"]
        jobs.start(_build_one, progress, buildah, recipe, image, arguments)


def _build_one(progress: Progress, buildah: Buildah, recipe: Recipe, image: Image, arguments: list[str]) -> None:
    with progress.step(f"image {image.short}"):
        _bud(buildah, recipe, image.stored, arguments)
        _pool().add(buildah, image.stored, image.digest)


def _build_slurm(progress: Progress, buildah: Buildah, recipe: Recipe, secrets: list[str]) -> str:
    """Build the shared layer of Slurm's images; returns the version of Slurm in it."""
    tag = "localhost/seltzer/slurm:dev"
    with progress.step("Slurm, the layer that its images share"):
        _bud(buildah, Recipe("slurm", recipe.dockerfile, recipe.context, "slurm"), tag, secrets)
        doing = "reading the version of Slurm"
        start = ("from", "--pull-never", *limits(), tag)
        container = buildah.run(*start, doing=doing, log="slurm", deadline=60).strip()
        query = ("dpkg-query", "--show", "--showformat", "${source:Upstream-Version}", "slurm-wlm-basic-plugins")
        version = buildah.run("run", "--isolation", "chroot", container, *query, doing=doing, log="slurm", deadline=60)
        buildah.run("rm", container, doing=doing, log="slurm", deadline=60)
    return version.strip()


def _bud(buildah: Buildah, recipe: Recipe, tag: str, arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory(dir=buildah.scratch, prefix="context-", ignore_cleanup_errors=True) as context:
        _stage(recipe, Path(context))
        options = ["--isolation", "chroot", "--layers", "--pull-never", *limits(), "--tag", tag, *arguments]
        options += ["--target", recipe.target] if recipe.target else []
        options += ["--build-arg", f"BASE={base.TAG}"] if recipe.on_base else []
        buildah.run(
            *("build-using-dockerfile", "--file", str(recipe.dockerfile), *options, context),
            doing=f"building the image {recipe.name}",
            log=recipe.name,
            deadline=BUILD_DEADLINE,
        )


def _stage(recipe: Recipe, context: Path) -> None:
    """Copy the files of the context, and only those: the digest covers them."""
    for name, source in recipe.context.items():
        target = context / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(_mode(source))
        os.utime(target, (_FIXED_TIME, _FIXED_TIME))


@contextmanager
def _secrets(buildah: Buildah) -> Iterator[list[str]]:
    """buildah's options that pass the machine's package settings to a build; removes the files afterwards."""
    apt = package_sources.apt_settings(buildah.log("storage"))
    pip = package_sources.pip_settings()
    bundle = package_sources.ca_bundle()
    if bundle:
        apt += f'Acquire::https::CaInfo "{package_sources.CA_BUNDLE}";\n'
        pip["cert"] = package_sources.CA_BUNDLE
    files = {"apt.conf": apt, "pip.conf": "".join(["[global]\n", *(f"{key} = {pip[key]}\n" for key in sorted(pip))])}
    with tempfile.TemporaryDirectory(dir=buildah.scratch, prefix="secrets-", ignore_cleanup_errors=True) as folder:
        options = ["--secret", f"id=ca.crt,src={bundle}"] if bundle else []
        for name, text in files.items():
            (Path(folder) / name).write_text(text)
            options += ["--secret", f"id={name},src={Path(folder) / name}"]
        yield options


def slurm_targets(dockerfile: Path) -> list[str]:
    """The images of Slurm's Dockerfile: each stage on top of its stage `slurm` is one."""
    return re.findall(r"^FROM slurm AS (\S+)$", dockerfile.read_text(), re.MULTILINE)


def _recipes(binaries: Path) -> list[Recipe]:
    root = checkout()
    images = root / "images"
    dockerfile = images / "slurm" / "Dockerfile"
    for program in ("pause", "coredns"):
        if not (binaries / program).is_file():
            raise SeltzerError(f"there is no {program} in {binaries}; run 'seltzer sandbox up', which builds it")
    sources = [file for file in sorted((images / "slurm").iterdir()) if file.suffix in (".c", ".h")]
    slurm = {file.name: file for file in (images / "slurm" / "install", *sources)}
    package = root / "src" / "seltzer"
    guard = [package / "__init__.py", *(package / "guard").rglob("*.py"), *(package / "wire").rglob("*.py")]
    more = {
        "slurmctld": {str(file.relative_to(package.parent)): file for file in guard},
        "login": {"seff.py": images / "slurm" / "seff.py"},
    }
    return [
        *(
            Recipe(target, dockerfile, {**slurm, **more.get(target, {})}, target)
            for target in slurm_targets(dockerfile)
        ),
        Recipe("operator", images / "operator" / "Dockerfile", _sources(root)),
        *(
            Recipe(program, images / program / "Dockerfile", {program: binaries / program}, on_base=False)
            for program in ("pause", "coredns")
        ),
    ]


def checkout() -> Path:
    """The repository that this code is part of."""
    root = Path(__file__).parents[3]
    if not (root / "images" / "slurm" / "Dockerfile").is_file():
        raise SeltzerError("images are built from a checkout of the repository; run seltzer from one")
    return root


def _sources(root: Path) -> dict[str, Path]:
    """The build context of the operator's image: the product, and no file of the sandbox."""
    files = [root / name for name in ("LICENSE", "README.md", "pyproject.toml", "requirements.lock")]
    for file in (root / "src" / "seltzer").rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            files.append(file)
    return {str(file.relative_to(root)): file for file in files}


def _drop_old(buildah: Buildah, images: list[Image], present: set[str]) -> None:
    """Remove the images that the new ones replace; layers still in use stay."""
    wanted = {image.stored for image in images}
    names = {image.stored.partition(":")[0] for image in images}
    old = sorted(tag for tag in present if tag not in wanted and tag.rpartition(":")[0] in names)
    if old:
        buildah.run("rmi", *old, doing="removing replaced images", log="storage", deadline=120)


def _prune(folder: Path) -> None:
    newest_first = sorted(folder.glob("*.tar"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in newest_first[_KEPT:]:
        file.unlink()


def _digest(images: list[Image]) -> str:
    lines = sorted(f"{image.name} {image.digest}\n" for image in images)
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:32]


def _mode(file: Path) -> int:
    """The part of a file's mode that Git records: the umask of a checkout must not change a digest."""
    return 0o755 if file.stat().st_mode & 0o100 else 0o644


def _folder() -> Path:
    return paths.cache() / "buildah"


def _pool() -> Pool:
    return Pool(paths.cache() / "images" / "pool")
