"""The mapping: the cut over devices, the engines of each slice, and what links carry."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from emuchain.emulator.cluster import Board, Cluster, Link
from emuchain.emulator.description import Conv, Description, Fc, Pool, Relu, Softmax
from emuchain.emulator.errors import InputError
from emuchain.emulator.graph import resolve
from emuchain.emulator.layers import Network
from emuchain.emulator.mapping import Cut, DataPath, Mapping, Slice, Stream, allocate, partition, streams
from emuchain.emulator.network import load_network, zoo

LINK = Link(1000, 0)


def board(dsp: int, period_ps: int = 10_000, name: str = "b") -> Board:
    """A board of which only multipliers and clock matter."""
    return Board(name, period_ps, dsp, 1000)


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
def networks(draw: st.DrawFn) -> Network:
    """Some convolutions and fully connected layers with few or many channels."""
    channels = st.one_of(st.integers(1, 6), st.integers(14, 24))
    shape = draw(channels), draw(st.integers(1, 9)), draw(st.integers(1, 9))
    operations: list[Conv | Fc | Pool | Relu] = []
    rows, columns = shape[1:]
    for _ in range(draw(st.integers(0, 3))):
        kernel = draw(st.integers(1, min(3, rows, columns)))
        operations.append(conv(draw(channels), kernel))
        rows, columns = rows - kernel + 1, columns - kernel + 1
    operations += [fc(draw(channels)) for _ in range(draw(st.integers(1, 2)))]
    return network(shape, *operations)


BOARDS = st.lists(st.builds(board, st.integers(1, 5000), st.integers(1000, 20_000)), min_size=1, max_size=5)


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
    units = channels_to_cut(found)
    devices = data.draw(st.integers(1, min(sum(units), 30)))
    mapping = partition(found, cluster(*boards), devices)
    assert len(mapping.devices) == devices
    check_order(found, mapping)

    # Each cut is at the boundary nearest to what is due, unless a device before or after would have no channel.
    per_channel = [layer.macs // count for layer, count in zip(found.layers, units, strict=True)]
    flat = [macs for macs, count in zip(per_channel, units, strict=True) for _ in range(count)]
    assert sum(flat) == found.macs
    boundaries = [0, *itertools.accumulate(flat)]
    ability = [Fraction(b.dsp, b.period_ps) for b in (boards[min(d, len(boards) - 1)] for d in range(devices))]
    cut = 0
    for device, slices in enumerate(mapping.devices[:-1]):
        before, cut = cut, cut + sum(part.end - part.begin for part in slices)
        due = found.macs * sum(ability[: device + 1]) / sum(ability)
        if cut not in (before + 1, len(flat) - (devices - 1 - device)):
            nearest = min(abs(boundary - due) for boundary in boundaries)
            assert abs(boundaries[cut] - due) <= nearest + Fraction(1, 10**6)


@given(st.integers(1, 30), st.lists(st.integers(50, 5000), min_size=1, max_size=4))
def test_shares_are_as_the_boards_to_within_a_channel(devices: int, dsps: list[int]) -> None:
    """Many small channels, so no device is left with the one that it must have: each cut is half a channel off."""
    found = network((2000, 1, 1), fc(2))
    mapping = partition(found, cluster(*map(board, dsps)), devices)
    able = [dsps[min(device, len(dsps) - 1)] for device in range(devices)]
    assume(min(able) * 2000 > 2 * sum(able))
    for slices, dsp in zip(mapping.devices, able, strict=True):
        share = sum(part.macs for part in slices)
        assert abs(share - found.macs * dsp / sum(able)) <= 2 + 1e-6  # a channel is 2 multiply-accumulates
    work = [sum(part.macs for part in slices) for slices in mapping.devices]
    assert mapping.imbalance == pytest.approx(sum(w / min(work) - 1 for w in work))


@pytest.mark.parametrize("name", zoo())
@pytest.mark.parametrize("devices", [1, 2, 15])
def test_zoo(name: str, devices: int) -> None:
    found = load_network(name)
    mapping = partition(found, cluster(board(3600)), devices)
    check_order(found, mapping)
    # Two cuts, each half a channel off at most.
    largest = max(layer.macs // count for layer, count in zip(found.layers, channels_to_cut(found), strict=True))
    for slices in mapping.devices:
        assert abs(sum(part.macs for part in slices) - found.macs / devices) <= largest


@given(networks(), st.data())
def test_work_is_all_there_and_one_device_holds_all(found: Network, data: st.DataObject) -> None:
    devices = data.draw(st.integers(1, min(20, sum(channels_to_cut(found)))))
    mapping = partition(found, cluster(board(100)), devices)
    assert sum(part.macs for slices in mapping.devices for part in slices) == found.macs
    [whole] = partition(found, cluster(board(100)), 1).devices
    assert all(part.is_first and part.is_last for part in whole)
    assert partition(found, cluster(board(100)), 1).imbalance == 0


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


def check_engines(part: Slice, engines: tuple[int, int, int], phase: str) -> None:
    """Multipliers, rows and cycles of a row against FPDeep's formulas."""
    multipliers, rows, row_cycles = engines
    layer = part.layer
    s, oc = len(part.in_channels), len(part.out_channels)
    k = layer.kernel[0] * layer.kernel[1]
    w_in, w_out = layer.input[2], layer.output[2]
    h_in, h_out = layer.input[1], layer.output[1]
    if layer.is_fc:  # a 1x1 convolution over as many channels as there are inputs
        s, k, w_in, w_out, h_in, h_out = s * k, 1, 1, 1, 1, 1
    assert multipliers % k == 0
    tiles = multipliers // k
    assert tiles >= 1
    if phase == "pg":
        assert rows == h_out
        assert row_cycles == -(-s * oc * k * w_out // multipliers)
        return
    width, height = (w_out, h_out) if phase == "fp" else (w_in, h_in)
    assert rows == height
    if tiles >= s:
        assert row_cycles == width * -(-oc // (tiles // s))
    else:
        assert row_cycles == width * oc * -(-s // tiles)


@given(networks(), st.integers(1, 3000), st.data())
def test_engines(found: Network, dsp: int, data: st.DataObject) -> None:
    devices = data.draw(st.integers(1, min(8, sum(channels_to_cut(found)))))
    mapping = partition(found, cluster(board(dsp)), devices)
    for device, slices in enumerate(mapping.devices):
        needed = sum(
            (3 if part.layer.index else 2) * (1 if part.layer.is_fc else part.layer.kernel[0] * part.layer.kernel[1])
            for part in slices
        )
        if dsp < needed:
            with pytest.raises(InputError, match=f"`dsp` = {dsp}.*device {device} needs at least {needed},"):
                allocate(mapping, device, board(dsp))
            continue
        held = allocate(mapping, device, board(dsp))
        assert len(held) == len(slices)
        used = 0
        for part, engines in zip(slices, held, strict=True):
            assert (engines.eb is None) == (part.layer.index == 0)
            for phase in ("fp", "eb", "pg"):
                engine = getattr(engines, phase)
                if engine is not None:
                    used += engine.multipliers
                    assert engine.sample_cycles == engine.rows * engine.row_cycles
                    check_engines(part, (engine.multipliers, engine.rows, engine.row_cycles), phase)
        assert used <= dsp


@given(networks(), st.integers(30, 3000))
def test_what_is_left_over_would_not_make_the_slowest_engine_faster(found: Network, dsp: int) -> None:
    mapping = partition(found, cluster(board(dsp)), 1)
    try:
        held = allocate(mapping, 0, board(dsp))
    except InputError:
        assume(False)
    engines = [
        (part, phase, getattr(both, phase))
        for part, both in zip(mapping.devices[0], held, strict=True)
        for phase in ("fp", "eb", "pg")
        if getattr(both, phase) is not None
    ]
    left = dsp - sum(engine.multipliers for _, _, engine in engines)
    part, phase, slowest = max(engines, key=lambda entry: entry[2].sample_cycles)
    k = 1 if part.layer.is_fc else part.layer.kernel[0] * part.layer.kernel[1]
    others = [engine.sample_cycles for _, _, engine in engines]
    if others.count(max(others)) > 1:
        return  # more than one is the slowest, and the first of them may be as fast as it can be
    s = len(part.in_channels) * (part.layer.kernel[0] * part.layer.kernel[1] if part.layer.is_fc else 1)
    oc = len(part.out_channels)
    width = {"eb": part.layer.input[2]}.get(phase, part.layer.output[2]) if not part.layer.is_fc else 1
    tiles = slowest.multipliers // k + left // k
    if phase == "pg":
        best = -(-s * oc * width // tiles)
    elif tiles >= s:
        best = width * -(-oc // (tiles // s))
    else:
        best = width * oc * -(-s // tiles)
    assert best >= slowest.row_cycles


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

    5184 multipliers are 576 tiles of 9, half of which each gets: 288. FP: P = 288 / 16 = 18 engines, of which 8 are of
    use, 128 tiles: ceil(8 / 8) · 5 = 5 cycles a row; the other 160 are left over. PG, 288 tiles: 16·8·5 = 640 small
    convolutions a row, ceil(640 / 288) = 3 cycles, so the 20 of a sample are FP's, and nothing makes that faster.
    """
    found = network((16, 6, 7), conv(8, 3), Pool(type="max-pool", kernel=(4, 5)))
    assert cycles(found, 5184) == [(1152, 5, 2592, 3)]


def test_engines_with_fewer_tiles_than_channels_take_turns() -> None:
    """The same layer with 10 tiles, 5 for each: FP takes 5·8·ceil(16 / 5) = 160 cycles a row, PG 640 / 5 = 128.

    With 11 tiles the one left over goes to FP: ceil(16 / 6) = 3, so 120 cycles.
    """
    found = network((16, 6, 7), conv(8, 3), Pool(type="max-pool", kernel=(4, 5)))
    assert cycles(found, 90) == [(45, 160, 45, 128)]
    assert cycles(found, 99) == [(54, 120, 45, 128)]
    assert cycles(found, 98) == cycles(found, 90)  # eight multipliers are no tile


def test_engines_of_two_layers_by_hand() -> None:
    """Both 1x1 on 1x3: 2 to 2 channels, 12 MACs (no EB), and 2 to 4, 24 MACs: 2·12 + 3·24 = 96 in all.

    9 multipliers, one for each of 5 engines, 4 to share: 4·12/96 = 0 more, 4·24/96 = 1 more. The last goes to the
    slowest. One multiplier: FP of the first 3·2·2 = 12 cycles, PG 12. Two: FP of the second 3·4 = 12, EB 12 (with 2
    channels P = 1), PG 24 / 2 = 12. All are alike, so the first has it: FP 3·2 = 6.
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
    mapping = partition(found, cluster(board(20, name="tiny")), 1)
    allocate(mapping, 0, board(21, name="tiny"))  # 9 + 9 for the convolution, 1 + 1 + 1 for fc
    with pytest.raises(InputError) as error:
        allocate(mapping, 0, board(20, name="tiny"))
    line = str(error.value)
    for told in ("board tiny", "`dsp` = 20", "device 0", "at least 21", "conv1[0:2] OCP, fc1[0:2] ICP"):
        assert told in line
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
