"""A description as TOML, one operation a line; `Description` reads it back equal."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from .description import Description, Node


def to_toml(description: Description) -> str:
    """Return the TOML file of a description; keys that have their defaults are left out."""
    lines = [
        f"name = {_value(description.name)}",
        *(["any_images = true"] if description.any_images else []),
        f"input = {_value(description.input)}  # channels, rows, columns",
        f"start = {_value(description.start)}",
        "layers = [",
        *(f"  {_table(node)}," for node in description.layers),
        "]",
    ]
    return "\n".join(lines) + "\n"


def _table(node: Node) -> str:
    keys: dict[str, Any] = {"type": node.operation.type}
    for field in dataclasses.fields(node.operation):  # type: ignore[arg-type]  # all are dataclasses
        value = getattr(node.operation, field.name)
        if value != field.default:
            keys[field.name] = value
    if node.name is not None:
        keys["name"] = node.name
    if node.source is not None:
        keys["from"] = node.source
    return f"{{ {', '.join(f'{key} = {_value(value)}' for key, value in keys.items())} }}"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        # JSON's strings are TOML's, except for the delete character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        if len(value) == 1 or (len(value) == 2 and value[0] == value[1] and isinstance(value[0], int)):
            return _value(value[0])
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)
