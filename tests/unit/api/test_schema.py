"""The CRDs are what the API server and `kubectl explain` need; what only the server can tell is in tests/contract."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta, Struct

from seltzer.api import crd, docs, schema
from seltzer.api.common import Part, Rule
from seltzer.api.nodeset import ClusterRef, NodeSetSpec
from seltzer.api.slurmcluster import SlurmClusterSpec

Node = tuple[str, dict[str, Any]]
CRDS = {manifest["spec"]["names"]["kind"]: manifest for manifest in crd.manifests()}
TYPES = {"object", "array", "string", "integer", "boolean"}
KNOWN = {
    "additionalProperties", "anyOf", "default", "description", "enum", "format", "items", "maxItems", "maxLength",
    "maxProperties", "maximum", "minItems", "minLength", "minimum", "pattern", "properties", "required", "type",
    "x-kubernetes-int-or-string", "x-kubernetes-list-map-keys", "x-kubernetes-list-type",
    "x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations",
}  # fmt: skip


def version(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = CRDS[kind]["spec"]["versions"][0]
    return found


def root(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = version(kind)["schema"]["openAPIV3Schema"]
    return found


def walk(node: dict[str, Any], path: str) -> Iterator[Node]:
    yield path, node
    for name, inner in node.get("properties", {}).items():
        yield from walk(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in node:
            yield from walk(node[key], f"{path}.{key}")


NODES = [node for kind in CRDS for node in walk(root(kind), kind)]
FIELDS = [
    (f"{path}.{name}", inner)
    for path, node in NODES
    for name, inner in node.get("properties", {}).items()
    if ".metadata" not in f"{path}.{name}" or "podTemplate" in path
]
RULES = [(path, rule) for path, node in NODES for rule in node.get("x-kubernetes-validations", [])]


def named(pairs: list[Node]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("node", [pytest.param(node, id=path) for path, node in pairs])


@named(NODES)
def test_every_part_of_the_schema_is_structural(node: dict[str, Any]) -> None:
    assert set(node) <= KNOWN
    if node.get("x-kubernetes-int-or-string"):
        assert "type" not in node
        assert node["anyOf"] == [{"type": "integer"}, {"type": "string"}]
        return
    assert node["type"] in TYPES
    assert "anyOf" not in node
    match node["type"]:
        case "array":
            assert "maxItems" in node, "an unbounded list makes every rule over it too dear for the API server"
            assert node["x-kubernetes-list-type"] in {"set", "map"}
        case "object":
            ways = {"properties", "additionalProperties", "x-kubernetes-preserve-unknown-fields"}
            assert len(ways & set(node)) == 1, "an object that says nothing loses all that is in it"


@named(FIELDS)
def test_every_field_says_what_it_is(node: dict[str, Any]) -> None:
    assert re.match(r"^[A-Za-z].*[.)]$", node["description"], re.DOTALL), node["description"]
    assert "\n" not in node["description"].replace("\n\n", "")


@pytest.mark.parametrize("rule", [pytest.param(rule, id=f"{path}-{n}") for n, (path, rule) in enumerate(RULES)])
def test_every_rule_says_what_is_wrong_and_then_what_to_do(rule: dict[str, str]) -> None:
    wrong, _, remedy = rule["message"].partition(": ")
    assert len(wrong) > 10
    assert remedy.split()[0] in {"choose", "create", "remove", "set", "use", "write"}
    assert not rule["message"].endswith(".")


@pytest.mark.parametrize("spec", [SlurmClusterSpec(), NodeSetSpec(cluster_ref=ClusterRef(name="a"))])
def test_defaults_are_valid_and_the_same_when_they_are_spelled_out(spec: Struct) -> None:
    assert msgspec.convert(schema.spelled_out(spec), type(spec)) == spec


def test_nothing_has_a_default_in_a_status() -> None:
    assert not [path for path, node in NODES if ".status" in path and "default" in node]


def test_a_cluster_needs_no_spec_and_a_nodeset_needs_its_cluster() -> None:
    assert "required" not in root("SlurmCluster")
    assert root("SlurmCluster")["properties"]["spec"]["default"]["controller"]["storage"]["onDelete"] == "retain"
    assert root("NodeSet")["required"] == ["spec"]
    assert root("NodeSet")["properties"]["spec"]["required"] == ["clusterRef"]


def test_patterns_that_python_ends_with_its_own_mark_end_with_a_dollar_for_the_api_server() -> None:
    texts = [node["pattern"] for _, node in NODES if "pattern" in node] + [rule["rule"] for _, rule in RULES]
    assert not [text for text in texts if r"\Z" in text]


def test_conditions_are_a_map_by_type() -> None:
    for kind in CRDS:
        conditions = root(kind)["properties"]["status"]["properties"]["conditions"]
        assert conditions["x-kubernetes-list-map-keys"] == ["type"]
        assert {"type", "status", "reason", "message", "lastTransitionTime"} == set(conditions["items"]["required"])


def test_names_and_subresources() -> None:
    assert [manifest["metadata"]["name"] for manifest in crd.manifests()] == [
        "slurmclusters.seltzer.dev",
        "nodesets.seltzer.dev",
    ]
    assert version("SlurmCluster")["subresources"] == {"status": {}}
    assert set(version("NodeSet")["subresources"]) == {"status", "scale"}


def test_every_column_shows_a_field_that_exists() -> None:
    for kind in CRDS:
        known = {path.removeprefix(kind) for path, _ in NODES}
        for column in version(kind)["additionalPrinterColumns"]:
            path = re.sub(r"\[.*\]", ".items", column["jsonPath"])
            assert path in known | {".metadata.creationTimestamp"}


class Example(Part, frozen=True, kw_only=True):
    """First line
    and its end.

    Second paragraph.
    """

    some_text: Annotated[str, Meta(pattern=r"^a'\.b\Z", max_length=3, extra={"message": "bad: write a'.b"})] = "a"
    """What it is,
    in two lines."""

    bare: int | None = None


class Wrong(Part, frozen=True, kw_only=True):
    """A type that has no place in a CRD."""

    either: int | bool


def test_docstrings_are_read_from_the_source() -> None:
    assert docs.of_class(Example) == "First line and its end.\n\nSecond paragraph."
    assert docs.of_fields(Example) == {"some_text": "What it is, in two lines."}


def test_a_pattern_with_words_becomes_a_rule_with_these_words() -> None:
    field = schema.of_struct(Example)["properties"]["someText"]
    rule = {"rule": r"self.matches('^a\'\\.b$')", "message": "bad: write a'.b"}
    assert field["x-kubernetes-validations"] == [rule]
    assert field["default"] == "a"
    assert field["description"] == "What it is, in two lines. Default: a."


def test_a_type_that_the_api_server_does_not_know_is_an_error() -> None:
    with pytest.raises(TypeError, match="the only unions"):
        schema.of_struct(Wrong)


def test_a_rule_without_a_path_points_at_the_whole() -> None:
    found = [rule for _, rule in RULES if rule["rule"] == "self == oldSelf"]
    assert found and "fieldPath" not in found[0]
    assert Rule("true", "fine").path == ""
