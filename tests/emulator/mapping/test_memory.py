"""The memory subsystem: buffers of slices by hand, and what must hold for all."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.mapping import Buffer, Slice, cut_channels, memories, parameter_memory, slice_memory
from emuchain.emulator.network import Layer, load_network
from emuchain.emulator.number import Storage
from emuchain.kernels.number import FP16, NumberFormat, number_formats

VGG16 = load_network("vgg16")
CONV1_2 = next(layer for layer in VGG16.layers if layer.name == "conv1_2")
CONV4_1 = next(layer for layer in VGG16.layers if layer.name == "conv4_1")
FORMATS = st.sampled_from([number for number in number_formats().values() if not number.block])
LAYERS = [layer for name in ("vgg16", "alexnet", "lenet-mnist") for layer in load_network(name).layers]


def test_memories_round_up_to_banks_and_shallow_ones_are_luts() -> None:
    assert memories(3, 512) == Buffer(3 * 2048, 3, 0)
    assert memories(3, 513) == Buffer(3 * 2052, 6, 0)
    assert memories(3, 1024, number=FP16) == Buffer(3 * 2048, 3, 0)
    assert memories(3, 65) == Buffer(3 * 260, 3, 0)
    assert memories(3, 64) == Buffer(3 * 256, 0, 3 * 32, 3 * 256)  # a LUT is 64 x 1
    assert memories(3, 32) == Buffer(3 * 128, 0, 3 * 16, 3 * 128)  # or 32 x 2


def test_a_slice_by_hand() -> None:
    """Half of conv4_1: 128 of 256 input channels of 28 x 28, 512 outputs, kernel 3 x 3; 7 samples in flight."""
    memory = slice_memory(Slice(CONV4_1, 0, 128), 7)
    assert memory.act_ram == Buffer(4 * 7 * 128 * 28 * 28, 128 * 11)  # 5,488 words a channel: 10.7 banks
    assert memory.lpram == Buffer(4 * 128 * 9 * 512, 128 * 9)  # SF x K x K banks of OC (FPDeep, section 5.2.2)
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
def test_act_ram_grows_with_samples_and_nothing_else_does(layer: Layer, few: int, more: int) -> None:
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
