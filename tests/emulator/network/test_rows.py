"""Which error row waits for which, where errors go back from the last row: against windows, row by
row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from emuchain.emulator.network import Network, load_network

Table = dict[str, Any]


@st.composite
def windows(draw: st.DrawFn) -> tuple[int, int, int, int]:
    """Rows of the input; kernel, stride and padding that fit them."""
    rows, kernel, stride = (
        draw(st.integers(1, 12)),
        draw(st.integers(1, 5)),
        draw(st.integers(1, 4)),
    )
    pad = draw(st.integers(0, kernel - 1))
    assume(rows + 2 * pad >= kernel)
    return rows, kernel, stride, pad


def before_recurrent(rows: int, *operations: Table) -> Network:
    end = [{"type": "sequence"}, {"type": "gru", "units": 2}, {"type": "softmax"}]
    first = {"type": "conv", "channels": 1, "kernel": 1}
    return load_network({"name": "n", "input": [1, rows, 1], "layers": [first, *operations, *end]})


def expected(needed: list[int], rows_in: int) -> list[int]:
    """By error row, last input row first: the number, last output row first, of the last error that
    it waits for.

    Row i receives errors from every output row whose inputs end at i or later; those come from the
    last one on.
    """
    found = []
    for row in reversed(range(rows_in)):
        arrival = {out: len(needed) - 1 - out for out in range(len(needed))}
        found.append(max(arrival[out] for out, last in enumerate(needed) if last >= row))
    return found


def last_inputs(rows: int, kernel: int, stride: int, pad: int) -> list[int]:
    """For each window the last row that it waits for; the last window waits for all."""
    found = []
    begins = range(-pad, rows + pad - kernel + 1, stride)
    for begin in begins:
        inside = [row for row in range(begin, begin + kernel) if 0 <= row < rows]
        found.append(max(inside, default=0 if begin < 0 else rows - 1))
    found[-1] = rows - 1
    return found


@given(windows())
def test_convolutions(window: tuple[int, int, int, int]) -> None:
    rows, kernel, stride, pad = window
    conv = {
        "type": "conv",
        "channels": 1,
        "kernel": [kernel, 1],
        "stride": [stride, 1],
        "pad": [pad, 0],
    }
    layer = before_recurrent(rows, conv).layers[1]
    needed = last_inputs(rows, kernel, stride, pad)
    assert layer.rows.fp.tolist() == needed
    assert layer.rows.eb.tolist() == expected(needed, rows)
    assert layer.rows.eb_leaves.tolist() == list(range(rows))
    reached = [
        max(
            (
                len(needed) - 1 - out
                for out in range(len(needed))
                if 0 <= row + pad - out * stride < kernel
            ),
            default=-1,
        )
        for row in reversed(range(rows))
    ]
    assert (layer.rows.eb >= np.array(reached)).all(), "all errors that reach a row are there"


@given(windows())
def test_pools(window: tuple[int, int, int, int]) -> None:
    rows, kernel, stride, pad = window
    pool = {"type": "max-pool", "kernel": [kernel, 1], "stride": [stride, 1], "pad": [pad, 0]}
    [step, *_] = before_recurrent(rows, pool).layers[0].sfu
    needed = last_inputs(rows, kernel, stride, pad)
    assert step.rows is not None
    assert step.rows.forward.tolist() == needed
    assert step.rows.backward.tolist() == expected(needed, rows)


@given(st.integers(1, 20), st.booleans(), st.sampled_from(["lstm", "gru"]))
def test_recurrent_layers(steps: int, bidirectional: bool, kind: str) -> None:
    layers = [{"type": kind, "units": 2, "bidirectional": bidirectional}, {"type": "softmax"}]
    rows = load_network({"name": "n", "input": [1, steps, 1], "layers": layers}).layers[0].rows
    all_rows, each = [steps - 1] * steps, list(range(steps))
    assert rows.fp.tolist() == rows.eb.tolist() == (all_rows if bidirectional else each)
    assert rows.eb_leaves.tolist() == each


@given(st.integers(2, 20))
def test_last_step_and_fully_connected(steps: int) -> None:
    layers = [
        {"type": "lstm", "units": 2},
        {"type": "last-step"},
        {"type": "fc", "features": 3},
        {"type": "softmax"},
    ]
    lstm, fc = load_network({"name": "n", "input": [1, steps, 1], "layers": layers}).layers
    [last] = lstm.sfu
    assert last.rows is not None
    assert (last.rows.forward.tolist(), last.rows.backward.tolist()) == ([steps - 1], [0] * steps)
    assert fc.rows.eb.tolist() == [0]
    flat = load_network(
        {"name": "n", "input": [1, steps, 1], "layers": [layers[0], *layers[2:]]}
    ).layers[1]
    assert flat.rows.fp.tolist() == [steps - 1]
    assert (flat.rows.eb.tolist(), flat.rows.eb_leaves.tolist()) == ([0], [0] * steps)


def test_networks_without_recurrent_layers_go_first_row_first() -> None:
    layers = [
        {"type": "conv", "channels": 1, "kernel": 2, "stride": 3},
        {"type": "fc", "features": 2},
    ]
    network = load_network(
        {"name": "n", "input": [1, 7, 7], "layers": [*layers, {"type": "softmax"}]}
    )
    assert not network.last_first
    assert network.layers[0].rows.eb.tolist() == [0, 0, 0, 1, 1, 1, 1]
