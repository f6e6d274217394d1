"""Values of a JSON text that comes from a file: each must have the form of an example."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

_MOST = 1 << 62  # ps, bytes, rows: sums of two fit into 64 bits


def checked(form: Any, value: Any, name: str = "a value") -> Any:
    """Return a value after checking that it has the form of an example.

    An object has all keys of the example, and may have others; the values of an empty one are whole numbers. A list has
    its length, unless it is empty. Numbers are finite where those of the example are, and negative only where they are.

    Raises:
        ValueError: it has another form; `name` begins the message.
    """
    if isinstance(form, Mapping):
        items = _an(dict, value, name)
        missing = form.keys() - items.keys()
        if missing:
            raise ValueError(f"{name} has no {min(missing)!r}")
        for key in form or items:
            checked(form.get(key, 0), items[key], f"{key} of {name}" if len(name) < 80 else key)
    elif isinstance(form, str):
        _an(str, value, name)
    elif isinstance(form, Sequence):
        if len(_an(list, value, name)) != len(form) and form:
            raise ValueError(f"{name} has {len(value)} values, not {len(form)}")
        for of, each in zip(form, value, strict=False):
            checked(of, each, name)
    elif form is not None or value is not None:
        _number(0 if form is None else form, value, name)
    return value


def _an(kind: type, value: Any, name: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{name} is {type(value).__name__}, not {kind.__name__}")
    return value


def _number(form: float, value: Any, name: str) -> None:
    kinds = (int,) if isinstance(form, int) else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise ValueError(f"{name} is {type(value).__name__}, not a number")
    if math.isnan(form) and not isinstance(value, int):
        return
    if not (-_MOST if form < 0 else 0) <= value <= _MOST:
        raise ValueError(f"{name} is out of range")
