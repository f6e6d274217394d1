"""Which rows wait for which: the row maps of layers, and times that follow them through an SFU."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.cluster import Engine
from emuchain.emulator.mapping import Slice, SliceEngines
from emuchain.emulator.network import Layer
from emuchain.emulator.network.operation import rows_needed, rows_reaching
from emuchain.emulator.timing import SliceClock

from ..mapping.networks import Operation, board, conv, fc, network


@st.composite
def windows(draw: st.DrawFn) -> tuple[int, int, int, int, int]:
    """Input rows, output rows, kernel, stride, pad, as the network's rules allow them."""
    kernel = draw(st.integers(1, 7))
    pad = draw(st.integers(0, kernel - 1))
    rows = draw(st.integers(max(1, kernel - 2 * pad), 30))
    stride = draw(st.integers(1, 8))
    return rows, (rows + 2 * pad - kernel) // stride + 1, kernel, stride, pad


def reads(rows_in: int, rows_out: int, kernel: int, stride: int, pad: int) -> list[set[int]]:
    """For each output row, the input rows under its window."""
    return [
        {
            row
            for row in range(out * stride - pad, out * stride - pad + kernel)
            if 0 <= row < rows_in
        }
        for out in range(rows_out)
    ]


def awaited(rows_in: int, under: list[set[int]]) -> list[set[int]]:
    """The same, with the whole map under the last one."""
    return [*under[:-1], set(range(rows_in))]


@given(windows())
def test_an_output_row_waits_for_the_last_row_under_its_window(
    window: tuple[int, int, int, int, int],
) -> None:
    assert rows_needed(*window).tolist() == [
        max(rows) for rows in awaited(window[0], reads(*window))
    ]


@given(windows())
def test_an_input_rows_error_waits_for_the_last_window_over_it(
    window: tuple[int, int, int, int, int],
) -> None:
    under = reads(*window)
    found = rows_reaching(*window).tolist()
    assert len(found) == window[0]
    for row, last in enumerate(found):
        over = [out for out, rows in enumerate(under) if row in rows]
        assert last == max(over) if over else 0 <= last < window[1]


@given(windows(), st.data())
def test_row_maps_of_a_layer_with_pools(
    window: tuple[int, int, int, int, int], data: st.DataObject
) -> None:
    """Rows after a chain of pools, ReLU and LRN, followed from window to window."""
    rows_in, rows, kernel, stride, pad = window
    operations: list[Operation] = [
        {**conv(1), "kernel": [kernel, 1], "stride": [stride, 1], "pad": [pad, 0]}
    ]
    sources = waits = [
        {row} for row in range(rows)
    ]  # for each row that comes out, the convolution's rows in it
    for _ in range(data.draw(st.integers(0, 3))):
        operations.append({"type": data.draw(st.sampled_from(["relu", "lrn"]))})
        size = data.draw(st.integers(1, 4))
        border = data.draw(st.integers(0, size - 1))
        if size > rows + 2 * border:
            continue
        step = data.draw(st.integers(1, 5))
        operations.append(
            {"type": "max-pool", "kernel": [size, 1], "stride": [step, 1], "pad": [border, 0]}
        )
        out = (rows + 2 * border - size) // step + 1
        pooled = reads(rows, out, size, step, border)
        sources = [set().union(*(sources[row] for row in under)) for under in pooled]
        waits = [set().union(*(waits[row] for row in under)) for under in awaited(rows, pooled)]
        rows = out
    layer = network((1, rows_in, 1), *operations, fc(2)).layers[0]
    assert layer.feeds[1] == rows
    assert layer.rows.fp.tolist() == [max(under) for under in awaited(rows_in, reads(*window))]
    there, back = through_sfu(layer)
    assert there == [max(rows_of_convolution) for rows_of_convolution in waits]
    assert layer.rows.eb_leaves.tolist() == list(range(rows_in))
    assert len(back) == layer.output[1]
    for row, last in enumerate(back):
        into = [
            out for out, rows_of_convolution in enumerate(sources) if row in rows_of_convolution
        ]
        assert last == max(into) if into else 0 <= last < rows


def through_sfu(layer: Layer) -> tuple[list[int], list[int]]:
    """The convolution's row that each row waits for, and the row of errors that each of the
    convolution's waits for.
    """
    engine = Engine(multipliers=1, rows=1, row_ps=10)
    clock = SliceClock(0, Slice(layer, 0, 1), SliceEngines(engine, None, engine), board(1000, 10))
    times = {layer.makes.number: np.arange(layer.output[1])[None]}
    clock.activate(times)
    errors = {layer.hands_on[0].number: np.arange(layer.feeds[1])[None]}
    clock.deactivate(errors)
    return times[layer.hands_on[0].number][0].tolist(), errors[layer.makes.number][0].tolist()


def test_row_maps_of_a_fully_connected_layer() -> None:
    layer = network((3, 4, 5), fc(2)).layers[0]
    assert layer.rows.fp.tolist() == [3]  # its one output row needs all input rows
    assert layer.rows.eb.tolist() == [0]  # one output error
    assert layer.rows.eb_leaves.tolist() == [0, 0, 0, 0]  # and all error rows at once
    assert layer.sfu == ()
