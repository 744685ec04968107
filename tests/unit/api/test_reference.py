"""docs/api.md says what the API's Structs say, all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from seltzer.api import crd, reference

PAGE = Path(__file__).parents[3] / "docs/api.md"
SHARED = {"podTemplate", "mounts", "resources", "conditions", "nodes", "groups", "service", "limits"}


def test_the_page_is_that_of_the_structs() -> None:
    assert PAGE.read_text() == reference.text(), "run 'make docs'"


def paths(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """All fields below an object of a CRD; those that several objects share only by their name."""
    for name, below in schema.get("properties", {}).items():
        yield f"{path}{name}"
        if name not in SHARED or "users" in path:
            yield from paths(below, f"{path}{name}.")
            yield from paths(below.get("items", {}), f"{path}{name}[].")


def test_every_field_of_the_crds_has_a_row() -> None:
    page = reference.text()
    kinds = re.split(r"^## ", page, flags=re.MULTILINE)[1:3]
    for manifest, part in zip(crd.manifests(), kinds, strict=True):
        rows = set(re.findall(r"^\| `([^`]+)` \|", part, re.MULTILINE))
        (version,) = manifest["spec"]["versions"]
        top = version["schema"]["openAPIV3Schema"]["properties"]
        expected = {path for name in ("spec", "status") for path in paths(top[name], f"{name}.")}
        assert rows == expected


def test_every_field_has_a_type_and_a_meaning() -> None:
    rows = [line.strip("|").split(" | ") for line in reference.text().splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert [row for row in rows if not row[1].strip() or len(row[-1].strip()) < 4] == []


def test_links_within_the_page_lead_to_a_heading() -> None:
    page = reference.text()
    anchors = {reference.anchor(title) for title in re.findall(r"^#+ (.*)$", page, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]*)\)", page)) <= anchors


def test_a_default_is_what_the_api_server_fills_in() -> None:
    page = reference.text()
    assert "| `spec.controller.leaseDuration` | [duration](#values) | `3s` |" in page
    assert "| `spec.controller.keepJobs` | boolean | `true` |" in page
    assert "| `spec.clusterRef` | [ClusterRef](#nodesetspecclusterref) | required |" in page
