"""The memory subsystem: buffers of each slice on chip (FPDeep, section 5.2.2; f1 of equation (6)),
and off-chip data.

- Act-RAM holds the slice's input activations from FP until PG, so those of all samples in flight;
  for recurrent layers also states, as activations are kept, gates and cells of all steps; for a
  layer with a vocabulary-parallel loss its own logits; on the slice with the layer's SFU also the
  maps that the SFU needs when errors come back (inputs of normalisations, of GELU, SiLU and
  hard-swish, of a sigmoid).
- LPRAM holds the slice's parameters, in SF x K x K banks of OC words (SF: its input channels). LGB
  holds as many gradients, and in as many more memories each array that an optimiser keeps beside
  them: Nesterov's velocity, Adam's two moments. SGD's velocity takes no room of its own, since the
  sum of gradients can go on from momentum times the last one. Where replicas share arrays out
  (ZeRO), each memory of these has its share of the words. BPRAM and BGB hold parameters that
  another device uses, and their gradients (balancing.py).
- Line buffers feed the engines: K rows of the slice's inputs for FP, and K rows of output errors
  for EB.
- The error buffer takes a row of the slice's input errors from EB, PAB a row of partial outputs
  from FP. Rows are the unit in which data travels (timing.py). Where the slice's SFU transposes
  maps, PAB has two of them in fp32, one that comes and one that leaves, and the error buffer two of
  errors.

A buffer's plain bytes are the least of any layout. Banks round up: a bank is half a BRAM, 18 kbit,
which holds 512 words of up to 36 bits. A memory of at most 64 words is built of LUTs, as synthesis
does: a LUT is a RAM of 64 x 1 or 32 x 2 (Xilinx UG474). A layer whose tiles take turns (fully
connected) has one memory for each buffer. Bits of masks and positions of maxima, which an SFU
stores until the errors come back, are left out; masks of dropout are drawn again, and means and
deviations of rows are computed again.

In formats with blocks each block has its scale with it, wherever it lies (`Lines`). Where the
channels of a map have a memory each, scales have memories of their own; those of tensors always.

What of a slice does not lie in on-chip buffers is off chip, and costs time on the board's memory
port. Weights and their gradients, and the input activations that wait for PG, may lie in the
board's DRAM or HBM. For each sample

- FP reads the weights, and writes the activations;
- EB reads the weights;
- PG reads the activations, and reads and writes the gradients. For a mini-batch's first sample
  there is nothing to read, and for its last one PG reads the weights and writes them updated
  instead of the gradients; so it moves the same number of bytes, and the update of SGD moves no
  more.

What other optimisers keep beside the gradients lies where these do. Their update reads and writes
it. Where updates change a master copy, that is what the last sample's PG reads and writes; the
weights are written beside it.

An embedding reads the weights of the symbols that come, in FP, and reads and writes their gradients
in PG: one row of weights for each row of inputs.

Attention has no PG: EB reads its activations. Off chip, a row reads the keys and values of all rows
that it sees, and errors of these, which are sums, are read and written in EB. Its two numbers for
each row and head are kept in fp32. Numbers of symbols take 4 bytes in any format.

Weights are read once a sample where the slice's activations are on chip: an engine then goes
through the whole map, one output channel after the other, as with balanced parameters
(balancing.py). With the activations off chip, rows come and go, and weights that are off chip, too,
are read for each row. FP and EB of a recurrent layer, which must finish a step before the next,
read them for each row in any case.

In networks with attention, layers with rows of one pixel have little work for each weight. They
wait for a block of rows, and read what each row needs off chip once for all of them
(`Layer.rows_at_once`): weights, keys and values.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from ...kernels.number import FP32, SCALE_BITS, Lines, NumberFormat
from ..cluster import BANK_BYTES
from ..network import Layer, Phase, Recurrent
from ..number import Storage
from .balancing import (
    SINGLE_STORAGE,
    formats_of,
    lines_of_weights,
    outputs_side_by_side,
    storage_of,
    stored_weight_bytes,
    turned_lines,
    weight_lines,
)
from .slices import Cut, Slice

WORDS = FP32.values_in(BANK_BYTES)
"""Words of a bank."""

LUT_RAM_BITS = 64
"""Bits of RAM in a LUT: 64 words of one bit, or 32 of two."""


@dataclasses.dataclass(frozen=True)
class Buffer:
    """A buffer's plain bytes, banks of 18 kbit, and LUTs, and bytes in them, of memories too
    shallow for a bank.
    """

    bytes: int = 0
    banks: int = 0
    lut: int = 0
    lut_bytes: int = 0

    def __add__(self, other: Buffer) -> Buffer:
        lut_bytes = self.lut_bytes + other.lut_bytes
        return Buffer(
            self.bytes + other.bytes, self.banks + other.banks, self.lut + other.lut, lut_bytes
        )

    @property
    def block_ram_bytes(self) -> int:
        """Plain bytes without those in LUTs."""
        return self.bytes - self.lut_bytes

    def __mul__(self, count: int) -> Buffer:
        return Buffer(
            self.bytes * count, self.banks * count, self.lut * count, self.lut_bytes * count
        )


def memories(count: int, words: int, number: NumberFormat = FP32) -> Buffer:
    """Return the size of `count` memories of `words` words, along which blocks run; without words
    there are none.
    """
    return _memories(count, words, number.bits, number.blocks(words))


def channel_memories(
    count: int, words: int, number: NumberFormat, begin: int = 0, side_by_side: int = 1
) -> Buffer:
    """Return the size of a memory of `words` words for each of `count` channels, from `begin` on of
    their lines, `side_by_side` of which lie in one row.
    """
    plain = _memories(count, words, number.bits)
    if not number.block:
        return plain
    scales = number.scaled_lines(words, side_by_side) if number.lines > 1 else words
    return plain + _memories(number.blocks(count, begin), scales, SCALE_BITS)


def line_memory(lines: Lines, number: NumberFormat = FP32) -> Buffer:
    """Return the size of one memory that holds some lines, of that of their tensors' scales, and,
    where these are narrower, of one that holds their values in fp32.
    """
    if number == FP32 or not lines.values:
        return _memories(1, lines.values, number.bits)
    narrow = _memories(1, lines.values - lines.wide, number.bits, lines.scales(number))
    return narrow + tensor_memory(lines.tensors, number) + memories(1, lines.wide)


def tensor_memory(tensors: int, number: NumberFormat) -> Buffer:
    """Return the size of the memory of the scales of some tensors; none in formats without any."""
    return _memories(1, tensors, 8 * number.tensor_bytes) if number.tensor_bytes else Buffer()


def _memories(count: int, words: int, bits: int, scales: int = 0) -> Buffer:
    """Return the size of `count` memories of `words` words of some bits, each with a number of
    scales.
    """
    if not words or not count:
        return Buffer()
    total_bits = count * (words * bits + scales * SCALE_BITS)
    total = -(-total_bits // 8)
    if words <= LUT_RAM_BITS:
        bits_a_lut = 1 if words > LUT_RAM_BITS // 2 else 2
        return Buffer(total, 0, count * bits // bits_a_lut, total)
    # Memories share no bank: each is rounded up by itself.
    return Buffer(total, count * -(-total_bits // (8 * count * BANK_BYTES)), 0)


@dataclasses.dataclass(frozen=True)
class SliceMemory:
    """The buffers of one slice."""

    act_ram: Buffer
    lpram: Buffer
    lgb: Buffer
    line_buffers: Buffer
    error_buffer: Buffer
    pab: Buffer

    @property
    def total(self) -> Buffer:
        """All buffers together."""
        return self.working + self.lpram + self.lgb

    @property
    def working(self) -> Buffer:
        """All buffers but those of parameters and their gradients."""
        return self.act_ram + self.line_buffers + self.error_buffer + self.pab


def slice_memory(
    part: Slice,
    in_flight: int,
    kept_channels: int | None = None,
    storage: Storage = SINGLE_STORAGE,
) -> SliceMemory:
    """Return the buffers of a slice with `in_flight` samples in flight; `kept_channels` of its
    channels are in LPRAM.

    LPRAM holds the weights that engines read, LGB all other arrays of a parameter. Bias and the
    parameters of normalisations stay with the device that has the layer's complete outputs,
    wherever the weights are.
    """
    storage = storage_of(part, storage)
    channels = part.channels if kept_channels is None else kept_channels
    lpram, lgb = parameter_memories(part, channels, storage)
    bias = memories(1, part.sfu_parameters, storage.biases)
    lpram = lpram + bias
    for shares in storage.bias_shares[1:]:
        lgb += memories(1, -(-part.sfu_parameters // shares), storage.biases)
    line_buffers, error_buffer, pab = _row_buffers(part, storage)
    return SliceMemory(
        act_ram=_act_ram(part, in_flight, storage),
        lpram=lpram,
        lgb=lgb,
        line_buffers=line_buffers,
        error_buffer=error_buffer,
        pab=pab,
    )


def _row_buffers(part: Slice, storage: Storage) -> tuple[Buffer, Buffer, Buffer]:
    """Return line buffers, error buffer and PAB of a slice."""
    layer, outs = part.layer, part.out_channels
    if layer.operation.one_memory:
        of_sample = _input_lines(part)
        row = dataclasses.replace(of_sample, count=of_sample.count // layer.engine_view.in_rows)
        inputs, error_buffer = (
            line_memory(row, _inputs_in(layer, storage)),
            line_memory(row, storage.errors),
        )
        made = Lines(len(outs), 1, outs.start)
        errors, pab = line_memory(made, storage.errors), line_memory(made, storage.sums)
    else:
        ins, columns, rows, begin = (
            part.held_inputs,
            layer.output[2],
            layer.window.extent[0],
            part.in_channels.start,
        )
        number = _inputs_in(layer, storage)
        inputs = channel_memories(ins, layer.input[2], number, begin) + tensor_memory(1, number)
        error_scale = tensor_memory(1, storage.errors)
        error_buffer = channel_memories(ins, layer.input[2], storage.errors, begin) + error_scale
        errors = channel_memories(len(outs), columns, storage.errors, outs.start) + error_scale
        inputs, errors = inputs * rows, errors * rows
        pab = channel_memories(len(outs), columns, storage.sums, outs.start)
    inputs += _pixel_blocks(part, storage)
    error_buffer, errors = (error_buffer, errors) if layer.has_eb else (Buffer(), Buffer())
    for step in layer.sfu if part.is_last else ():
        if step.operation.collects_map:
            maps = memories(2, math.prod(step.input))
            pab += maps
            error_buffer += Buffer() if step.makes.fixed else maps
    return inputs + errors, error_buffer, pab


def _pixel_blocks(part: Slice, storage: Storage) -> Buffer:
    """Return what holds operands until the scale of their block along what is summed is known,
    where products are summed in blocks.

    PG has the pixels of a block of each input channel and place of the kernel, and of each output
    channel. Attention has as many rows of both, and of a head at a time what these queries have of
    all keys, and its errors.
    """
    layer, attends = part.layer, not part.layer.has_weights
    if not storage.dot or not (layer.has_pg or attends) or layer.operation.looks_up:
        return Buffer()
    pixels, places = math.prod(layer.output[1:]), math.prod(layer.kernel)
    operands = [
        (len(part.in_channels) * places, storage.activations),
        (len(part.out_channels), storage.errors),
    ]
    if isinstance(layer.operation, Recurrent):
        operands[1:] = _step_operands(part, layer.operation, storage)
    held = [memories(count, min(number.block, pixels), number) for count, number in operands]
    if attends:
        queries = [min(number.block, pixels) for _, number in operands]
        held.append(memories(sum(queries), pixels, storage.sums))
    return sum(held, Buffer())


def _step_operands(
    part: Slice, operation: Recurrent, storage: Storage
) -> list[tuple[int, NumberFormat]]:
    """Return what PG of a recurrent layer multiplies of each step beside the inputs: states, and
    what a projection or a reset's product multiplies; and errors of gates and of a projection.
    """
    units = part.channels if operation.is_divisible else operation.units
    states = operation.hidden + operation.units * operation.multiplies_inner
    errors = units * operation.error_lines + (operation.projection or 0)
    return [
        (operation.directions * states, storage.made),
        (operation.directions * errors, storage.errors),
    ]


def _input_lines(part: Slice, samples: int = 1) -> Lines:
    """Return the inputs of some samples that a slice holds."""
    _, rows, columns = part.layer.input
    return Lines(part.held_inputs, rows * columns * samples, part.in_channels.start, columns)


def _inputs_in(layer: Layer, storage: Storage) -> NumberFormat:
    """Return the format of a layer's inputs: numbers of symbols are whole, and in no run's
    format.
    """
    return FP32 if layer.operation.looks_up else storage.activations


def _act_ram(part: Slice, in_flight: int, storage: Storage) -> Buffer:
    """Return what a slice keeps of samples in flight for the backward pass."""
    lines, number = _input_lines(part, in_flight), _inputs_in(part.layer, storage)
    act_ram = Buffer()
    if keeps_inputs(part.layer):
        if part.layer.operation.one_memory:
            act_ram = line_memory(lines, number)
        else:
            act_ram = channel_memories(lines.length, lines.count, number, lines.begin)
            act_ram += tensor_memory(lines.tensors, number)
    if part.kept_values and not part.layer.makes.fixed:
        states = _state_lines(part, storage, in_flight)
        act_ram += memories(1, part.kept_values * in_flight - states.values, storage.biases)
        act_ram += line_memory(states, storage.made)
    return sum((line_memory(kept) for kept in _sfu_lines(part, in_flight)), act_ram)


def _state_lines(part: Slice, storage: Storage, samples: int = 1) -> Lines:
    """Return the states of some samples that a slice of a recurrent layer keeps in a format of
    their own.
    """
    operation = part.layer.operation
    if not isinstance(operation, Recurrent) or storage.made == storage.biases:
        return Lines(0, 0)
    count = part.layer.input[1] * operation.directions * samples
    if operation.is_divisible:
        return Lines(part.channels, count, part.begin)
    return Lines(operation.hidden, count)


def _sfu_lines(part: Slice, samples: int = 1) -> Iterator[Lines]:
    """Yield the maps of some samples that the slice's SFU needs when errors come back; its inside
    is in fp32.
    """
    for step in part.layer.sfu if part.is_last else ():
        if step.operation.keeps_map and not step.makes.fixed:
            for tensor in step.reads:
                channels, rows, columns = tensor.shape
                yield Lines(channels, rows * columns * samples)


def keeps_inputs(layer: Layer) -> bool:
    """Return whether PG needs a layer's inputs, or EB: of attention, and of steps."""
    return layer.has_pg or (
        not layer.makes.fixed and (layer.operation.recurs or not layer.has_weights)
    )


def parameter_memory(
    part: Slice, channels: int, number: NumberFormat = FP32, shares: int = 1
) -> Buffer:
    """Return the weights of `channels` of a slice's cut channels, without bias, as LPRAM or BPRAM
    holds them; or the largest of some equal shares, to which each memory adds.
    """
    if part.layer.operation.one_memory:
        return line_memory(weight_lines(part, channels).share(shares), number)
    by_channel = memories if part.lies_along_outputs else channel_memories
    count, words = weight_memories(part, channels)
    scales = (
        tensor_memory(weight_lines(part, channels).tensors, number) if count * words else Buffer()
    )
    return by_channel(count, -(-words // shares), number) + scales


def parameter_memories(
    part: Slice, channels: int, storage: Storage = SINGLE_STORAGE
) -> tuple[Buffer, Buffer]:
    """Return the weights of `channels` of a slice's cut channels, and all other arrays of theirs,
    without bias.
    """
    weights, *others = _array_memories(part, channels, formats_of(part, storage))
    return weights, sum(others, Buffer())


def array_bytes(part: Slice, storage: Storage = SINGLE_STORAGE) -> tuple[int, ...]:
    """Return the bytes of each array of all of a slice's parameters, as if whole: the weights that
    engines read, their gradients, and so on (`Storage.arrays`).
    """
    own = dataclasses.replace(storage_of(part, storage), shares=())
    bias = memories(1, part.sfu_parameters, own.biases).bytes
    sizes = [memory.bytes + bias for memory in _array_memories(part, part.channels, own)]
    if own.has_copies:  # biases have no master copy
        sizes[2] -= bias
    return tuple(sizes)


def _array_memories(part: Slice, channels: int, storage: Storage) -> list[Buffer]:
    """Return each array of the weights of `channels` of a slice's cut channels."""
    if storage.lies_across and part.layer.operation.looks_up:
        lines = lines_of_weights(part, channels, storage)
        return [line_memory(lines.share(shares), number) for number, shares in storage.kept]
    if storage.lies_across:
        return _summed_memories(part, channels, storage)
    return [parameter_memory(part, channels, *kept) for kept in storage.kept]


def _summed_memories(part: Slice, channels: int, storage: Storage) -> list[Buffer]:
    """Return the same where blocks of weights lie along what FP sums: a scale for the words of some
    input channels at a place of the kernel, and of as many outputs where blocks are squares, in
    memories of their own. Weights of EB, in blocks of output channels, are as large, and beside
    those of FP.
    """
    outs, ins, *taps = part.layer.weight_shape
    ins, outs = (channels, outs) if part.cut is Cut.ICP else (ins, channels)
    places = math.prod(taps)
    lines, turned = lines_of_weights(part, channels, storage), turned_lines(part, channels, storage)

    def memory(number: NumberFormat, shares: int) -> Buffer:
        if part.layer.operation.one_memory:
            return line_memory(lines.share(shares), number)
        words, together = -(-outs // shares), outputs_side_by_side(part, outs)
        return channel_memories(ins, words, number, side_by_side=together) * places

    arrays = [memory(*kept) for kept in storage.kept]
    if turned is not None:
        number = storage.weights
        one_memory = part.layer.operation.one_memory
        own = line_memory(turned, number) if one_memory else memories(ins * places, outs, number)
        arrays[0] += own
    return arrays


def weight_memories(part: Slice, channels: int) -> tuple[int, int]:
    """Return the number of memories that hold the weights of `channels` of a slice's cut channels,
    and their words.
    """
    outs, ins, kernel_rows, kernel_columns = part.layer.weight_shape
    ins, outs = (channels, outs) if part.cut is Cut.ICP else (ins, channels)
    count = ins * kernel_rows * kernel_columns
    return (1, count * outs) if part.layer.operation.one_memory else (count, outs)


@dataclasses.dataclass(frozen=True)
class OffChip:
    """What of a slice is off chip: weights and gradients of the last `channels` of its cut
    channels, and Act-RAM.
    """

    channels: int = 0
    activations: bool = False

    def __bool__(self) -> bool:
        return self.channels > 0 or self.activations


@dataclasses.dataclass(frozen=True)
class MemoryStream:
    """What an engine moves over its board's memory port: `sample_bytes` for a sample, in equal
    parts for its rows.
    """

    phase: Phase
    rows: int
    sample_bytes: int


def memory_streams(
    part: Slice, off_chip: OffChip, storage: Storage = SINGLE_STORAGE
) -> tuple[MemoryStream, ...]:
    """Return what FP, EB (unless the layer takes images) and PG of a slice move over the memory
    port.
    """
    if not off_chip:
        return ()
    storage = formats_of(part, storage)
    view = part.layer.engine_view
    operation = part.layer.operation
    activations = off_chip.activations * activation_bytes(part, storage)
    again = operation.reread(part.layer.input, part.layer.rows_at_once)
    fp_again, eb_again, sums = (
        off_chip.activations * number.bytes_of(part.channels * values)
        for values, number in zip(
            again, (storage.activations, storage.activations, storage.sums), strict=True
        )
    )
    eb_again += sums

    def of(phase: Phase, rows: int, number: NumberFormat, more: int) -> MemoryStream:
        each_row = off_chip.activations or (operation.recurs and phase is not Phase.PG)
        if operation.looks_up:
            passes, parameters = rows, number.bytes_of(off_chip.channels)
        else:
            passes = -(-rows // part.layer.rows_at_once) if each_row else 1
            turned = turned_lines(part, off_chip.channels, storage)
            lines = lines_of_weights(part, off_chip.channels, storage)
            if phase is Phase.EB and turned is not None:
                lines = turned
            parameters = lines.bytes_in(number)
        times = 2 if phase is Phase.PG else 1  # gradients are read and written
        return MemoryStream(phase, rows, times * passes * parameters + more)

    moved = [of(Phase.FP, view.out_rows, storage.weights, activations + fp_again)]
    if part.layer.has_eb:
        # Without PG, as in attention, it is EB that reads the activations.
        more = eb_again if part.layer.has_pg else activations + eb_again
        moved.append(of(Phase.EB, part.layer.eb_rows, storage.weights, more))
    if part.layer.has_pg:
        moved.append(of(Phase.PG, view.out_rows, storage.gradients, activations))
    return tuple(stream for stream in moved if stream.sample_bytes)


def block_rows(part: Slice, off_chip: OffChip) -> int:
    """Return how many rows of a slice wait for one another, because it reads once what each of them
    needs off chip.
    """
    layer = part.layer
    reads = off_chip.activations and (off_chip.channels or any(layer.operation.reread(layer.input)))
    return layer.rows_at_once if reads else 1


def activation_bytes(part: Slice, storage: Storage = SINGLE_STORAGE) -> int:
    """Return the bytes of a sample that a slice keeps for the backward pass."""
    layer, kept, storage = part.layer, 0, formats_of(part, storage)
    if part.kept_values and not layer.makes.fixed:
        states = _state_lines(part, storage)
        kept = storage.biases.bytes_of(part.kept_values - states.values)
        kept += states.bytes_in(storage.made)
    inputs = _input_lines(part).bytes_in(_inputs_in(layer, storage)) if keeps_inputs(layer) else 0
    return inputs + kept + sum(lines.bytes_in(FP32) for lines in _sfu_lines(part))


def port_bytes(part: Slice, off_chip: OffChip, storage: Storage = SINGLE_STORAGE) -> int:
    """Return the bytes that a slice moves over its board's memory port for a sample."""
    return sum(stream.sample_bytes for stream in memory_streams(part, off_chip, storage))


def update_bytes(part: Slice, off_chip: OffChip, storage: Storage = SINGLE_STORAGE) -> int:
    """Return the bytes that an update moves beside those of PG, which reads and writes weights in
    place of gradients.

    What is kept of parameters beside them goes in and out. Updates of a master copy write the
    weights, too.
    """
    storage = storage_of(part, storage)
    weights = lines_of_weights(part, off_chip.channels, storage)
    if len(storage.arrays) == 1:  # it learns nothing
        return 0
    turned = turned_lines(part, off_chip.channels, storage)
    before_states = 2 + storage.has_copies
    master, shares = storage.kept[2] if storage.has_copies else storage.kept[0]
    moved = 2 * weights.share(shares).bytes_in(master) + storage.has_copies * weights.bytes_in(
        storage.weights
    )
    # PG of the last sample has moved as much as gradients take, in and out: only what is beyond
    # comes on top.
    more = max(0, moved - 2 * weights.bytes_in(storage.gradients))
    states = storage.kept[before_states:]
    if turned is not None:  # both copies are written
        more += turned.bytes_in(storage.weights)
    return more + 2 * sum(weights.share(shares).bytes_in(number) for number, shares in states)


def stored_bytes(
    part: Slice, off_chip: OffChip, in_flight: int, storage: Storage = SINGLE_STORAGE
) -> int:
    """Return the bytes of a slice in off-chip memory: weights, gradients, and activations of the
    samples in flight.
    """
    weights = stored_weight_bytes(part, off_chip.channels, storage_of(part, storage))
    return weights + off_chip.activations * in_flight * activation_bytes(part, storage)
