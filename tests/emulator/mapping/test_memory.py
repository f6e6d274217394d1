"""The memory subsystem: buffers of slices by hand, and what must hold for all."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.mapping import (
    Buffer,
    OffChip,
    Slice,
    activation_bytes,
    cut_channels,
    memories,
    parameter_memory,
    port_bytes,
    slice_memory,
)
from emuchain.emulator.network import Layer, load_network
from emuchain.emulator.network.frozen import with_frozen
from emuchain.emulator.network.operation import SfuOperation, operation_types
from emuchain.emulator.number import Storage
from emuchain.kernels.number import FP16, NumberFormat, number_formats

VGG16 = load_network("vgg16")
CONV1_2 = next(layer for layer in VGG16.layers if layer.name == "conv1_2")
CONV4_1 = next(layer for layer in VGG16.layers if layer.name == "conv4_1")
FORMATS = st.sampled_from([number for number in number_formats().values() if not number.block])
LAYERS = [
    layer for name in ("vgg16", "alexnet", "lenet-mnist") for layer in load_network(name).layers
]


def test_memories_round_up_to_banks_and_shallow_ones_are_luts() -> None:
    assert memories(3, 512) == Buffer(3 * 2048, 3, 0)
    assert memories(3, 513) == Buffer(3 * 2052, 6, 0)
    assert memories(3, 1024, number=FP16) == Buffer(3 * 2048, 3, 0)
    assert memories(3, 65) == Buffer(3 * 260, 3, 0)
    assert memories(3, 64) == Buffer(3 * 256, 0, 3 * 32, 3 * 256)  # a LUT is 64 x 1
    assert memories(3, 32) == Buffer(3 * 128, 0, 3 * 16, 3 * 128)  # or 32 x 2


def test_a_slice_by_hand() -> None:
    """Half of conv4_1: 128 of 256 input channels of 28 x 28, 512 outputs, kernel 3 x 3; 7 samples
    in flight.
    """
    memory = slice_memory(Slice(CONV4_1, 0, 128), 7)
    assert memory.act_ram == Buffer(
        4 * 7 * 128 * 28 * 28, 128 * 11
    )  # 5,488 words a channel: 10.7 banks
    assert memory.lpram == Buffer(
        4 * 128 * 9 * 512, 128 * 9
    )  # SF x K x K banks of OC (FPDeep, section 5.2.2)
    assert memory.lgb == memory.lpram
    assert memory.line_buffers.bytes == 4 * 28 * 3 * (128 + 512)
    assert memory.error_buffer.bytes == 4 * 28 * 128
    assert memory.pab.bytes == 4 * 28 * 512
    # The device with complete outputs has the bias.
    last = slice_memory(Slice(CONV4_1, 128, 256), 7)
    assert last.lpram.bytes == memory.lpram.bytes + 4 * 512
    # It stays there even if all weights are stored elsewhere.
    assert slice_memory(Slice(CONV4_1, 128, 256), 7, kept_channels=0).lpram == Buffer(4 * 512, 1)
    assert slice_memory(Slice(CONV4_1, 0, 128), 7, kept_channels=0).lpram == Buffer()


def test_a_map_of_conv1_2_is_12_8_megabytes() -> None:
    assert slice_memory(Slice(CONV1_2, 0, 64), 1).act_ram.bytes == 12_845_056


def test_the_first_layer_has_no_errors() -> None:
    first = slice_memory(Slice(VGG16.layers[0], 0, 64), 1)
    assert first.error_buffer == Buffer()
    assert first.line_buffers.bytes == 4 * 3 * 3 * 224  # of its inputs alone


@given(st.sampled_from(LAYERS), st.data(), FORMATS)
def test_cutting_a_layer_neither_loses_nor_doubles_parameters(
    layer: Layer, data: st.DataObject, number: NumberFormat
) -> None:
    channels = cut_channels(layer)
    cut = data.draw(st.integers(1, channels))
    parts = [Slice(layer, begin, end) for begin, end in ((0, cut), (cut, channels)) if begin < end]
    oc, ic, kernel_rows, kernel_columns = layer.weight_shape
    whole = oc * ic * kernel_rows * kernel_columns + layer.bias * oc
    held = [slice_memory(part, 3, None, Storage.all_in(number)) for part in parts]
    assert sum(memory.lpram.bytes for memory in held) == whole * number.bits // 8
    assert sum(memory.lgb.bytes for memory in held) == whole * number.bits // 8
    kept = data.draw(st.integers(0, cut))
    here, elsewhere = (parameter_memory(parts[0], count, number) for count in (kept, cut - kept))
    assert here.bytes + elsewhere.bytes == parameter_memory(parts[0], cut, number).bytes


@given(st.sampled_from(LAYERS), st.integers(1, 9), st.integers(1, 9))
def test_act_ram_grows_with_samples_and_nothing_else_does(
    layer: Layer, few: int, more: int
) -> None:
    part = Slice(layer, 0, cut_channels(layer))
    one, two = slice_memory(part, few), slice_memory(part, few + more)
    assert one.act_ram.bytes * (few + more) == two.act_ram.bytes * few
    assert dataclasses.replace(one, act_ram=two.act_ram) == two


@given(st.integers(0, 10**6), st.integers(1, 5000), FORMATS)
def test_banks_hold_the_bytes(count: int, words: int, number: NumberFormat) -> None:
    buffer = memories(count, words, number)
    assert buffer.bytes == count * words * number.bits // 8
    assert buffer.banks * 2048 + buffer.lut * 64 // 8 >= buffer.bytes
    assert not (buffer.banks and buffer.lut)


MAP = (8, 6, 4)
KEPT = {
    **dict.fromkeys(
        ("gelu", "silu", "hard-swish", "sigmoid", "batch-norm", "lrn", "layer-norm", "rms-norm"), 1
    ),
    **{
        "group-norm": 1,
        "global-response-norm": 1,
        "multiply": 2,
        "scale": 1,
        "prelu": 1,
        "tanh": 1,
        "elu": 1,
        "mish": 1,
        "clip": 0,
        "channels": 0,
        "shift": 0,
        "affine": 0,
        "upsample": 0,
        "zeros": 0,
        **dict.fromkeys(("shuffle", "pixel-shuffle", "pixel-unshuffle", "unflatten", "border"), 0),
        "head-norm": 1,
    },
    **dict.fromkeys(
        ("relu", "relu6", "leaky-relu", "hard-sigmoid", "dropout", "max-pool", "average-pool"), 0
    ),
    **dict.fromkeys(
        ("global-average-pool", "add", "concat", "positions", "last-step", "first-step", "tokens"),
        0,
    ),
    **dict.fromkeys(("rotary", "rows", "sequence", "transpose", "sinusoids"), 0),
    **dict.fromkeys(("adaptive-average-pool", "score-table"), 0),
}
"""Maps that each operation of an SFU needs when errors come back; of others bits of each value
alone, or nothing.
"""


OF_SEQUENCES = (
    *("sequence", "tokens", "rotary", "head-norm", "positions", "last-step", "first-step", "rows"),
    *("transpose", "sinusoids", "score-table"),
)


def test_all_operations_of_an_sfu_say_what_they_keep() -> None:
    kinds = {name for name, kind in operation_types().items() if issubclass(kind, SfuOperation)}
    assert kinds == KEPT.keys()
    assert {name for name in kinds if operation_types()[name].keeps_map} == {
        n for n, count in KEPT.items() if count
    }


@pytest.mark.parametrize("kind", [kind for kind in KEPT if kind not in OF_SEQUENCES])
def test_maps_of_an_sfu_are_kept_on_the_last_slice_of_a_layer(kind: str) -> None:
    """In single precision, whatever the format of maps is; and not in a layer before which nothing
    learns.
    """
    unit: dict[str, Any] = {"type": kind, "name": "unit"}
    if kind in ("add", "concat", "multiply"):
        unit["from"] = ["first", "images"]
    if kind in ("max-pool", "average-pool"):
        unit |= {"kernel": 2}
    if kind == "adaptive-average-pool":
        unit["size"] = 4
    if kind in ("upsample", "pixel-shuffle", "pixel-unshuffle"):
        unit["scale"] = 2
    if kind == "dropout":
        unit["rate"] = 0.5
    if kind in ("group-norm", "shuffle"):
        unit["groups"] = 2
    if kind == "unflatten":
        unit["shape"] = [4, 2 * MAP[1], MAP[2]]
    if kind == "border":
        unit |= {"mode": "wrap", "below": 1}
    if kind == "channels":
        unit |= {"first": 3, "count": 4}
    layers = [{"type": "conv", "channels": 8, "kernel": 1, "name": "first"}, unit]
    layers += [{"type": "fc", "features": 3}, {"type": "softmax"}]
    network = load_network({"name": "n", "input": list(MAP), "layers": layers})
    first, size = network.layers[0], KEPT[kind] * 4 * math.prod(MAP)
    for storage, inputs in (
        (Storage(), 4 * math.prod(MAP)),
        (Storage.all_in(FP16), 2 * math.prod(MAP)),
    ):
        whole, half = (
            Slice(first, 0, end) for end in (cut_channels(first), cut_channels(first) // 2)
        )
        assert slice_memory(whole, 3, None, storage).act_ram.bytes == 3 * (inputs + size)
        assert slice_memory(half, 3, None, storage).act_ram.bytes == 3 * inputs // (
            2 if half.cut.value == "ICP" else 1
        )
        assert activation_bytes(whole, storage) == inputs + size
        moved = port_bytes(whole, OffChip(activations=True), storage)
        assert moved == 2 * (inputs + size), "FP writes them, and PG reads them"
    frozen = with_frozen(network, ["first"]).layers[0]
    assert slice_memory(Slice(frozen, 0, cut_channels(frozen)), 3).act_ram.bytes == 0


def test_a_block_of_gpt_2() -> None:
    """1,024 tokens of 768 values: inputs of the layers, 31.5 MB; of two norms and GELU, 18.9 MB
    more.
    """
    token, layers = 4 * 768 * 1024, load_network("gpt2").layers[1:6]
    lines = 2 * 12 * 1024 * 4  # of the softmax: two numbers a row and head
    kept = [activation_bytes(Slice(layer, 0, cut_channels(layer))) for layer in layers]
    assert [layer.name for layer in layers] == [
        "qkv1",
        "attention1",
        "project1",
        "expand1",
        "contract1",
    ]
    assert kept == [token, 3 * token + lines, (1 + 1) * token, (1 + 4) * token, (4 + 1) * token]
    assert sum(kept) - lines == 50_331_648
