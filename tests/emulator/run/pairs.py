"""What tests of training on pairs share: networks of recurrent layers, and data for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from emuchain.emulator.data import Dataset

STEPS, INPUTS, CLASSES = 5, 6, 6
ENDS = [{"type": "last-step"}, {"type": "fc", "features": CLASSES}, {"type": "softmax"}]
BOTH_WAYS: dict[str, Any] = {"bidirectional": True}

LAYERS: dict[str, list[dict[str, Any]]] = {
    "lstm": [{"type": "lstm", "units": 8}],
    "gru": [{"type": "gru", "units": 7}, {"type": "gru", "units": 9}],
    "gru, reset before": [{"type": "gru", "units": 8, "reset": "before"}],
    "projection": [
        {"type": "lstm", "units": 9, "projection": 4},
        {"type": "lstm", "units": 5, "projection": 3},
    ],
    "both ways": [
        {"type": "lstm", "units": 5, "projection": 3, **BOTH_WAYS},
        {"type": "gru", "units": 4, **BOTH_WAYS},
    ],
    "between others": [
        {"type": "embedding", "features": 4},
        {"type": "lstm", "units": 6},
        {"type": "conv", "channels": 5, "kernel": 1},
        {"type": "relu"},
        {"type": "gru", "units": 6, "reset": "before", **BOTH_WAYS},
    ],
    "inputs that are read again": [
        {"type": "embedding", "features": 6, "name": "first"},
        {"type": "lstm", "units": 6, "name": "second"},
        {"type": "add", "from": ["second", "first"], "name": "sum"},
        {"type": "gru", "units": 3, "name": "third", **BOTH_WAYS},
        {"type": "add", "from": ["third", "sum"]},
    ],
}
"""What is before the last step."""


def description(name: str) -> dict[str, Any]:
    """Return the description of the network with these layers."""
    return {"name": name, "input": [INPUTS, STEPS, 1], "layers": [*LAYERS[name], *ENDS]}


def data_of(samples: int = 10, tests: int = 4, *, ragged: bool = False) -> Dataset:
    """Return sequences of symbols with a label each; where `ragged`, of differing lengths, two of
    them of one step.
    """
    random = np.random.default_rng(7)
    x = random.integers(0, INPUTS, (samples + tests, 1, STEPS, 1), np.int32)
    y = random.integers(0, CLASSES, samples + tests)
    lengths = np.where(
        np.arange(samples + tests) < 2, 1, random.integers(1, STEPS + 1, samples + tests)
    )
    some, others = (lengths[:samples], lengths[samples:]) if ragged else (None, None)
    classes = tuple("abcdef"[:CLASSES])
    return Dataset(
        "made",
        x[:samples],
        y[:samples],
        x[samples:],
        y[samples:],
        classes,
        "",
        INPUTS,
        some,
        others,
    )
