"""The structural OpenAPI schema of a Struct, as a CRD needs it.

Unlike msgspec's own JSON schema it has no `$ref`, a `type` beside every `enum`, defaults that the API server fills in
as the Struct would, and descriptions from docstrings. Kubernetes' extensions of OpenAPI come from three places: the
Struct's `rules`, `extra_json_schema` of a field, and the message of a `seltzer.api.common.text`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import NODEFAULT, Struct, UnsetType, inspect, to_builtins

from . import docs
from .common import Rule

Schema = dict[str, Any]


def of_object(cls: type[Struct]) -> Schema:
    """The schema of a whole object.

    The API server defines kind, version and metadata itself. A CRD may constrain only the name. That is done here,
    since rules that read the name need to know its maximum length.
    """
    fields, said = {field.name: field for field in _fields(cls)}, docs.of_fields(cls)
    name = {"type": "string", "maxLength": 253}
    return {
        "type": "object",
        "description": docs.of_class(cls),
        "properties": {
            "metadata": {"type": "object", "properties": {"name": name}},
            "spec": _of_field(fields["spec"], said, defaults=True),
            "status": _of_field(fields["status"], said, defaults=False),
        },
        **({"required": ["spec"]} if fields["spec"].required else {}),
        **_rules(cls),
    }


def of_struct(cls: type[Struct], *, defaults: bool = True) -> Schema:
    """The schema of a Struct. A status has no defaults: there, a missing field means unknown."""
    fields, said = _fields(cls), docs.of_fields(cls)
    required = [field.encode_name for field in fields if field.required]
    return {
        "type": "object",
        "description": docs.of_class(cls),
        "properties": {field.encode_name: _of_field(field, said, defaults=defaults) for field in fields},
        **({"required": required} if required else {}),
        **_rules(cls),
    }


def spelled_out(value: Any) -> Any:
    """A value with all its defaults, as the API server stores it; None if it is empty."""
    if isinstance(value, Struct):
        pairs = {field.encode_name: spelled_out(getattr(value, field.name)) for field in _fields(type(value))}
        return {name: inner for name, inner in pairs.items() if inner is not None} or None
    if value is None or value is NODEFAULT or isinstance(value, UnsetType):
        return None
    if isinstance(value, tuple):
        return [spelled_out(item) for item in value] or None
    return None if value == {} else to_builtins(value)


def _fields(cls: type[Struct]) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    return info.fields


def _of_field(field: inspect.Field, said: Mapping[str, str], *, defaults: bool) -> Schema:
    schema = _of_type(field.type, defaults=defaults)
    default = spelled_out(field.default) if defaults else None
    if default is not None:
        schema["default"] = default
    return {**schema, "description": _description(said.get(field.name, ""), schema)}


def _of_type(info: inspect.Type, *, defaults: bool) -> Schema:
    match info:
        case inspect.Metadata(type=inner, extra_json_schema=more, extra=extra):
            schema = {**_of_type(inner, defaults=defaults), **(more or {})}
            return _with_message(schema, extra["message"]) if extra else schema
        case inspect.UnionType():
            return _of_union(info, defaults=defaults)
        case inspect.StructType(cls=cls):
            return of_struct(cls, defaults=defaults)
        case inspect.LiteralType(values=values):
            return {"type": "string", "enum": list(values)}
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.IntType(ge=least, le=most):
            return {"type": "integer", "format": "int64", **_given(minimum=least, maximum=most)}
        case inspect.StrType(min_length=least, max_length=most, pattern=pattern):
            limits = _given(minLength=least, maxLength=most, pattern=pattern and pattern.replace(r"\Z", "$"))
            return {"type": "string", **limits}
        case inspect.ListType() | inspect.VarTupleType():
            items = _of_type(info.item_type, defaults=defaults)
            return {"type": "array", "items": items, **_given(minItems=info.min_length, maxItems=info.max_length)}
        case inspect.DictType(value_type=inspect.AnyType()):
            return {"type": "object"}
        case inspect.DictType(value_type=values, max_length=most):
            each = _of_type(values, defaults=defaults)
            return {"type": "object", "additionalProperties": each, **_given(maxProperties=most)}
    raise TypeError(f"no structural schema for {info}: use a type that the API server supports")


def _of_union(info: inspect.UnionType, *, defaults: bool) -> Schema:
    """`T | None` is an optional field (the API server drops a null), `int | str` is Kubernetes' IntOrString."""
    kinds = [kind for kind in info.types if not isinstance(kind, inspect.NoneType)]
    if len(kinds) == 1:
        return _of_type(kinds[0], defaults=defaults)
    number, word = (_of_type(kind, defaults=defaults) for kind in kinds)
    if (number.pop("type"), word.pop("type")) != ("integer", "string"):
        raise TypeError(f"no structural schema for {info}: the only unions that have one are T | None and int | str")
    del number["format"]
    return {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        **number,
        **word,
    }


def _with_message(schema: Schema, message: str) -> Schema:
    """The pattern as a rule: a violated pattern shows a regular expression, a rule says what to do."""
    pattern = schema.pop("pattern").replace("\\", "\\\\").replace("'", "\\'")
    return {**schema, "x-kubernetes-validations": [{"rule": f"self.matches('{pattern}')", "message": message}]}


def _rules(cls: type[Struct]) -> Schema:
    rules: tuple[Rule, ...] = getattr(cls, "rules", ())
    checks = [{"rule": rule.rule, "message": rule.message, **_given(fieldPath=rule.path or None)} for rule in rules]
    return {"x-kubernetes-validations": checks} if checks else {}


def _description(said: str, schema: Schema) -> str:
    """The field's description, then its type's, then the default: `kubectl explain` shows nothing else."""
    paragraphs = [words for words in (said, schema.get("description", "")) if words]
    default = schema.get("default")
    if default is not None and not isinstance(default, dict):
        paragraphs[0] += f" Default: {str(default).lower() if isinstance(default, bool) else default}."
    return "\n\n".join(paragraphs)


def _given(**values: Any) -> Schema:
    return {name: value for name, value in values.items() if value is not None}
