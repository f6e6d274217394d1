"""A precision as text, such as `mxfp8 master=bf16 rounding.weights=stochastic layer.head=bf16`, and
tables of its layers and epochs.

A word of a layer is `layer.NAME=FORMAT`, or `layer.NAME.KEY=VALUE` of another key of its table; one
from an epoch on is `epoch.N=FORMAT`, or `epoch.N.` before another word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

KINDS = "activations", "weights", "errors", "gradients", "master", "states"
"""What has a format of its own."""
NARROW = "activations", "weights", "errors"
"""What a format that is given for all of a run is for; the others stay in fp32 then."""
LAYER_KEYS = "format", *KINDS, "accumulate", "rounding", "scale", "hadamard", "scaling", "block"
"""The keys of a layer's table."""
_LAYER, _ROUNDING, _EPOCH = "layer.", "rounding", "epoch."
OTHER_NAMES = {
    **dict.fromkeys(("float", "float32", "single", "tf32"), "fp32"),
    **dict.fromkeys(("float16", "half", "f16", "mixed"), "fp16"),
    **dict.fromkeys(("bfloat16", "bfloat"), "bf16"),
    **dict.fromkeys(("float8_e4m3fn", "float8", "e4m3"), "fp8-e4m3"),
    **dict.fromkeys(("float8_e5m2", "e5m2"), "fp8-e5m2"),
}
"""Formats by what other programs call them."""

Tables = dict[str, dict[str, object]]
"""Tables of layers by their names."""


def table_of(text: str) -> dict[str, object]:
    """Return the table that a text says, such as `mxfp8 master=bf16
    rounding.weights=stochastic`.
    """
    table: dict[str, object] = {}
    layers: list[tuple[str, str]] = []
    epochs: list[tuple[str, str]] = []
    for word in text.split() or [""]:
        key, is_key, value = word.partition("=")
        if key.startswith(_LAYER) and is_key:
            layers.append((key.removeprefix(_LAYER), value))
        elif key.startswith(_EPOCH) and is_key:
            epochs.append((key.removeprefix(_EPOCH), value))
        else:
            _put(table, key if is_key else "format", value if is_key else word, text)
    table |= {"layer": _tables(layers, text)} if layers else {}
    return {**table, "epoch": _of_epochs(epochs)} if epochs else table


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


def epoch_tables(given: object) -> dict[int, dict[str, object]]:
    """Return the tables from epochs on, by their numbers from 2 on, from the key `epoch`: a table
    of formats or tables, or text such as `3=bf16,3.errors=fp16,5.layer.head=fp32`.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(given, str):
        words = [word.partition("=") for word in re.split(r"[,\s]+", given) if word]
        if not all(equals for _, equals, _ in words):
            raise ValueError(f"epoch = {given!r}: should be EPOCH=FORMAT, such as '3=bf16'")
        given = _of_epochs((key, value) for key, _, value in words)
    if not isinstance(given, Mapping):
        raise ValueError(f"epoch = {given!r}: should be a table, such as {{ 3 = 'bf16' }}")
    tables: dict[int, dict[str, object]] = {}
    for epoch, own in given.items():
        if not re.fullmatch(r"0*([2-9]|[1-9]\d{1,8})", str(epoch)):
            raise ValueError(
                f"epoch {epoch}: should be the number of an epoch from 2 on; without `epoch` are"
                " the formats from epoch 1 on"
            )
        said = table_of(own) if isinstance(own, str) else own
        tables[int(epoch)] = dict(said) if isinstance(said, Mapping) else {"format": said}
    return dict(sorted(tables.items()))


def _of_epochs(words: Iterable[tuple[str, str]]) -> dict[str, object]:
    """Return the tables of epochs from `EPOCH` or `EPOCH.KEY`, and values."""
    by_epoch: dict[str, list[str]] = {}
    for named, value in words:
        epoch, _, key = named.partition(".")
        by_epoch.setdefault(epoch, []).append(f"{key or 'format'}={value}")
    return {epoch: table_of(" ".join(own)) for epoch, own in by_epoch.items()}


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
    if "epoch" in known and "epoch" in table:
        both["epoch"] = {**epoch_tables(known["epoch"]), **epoch_tables(table["epoch"])}
    return both


def layer_word(name: str, key: str, value: str) -> str:
    """Return the word that says a key of a layer."""
    is_plain = key == "format" and _name_and_key(name) == (name, "format")
    return f"{_LAYER}{name}={value}" if is_plain else f"{_LAYER}{name}.{key}={value}"
