"""Virtual time's parts: which rows wait for which, shares of a link, the entry of samples, the interval."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.cluster.board import Board, Cluster, Link
from emuchain.emulator.mapping.engines import Engines, SliceEngines, allocate
from emuchain.emulator.mapping.partition import partition
from emuchain.emulator.mapping.slices import Slice
from emuchain.emulator.mapping.traffic import DataPath, Stream
from emuchain.emulator.network.description import Conv, Description, Fc, Lrn, Pool, Relu, Softmax
from emuchain.emulator.network.graph import resolve
from emuchain.emulator.network.layers import Layer, Network
from emuchain.emulator.timing.timing import (
    DeviceClock,
    RowMaps,
    SliceClock,
    Timing,
    path_row_ps,
    rows_needed,
    rows_reaching,
)


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
        {row for row in range(out * stride - pad, out * stride - pad + kernel) if 0 <= row < rows_in}
        for out in range(rows_out)
    ]


def awaited(rows_in: int, under: list[set[int]]) -> list[set[int]]:
    """The same, with the whole map under the last one."""
    return [*under[:-1], set(range(rows_in))]


@given(windows())
def test_an_output_row_waits_for_the_last_row_under_its_window(window: tuple[int, int, int, int, int]) -> None:
    assert rows_needed(*window).tolist() == [max(rows) for rows in awaited(window[0], reads(*window))]


@given(windows())
def test_an_input_rows_error_waits_for_the_last_window_over_it(window: tuple[int, int, int, int, int]) -> None:
    under = reads(*window)
    found = rows_reaching(*window).tolist()
    assert len(found) == window[0]
    for row, last in enumerate(found):
        over = [out for out, rows in enumerate(under) if row in rows]
        assert last == max(over) if over else 0 <= last < window[1]


def network(shape: tuple[int, int, int], *operations: Conv | Fc | Pool | Relu | Lrn) -> Network:
    """A network of these operations, closed by a fully connected layer and softmax."""
    layers = (*operations, Fc(type="fc", features=2), Softmax(type="softmax"))
    return resolve(Description(name="n", input=shape, layers=layers), "test")


@given(windows(), st.data())
def test_row_maps_of_a_layer_with_pools(window: tuple[int, int, int, int, int], data: st.DataObject) -> None:
    """Rows after a chain of pools, ReLU and LRN, followed from window to window."""
    rows_in, rows, kernel, stride, pad = window
    operations: list[Conv | Pool | Relu | Lrn] = [
        Conv(type="conv", channels=1, kernel=(kernel, 1), stride=(stride, 1), pad=(pad, 0))
    ]
    sources = waits = [{row} for row in range(rows)]  # for each row that comes out, the convolution's rows in it
    for _ in range(data.draw(st.integers(0, 3))):
        operations.append(data.draw(st.sampled_from([Relu(type="relu"), Lrn(type="lrn")])))
        size = data.draw(st.integers(1, 4))
        border = data.draw(st.integers(0, size - 1))
        if size > rows + 2 * border:
            continue
        step = data.draw(st.integers(1, 5))
        operations.append(Pool(type="max-pool", kernel=(size, 1), stride=(step, 1), pad=(border, 0)))
        out = (rows + 2 * border - size) // step + 1
        pooled = reads(rows, out, size, step, border)
        sources = [set().union(*(sources[row] for row in under)) for under in pooled]
        waits = [set().union(*(waits[row] for row in under)) for under in awaited(rows, pooled)]
        rows = out
    layer = network((1, rows_in, 1), *operations).layers[0]
    maps = RowMaps.of(layer)
    assert layer.feeds[1] == rows
    assert maps.fp.tolist() == [max(under) for under in awaited(rows_in, reads(*window))]
    there, back = through_sfu(layer)
    assert there == [max(rows_of_convolution) for rows_of_convolution in waits]
    assert maps.eb_leaves.tolist() == list(range(rows_in))
    assert len(back) == layer.output[1]
    for row, last in enumerate(back):
        into = [out for out, rows_of_convolution in enumerate(sources) if row in rows_of_convolution]
        assert last == max(into) if into else 0 <= last < rows


def through_sfu(layer: Layer) -> tuple[list[int], list[int]]:
    """The row of the convolution that each row waits for, and of the errors that each of the convolution's does."""
    clock = SliceClock(
        Slice(layer, 0, 1), SliceEngines(Engines(1, 1, 1), None, Engines(1, 1, 1)), Board("b", 10, 1000, 1000)
    )
    times = {layer.makes.number: np.arange(layer.output[1])[None]}
    clock.activate(times)
    errors = {layer.hands_on[0].number: np.arange(layer.feeds[1])[None]}
    clock.deactivate(errors)
    return times[layer.hands_on[0].number][0].tolist(), errors[layer.makes.number][0].tolist()


def test_row_maps_of_a_fully_connected_layer() -> None:
    maps = RowMaps.of(network((3, 4, 5)).layers[0])
    assert maps.fp.tolist() == [3]  # its one output row needs all input rows
    assert maps.eb.tolist() == [0]  # one output error
    assert maps.eb_leaves.tolist() == [0, 0, 0, 0]  # and all error rows at once
    assert maps.sfu == ()


def slice_clock() -> SliceClock:
    """conv2, 1x1, 16 to 2 channels, one tile for each engine: 3 pixels · 2 · 16 cycles of 10 ps a row."""
    found = network(
        (16, 4, 3), Conv(type="conv", channels=16, kernel=(1, 1)), Conv(type="conv", channels=2, kernel=(1, 1))
    )
    board = Board("b", 10, 1000, 1000)
    mapping = partition(found, Cluster("c", (board,), Link(1, 0)), 1)
    tight = Board("tight", 10, 8, 1000)
    return SliceClock(mapping.devices[0][1], allocate(mapping, 0, tight)[1], tight)


def test_a_row_leaves_when_it_is_done_and_its_partial_row_has_come() -> None:
    clock = slice_clock()
    row = clock.fp.row_ps
    assert row == 3 * 2 * 16 * 10
    x = np.array([[0, 0, 5000, 5000]])
    partial = np.array([[10, row * 3, 0, 10**6]])
    assert clock.forward(x, None, 0).tolist() == [[row, 2 * row, 5000 + row, 5000 + 2 * row]]
    start = 5000 + 2 * row  # the engine is free from here on; what leaves late does not hold it up
    expected = [max(start + (k + 1) * row, p) for k, p in enumerate(partial[0].tolist())]
    assert clock.forward(x, partial, 0).tolist() == [expected]
    assert clock.fp_start_ps.tolist() == [start]


def test_weights_are_waited_for() -> None:
    clock = slice_clock()
    row = clock.fp.row_ps
    x = np.array([[0, 0, 10**5, 10**6]])
    assert clock.forward(x, None, 50_000).tolist() == [[50_000 + row, 50_000 + 2 * row, 10**5 + row, 10**6 + row]]
    assert clock.error(x, None, 50_000).tolist() == [[50_000 + row, 50_000 + 2 * row, 10**5 + row, 10**6 + row]]


def test_fp_eb_and_pg_run_beside_one_another() -> None:
    clock = slice_clock()
    zeros = np.zeros((2, 4), np.int64)
    forward, error = clock.forward(zeros, None, 0), clock.error(zeros, None, 0)
    clock.gradient(zeros)
    assert forward.tolist() == error.tolist()
    assert clock.pg_end_ps.tolist() == forward[:, -1].tolist()  # pairs · columns = 2 · 16 · 3 cycles as well
    # Weights are new a cycle for each output channel after the last gradient.
    assert clock.updated_ps() == clock.pg_end_ps[-1] + 2 * 10


FORWARD = [DataPath.ACTIVATIONS, DataPath.PARTIAL_ACTIVATIONS]
BACKWARD = [DataPath.OUTPUT_ERRORS, DataPath.INPUT_ERRORS]
SIZES = st.integers(1, 300)


@given(st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=4, max_size=4), st.integers(1, 400_000))
def test_paths_share_a_direction_by_their_bytes(maps: list[tuple[int, int, int]], mbps: int) -> None:
    """So each path of a direction takes as long for a sample as the direction's bytes at full bandwidth."""
    paths = [Stream(path, 0, *size) for path, size in zip([*FORWARD, *BACKWARD], maps, strict=True)]
    for direction in (paths[:2], paths[2:]):
        sample_ps = 8 * sum(4 * math.prod((s.channels, s.rows, s.columns)) for s in direction) * 1e6 / mbps
        for stream in direction:
            row_ps = path_row_ps(Link(mbps, 0), stream, tuple(paths))
            assert isinstance(row_ps, int)
            assert sample_ps / stream.rows * (1 - 1e-12) <= row_ps < sample_ps / stream.rows * (1 + 1e-12) + 1


def test_a_path_alone_has_the_whole_bandwidth() -> None:
    stream = Stream(DataPath.ACTIVATIONS, 0, 5, 3, 7)
    back = Stream(DataPath.INPUT_ERRORS, 0, 5, 3, 7)
    assert path_row_ps(Link(1000, 10**6), stream, (stream, back)) == 4 * 5 * 7 * 8 * 1000  # 1 Gb/s is 1000 ps a bit


def timing(interval_ps: int) -> Timing:
    """A chain of one device, with an interval of our choice."""
    cluster = Cluster("c", (Board("b", 10, 1000, 1000),), Link(1, 0))
    mapping = partition(network((1, 2, 1)), cluster, 1)
    made = Timing.of(mapping, cluster)
    return Timing(cluster, mapping, made.engines, made.links, interval_ps)


@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 800)), min_size=1, max_size=8),
    st.integers(1, 4),
)
def test_samples_enter_one_each_interval(interval_ps: int, blocks: list[tuple[int, int]], rows: int) -> None:
    """And none before the one ahead had the weights that it needs; the new weights come later and later."""
    clock = DeviceClock(timing(interval_ps), 0)
    new_ps = 0
    expected_ps = 0
    for samples, pause_ps in blocks:
        new_ps += pause_ps
        entries = clock.enter(samples, rows, new_ps)
        assert entries.shape == (samples, rows)
        for entry in entries.tolist():
            assert entry == [expected_ps] * rows
            expected_ps = max(expected_ps + interval_ps, new_ps)


@st.composite
def chains(draw: st.DrawFn) -> Timing:
    """A few layers on a few boards of unlike kinds, with any link."""
    channels = st.sampled_from([1, 2, 3, 5, 16, 20])
    rows = draw(st.integers(3, 7))
    operations: list[Conv | Pool] = []
    for _ in range(draw(st.integers(1, 2))):
        kernel = draw(st.sampled_from([1, 3]))
        operations.append(Conv(type="conv", channels=draw(channels), kernel=(kernel, kernel), pad=(kernel // 2,) * 2))
    if draw(st.booleans()):
        operations.append(Pool(type="max-pool", kernel=(2, 2)))
    found = network((draw(channels), rows, draw(st.integers(3, 7))), *operations)
    boards = tuple(
        Board("b", draw(st.integers(1, 20)) * 1000, draw(st.integers(120, 2000)), 1000)
        for _ in range(draw(st.integers(1, 3)))
    )
    link = Link(draw(st.integers(10, 200_000)), draw(st.integers(0, 2000)) * 1000)
    cluster = Cluster("c", boards, link)
    units = sum(layer.channels if layer.input[0] < 16 and layer.channels > layer.input[0] else layer.input[0]
                for layer in found.layers)  # fmt: skip
    return Timing.of(partition(found, cluster, draw(st.integers(1, min(5, units)))), cluster)


@given(chains())
def test_the_interval_is_the_slowest_servers_time_for_a_sample(timing: Timing) -> None:
    slowest_ps = 1
    for device, held in enumerate(timing.engines):
        period_ps = timing.cluster.board(device).period_ps
        for engines in held:
            for engine in (engines.fp, engines.eb, engines.pg):
                if engine is not None:
                    slowest_ps = max(slowest_ps, engine.rows * engine.row_cycles * period_ps)
    for link, streams in enumerate(timing.links):
        for stream in streams:
            slowest_ps = max(slowest_ps, stream.rows * timing.path(link, stream).row_ps)
    assert timing.interval_ps == slowest_ps


@given(chains())
def test_each_device_sends_on_the_paths_of_its_links(timing: Timing) -> None:
    devices = len(timing.mapping.devices)
    for device in range(devices):
        paths = timing.clock(device).paths
        right = {s.lane for s in timing.links[device] if s.path in FORWARD} if device + 1 < devices else set()
        left = {s.lane for s in timing.links[device - 1] if s.path in BACKWARD} if device else set()
        assert set(paths) == right | left
        assert all(server.latency_ps == timing.cluster.link.latency_ps for server in paths.values())


@pytest.mark.parametrize("device", [0, 1])
def test_a_devices_weights_are_new_when_its_last_slice_is_through(device: int) -> None:
    cluster = Cluster("c", (Board("b", 10, 1000, 1000),), Link(1000, 0))
    found = network((16, 3, 3), *(Conv(type="conv", channels=channels, kernel=(1, 1)) for channels in (4, 7)))
    clock = Timing.of(partition(found, cluster, 2), cluster).clock(device)
    for number, part in enumerate(clock.slices):
        part.gradient(np.full((1, 3), 1000 * (number + 1)))
    clock.update()
    assert clock.updated_ps == max(part.updated_ps() for part in clock.slices) > 1000
