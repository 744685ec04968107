"""Images are made from what their recipes name, and again when that changes; packages come the machine's own way."""

from __future__ import annotations

import json
import os
import tarfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seltzer_sandbox
from seltzer.errors import SeltzerError
from seltzer_sandbox import commands, shell
from seltzer_sandbox.build import base, images, package_sources
from seltzer_sandbox.build.images import Image, Recipe
from seltzer_sandbox.build.package_sources import Source
from seltzer_sandbox.build.parallel import ParallelJobs
from seltzer_sandbox.build.pool import Entry, Pool

DEB822 = """\
# The main archive
Types: deb deb-src
# a comment inside
URIs: http://mirror.example/debian/
Suites: bookworm
  bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/some.gpg

Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
Enabled: no

types: deb-src
uris: http://source.example/debian
suites: bookworm
components: main
"""
ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb-src http://source.example/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/some.gpg] http://mirror.example/debian/ bookworm main contrib # why not
deb http://security.example/debian-security bookworm-security main
"""


def test_sources_in_the_new_format() -> None:
    both = ("main", "contrib")
    mirror = "http://mirror.example/debian"
    expected = [Source(mirror, "bookworm", both), Source(mirror, "bookworm-updates", both)]
    assert package_sources.parse_deb822(DEB822) == expected


def test_sources_in_the_old_format() -> None:
    assert package_sources.parse_one_line(ONE_LINE) == [
        Source("http://mirror.example/debian", "bookworm", ("main", "contrib")),
        Source("http://security.example/debian-security", "bookworm-security", ("main",)),
    ]


words = st.text(st.characters(codec="ascii", categories=["Ll", "Nd"]), min_size=1, max_size=8)


@given(st.lists(st.tuples(words, words, st.lists(words, min_size=1, max_size=3)), max_size=4))
def test_both_formats_say_the_same(entries: list[tuple[str, str, list[str]]]) -> None:
    old = "".join(f"deb http://{host}/ {suite} {' '.join(parts)}\n" for host, suite, parts in entries)
    new = "\n".join(
        f"Types: deb\nURIs: http://{host}/\nSuites: {suite}\nComponents: {' '.join(parts)}\n"
        for host, suite, parts in entries
    )
    assert package_sources.parse_one_line(old) == package_sources.parse_deb822(new)


@given(st.text())
def test_no_text_upsets_the_parsers(text: str) -> None:
    package_sources.parse_one_line(text)
    package_sources.parse_deb822(text)


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    (tmp_path / "apt/sources.list.d").mkdir(parents=True)
    (tmp_path / "os-release").write_text('ID=debian\nVERSION_CODENAME=bookworm\nNAME="Debian GNU/Linux"\n')
    return tmp_path


def test_the_mirror_is_the_one_that_the_release_itself_comes_from(etc: Path) -> None:
    (etc / "apt/sources.list").write_text(
        "deb http://security.example/debian-security bookworm-security main\n"
        "deb http://other.example/packages stable-ish main\n"
        "deb cdrom:[disc]/ bookworm main\n"
    )
    (etc / "apt/sources.list.d/debian.sources").write_text(DEB822)
    (etc / "apt/sources.list.d/old.list.disabled").write_text("deb http://disabled.example/debian bookworm main\n")
    assert package_sources.debian_mirror(etc) == "http://mirror.example/debian"


def test_another_distribution_has_no_mirror_of_debian(etc: Path) -> None:
    (etc / "os-release").write_text("ID=ubuntu\nVERSION_CODENAME=bookworm\n")
    (etc / "apt/sources.list").write_text(ONE_LINE)
    assert package_sources.debian_mirror(etc) is None


def test_a_machine_without_apt_has_no_mirror(tmp_path: Path) -> None:
    assert package_sources.debian_mirror(tmp_path) is None


def test_apt_settings_that_a_build_needs_go_along_and_paths_of_this_machine_do_not() -> None:
    kept = ['Acquire::http::Proxy "http://proxy.example:3128/";', 'Acquire::Check-Valid-Until "false";']
    dropped = ['Acquire::https::CaInfo "/etc/ca";', 'Acquire::http::Proxy::host "";', 'Dir::Cache "var/cache/apt";']
    assert package_sources.keep_apt_settings([*kept, *dropped]) == "".join(f"{line}\n" for line in kept)


def test_pip_settings_come_from_files_and_the_environment_wins(tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nindex-url = http://file.example/simple\ntimeout = 5\nfind-links = /opt/somewhere\n")
    env = {"PIP_INDEX_URL": "http://env.example/simple", "PIP_CERT": "/etc/ca", "UV_DEFAULT_INDEX": "http://uv.example"}
    found = package_sources.pip_settings(env, [tmp_path / "none.conf", file])
    assert found == {"index-url": "http://env.example/simple", "timeout": "5"}


def test_a_broken_pip_file_is_left_to_pip(tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("index-url = http://no-section.example\n")
    assert package_sources.pip_settings({}, [file]) == {}


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    (tmp_path / "file").write_text("content")
    return Recipe("thing", tmp_path / "Dockerfile", {"file": tmp_path / "file"}, "target")


def test_an_image_is_the_same_while_its_inputs_are(recipe: Recipe) -> None:
    first = recipe.image("base")
    recipe.context["file"].touch()
    assert recipe.image("base") == first
    assert first.name == "seltzer.dev/thing:dev"


def test_every_input_makes_another_image(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "more").write_text("more")
    seen = {recipe.image("base").digest, recipe.image("other base").digest}
    seen.add(Recipe("thing", recipe.dockerfile, recipe.context, "other target").image("base").digest)
    seen.add(Recipe("thing", recipe.dockerfile, {"renamed": tmp_path / "file"}, "target").image("base").digest)
    more = {**recipe.context, "more": tmp_path / "more"}
    seen.add(Recipe("thing", recipe.dockerfile, more, "target").image("base").digest)
    (tmp_path / "file").chmod(0o755)
    seen.add(recipe.image("base").digest)
    (tmp_path / "file").write_text("changed")
    seen.add(recipe.image("base").digest)
    (tmp_path / "Dockerfile").write_text("FROM other\n")
    seen.add(recipe.image("base").digest)
    assert len(seen) == 8


def test_an_image_without_the_base_does_not_change_with_it(recipe: Recipe) -> None:
    alone = Recipe("thing", recipe.dockerfile, recipe.context, on_base=False)
    assert alone.image("base") == alone.image("other base")


def test_only_what_the_digest_covers_is_copied(recipe: Recipe, tmp_path: Path) -> None:
    context = tmp_path / "context"
    images._stage(recipe, context)
    assert [file.name for file in context.iterdir()] == ["file"]
    assert (context / "file").stat().st_mode & 0o777 == 0o644


@pytest.fixture
def binaries(tmp_path: Path) -> Path:
    for name in ("pause", "coredns"):
        (tmp_path / name).write_text(name)
    return tmp_path


def copied_by(recipe: images.Recipe) -> list[str]:
    """The COPY lines of its Dockerfile, without those of its neighbours' stages."""
    lines: list[str] = []
    stage, neighbours = "", images.slurm_targets(recipe.dockerfile)
    for line in recipe.dockerfile.read_text().splitlines():
        if line.startswith("FROM "):
            stage = line.rpartition(" AS ")[2]
        if line.startswith("COPY ") and (recipe.target == stage or stage not in neighbours):
            lines.append(line)
    return lines


SLURM = ("slurmctld", "slurmdbd", "slurmrestd", "slurmd", "login")


def test_all_images_have_a_recipe_whose_files_are_there(binaries: Path) -> None:
    recipes = images._recipes(binaries)
    assert [recipe.name for recipe in recipes] == [*SLURM, "operator", "pause", "coredns"]
    for recipe in recipes:
        for line in copied_by(recipe):
            *sources, _ = [word for word in line.split()[1:] if not word.startswith("--")]
            if "--from=" not in line:
                for source in sources:
                    assert any(name == source or name.startswith(f"{source}/") for name in recipe.context), line


def test_the_images_with_mpi_are_stages_of_a_dockerfile_on_top_of_ours() -> None:
    folder = Path(__file__).parents[4] / "images" / "slurm-mpi"
    lines = (folder / "Dockerfile").read_text().splitlines()
    for name in commands.MPI_IMAGES:
        on = name.removesuffix("-mpi")
        assert f"FROM ${{{on.upper()}}} AS {name}" in lines
        assert f"ARG {on.upper()}=seltzer.dev/{on}:dev" in lines
    assert {line.split()[1] for line in lines if line.startswith("COPY ")} == {"install-mpi"}
    assert os.access(folder / "install-mpi", os.X_OK)


def test_the_operator_image_has_the_product_and_no_compiled_files(binaries: Path) -> None:
    (operator,) = [recipe for recipe in images._recipes(binaries) if recipe.name == "operator"]
    assert "src/seltzer/__init__.py" in operator.context
    assert not [name for name in operator.context if "__pycache__" in name]


def test_no_image_has_a_file_of_the_sandbox(binaries: Path) -> None:
    package = Path(seltzer_sandbox.__file__).parent
    copied = [file for recipe in images._recipes(binaries) for file in recipe.context.values()]
    assert copied
    assert not [file for file in copied if file.is_relative_to(package)]


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(SeltzerError, match="there is no pause"):
        images._recipes(tmp_path)


def test_the_archive_is_named_for_everything_in_it() -> None:
    one, two, other = Image("a:dev", "1"), Image("b:dev", "2"), Image("b:dev", "3")
    assert images._digest([one, two]) == images._digest([two, one])
    assert len({images._digest(each) for each in ([one], [one, two], [one, other])}) == 3


def test_an_interrupted_base_is_no_base(tmp_path: Path) -> None:
    assert base.find(tmp_path) is None
    (tmp_path / "base.json").write_text('{"inputs": "')
    assert base.find(tmp_path) is None
    (tmp_path / "base.json").write_text('{"inputs": "made otherwise", "image": "x"}')
    assert base.find(tmp_path) is None
    (tmp_path / "base.json").write_text(json.dumps({"inputs": base.inputs(), "image": "x"}))
    assert base.find(tmp_path) == base.Base(base.inputs(), "x")


def put(folder: Path, digest: str, *layers: str) -> None:
    for name in (f"{digest}.json", *layers):
        (folder / name).write_text(name)
    entry = {"Config": f"{digest}.json", "Layers": layers, "RepoTags": ["localhost/whatever"]}
    (folder / f"{digest}.image").write_text(json.dumps(entry))


def test_layers_that_images_share_are_in_the_archive_once(tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    pool.mkdir()
    put(pool, "a", "shared.tar", "a.tar")
    put(pool, "b", "shared.tar")
    Pool(pool).pack({"a": "seltzer.dev/a:dev", "b": "seltzer.dev/b:dev"}, tmp_path / "all.tar")
    with tarfile.open(tmp_path / "all.tar") as tar:
        assert sorted(tar.getnames()) == ["a.json", "a.tar", "b.json", "manifest.json", "shared.tar"]
        manifest = tar.extractfile("manifest.json")
        assert manifest
        entries = json.load(manifest)
    assert [entry["RepoTags"] for entry in entries] == [["seltzer.dev/a:dev"], ["seltzer.dev/b:dev"]]
    assert entries[0]["Layers"] == ["shared.tar", "a.tar"]


def test_an_image_with_a_layer_missing_is_not_there(tmp_path: Path) -> None:
    put(tmp_path, "a", "layer.tar")
    assert Pool(tmp_path).has("a")
    (tmp_path / "layer.tar").unlink()
    assert not Pool(tmp_path).has("a")
    assert not Pool(tmp_path).has("b")


def test_layers_go_with_the_last_image_that_has_them(tmp_path: Path) -> None:
    put(tmp_path, "a", "shared.tar", "a.tar")
    put(tmp_path, "b", "shared.tar", "b.tar")
    Pool(tmp_path).keep({"b"})
    assert sorted(file.name for file in tmp_path.iterdir()) == ["b.image", "b.json", "b.tar", "shared.tar"]


def test_nothing_is_packed_when_an_image_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SeltzerError, match=r"seltzer\.dev/a:dev is not built"):
        Pool(tmp_path).pack({"a": "seltzer.dev/a:dev"}, tmp_path / "all.tar")
    assert list(tmp_path.iterdir()) == []


def test_an_entry_reads_what_buildah_writes() -> None:
    assert Entry("c.json", ["l.tar"]).files == ["c.json", "l.tar"]


def test_a_failure_ends_what_runs_beside_it(tmp_path: Path) -> None:
    started = tmp_path / "started"

    def fail() -> None:
        while not started.exists():
            time.sleep(0.01)
        raise SeltzerError("no more")

    script = f"touch {started}; exec sleep 1000"
    with pytest.raises(SeltzerError, match="no more"), ParallelJobs(2) as jobs:
        sleeping = jobs.start(shell.run, ["sh", "-c", script], doing="sleeping", log=tmp_path / "log", deadline=1000)
        jobs.start(fail)
    assert "failed with exit code -9" in str(sleeping.exception())
