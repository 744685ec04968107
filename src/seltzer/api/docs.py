"""The docstrings of Structs and of their fields, as text for people.

Python keeps the string below a field only in the source, so the source is read here. It is beside the module wherever
Seltzer is installed.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from typing import Any

from msgspec import Struct


def of_class(cls: type[Any]) -> str:
    """The docstring of a class."""
    return _flow(cls.__doc__ or "")


def of_fields(cls: type[Any]) -> Mapping[str, str]:
    """The docstring below each field of a class and of the Structs that it extends, by the field's name in Python."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if issubclass(each, Struct) and each is not Struct:
            found |= _of_own_fields(each)
    return found


def _of_own_fields(cls: type[Any]) -> Mapping[str, str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    definition = tree.body[0]
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for before, after in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name):
            match after:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    found[before.target.id] = _flow(text)
    return found


def _flow(text: str) -> str:
    """Each paragraph on one line: whatever displays it decides where it wraps."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
