"""Label and field selectors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.fakes.apiserver.errors import Failure

Predicate = Callable[[dict[str, Any]], bool]
_SET = re.compile(r"(\S+)\s+(in|notin)\s+\(([^)]*)\)")
_EQUAL = re.compile(r"([^=!\s]+)\s*(==|=|!=)\s*(\S*)")


def selector(labels: str, fields: str) -> Predicate:
    """Whether an object is chosen by both."""
    parts = [_label(part.strip()) for part in re.split(r",(?![^(]*\))", labels) if part.strip()]
    parts += [_field(part.strip()) for part in fields.split(",") if part.strip()]
    return lambda item: all(part(item) for part in parts)


def _label(text: str) -> Predicate:
    if match := _SET.fullmatch(text):
        key, op, listed = match.groups()
        values = {value.strip() for value in listed.split(",")}
        return lambda item: (_labels(item).get(key) in values) == (op == "in")
    if match := _EQUAL.fullmatch(text):
        key, op, value = match.groups()
        return lambda item: (_labels(item).get(key) == value) == (op != "!=")
    if text.startswith("!"):
        return lambda item: text[1:] not in _labels(item)
    return lambda item: text in _labels(item)


def _labels(item: dict[str, Any]) -> dict[str, str]:
    return item["metadata"].get("labels") or {}


def _field(text: str) -> Predicate:
    match = _EQUAL.fullmatch(text)
    if match is None:
        raise Failure(400, "BadRequest", f"invalid selector: {text!r}")
    path, op, value = match.groups()

    def chosen(item: Any) -> bool:
        for part in path.split("."):
            item = item.get(part, "") if isinstance(item, dict) else ""
        return (str(item) == value) == (op != "!=")

    return chosen
