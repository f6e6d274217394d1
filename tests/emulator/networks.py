"""Networks for images of 32x32 in three colours, with layers whose weights go to files and back;
and for symbols.
"""

from __future__ import annotations

from typing import Any

Table = dict[str, Any]

CONV: Table = {"type": "conv", "name": "c1", "channels": 12, "kernel": 5, "stride": 2, "pad": 2}
GROUPED: Table = {
    "type": "conv",
    "name": "c2",
    "channels": 20,
    "kernel": 3,
    "pad": 1,
    "groups": 2,
    "bias": False,
}
GRU: Table = {"type": "gru", "name": "first", "units": 12, "bidirectional": True}
LSTM: Table = {"type": "lstm", "name": "second", "units": 20, "projection": 8}


def of_images(name: str, *layers: Table) -> Table:
    """A network with these layers before its classifier, `out`."""
    ends = {"type": "fc", "name": "out", "features": 10}, {"type": "softmax"}
    return {"name": name, "input": [3, 32, 32], "layers": [*layers, *ends]}


def of_rows(name: str, *layers: Table) -> Table:
    """A network with these recurrent layers over the rows of an image."""
    return of_images(name, {"type": "sequence"}, *layers, {"type": "last-step"})


def of_table(name: str, symbols: int, features: int, *layers: Table, steps: int = 1) -> Table:
    """A network with these layers between an embedding, `table`, and `head`, which has its weights,
    at the end.
    """
    begin = {"type": "embedding", "features": features, "name": "table"}
    head = {
        "type": "conv",
        "name": "head",
        "channels": symbols,
        "kernel": 1,
        "tied": "table",
        "bias": False,
    }
    ends = head, {"type": "last-step"}, {"type": "softmax"}
    return {"name": name, "input": [symbols, steps, 1], "layers": [begin, *layers, *ends]}
