"""The table of docs/numbers.md of what trains in which formats: each pair is tried."""

from __future__ import annotations

import re
from typing import Any

import pytest

import emuchain
from emuchain.emulator.common import InputError

from ..emulator.run.gpt import Table, conv, gpt
from .pages import text_of
from .test_multipliers import cells

TEXT: Table = {"data": "text", "batch": 4, "samples": 8, "test_samples": 2, "devices": 2}
SHAPES: Table = {**TEXT, "data": "shapes"}
GPT, LLAMA = gpt(12, 1, 3, 6), gpt(12, 1, 6, 6, "rms-norm", kv_heads=3, dropout=0.2)
TIED = gpt(8, 1, 2, 6, tied=True)


def images(*layers: Table) -> Table:
    end = {"type": "global-average-pool"}, {"type": "fc", "features": 10}, {"type": "softmax"}
    start = {"type": "conv", "channels": 16, "kernel": 5, "stride": 4, "name": "c"}
    return {"name": "n", "input": [3, 32, 32], "layers": [start, *layers, *end]}


def sequence(*layers: Table, **closing: Any) -> Table:
    embedding = {"type": "embedding", "features": 8, "name": "wte"}
    end = conv("symbols", "head"), {"type": "softmax", **closing}
    network = {"name": "s", "symbols": 28, "input": ["symbols", 6, 1]}
    return {**network, "layers": [embedding, *layers, *end]}


LSTM, GRU = {"type": "lstm", "units": 20, "name": "r"}, {"type": "gru", "units": 20, "name": "r"}
TWO = {"type": "lstm", "units": 20, "bidirectional": True, "name": "r"}
PROJECTED = {"type": "lstm", "units": 20, "projection": 9, "name": "r"}
SHORTCUT = (
    {"type": "conv", "channels": 16, "kernel": 3, "pad": 1, "name": "d"},
    {"type": "add", "from": ["c", "d"]},
)
GROUPED = {"type": "conv", "channels": 16, "kernel": 3, "pad": 1, "groups": 4}
FEATURES: dict[str, Table] = {
    "convolutions, ReLU, pooling": {**SHAPES, "network": images({"type": "relu"})},
    "batch normalisation, convolutions in groups": {
        **SHAPES,
        "network": images({"type": "batch-norm"}, GROUPED),
    },
    "shortcuts": {**SHAPES, "network": images(*SHORTCUT)},
    "embeddings, positions, attention, layer normalisation, GELU": {**TEXT, "network": GPT},
    "RMS normalisation, rotary positions, shared heads, dropout": {**TEXT, "network": LLAMA},
    "a tied table, its head cut by outputs": {**TEXT, "network": TIED},
    "a tied table, its head cut by inputs": {
        **TEXT,
        "network": gpt(16, 1, 2, 6, tied=True),
    },
    "`vocabulary_parallel`": {
        **TEXT,
        "network": sequence(conv(8, "c"), vocabulary_parallel=True),
    },
    "LSTM": {**TEXT, "network": sequence(LSTM)},
    "GRU": {**TEXT, "network": sequence(GRU)},
    "two directions": {**TEXT, "network": sequence(TWO)},
    "a projection": {**TEXT, "network": sequence(PROJECTED)},
    "LSTM cut by units": {
        **TEXT,
        "network": sequence({**LSTM, "units": 40}),
        "cut": "wte r[:32] | r[32:] head",
    },
    "other formats from an epoch on": {
        **SHAPES,
        "network": images({"type": "relu"}),
        "epochs": 2,
        "precision": "epoch.2.activations=q2.6",
    },
    "frozen layers": {**SHAPES, "network": images({"type": "relu"}), "freeze": "c"},
    "`clip_norm`": {**SHAPES, "network": images({"type": "relu"}), "clip_norm": 0.5},
    "replicas, with a codec": {
        **SHAPES,
        "network": images({"type": "relu"}),
        "replicas": 2,
        "compress": "bf16",
    },
    "replicas that share updates out (`zero`)": {
        **SHAPES,
        "network": images({"type": "relu"}),
        "replicas": 2,
        "zero": 1,
    },
    "boards that take actions as a whole": {
        **TEXT,
        "network": sequence(LSTM),
        "engines": "turns",
        "schedule": "gpipe",
        "micro_batch": 2,
    },
    "a pair with a GPU": {
        **TEXT,
        "network": "char-lstm",
        "devices": None,
        "schedule": "farnn",
        "cluster": "farnn-9p",
    },
}
FORMATS = (
    "bf16",
    "fp8",
    "mxfp8",
    "mxfp4 rounding=stochastic",
    "int8 accumulate=int32",
    "bf16 accumulate=bf16",
    "nvfp4",
    "mxint8 accumulate=dot:32",
    "mxint8 accumulate=dot:8 block=8x8",
    "fp8 scaling=delayed",
    "int8 accumulate=int32 scaling=delayed",
)


def table() -> tuple[list[str], dict[str, list[str]]]:
    """Return the formats of the page's table, and the cells of each feature."""
    [rows] = re.findall(
        r"^<!-- formats -->\n\n((?:\|.*\n)+)", text_of("docs/numbers.md"), re.MULTILINE
    )
    head, _, *others = map(cells, rows.splitlines())
    return [name.strip("`") for name in head[1:]], {row[0]: row[1:] for row in others}


def reasons() -> dict[str, str]:
    """Return what an error says for each letter of the table."""
    return dict(re.findall(r"^- \*\*([a-z])\*\*, `` (.*?) ``:", text_of("docs/numbers.md"), re.M))


def keys_of(feature: str, form: str) -> Table:
    """Return the keys of a run."""
    keys = {key: value for key, value in FEATURES[feature].items() if value is not None}
    precision = " ".join([form, *([keys["precision"]] if "precision" in keys else [])])
    return {"schedule": "sync", **keys, "precision": precision}


def said(feature: str, form: str, door: Any = emuchain.train, **more: Any) -> str | None:
    """Return what training, or another function, says; None if it runs."""
    try:
        door(**keys_of(feature, form), **more)
    except InputError as error:
        return str(error)
    return None


def test_the_table_has_each_pair() -> None:
    formats, features = table()
    assert (formats, [*features]) == ([*FORMATS], [*FEATURES])
    assert {cell for row in features.values() for cell in row} == {"yes", *reasons()}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("feature", FEATURES)
def test_each_pair(feature: str, form: str) -> None:
    formats, features = table()
    cell, error = features[feature][formats.index(form)], said(feature, form, progress="none")
    if cell == "yes":
        assert error is None
    else:
        assert error is not None and reasons()[cell] in error


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("engines", ["split", "turns"])
@pytest.mark.parametrize("feature", ["LSTM", "`vocabulary_parallel`", "shortcuts"])
def test_all_doors_say_the_same(feature: str, engines: str, form: str) -> None:
    """Whether boards take actions as a whole, or numbers are computed, makes no difference."""
    _, features = table()
    keys = {"schedule": "gpipe", "micro_batch": 2} if engines == "turns" else {}
    runs = {**FEATURES[feature], **keys, "engines": engines}
    errors = []
    for door in (emuchain.plan, emuchain.simulate, emuchain.train):
        more = {"progress": "none"} if door is emuchain.train else {}
        try:
            door(**{"schedule": "sync", **runs, "precision": form}, **more)
            errors.append(None)
        except InputError as error:
            errors.append(str(error))
    assert len({*errors}) == 1
    own, whole, lstm = (
        features[row][FORMATS.index(form)]
        for row in (feature, "boards that take actions as a whole", "LSTM")
    )
    takes = engines == "split" or whole in ("yes", lstm)  # where the LSTM of that row trains
    assert (errors[0] is None) == (own == "yes" and takes)
