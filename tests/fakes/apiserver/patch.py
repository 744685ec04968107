"""Merge patches, JSON patches, and as much of strategic ones as we use."""

from __future__ import annotations

import copy
from typing import Any

from tests.fakes.apiserver.errors import Failure


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def strategic(target: Any, patch: Any) -> Any:
    """Like a merge patch, but conditions are merged by their types."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif key == "conditions":
            known = {each["type"]: each for each in merged.get(key, [])}
            told = {each["type"]: {**known.get(each["type"], {}), **each} for each in value}
            merged[key] = list((known | told).values())
        else:
            merged[key] = strategic(merged.get(key), value)
    return merged


def json_patch(target: Any, operations: list[dict[str, Any]]) -> Any:
    """RFC 6902, without move and copy."""
    result = copy.deepcopy(target)
    for operation in operations:
        *parents, last = [_unescaped(part) for part in operation["path"].split("/")[1:]]
        try:
            holder = result
            for part in parents:
                holder = holder[int(part)] if isinstance(holder, list) else holder[part]
            _one(holder, last, operation["op"], operation.get("value"))
        except (KeyError, IndexError, ValueError, TypeError):
            raise Failure(422, "Invalid", "the server rejected our request due to an error in our request") from None
    return result


def _one(holder: Any, last: str, op: str, value: Any) -> None:
    place: Any = last
    if isinstance(holder, list):
        place = len(holder) if last == "-" else int(last)
    if op == "add" and isinstance(holder, list):
        holder.insert(place, value)
        return
    if op != "add" and holder[place] is None:
        raise KeyError(last)
    match op:
        case "add":
            holder[place] = value
        case "replace":
            holder[place] = value
        case "remove":
            del holder[place]
        case "test" if holder[place] == value:
            return
        case _:
            raise ValueError(op)


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")
