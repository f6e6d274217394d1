"""What a parameter takes in each format, and that boards' memories follow."""

from __future__ import annotations

import math
from typing import Any

import pytest

from emuchain.emulator.mapping import (
    OffChip,
    Slice,
    WeightBanks,
    activation_bytes,
    channel_bytes,
    cut_channels,
    memories,
    memory_streams,
    port_bytes,
    slice_memory,
    update_bytes,
)
from emuchain.emulator.network import load_network, with_formats
from emuchain.emulator.number import Sharing, precision_of
from emuchain.kernels.number import Lines

CONV = next(layer for layer in load_network("vgg16").layers if layer.name == "conv4_1")
PART = Slice(CONV, 0, 64)


@pytest.mark.parametrize(
    ("given", "states", "bytes_of_32"),
    [
        *[
            ("fp32", 0, 8 * 32),
            ("fp32", 2, 16 * 32),
            ("bf16", 0, 10 * 32),
            ("mxfp8", 0, 9 * 32 + 1),
        ],
        *[("bf16 master=bf16", 0, 6 * 32), ("mxfp8 master=bf16 states=bf16", 1, 9 * 32 + 1)],
    ],
)
def test_arrays_of_a_parameter(given: str, states: int, bytes_of_32: int) -> None:
    """A working copy, where it is not the master; the master; its gradient of 4 bytes; and
    states.
    """
    assert precision_of(given).storage(states).weight_bytes(Lines(32, 1)) == bytes_of_32


def test_layers_store_what_they_have() -> None:
    """128 inputs in MXFP8 of 10 outputs in BF16: 2 bytes a weight, 4 each of gradient and master,
    of two replicas that share out a half, and 4 more of what a codec drops.
    """
    precision = precision_of("mxfp8 layer.fc2=bf16 layer.fc1.master=bf16")
    network = with_formats(load_network("quick-cifar"), precision)
    conv, *_, fc1, fc2 = (Slice(layer, 0, cut_channels(layer)) for layer in network.layers)
    storage = precision.storage(0)
    memory = slice_memory(fc2, 3, None, storage)
    assert memory.lpram.bytes == 2 * 1280 + 4 * 10
    assert memory.lgb.bytes == (4 + 4) * 1280 + 4 * 10
    assert memory.act_ram.bytes == 3 * (128 + 4), "made by fc1, in MXFP8"
    assert memory.error_buffer.bytes == 2 * 128 and memory.pab.bytes == 4 * 10
    assert slice_memory(fc1, 1, None, storage).lgb.bytes == (4 + 2) * 2048 * 128 + 4 * 128
    assert slice_memory(conv, 1, None, storage) == slice_memory(
        conv, 1, None, precision_of("mxfp8").storage(0)
    )
    shared = storage.shared_out(Sharing(1, 2)).with_residuals(1)
    assert slice_memory(fc2, 3, None, shared).lgb.bytes == (4 + 2 + 4) * 1280 + 2 * 4 * 10


def test_a_tied_table_has_the_same_blocks_at_both_ends() -> None:
    """28 symbols of 40 features in MXINT8: of a head that is cut by symbols, 20 on a board are a
    block for each feature; with sums of blocks, a symbol's features are two blocks at both ends, and
    EB has blocks of symbols. Gradients and masters of 4 bytes, or of a byte and their scales.
    """
    layers = [
        {"type": "embedding", "features": 40, "name": "wte"},
        {"type": "conv", "channels": "symbols", "kernel": 1, "bias": False, "tied": "wte"},
        {"type": "softmax"},
    ]
    layers[1] |= {"cut": "OCP", "name": "head"}
    network = {"name": "n", "symbols": 28, "input": ["symbols", 5, 1], "layers": layers}
    embedding, head = (Slice(layer, 0, 20) for layer in load_network(network).layers)
    plain, dots = (precision_of(f"mxint8{more}").storage(0) for more in ("", " accumulate=dot:32"))
    by_features, by_symbols = 20 * 28 + 20, 20 * 40 + 40
    assert slice_memory(embedding, 1, None, plain).lpram.bytes == by_features
    assert slice_memory(head, 1, None, plain).lpram.bytes == by_symbols
    assert slice_memory(head, 1, None, plain).lgb.bytes == 2 * 4 * 20 * 40
    narrow = precision_of("mxint8 master=int12@32 accumulate=dot:32").storage(0)
    assert slice_memory(embedding, 1, None, dots).lpram.bytes == 28 * (20 + 1)
    master = 28 * (20 * 3 // 2 + 1)
    assert slice_memory(embedding, 1, None, narrow).lgb.bytes == 4 * 20 * 28 + master
    of_head = slice_memory(head, 1, None, dots).lpram.bytes
    assert of_head == 20 * (40 + 2) + 40 * (20 + 1)


@pytest.mark.parametrize("given", ["bf16", "mxfp8", "mxfp4 master=q2.10", "q2.6 master=q2.14"])
def test_buffers(given: str) -> None:
    precision = precision_of(given)
    storage, plain = precision.storage(0), precision_of("fp32").storage(0)
    narrow, wide = slice_memory(PART, 3, None, storage), slice_memory(PART, 3, None, plain)
    assert narrow.pab == wide.pab, "partial sums are wide"
    blocks = 64 // precision.activations.block if precision.activations.block else 0
    pixels = wide.act_ram.bytes // 4 // 64
    assert narrow.act_ram.bytes == 64 * (pixels * precision.activations.bits // 8) + blocks * pixels
    assert narrow.lpram.bytes == precision.weights.bytes_of(CONV.channels) * 64 * 9
    assert narrow.lgb.bytes == wide.lgb.bytes + precision.master.bytes_of(CONV.channels) * 64 * 9
    banks = WeightBanks.of(PART, storage)
    assert banks.of_channels(64) == narrow.lpram.banks + narrow.lgb.banks
    for channels in range(65):
        assert banks.most_channels(64, banks.of_channels(channels)) >= channels
        assert banks.of_channels(banks.most_channels(64, channels)) <= channels


def test_ports_move_narrow_maps_and_weights() -> None:
    """A map's values twice, weights for FP and EB, and sums of gradients in and out.

    The last PG reads and writes master copies in place of sums; the update writes the narrow
    weights beside them.
    """
    storage = precision_of("bf16").storage(0)
    _, rows, columns = CONV.input
    weights = CONV.channels * 9 * 5
    assert port_bytes(PART, OffChip(activations=True), storage) == 2 * 2 * 64 * rows * columns
    assert port_bytes(PART, OffChip(channels=5), storage) == (2 + 2 + 4 + 4) * weights
    assert update_bytes(PART, OffChip(channels=5), storage) == 2 * weights
    with_velocity = precision_of("bf16").storage(1)
    assert update_bytes(PART, OffChip(channels=5), with_velocity) == (2 + 2 * 4) * weights
    assert update_bytes(PART, OffChip(channels=5), precision_of("bf16 master=bf16").storage(0)) == 0
    assert memories(1, 100, storage.weights).bytes == 200


def test_a_block_that_is_cut_has_its_scale_on_both_sides() -> None:
    """Channels 30 to 35 of a map: six elements and two scales a pixel, as on links
    (docs/numbers.md).
    """
    storage = precision_of("mxfp8").storage(0)
    layer = next(layer for layer in load_network("vgg16-cifar").layers if layer.name == "conv1_2")
    memory = slice_memory(Slice(layer, 30, 36), 1, None, storage)
    rows = columns = 32
    assert memory.act_ram.bytes == rows * columns * (6 + 2)
    assert memory.error_buffer.bytes == columns * (6 + 2) == 256
    inputs, errors = 3 * columns * (6 + 2), 3 * columns * (64 + 2)
    assert memory.line_buffers.bytes == inputs + errors
    assert memory.lpram.bytes == 6 * 9 * (64 + 2), (
        "blocks of 32 outputs for each input channel and tap"
    )
    outputs = Slice(load_network("vgg16-cifar").layers[0], 0, 40)
    assert outputs.cut.value == "OCP"
    assert slice_memory(outputs, 1, 40, storage).lpram.bytes == 40 * (27 + 1), (
        "a block of 27 inputs and taps for each"
    )
    off_chip = OffChip(activations=True)
    assert port_bytes(Slice(layer, 30, 36), off_chip, storage) == 2 * rows * columns * (6 + 2)


def test_rows_and_channels_have_scales_of_their_own() -> None:
    """NVFP4: channels 30 to 35 of a map are in two blocks; each row has 4 bytes, and each channel
    of weights.
    """
    storage = precision_of("nvfp4").storage(0)
    layer = next(layer for layer in load_network("vgg16-cifar").layers if layer.name == "conv1_2")
    part, rows, columns = Slice(layer, 30, 36), 32, 32
    memory = slice_memory(part, 2, None, storage)
    assert memory.act_ram.bytes == 2 * rows * (columns * (3 + 2) + 4)
    assert activation_bytes(part, storage) == rows * (columns * (3 + 2) + 4)
    assert memory.error_buffer.bytes == columns * (3 + 2) + 4
    inputs, errors = 3 * (columns * (3 + 2) + 4), 3 * (columns * (32 + 4) + 4)
    assert memory.line_buffers.bytes == inputs + errors
    assert memory.lpram.bytes == 6 * (9 * (32 + 4) + 4) == 6 * channel_bytes(part, storage.weights)
    outputs = Slice(load_network("vgg16-cifar").layers[0], 0, 40)
    lpram = slice_memory(outputs, 1, 40, storage).lpram.bytes
    assert lpram == 40 * 27 // 2 + 40 * (2 + 4), "27 inputs and taps: two blocks"
    assert port_bytes(part, OffChip(activations=True), storage) == 2 * activation_bytes(
        part, storage
    )
    for held in (part, outputs):
        banks = WeightBanks.of(held, storage)
        for channels in range(held.channels + 1):
            assert banks.of_channels(banks.most_channels(held.channels, channels)) <= channels
            needed = banks.of_channels(channels)
            assert banks.most_channels(held.channels, needed) >= channels


@pytest.mark.parametrize("precision", ["mxfp8", "mxint8", "mxfp4", "e2m5@8", "int8@48"])
@pytest.mark.parametrize("name", ["vgg11-cifar", "lenet-mnist", "alexnet-cifar"])
def test_memories_hold_what_links_carry(name: str, precision: str) -> None:
    """Of any cut of a layer: inputs take the bytes of their rows on a link, weights those of
    balanced parameters.
    """
    storage = precision_of(precision).storage(0)
    for layer in load_network(name).layers:
        size = cut_channels(layer)
        for begin, end in [
            (0, size),
            (0, size // 3 + 1),
            (size // 3, size // 2 + 1),
            (size - 1, size),
        ]:
            part = Slice(layer, begin, end)
            memory, ins = slice_memory(part, 1, None, storage), part.in_channels
            rows = layer.input[1] * layer.input[2]
            in_sfu = [
                step.input for step in layer.sfu if part.is_last and step.operation.type == "lrn"
            ]
            kept = sum(4 * math.prod(shape) for shape in in_sfu)
            assert (
                memory.act_ram.bytes
                == storage.activations.row_bytes(len(ins), rows, ins.start) + kept
            )
            assert activation_bytes(part, storage) == memory.act_ram.bytes
            weights = memory.lpram.bytes - storage.biases.bytes_of(part.sfu_parameters)
            by_channel = part.channels * channel_bytes(part, storage.weights)
            assert 0 <= by_channel - weights < part.channels, "but for parts of bytes"
            banks = WeightBanks.of(part, storage)
            assert (
                banks.most_channels(part.channels, banks.of_channels(part.channels))
                == part.channels
            )


def test_a_narrow_run_fits_where_a_wide_one_does_not(plan_of: Any) -> None:
    keys = {"network": "vgg16", "devices": 15, "schedule": "sync", "balancing": "none"}
    wide, narrow = (
        sum(plan_of(**keys, precision=given).off_chip_bytes)
        for given in ("fp32", "bf16 master=bf16")
    )
    assert narrow < wide


def test_sums_of_blocks_by_hand() -> None:
    """conv4_1 has 256 inputs, 512 outputs and 9 places; 64 inputs are here, two blocks of each
    output and place.
    """
    precision = precision_of("mxint8 accumulate=dot:32")
    storage = precision.storage(0)
    memory, plain = (
        slice_memory(PART, 1, None, each) for each in (storage, precision_of("mxint8").storage(0))
    )
    values = 64 * 9 * 512
    forward, back = values + 2 * 9 * 512, values + 64 * 9 * 16
    assert memory.lpram.bytes == forward + back
    assert memory.lgb.bytes == plain.lgb.bytes == 2 * 4 * values
    rows, columns = CONV.output[1:]
    assert rows * columns > 32
    blocks = (64 * 9 + 512) * 33
    assert memory.line_buffers.bytes == plain.line_buffers.bytes + blocks
    fp, eb, _ = memory_streams(PART, OffChip(channels=64), storage)
    assert (fp.sample_bytes, eb.sample_bytes) == (forward, back)
    # PG has moved gradients in and out; an update moves the master in and out, and both copies out.
    assert update_bytes(PART, OffChip(channels=64), storage) == forward + back
    banks = WeightBanks.of(PART, storage)
    assert banks.of_channels(64) == memory.lpram.banks + memory.lgb.banks
    for most in (0, 1, banks.of_channels(33), banks.of_channels(64)):
        channels = banks.most_channels(64, most)
        assert banks.of_channels(channels) <= most
        assert channels == 64 or banks.of_channels(channels + 1) > most


def test_the_first_layer_keeps_no_weights_for_errors() -> None:
    first = load_network("vgg16").layers[0]
    part = Slice(first, 0, cut_channels(first))
    storage = precision_of("mxint8 accumulate=dot:32").storage(0)
    # 3 inputs are a block of each output and place.
    assert slice_memory(part, 1, None, storage).lpram.bytes == 9 * 64 * (3 + 1) + 4 * 64
