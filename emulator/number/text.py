"""A precision as text, such as `mxfp8 master=bf16 rounding.weights=stochastic layer.head=bf16`, and
tables of its layers.

A word of a layer is `layer.NAME=FORMAT`, or `layer.NAME.KEY=VALUE` of another key of its table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

KINDS = "activations", "weights", "errors", "gradients", "master", "states"
"""What has a format of its own."""
LAYER_KEYS = "format", *KINDS, "accumulate", "rounding", "scale", "hadamard", "scaling"
"""The keys of a layer's table."""
_LAYER, _ROUNDING = "layer.", "rounding"

Tables = dict[str, dict[str, object]]
"""Tables of layers by their names."""


def table_of(text: str) -> dict[str, object]:
    """Return the table that a text says, such as `mxfp8 master=bf16
    rounding.weights=stochastic`.
    """
    table: dict[str, object] = {}
    layers: list[tuple[str, str]] = []
    for word in text.split() or [""]:
        key, is_key, value = word.partition("=")
        if key.startswith(_LAYER) and is_key:
            layers.append((key.removeprefix(_LAYER), value))
        else:
            _put(table, key if is_key else "format", value if is_key else word, text)
    return {**table, "layer": _tables(layers, text)} if layers else table


def _put(table: dict[str, object], key: str, value: str, text: str) -> None:
    """Put the value of a word into a table; `text` is what has the word."""
    kind = key.removeprefix(f"{_ROUNDING}.")
    if kind == key:
        if key in table:
            raise ValueError(f"{text!r} has {key!r} twice")
        table[key] = int(value) if key == "loss_scale" and value.isdecimal() else value
        return
    roundings = table.setdefault(_ROUNDING, {})
    if not isinstance(roundings, dict) or kind in roundings:
        raise ValueError(
            f"{text!r} has {key if isinstance(roundings, dict) else _ROUNDING!r} twice"
        )
    roundings[kind] = value


def _tables(words: Iterable[tuple[str, str]], text: str) -> Tables:
    """Return the tables of layers from `NAME` or `NAME.KEY`, and values."""
    tables: Tables = {}
    for named, value in words:
        name, key = _name_and_key(named)
        _put(tables.setdefault(name, {}), key, value, text)
    return tables


def _name_and_key(named: str) -> tuple[str, str]:
    name, dot, key = named.rpartition(".")
    if name.endswith(f".{_ROUNDING}") and key in KINDS:
        return name.removesuffix(f".{_ROUNDING}"), f"{_ROUNDING}.{key}"
    # Names of layers may have dots, too: what is no key belongs to the name.
    return (name, key) if dot and key in (*LAYER_KEYS, "loss_scale") else (named, "format")


def layer_tables(given: object) -> Tables:
    """Return the tables of layers by name from the key `layer`: a table of formats or tables, or
    text such as `head=bf16,conv1.errors=fp16`.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(given, str):
        words = [word.partition("=") for word in re.split(r"[,\s]+", given) if word]
        if not all(equals for _, equals, _ in words):
            raise ValueError(f"layer = {given!r}: should be NAME=FORMAT, such as 'head=bf16'")
        return _tables([(name, value) for name, _, value in words], given)
    if not isinstance(given, Mapping):
        raise ValueError(f"layer = {given!r}: should be a table, such as {{ head = 'bf16' }}")
    tables: Tables = {}
    for name, own in given.items():
        if re.search(r"[\s=]", str(name)):
            raise ValueError(f"layer {name!r}: should be a layer's name, without spaces and '='")
        tables[str(name)] = dict(own) if isinstance(own, Mapping) else {"format": own}
    return tables


def joined(before: object, table: Mapping[str, object]) -> object:
    """Return what the key `precision` is once some keys of its table are given anew; `before` is
    what it was.
    """
    # A new format is a new precision: what the old one said of single kinds goes with it.
    if "format" in table or before is None:
        return table
    known = before if isinstance(before, Mapping) else table_of(str(before))
    both = {**known, **table}
    if "layer" in known and "layer" in table:
        both["layer"] = {**layer_tables(known["layer"]), **layer_tables(table["layer"])}
    return both


def layer_word(name: str, key: str, value: str) -> str:
    """Return the word that says a key of a layer."""
    is_plain = key == "format" and _name_and_key(name) == (name, "format")
    return f"{_LAYER}{name}={value}" if is_plain else f"{_LAYER}{name}.{key}={value}"
