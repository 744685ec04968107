"""The API reference, docs/api.md, written from the Structs: `python -m seltzer.api.reference` prints it.

Meanings are the docstrings that the CRDs have as descriptions, so `kubectl explain` says the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from msgspec import Struct, inspect

from . import common, config, docs, login, nodeset, schema, slurmcluster, volumes
from .common import API_VERSION, Rule

_HEAD: Final = f"""\
# API reference

<!-- Written by `make docs` from the Structs in src/seltzer/api: change their docstrings instead. -->

The two kinds of `{API_VERSION}`. `kubectl explain slurmcluster.spec` and `kubectl explain nodeset.spec` show the same
for the installed version. [Clusters and nodes](clusters.md) describes what the fields do together.
[Operations](operations.md#conditions) lists all conditions and their reasons.

Every field is optional unless its default is "required". A `[]` in a path stands for each item of a list.
"""

_KINDS: Final[tuple[type[Struct], ...]] = (slurmcluster.SlurmCluster, nodeset.NodeSet)


@dataclass(frozen=True)
class _Word:
    """A type of values that has a name for people."""

    name: str
    form: Any
    says: str = ""


_WORDS: Final = (
    _Word("quantity", common.Quantity, "A Kubernetes quantity: 2, 500m, 4Gi."),
    _Word("duration", common.Duration),
    _Word("time", common.Time, "A point in time, as in 2026-11-16T00:59:07Z."),
    _Word("image", common.Image),
    _Word("object name", common.ObjectName),
    _Word("namespace", common.Namespace),
    _Word("cluster name", slurmcluster.ClusterName),
    _Word("login set name", login.LoginSetName),
    _Word("public key", login.AuthorizedKey),
    _Word("feature", nodeset.Feature),
    _Word("partition name", nodeset.PartitionName),
    _Word("partition options", nodeset.PartitionOptions),
    _Word("number or percent", nodeset.MaxUnavailable, "A number, or percent such as 25%."),
    _Word("volume name", volumes.VolumeName),
    _Word("mount path", volumes.MountPath),
    _Word("sub-path", volumes.SubPath),
    _Word("file", config.ConfigFile, "The text of a file, at most 131072 characters."),
)


@dataclass(frozen=True)
class _Section:
    """A Struct with its place: a path in a kind, or its own name where several places have it."""

    title: str
    cls: type[Struct]
    is_status: bool
    path: str = ""


def text() -> str:
    """The whole page."""
    uses = Counter(used for cls in _reached(_KINDS) for used in _structs_of(cls))
    shared = {cls for cls, count in uses.items() if count > 1}
    parts = [_HEAD]
    for kind in _KINDS:
        parts.append(f"## {kind.__name__}\n\n{docs.of_class(kind)}\n{_rules(kind)}")
        fields = {field.encode_name: field for field in _fields(kind)}
        for part in ("spec", "status"):
            (cls,) = _structs(fields[part].type)
            top = _Section(f"{kind.__name__}.{part}", cls, part == "status", f"{part}.")
            parts += [_written(section, shared) for section in _below(top, shared)]
    parts.append("## Shared parts\n\nSeveral fields have one of these.\n")
    for cls in sorted(shared, key=lambda cls: cls.__name__):
        top = _Section(cls.__name__, cls, issubclass(cls, common.Report))
        parts += [_written(section, shared) for section in _below(top, shared)]
    return "\n".join([*parts, _values()])


def _reached(classes: Sequence[type[Struct]]) -> list[type[Struct]]:
    """All Structs of these kinds, each once."""
    found = dict[type[Struct], None]()
    waiting = list(classes)
    while waiting:
        cls = waiting.pop(0)
        if cls not in found:
            found[cls] = None
            waiting += _structs_of(cls)
    return list(found)


def _structs_of(cls: type[Struct]) -> list[type[Struct]]:
    parts = [field for field in _fields(cls) if cls not in _KINDS or field.name in ("spec", "status")]
    return [used for field in parts for used in _structs(field.type)]


def _structs(info: inspect.Type) -> list[type[Struct]]:
    """The Structs that values of a type are or hold."""
    match info:
        case inspect.StructType(cls=cls):
            return [cls]
        case inspect.Metadata(type=inner):
            return _structs(inner)
        case inspect.UnionType(types=kinds):
            return [cls for kind in kinds for cls in _structs(kind)]
        case inspect.VarTupleType(item_type=item):
            return _structs(item)
    return []


def _below(section: _Section, shared: set[type[Struct]]) -> Iterator[_Section]:
    """A section, and those of the parts that only it has."""
    yield section
    for field in _fields(section.cls):
        many = "[]" if _is_list(field.type) else ""
        for cls in _structs(field.type):
            if cls not in shared:
                name = f"{field.encode_name}{many}"
                below = _Section(f"{section.title}.{name}", cls, section.is_status, f"{section.path}{name}.")
                yield from _below(below, shared)


def _written(section: _Section, shared: set[type[Struct]]) -> str:
    said = docs.of_fields(section.cls)
    columns = ["field", "type", *([] if section.is_status else ["default"]), "meaning"]
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for field in _fields(section.cls):
        cells = [f"`{section.path}{field.encode_name}`", _type(field.type, section, field, shared)]
        if not section.is_status:
            cells.append(_default(field))
        cells.append(_meaning(field, said))
        lines.append(f"| {' | '.join(_escaped(cell) for cell in cells)} |")
    return f"### {section.title}\n\n{docs.of_class(section.cls)}\n\n" + "\n".join(lines) + f"\n{_rules(section.cls)}"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")


def _type(info: inspect.Type, section: _Section, field: inspect.Field, shared: set[type[Struct]]) -> str:
    used = _structs(info)
    if used:
        many = "[]" if _is_list(info) else ""
        title = used[0].__name__ if used[0] in shared else f"{section.title}.{field.encode_name}{many}"
        return f"{'list of ' if many else ''}[{used[0].__name__}](#{anchor(title)})"
    return _value(info)


def _value(info: inspect.Type) -> str:
    """The type of a plain value, in words."""
    info = _without_none(info)
    for word in _WORDS:
        if inspect.type_info(word.form) == info:
            return f"[{word.name}](#values)"
    match info:
        case inspect.Metadata(type=inner):
            return _value(inner)
        case inspect.LiteralType(values=values):
            return _listed([f"`{value}`" for value in values])
        case inspect.BoolType():
            return "boolean"
        case inspect.IntType(ge=least, le=most):
            return f"integer{_range(least, most)}"
        case inspect.StrType():
            return "string"
        case inspect.VarTupleType(item_type=item):
            return f"list of {_value(item)}"
        case inspect.DictType(value_type=inspect.AnyType()):
            return "object"
        case inspect.DictType(value_type=each):
            return f"map of string to {_value(each)}"
    raise TypeError(f"no words for {info}")


def _without_none(info: inspect.Type) -> inspect.Type:
    if not isinstance(info, inspect.UnionType):
        return info
    kinds = tuple(kind for kind in info.types if not isinstance(kind, inspect.NoneType))
    return kinds[0] if len(kinds) == 1 else inspect.UnionType(kinds)


def _range(least: float | None, most: float | None) -> str:
    if least is None:
        return ""
    return f", {least} or more" if most is None else f", {least} to {most}"


def _default(field: inspect.Field) -> str:
    if field.required:
        return "required"
    value = None if _structs(field.type) else schema.spelled_out(field.default)
    if value is None:
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _meaning(field: inspect.Field, said: Mapping[str, str]) -> str:
    used = _structs(field.type)
    return (said.get(field.name) or docs.of_class(used[0])).replace("\n\n", " ")


def _rules(cls: type[Struct]) -> str:
    """What the API server says about objects that it refuses. Keys that are refused for one reason are one line."""
    found = dict[str, list[str]]()
    rules: tuple[Rule, ...] = getattr(cls, "rules", ())
    for rule in rules:
        match = re.fullmatch(r"slurm\.conf sets (\w+), but (.*)", rule.message)
        key, why = match.groups() if match else ("", rule.message)
        found.setdefault(why, []).extend([key] if key else [])
    lines = [f"- slurm.conf sets {_listed(keys)}, but {why}" if keys else f"- {why}" for why, keys in found.items()]
    return "\n".join(["", "The API server refuses objects with these messages:", "", *lines, ""]) if lines else ""


def _listed(words: Sequence[str]) -> str:
    return " or ".join([*([", ".join(words[:-1])] if words[1:] else []), words[-1]])


def _values() -> str:
    lines = [f"| {word.name} | {word.says or _advice(inspect.type_info(word.form))} |" for word in _WORDS]
    return "\n".join(["## Values", "", "| type | how to write it |", "|---|---|", *lines, ""])


def _advice(info: inspect.Type) -> str:
    """How to write a value: the last part of what a person reads when one doesn't fit."""
    assert isinstance(info, inspect.Metadata) and info.extra
    _, _, advice = str(info.extra["message"]).partition(": ")
    return f"{advice[0].upper()}{advice[1:]}."


def _is_list(info: inspect.Type) -> bool:
    match info:
        case inspect.Metadata(type=inner):
            return _is_list(inner)
        case inspect.UnionType(types=kinds):
            return any(_is_list(kind) for kind in kinds)
    return isinstance(info, inspect.VarTupleType)


def _fields(cls: type[Struct]) -> tuple[inspect.Field, ...]:
    return cast(inspect.StructType, inspect.type_info(cls)).fields


def anchor(title: str) -> str:
    """Where a heading is on its page, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


if __name__ == "__main__":
    print(text(), end="")
