"""The mapping: the cut over devices, the engines of each slice, and what links carry."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from emuchain.emulator.cluster.board import Board, Cluster, Link
from emuchain.emulator.cluster.load import load_cluster
from emuchain.emulator.common.errors import InputError
from emuchain.emulator.mapping.engines import Engines, allocate, idle_share
from emuchain.emulator.mapping.partition import partition
from emuchain.emulator.mapping.slices import Cut, Mapping, Slice, imbalance
from emuchain.emulator.mapping.traffic import DataPath, Stream, streams
from emuchain.emulator.network.description import Conv, Description, Fc, Pool, Relu, Softmax
from emuchain.emulator.network.graph import resolve
from emuchain.emulator.network.layers import Layer, Network
from emuchain.emulator.network.load import load_network, zoo

LINK = Link(1000, 0)


def board(dsp: int, period_ps: int = 10_000, name: str = "b", on_chip_memory_bytes: int = 10**9) -> Board:
    """A board of which only multipliers and clock matter, for it has memory for everything."""
    return Board(name, period_ps, dsp, on_chip_memory_bytes)


def cluster(*boards: Board) -> Cluster:
    """A chain of such boards."""
    return Cluster("c", boards, LINK)


def network(shape: tuple[int, int, int], *operations: Conv | Fc | Pool | Relu) -> Network:
    """A network of these operations and softmax."""
    layers = (*operations, Softmax(type="softmax"))
    return resolve(Description(name="n", input=shape, layers=layers), "test")


def conv(channels: int, kernel: int = 1, **more: object) -> Conv:
    """A convolution."""
    return Conv(type="conv", channels=channels, kernel=kernel, **more)  # type: ignore[arg-type]


def fc(features: int) -> Fc:
    """A fully connected layer."""
    return Fc(type="fc", features=features)


@st.composite
def networks(draw: st.DrawFn, most: int = 24) -> Network:
    """Some convolutions and fully connected layers with few or many channels."""
    channels = st.one_of(st.integers(1, min(6, most)), st.integers(min(14, most), most))
    shape = draw(channels), draw(st.integers(1, 9)), draw(st.integers(1, 9))
    operations: list[Conv | Fc | Pool | Relu] = []
    rows, columns = shape[1:]
    for _ in range(draw(st.integers(0, 3))):
        kernel = draw(st.integers(1, min(3, rows, columns)))
        operations.append(conv(draw(channels), kernel))
        rows, columns = rows - kernel + 1, columns - kernel + 1
    operations += [fc(draw(channels)) for _ in range(draw(st.integers(1, 2)))]
    return network(shape, *operations)


BOARDS = st.lists(st.builds(board, st.integers(100, 5000), st.integers(1000, 20_000)), min_size=1, max_size=5)


def channels_to_cut(found: Network) -> list[int]:
    """For each layer the channels along which it is cut, by FPDeep's rule: OCP if input channels are too few."""
    return [
        layer.channels if layer.input[0] < 16 and layer.channels > layer.input[0] else layer.input[0]
        for layer in found.layers
    ]


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


@given(networks(), BOARDS, st.data())
def test_partition(found: Network, boards: list[Board], data: st.DataObject) -> None:
    devices = data.draw(st.integers(1, min(sum(channels_to_cut(found)), 30)))
    mapping = partition(found, cluster(*boards), devices)
    assert len(mapping.devices) == devices
    check_order(found, mapping)
    assert sum(part.macs for slices in mapping.devices for part in slices) == found.macs


def work_of(layer: Layer) -> list[tuple[int, int, int]]:
    """FP, EB (but of the first layer), PG of a layer: rows of a sample, KxK convolutions in a row, size of a tile."""
    inputs, rows, columns = layer.input
    outputs, out_rows, out_columns = layer.output
    if layer.is_fc:
        return [(1, inputs * rows * columns * outputs, 1)] * (3 if layer.needs_errors else 2)
    k = layer.kernel[0] * layer.kernel[1]
    fp, eb = (out_rows, inputs * outputs * out_columns, k), (rows, inputs * outputs * columns, k)
    return [fp, eb, fp] if layer.needs_errors else [fp, fp]


def fastest(engines: list[tuple[int, int, int]], dsp: int) -> int | None:
    """Cycles of a sample on the slowest of these engines, tile after tile given to the slowest one."""
    tiles = [1] * len(engines)
    if (left := dsp - sum(k for _, _, k in engines)) < 0:
        return None
    while True:
        cycles = [rows * -(-each // count) for (rows, each, _), count in zip(engines, tiles, strict=True)]
        slowest = cycles.index(max(cycles))
        rows, each, k = engines[slowest]
        more = next((t for t in range(tiles[slowest], each + 1) if rows * -(-each // t) < cycles[slowest]), None)
        if more is None or (left := left - (more - tiles[slowest]) * k) < 0:
            return cycles[slowest]
        tiles[slowest] = more


@settings(max_examples=60)
@given(networks(most=5), st.lists(st.builds(board, st.integers(30, 200), st.integers(5, 9)), min_size=1, max_size=3),
       st.integers(1, 4), st.booleans())  # fmt: skip
def test_no_cut_has_a_faster_slowest_engine(found: Network, boards: list[Board], devices: int, fc_fits: bool) -> None:
    """Against all cuts of the row of channels; where fully connected layers do not fit, those that keep them apart."""
    if not fc_fits:
        boards = [dataclasses.replace(held, on_chip_memory_bytes=0) for held in boards]
    apart = not fc_fits and devices > 1 and not found.layers[0].is_fc
    row = [
        (layer, count, channel)
        for layer, count in zip(found.layers, channels_to_cut(found), strict=True)
        for channel in range(count)
    ]
    assume(devices <= len(row))
    best = None
    for cuts in itertools.combinations(range(1, len(row)), devices - 1):
        slowest: int | None = 0
        for device, (begin, end) in enumerate(itertools.pairwise([0, *cuts, len(row)])):
            held = boards[min(device, len(boards) - 1)]
            if apart and len({layer.is_fc for layer, _, _ in row[begin:end]}) > 1:
                slowest = None
                break
            engines = [
                (rows, each * channels // count, k)
                for layer, count in dict.fromkeys((layer, count) for layer, count, _ in row[begin:end])
                for channels in [sum(other is layer for other, _, _ in row[begin:end])]
                for rows, each, k in work_of(layer)
            ]
            cycles = fastest(engines, held.dsp)
            slowest = None if cycles is None or slowest is None else max(slowest, cycles * held.period_ps)
        if slowest is not None:
            best = slowest if best is None else min(best, slowest)
    if best is None:
        with pytest.raises(InputError, match="one tile of kernel size for each engine"):
            partition(found, cluster(*boards), devices)
        return
    mapping = partition(found, cluster(*boards), devices)
    assert mapping.balance is not None
    assert mapping.balance.slowest_ps == best == slowest_engine_ps(mapping, cluster(*boards))


def slowest_engine_ps(mapping: Mapping, chain: Cluster) -> int:
    """The time of a sample on the slowest engine of all devices."""
    return max(
        engine.sample_cycles * chain.board(device).period_ps
        for device in range(len(mapping.devices))
        for held in allocate(mapping, device, chain.board(device))
        for engine in (held.fp, held.eb, held.pg)
        if engine is not None
    )


@given(networks(), st.integers(100, 5000), st.data())
def test_even_as_rounding_to_the_nearest_channel_where_that_is_as_fast(
    found: Network, dsp: int, data: st.DataObject
) -> None:
    work = [
        sum(rows * each * k for rows, each, k in work_of(layer)) // count
        for layer, count in zip(found.layers, channels_to_cut(found), strict=True)
        for _ in range(count)
    ]
    devices = data.draw(st.integers(1, min(len(work), 12)))
    before = [0, *itertools.accumulate(work)]
    nearest = [0]
    for device in range(1, devices):
        due = Fraction(before[-1] * device, devices)
        channel = min(range(len(before)), key=lambda channel: (abs(before[channel] - due), channel))
        assume(2 * abs(before[channel] - due) < min(work))  # which of two as near is taken, nobody has said
        assume(channel > nearest[-1])
        nearest.append(channel)
    assume(nearest[-1] < len(work))
    chain = cluster(board(dsp))
    mapping = partition(found, chain, devices)
    assert mapping.balance is not None
    rounded = Mapping(found, cut_at(found, [*nearest, len(work)]))
    shares = [before[end] - before[begin] for begin, end in itertools.pairwise([*nearest, len(work)])]
    try:
        slowest_ps = slowest_engine_ps(rounded, chain)
    except InputError:
        return
    assert mapping.balance.slowest_ps <= slowest_ps
    if mapping.balance.slowest_ps == slowest_ps:
        assert mapping.balance.fine <= imbalance(shares) + 1e-9


def cut_at(found: Network, ends: list[int]) -> tuple[tuple[Slice, ...], ...]:
    """The devices' slices, from the boundaries in the row of all channels."""
    row = [
        (layer, channel)
        for layer, count in zip(found.layers, channels_to_cut(found), strict=True)
        for channel in range(count)
    ]
    devices = []
    for begin, end in itertools.pairwise(ends):
        held = []
        for layer, channels in itertools.groupby(row[begin:end], key=lambda channel: channel[0]):
            numbers = [channel for _, channel in channels]
            held.append(Slice(layer, numbers[0], numbers[-1] + 1))
        devices.append(tuple(held))
    return tuple(devices)


def test_imbalance_by_hand() -> None:
    assert imbalance([3, 2, 4]) == 0.5 + 0 + 1
    assert imbalance([7]) == 0


@given(networks(), BOARDS, st.integers(1, 12))
def test_balance(found: Network, boards: list[Board], devices: int) -> None:
    """Perfect balance is all work on all multipliers, and V that of the shares."""
    devices = min(devices, sum(channels_to_cut(found)))
    chain = cluster(*boards)
    balance = partition(found, chain, devices).balance
    assert balance is not None
    work = sum(rows * each * k for layer in found.layers for rows, each, k in work_of(layer))
    able = sum(Fraction(chain.board(device).dsp, chain.board(device).period_ps) for device in range(devices))
    assert balance.perfect_ps == pytest.approx(float(work / able))
    assert balance.gap == pytest.approx(balance.slowest_ps / balance.perfect_ps - 1)
    assert balance.gap > -1e-9
    assert balance.coarse >= 0
    assert balance.fine >= 0


@pytest.mark.parametrize("name", zoo())
@pytest.mark.parametrize("devices", [1, 2, 15, 85])
def test_zoo(name: str, devices: int) -> None:
    found, chain = load_network(name), load_cluster("vc709")
    mapping = partition(found, chain, devices)
    check_order(found, mapping)
    assert mapping.balance is not None
    assert mapping.balance.slowest_ps == slowest_engine_ps(mapping, chain)


PAPER = ["alexnet", "vgg16", "vgg19"]


@pytest.mark.parametrize(("name", "mean_of_many"), [("alexnet", 0.015), ("vgg16", 0.01), ("vgg19", 0.01)])
def test_idle_stages_of_the_paper(name: str, mean_of_many: float) -> None:
    """Always under 5 % from 5 to 85 FPGAs, and 0.5 to 1 % with more than 30 (FPDeep, section 6.3.3).

    The latter not for AlexNet: conv1 has tiles of 121 multipliers, of which an engine gets a dozen.
    """
    found, chain = load_network(name), load_cluster("vc709")
    idle = {devices: idle_share(partition(found, chain, devices), chain) for devices in range(5, 86, 5)}
    assert 0 <= min(idle.values()) <= max(idle.values()) < 0.05
    many = [share for devices, share in idle.items() if devices > 30]
    assert max(many) < 0.02
    assert 0.002 < sum(many) / len(many) < mean_of_many


def test_150_layers_on_1000_devices() -> None:
    """However many there are, the cut is exact; here no cut could be more than 4 % better."""
    operations: list[Conv | Pool] = []
    for channels, count in ((64, 38), (128, 38), (256, 38), (512, 36)):
        operations += [conv(channels, 3, pad=(1, 1))] * count + [Pool(type="max-pool", kernel=(2, 2))]
    found = network((3, 224, 224), *operations, fc(1000))
    assert len(found.layers) == 151
    mapping = partition(found, load_cluster("vc709"), 1000)
    check_order(found, mapping)
    assert len(mapping.devices) == 1000
    assert mapping.balance is not None
    assert 0 < mapping.balance.gap < 0.04


@pytest.mark.parametrize("name", PAPER)
def test_large_fully_connected_layers_have_devices_of_their_own(name: str) -> None:
    """One of 15 (FPDeep, section 6.3.1)."""
    found, chain = load_network(name), load_cluster("vc709")
    assert not partition(found, chain, 1).fc_devices
    assert partition(found, chain, 15).fc_devices == range(14, 15)
    for devices in (2, 15, 80):
        mapping = partition(found, chain, devices)
        for device, slices in enumerate(mapping.devices):
            assert {part.layer.is_fc for part in slices} == {device in mapping.fc_devices}


@pytest.mark.parametrize("name", ["lenet-mnist", "quick-cifar", "vgg11-cifar", "vgg16-cifar"])
def test_small_fully_connected_layers_have_none(name: str) -> None:
    mapping = partition(load_network(name), load_cluster("vc709"), 4)
    assert not mapping.fc_devices
    assert {part.layer.is_fc for part in mapping.devices[-1]} == {True, False}


def test_as_many_devices_for_fully_connected_layers_as_keep_them_from_being_the_slowest() -> None:
    """Convolutions of 5·256 multiplier-cycles, and fc of 3·1280, 240 for each of its 16 channels; 40 multipliers.

    On two boards fc is alone: 3·13 tiles do 1280 convolutions each in 99 cycles. On three it has two boards, 8 channels
    each, 640 / 13 = 50 cycles. On six it needs four, 4 channels each, 320 / 13 = 25 cycles; on two boards the
    convolutions take 16, as five engines with 128 convolutions and 8 tiles each do.
    """
    found = network((16, 1, 1), conv(16), conv(16), fc(80))
    small, roomy = (cluster(board(40, 1, on_chip_memory_bytes=size)) for size in (10_000, 20_000))
    assert not partition(found, roomy, 6).fc_devices
    for devices, first, slowest_ps in ((2, 1, 99), (3, 1, 50), (6, 2, 25)):
        mapping = partition(found, small, devices)
        assert mapping.fc_devices == range(first, devices)
        assert mapping.balance is not None
        assert mapping.balance.slowest_ps == slowest_ps


@pytest.mark.parametrize("devices", [0, -1, 9, 1000])
def test_too_many_devices_or_none(devices: int) -> None:
    """conv: 3 output channels; fc: 3 input channels, and 2 of the next: 8 in all."""
    found = network((1, 2, 2), conv(3), fc(2), fc(2))
    assert len(partition(found, cluster(board(100)), 8).devices) == 8
    with pytest.raises(InputError) as error:
        partition(found, cluster(board(100)), devices)
    line = str(error.value)
    assert f"`devices` = {devices}" in line
    assert "1 to 8" in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("ins", "outs", "expected"),
    [
        (3, 64, Cut.OCP),
        (15, 16, Cut.OCP),
        (1, 2, Cut.OCP),
        (16, 64, Cut.ICP),
        (64, 10, Cut.ICP),
        (15, 15, Cut.ICP),  # output channels would be no more
        (15, 2, Cut.ICP),
        (1, 1, Cut.ICP),
    ],
)
def test_few_input_channels_make_ocp(ins: int, outs: int, expected: Cut) -> None:
    layer = network((ins, 1, 1), fc(outs)).layers[0]
    [[part]] = partition(network((ins, 1, 1), fc(outs)), cluster(board(100)), 1).devices
    assert part.cut is expected
    assert (part.begin, part.end) == (0, outs if expected is Cut.OCP else ins)
    middle = Slice(layer, 0, 1)
    assert (len(middle.in_channels), len(middle.out_channels)) == ((ins, 1) if expected is Cut.OCP else (1, outs))


def engines_of(mapping: Mapping, device: int, held: Board) -> list[tuple[tuple[int, int, int], Engines]]:
    """What each engine of a device has to do, and what it got."""
    return [
        ((rows, each * (part.end - part.begin) // count, k), engine)
        for part, both in zip(mapping.devices[device], allocate(mapping, device, held), strict=True)
        for count in [channels_to_cut(mapping.network)[part.layer.index]]
        for (rows, each, k), engine in zip(
            work_of(part.layer), [both.fp, *([both.eb] if both.eb else []), both.pg], strict=True
        )
    ]


@given(networks(), st.integers(1, 3000), st.data())
def test_engines(found: Network, dsp: int, data: st.DataObject) -> None:
    """Whole tiles, one at the least, and cycles by FPDeep's operation counts."""
    devices = data.draw(st.integers(1, min(8, sum(channels_to_cut(found)))))
    mapping = partition(found, cluster(board(100)), devices)
    for device, slices in enumerate(mapping.devices):
        needed = sum(k for part in slices for _, _, k in work_of(part.layer))
        if dsp < needed:
            with pytest.raises(InputError, match=f"`dsp` = {dsp}.*device {device} needs at least {needed},"):
                allocate(mapping, device, board(dsp))
            continue
        used = 0
        for (rows, each, k), engine in engines_of(mapping, device, board(dsp)):
            tiles, rest = divmod(engine.multipliers, k)
            assert (rest, engine.rows) == (0, rows)
            assert 1 <= tiles <= each
            assert engine.row_cycles == -(-each // tiles)
            assert engine.sample_cycles == rows * engine.row_cycles
            used += engine.multipliers
        assert used <= dsp


@given(networks(), st.integers(90, 3000), st.integers(1, 6))
def test_no_allocation_has_a_faster_slowest_engine(found: Network, dsp: int, devices: int) -> None:
    mapping = partition(found, cluster(board(100)), min(devices, sum(channels_to_cut(found))))
    alone = dataclasses.replace(mapping, balance=None)
    for device in range(len(mapping.devices)):
        engines = engines_of(alone, device, board(dsp))
        assert max(engine.sample_cycles for _, engine in engines) == fastest([todo for todo, _ in engines], dsp)


@given(networks(), BOARDS, st.integers(1, 12))
def test_no_engine_has_tiles_that_the_slowest_device_leaves_idle(
    found: Network, boards: list[Board], devices: int
) -> None:
    """Two steps fewer, and it would be slower than the slowest; one, where it was as slow and got one more."""
    chain = cluster(*boards)
    mapping = partition(found, chain, min(devices, sum(channels_to_cut(found))))
    assert mapping.balance is not None
    for device in range(len(mapping.devices)):
        held = chain.board(device)
        for (rows, each, k), engine in engines_of(mapping, device, held):
            assert engine.sample_cycles * held.period_ps <= mapping.balance.slowest_ps
            cycles = mapping.balance.slowest_ps // held.period_ps
            fewest = -(-each // (cycles // rows))
            tiles = engine.multipliers // k
            assert tiles == fewest or (rows * -(-each // fewest) == cycles and engine.sample_cycles < cycles)


def cycles(found: Network, dsp: int, device: int = 0, devices: int = 1) -> list[tuple[int, ...]]:
    """For each slice of a device: multipliers and cycles of a row, of FP, EB (if any) and PG."""
    mapping = partition(found, cluster(board(dsp)), devices)
    return [
        tuple(
            figure
            for engine in (engines.fp, engines.eb, engines.pg)
            if engine is not None
            for figure in (engine.multipliers, engine.row_cycles)
        )
        for engines in allocate(mapping, device, board(dsp))
    ]


def test_engines_of_one_layer_by_hand() -> None:
    """16 input and 8 output channels, 3x3 on 6x7, so 4x5: FP and PG share the board, for a first layer has no EB.

    Each has 16·8·5 = 640 convolutions in a row. 5184 multipliers are 576 tiles of 9, 288 for each: 3 cycles, for which
    ceil(640 / 3) = 214 are enough. Of the 148 left over FP takes 106, for with 320 it needs 2 cycles; 42 are left.
    """
    found = network((16, 6, 7), conv(8, 3), Pool(type="max-pool", kernel=(4, 5)))
    assert cycles(found, 5184) == [(320 * 9, 2, 214 * 9, 3)]


def test_engines_with_few_tiles_by_hand() -> None:
    """The same layer with 10 tiles, 5 for each: 640 / 5 = 128 cycles a row.

    With 11 tiles the one left over goes to FP: ceil(640 / 6) = 107.
    """
    found = network((16, 6, 7), conv(8, 3), Pool(type="max-pool", kernel=(4, 5)))
    assert cycles(found, 90) == [(45, 128, 45, 128)]
    assert cycles(found, 99) == [(54, 107, 45, 128)]
    assert cycles(found, 98) == cycles(found, 90)  # eight multipliers are no tile


def test_engines_of_two_layers_by_hand() -> None:
    """Both 1x1 on 1x3: 2 to 2 channels, 12 MACs (no EB), and 2 to 4, 24 MACs: 2·12 + 3·24 = 96 in all.

    With 9 multipliers 12 cycles are the least: the first layer's FP and PG have 12 convolutions, one multiplier each;
    the second's FP, EB and PG 24, two each. So 8 are taken, and the first of those as slow gets the one left over.
    """
    found = network((2, 1, 3), conv(2), conv(4), Pool(type="max-pool", kernel=(1, 3)))
    assert [layer.macs for layer in found.layers] == [12, 24]
    assert cycles(found, 9) == [(2, 6, 1, 12), (2, 12, 2, 12, 2, 12)]


def test_strides_let_fp_and_eb_differ() -> None:
    """16 to 16 channels, 1x1, stride 2 on 1x5: 3 output pixels, 5 input pixels; S = 16 channels, one tile each."""
    found = network((16, 1, 5), conv(16), conv(16, stride=2), Pool(type="max-pool", kernel=(1, 3)))
    [_, second] = partition(found, cluster(board(5)), 1).devices[0]
    [_, engines] = allocate(partition(found, cluster(board(5)), 1), 0, board(5))
    assert second.layer.output == (16, 1, 3)
    assert engines.eb is not None
    assert (engines.fp.row_cycles, engines.eb.row_cycles, engines.pg.row_cycles) == (3 * 256, 5 * 256, 3 * 256)


def test_too_few_multipliers() -> None:
    found = network((1, 3, 3), conv(2, 3), fc(2))
    mapping = partition(found, cluster(board(21)), 1)
    allocate(mapping, 0, board(21, name="tiny"))  # 9 + 9 for the convolution, 1 + 1 + 1 for fc
    with pytest.raises(InputError) as error:
        allocate(mapping, 0, board(20, name="tiny"))
    line = str(error.value)
    for told in ("board tiny", "`dsp` = 20", "device 0", "at least 21", "conv1[0:2] OCP, fc1[0:2] ICP"):
        assert told in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("dsp", "told"),
    [
        (20, ("`devices` = 1", "at least 21 multipliers", "tiny 20")),
        (17, ("board tiny", "`dsp` = 17", "conv1", "at least 18")),
    ],
)
def test_too_few_multipliers_for_any_cut(dsp: int, told: tuple[str, ...]) -> None:
    found = network((1, 3, 3), conv(2, 3), fc(2))
    with pytest.raises(InputError) as error:
        partition(found, cluster(board(dsp, name="tiny")), 1)
    line = str(error.value)
    assert all(part in line for part in told)
    assert "\n" not in line


def on_link(found: Network, *devices: tuple[int, int, int]) -> tuple[Stream, ...]:
    """The streams of link 0, with devices that hold (layer, begin, end)."""
    mapping = Mapping(found, tuple((Slice(found.layers[index], low, high),) for index, low, high in devices))
    return streams(mapping, 0)


TRAFFIC = network((16, 5, 6), conv(20, 3), conv(4, 2), conv(7), fc(9))


def test_traffic_within_icp() -> None:
    """conv2 has 20 channels of 3x4 as input, 4 of 2x3 as output; the left device holds input channels 0 … 12."""
    assert on_link(TRAFFIC, (1, 0, 13), (1, 13, 20)) == (
        Stream(DataPath.ACTIVATIONS, 1, 7, 3, 4),
        Stream(DataPath.PARTIAL_ACTIVATIONS, 2, 4, 2, 3),
        Stream(DataPath.OUTPUT_ERRORS, 2, 4, 2, 3),
        Stream(DataPath.INPUT_ERRORS, 1, 7, 3, 4),
    )


def test_traffic_within_icp_does_not_depend_on_where_the_layer_ends() -> None:
    """The right device passes on what is for those beyond it."""
    assert on_link(TRAFFIC, (1, 0, 13), (1, 13, 14)) == on_link(TRAFFIC, (1, 0, 13), (1, 13, 20))


def test_traffic_of_the_first_layer_has_no_input_errors() -> None:
    assert on_link(TRAFFIC, (0, 0, 1), (0, 1, 16)) == (
        Stream(DataPath.ACTIVATIONS, 0, 15, 5, 6),
        Stream(DataPath.PARTIAL_ACTIVATIONS, 1, 20, 3, 4),
        Stream(DataPath.OUTPUT_ERRORS, 1, 20, 3, 4),
    )


def test_traffic_within_ocp() -> None:
    """conv3 has 4 channels of 2x3 as input, of which all go on, and 7 as output, of which those done go on."""
    assert on_link(TRAFFIC, (2, 0, 5), (2, 5, 7)) == (
        Stream(DataPath.ACTIVATIONS, 2, 4, 2, 3),
        Stream(DataPath.PARTIAL_ACTIVATIONS, 3, 5, 2, 3),
        Stream(DataPath.OUTPUT_ERRORS, 3, 5, 2, 3),
        Stream(DataPath.INPUT_ERRORS, 2, 4, 2, 3),
    )


def test_traffic_at_the_boundary_of_two_layers() -> None:
    """Activations after the SFU one way, their errors the other way."""
    assert on_link(TRAFFIC, (1, 0, 20), (2, 0, 7)) == (
        Stream(DataPath.ACTIVATIONS, 2, 4, 2, 3),
        Stream(DataPath.INPUT_ERRORS, 2, 4, 2, 3),
    )
    pooled = network((16, 4, 4), conv(2), Pool(type="max-pool", kernel=(2, 4)), fc(3))
    assert on_link(pooled, (0, 0, 16), (1, 0, 3)) == (
        Stream(DataPath.ACTIVATIONS, 2, 2, 2, 1),
        Stream(DataPath.INPUT_ERRORS, 2, 2, 2, 1),
    )


def test_traffic_of_a_fully_connected_layer() -> None:
    """7 channels of 2x3 as input, of which all go on (OCP: 9 outputs), and outputs of one value."""
    assert on_link(TRAFFIC, (3, 0, 2), (3, 2, 9)) == (
        Stream(DataPath.ACTIVATIONS, 3, 7, 2, 3),
        Stream(DataPath.PARTIAL_ACTIVATIONS, 4, 2, 1, 1),
        Stream(DataPath.OUTPUT_ERRORS, 4, 2, 1, 1),
        Stream(DataPath.INPUT_ERRORS, 3, 7, 2, 3),
    )


def test_bytes_of_a_stream() -> None:
    stream = Stream(DataPath.ACTIVATIONS, 0, 3, 5, 7)
    assert (stream.row_bytes, stream.sample_bytes) == (84, 420)


def test_forward_paths_are_1_2_and_5() -> None:
    assert {path.value for path in DataPath if path.is_forward} == {1, 2, 5}
    assert {path.value for path in DataPath} == {1, 2, 3, 4, 5, 6}
