"""A description as TOML, one operation a line; `Description` reads it back equal."""

from __future__ import annotations

import json

from .description import Description, Node

_LAST = ("name", "from")


def to_toml(description: Description) -> str:
    """The TOML file of a description; keys that have their defaults are left out."""
    lines = [
        f"name = {_value(description.name)}",
        f"input = {_value(description.input)}  # channels, rows, columns",
        f"start = {_value(description.start)}",
        "layers = [",
        *(f"  {_table(operation)}," for operation in description.layers),
        "]",
    ]
    return "\n".join(lines) + "\n"


def _table(operation: Node) -> str:
    keys = operation.model_dump(by_alias=True, exclude_defaults=True)
    ordered = sorted(keys, key=lambda key: (key != "type", key in _LAST))
    return f"{{ {', '.join(f'{key} = {_value(keys[key])}' for key in ordered)} }}"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        # JSON's strings are TOML's, but for the delete character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        if len(value) == 1 or (len(value) == 2 and value[0] == value[1] and isinstance(value[0], int)):
            return _value(value[0])
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)
