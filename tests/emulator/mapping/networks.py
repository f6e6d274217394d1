"""What tests of the mapping share: small networks, cheap boards, and what engines have to do,
counted here.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from emuchain.emulator.cluster import Board, Cluster, Fpga, Link
from emuchain.emulator.mapping import Mapping
from emuchain.emulator.network import Layer, Network, Shape, load_network
from emuchain.emulator.network.operations.attention import Attention
from emuchain.emulator.network.operations.recurrent import Gru, Lstm

LINK = Link(1000, 0)
FAST = Link(10**12, 0)
"""A link that is never the slowest server: it takes a picosecond for a row."""
PERIOD_PS = 10_000
"""The clock period of a board, unless a test says otherwise."""

Operation = dict[str, Any]
"""The keys of an operation in a network's TOML file."""


def board(
    dsp: int, period_ps: int = PERIOD_PS, name: str = "b", on_chip_memory_bytes: int = 10**9
) -> Fpga:
    """A board of which only multipliers and clock matter, for it has memory for everything."""
    return Fpga(name, period_ps, dsp, on_chip_memory_bytes)


def cluster(*boards: Board, link: Link = LINK) -> Cluster:
    """A chain of such boards."""
    return Cluster("c", boards, link)


def network(shape: Shape, *operations: Operation) -> Network:
    """A network of these operations and softmax."""
    return load_network(
        {"name": "n", "input": list(shape), "layers": [*operations, {"type": "softmax"}]}
    )


def conv(channels: int, kernel: int = 1, **more: object) -> Operation:
    """A convolution."""
    return {"type": "conv", "channels": channels, "kernel": kernel, **more}


def fc(features: int) -> Operation:
    """A fully connected layer."""
    return {"type": "fc", "features": features}


def max_pool(rows: int, columns: int) -> Operation:
    """A max-pool; with a window as large as the maps, one value of each channel is left."""
    return {"type": "max-pool", "kernel": [rows, columns]}


@st.composite
def networks(draw: st.DrawFn, most: int = 24) -> Network:
    """Some convolutions, in groups or not, and fully connected layers, with few or many
    channels.
    """
    channels = st.one_of(st.integers(1, min(6, most)), st.integers(min(14, most), most))
    shape = draw(channels), draw(st.integers(1, 9)), draw(st.integers(1, 9))
    operations: list[Operation] = []
    rows, columns = shape[1:]
    for _ in range(draw(st.integers(0, 3))):
        kernel = draw(st.integers(1, min(3, rows, columns)))
        inputs = operations[-1]["channels"] if operations else shape[0]
        outputs = draw(channels)
        groups = draw(
            st.sampled_from([n for n in range(1, outputs + 1) if outputs % n == inputs % n == 0])
        )
        operations.append(conv(outputs, kernel, groups=groups))
        rows, columns = rows - kernel + 1, columns - kernel + 1
    operations += [fc(draw(channels)) for _ in range(draw(st.integers(1, 2)))]
    return network(shape, *operations)


BOARDS = st.lists(
    st.builds(board, st.integers(100, 5000), st.integers(1000, 20_000)), min_size=1, max_size=5
)


def channels_to_cut(found: Network) -> list[int]:
    """For each layer the channels along which it is cut, by FPDeep's rule: OCP if input channels
    are too few.

    Recurrent layers are cut by units, where these need no sums over all of them within a step;
    attention by heads.
    """
    return list(map(_channels_to_cut, found.layers))


def _channels_to_cut(layer: Layer) -> int:
    operation = layer.operation
    if isinstance(operation, Lstm | Gru):
        needs_all = (
            operation.bidirectional
            or operation.projection
            or getattr(operation, "reset", "after") == "before"
        )
        return 1 if needs_all else operation.units
    if isinstance(operation, Attention):
        return operation.kv_heads or operation.heads
    few = layer.input[0] < 16 and layer.channels > layer.input[0]
    by_outputs = (
        few or operation.type == "embedding" or operation.groups > 1 or layer.vocabulary_parallel
    )
    return layer.channels if by_outputs else layer.input[0]


def check_order(found: Network, mapping: Mapping) -> None:
    """Every channel of every layer stands on one device, in the order of layers and channels."""
    pieces = [
        (part.layer.index, channel)
        for slices in mapping.devices
        for part in slices
        for channel in range(part.begin, part.end)
    ]
    assert pieces == [
        (layer.index, channel)
        for layer, count in zip(found.layers, channels_to_cut(found), strict=True)
        for channel in range(count)
    ]
    for slices in mapping.devices:
        assert slices
        assert all(part.begin < part.end for part in slices)


def work_of(layer: Layer) -> list[tuple[int, int, int]]:
    """FP, EB (but of the first layer), PG of a layer: rows of a sample, KxK convolutions in a row,
    size of a tile.
    """
    inputs, rows, columns = layer.input
    outputs, out_rows, out_columns = layer.output
    if not layer.convolves:
        return [(1, inputs * rows * columns * outputs, 1)] * (3 if layer.needs_errors else 2)
    k, pairs = layer.kernel[0] * layer.kernel[1], inputs * outputs // layer.operation.groups
    fp, eb = (out_rows, pairs * out_columns, k), (rows, pairs * columns, k)
    return [fp, eb, fp] if layer.needs_errors else [fp, fp]


def fewest_cycles(engines: list[tuple[int, int, int]], dsp: int) -> int | None:
    """Cycles of a sample on the slowest of these engines, tile after tile given to the slowest
    one.
    """
    tiles = [1] * len(engines)
    if (left := dsp - sum(k for _, _, k in engines)) < 0:
        return None
    while True:
        cycles = [
            rows * -(-each // count) for (rows, each, _), count in zip(engines, tiles, strict=True)
        ]
        slowest = cycles.index(max(cycles))
        rows, each, k = engines[slowest]
        more = next(
            (t for t in range(tiles[slowest], each + 1) if rows * -(-each // t) < cycles[slowest]),
            None,
        )
        if more is None or (left := left - (more - tiles[slowest]) * k) < 0:
            return cycles[slowest]
        tiles[slowest] = more
