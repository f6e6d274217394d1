"""The memory subsystem: buffers of each slice on chip (FPDeep, section 5.2.2; f1 of equation (6)), and off-chip data.

- Act-RAM holds the slice's input activations from FP until PG, so those of all samples in flight; for recurrent layers
  also states, gates and cells of all steps; for a layer with a vocabulary-parallel loss its own logits.
- LPRAM holds the slice's parameters, in SF x K x K banks of OC words (SF: its input channels). LGB holds as many
  gradients, and in as many more memories each array that an optimiser keeps beside them: Nesterov's velocity, Adam's
  two moments. SGD's velocity takes no room of its own, since the sum of gradients can go on from momentum times the
  last one. BPRAM and BGB hold parameters that another device uses, and their gradients (balancing.py).
- Line buffers feed the engines: K rows of the slice's inputs for FP, and K rows of output errors for EB.
- The error buffer takes a row of the slice's input errors from EB, PAB a row of partial outputs from FP. Rows are the
  unit in which data travels (timing.py).

A buffer's plain bytes are the least of any layout. Banks round up: a bank is half a BRAM, 18 kbit, which holds 512
words of up to 36 bits. A memory of at most 64 words is built of LUTs, as synthesis does: a LUT is a RAM of 64 x 1 or 32
x 2 (Xilinx UG474). A layer whose tiles take turns (fully connected) has one memory for each buffer. What an SFU stores
until the errors come back (masks, positions of maxima) is left out.

What of a slice does not lie in on-chip buffers is off chip, and costs time on the board's memory port. Weights and
their gradients, and the input activations that wait for PG, may lie in the board's DRAM or HBM. For each sample

- FP reads the weights, and writes the activations;
- EB reads the weights;
- PG reads the activations, and reads and writes the gradients. For a mini-batch's first sample there is nothing to
  read, and for its last one PG reads the weights and writes them updated instead of the gradients; so it moves the same
  number of bytes, and the update of SGD moves no more.

What other optimisers keep beside the gradients lies where these do. Their update reads and writes it.

An embedding reads the weights of the symbols that come, in FP, and reads and writes their gradients in PG: one row of
weights for each row of inputs.

Attention has no PG: EB reads its activations. Off chip, a row reads the keys and values of all rows that it sees, and
errors of these are read and written in EB.

Weights are read once a sample where the slice's activations are on chip: an engine then goes through the whole map, one
output channel after the other, as with balanced parameters (balancing.py). With the activations off chip, rows come and
go, and weights that are off chip, too, are read for each row. FP and EB of a recurrent layer, which must finish a step
before the next, read them for each row in any case.

In networks with attention, layers with rows of one pixel have little work for each weight. They wait for a block of
rows, and read what each row needs off chip once for all of them (`Layer.rows_at_once`): weights, keys and values.
"""

from __future__ import annotations

import dataclasses

from ...kernels.number import FP32, NumberFormat
from ..cluster import BANK_BYTES
from ..network import Layer, Phase
from ..number import Storage
from .balancing import SINGLE_STORAGE, channel_bytes, channel_values, storage_of
from .slices import Cut, Slice

WORDS = FP32.values_in(BANK_BYTES)
"""Words of a bank."""

LUT_RAM_BITS = 64
"""Bits of RAM in a LUT: 64 words of one bit, or 32 of two."""


@dataclasses.dataclass(frozen=True)
class Buffer:
    """A buffer's plain bytes, banks of 18 kbit, and LUTs, and bytes in them, of memories too shallow for a bank."""

    bytes: int = 0
    banks: int = 0
    lut: int = 0
    lut_bytes: int = 0

    def __add__(self, other: Buffer) -> Buffer:
        lut_bytes = self.lut_bytes + other.lut_bytes
        return Buffer(self.bytes + other.bytes, self.banks + other.banks, self.lut + other.lut, lut_bytes)

    @property
    def block_ram_bytes(self) -> int:
        """Plain bytes without those in LUTs."""
        return self.bytes - self.lut_bytes

    def __mul__(self, count: int) -> Buffer:
        return Buffer(self.bytes * count, self.banks * count, self.lut * count, self.lut_bytes * count)


def memories(count: int, words: int, number: NumberFormat = FP32) -> Buffer:
    """Return the size of `count` memories of `words` words each; without words there are none."""
    if not words:
        return Buffer()
    memory_bytes = number.bytes_of(words)
    total = count * memory_bytes
    if words <= LUT_RAM_BITS:
        bits_a_lut = 1 if words > LUT_RAM_BITS // 2 else 2
        return Buffer(total, 0, count * number.bits // bits_a_lut, total)
    return Buffer(total, count * -(-memory_bytes // BANK_BYTES), 0)


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
    """Return the buffers of a slice with `in_flight` samples in flight; `kept_channels` of its channels are in LPRAM.

    LPRAM holds the weights that engines read, LGB all other arrays of a parameter. Bias and the parameters of
    normalisations stay with the device that has the layer's complete outputs, wherever the weights are.
    """
    layer, ins, outs, storage = part.layer, part.held_inputs, len(part.out_channels), storage_of(part, storage)
    _, rows, columns = layer.input
    out_columns, kernel_rows = layer.output[2], layer.kernel[0]
    if layer.operation.one_memory:
        values, rows = ins * rows * columns, layer.engine_view.in_rows
        ins, columns, outs, out_columns, kernel_rows = 1, values // rows, 1, outs, 1
    channels = part.channels if kept_channels is None else kept_channels
    lpram, lgb = parameter_memories(part, channels, storage)
    kept = part.kept_values
    bias = memories(1, part.sfu_parameters, storage.biases)
    lpram, lgb = lpram + bias, lgb + bias * (storage.bias_arrays - 1)
    line_buffers = memories(ins * kernel_rows, columns, storage.activations)
    error_buffer = Buffer()
    if layer.has_eb:
        line_buffers += memories(outs * kernel_rows, out_columns, storage.errors)
        error_buffer = memories(ins, columns, storage.errors)
    act_ram = memories(ins, rows * columns * in_flight, storage.activations) if keeps_inputs(layer) else Buffer()
    if kept and not layer.makes.fixed:
        act_ram += memories(1, kept * in_flight, storage.activations)
    return SliceMemory(
        act_ram=act_ram,
        lpram=lpram,
        lgb=lgb,
        line_buffers=line_buffers,
        error_buffer=error_buffer,
        pab=memories(outs, out_columns, storage.sums),
    )


def keeps_inputs(layer: Layer) -> bool:
    """Return whether PG needs a layer's inputs, or EB: of attention, and of steps."""
    return layer.has_pg or (not layer.makes.fixed and (layer.operation.recurs or not layer.has_weights))


def parameter_memory(part: Slice, channels: int, number: NumberFormat = FP32) -> Buffer:
    """Return the weights of `channels` of a slice's cut channels, without bias, as LPRAM or BPRAM holds them."""
    return memories(*weight_memories(part, channels), number)


def parameter_memories(part: Slice, channels: int, storage: Storage = SINGLE_STORAGE) -> tuple[Buffer, Buffer]:
    """Return the weights of `channels` of a slice's cut channels, and all other arrays of theirs, without bias."""
    weights, *others = (parameter_memory(part, channels, number) for number in storage.arrays)
    return weights, sum(others, Buffer())


def weight_memories(part: Slice, channels: int) -> tuple[int, int]:
    """Return the number of memories that hold the weights of `channels` of a slice's cut channels, and their words."""
    outs, ins, kernel_rows, kernel_columns = part.layer.weight_shape
    ins, outs = (channels, outs) if part.cut is Cut.ICP else (ins, channels)
    count = ins * kernel_rows * kernel_columns
    return (1, count * outs) if part.layer.operation.one_memory else (count, outs)


@dataclasses.dataclass(frozen=True)
class OffChip:
    """What of a slice is off chip: weights and gradients of the last `channels` of its cut channels, and Act-RAM."""

    channels: int = 0
    activations: bool = False

    def __bool__(self) -> bool:
        return self.channels > 0 or self.activations


@dataclasses.dataclass(frozen=True)
class MemoryStream:
    """What an engine moves over its board's memory port: `sample_bytes` for a sample, in equal parts for its rows."""

    phase: Phase
    rows: int
    sample_bytes: int


def memory_streams(part: Slice, off_chip: OffChip, storage: Storage = SINGLE_STORAGE) -> tuple[MemoryStream, ...]:
    """Return what FP, EB (unless the layer takes images) and PG of a slice move over the memory port."""
    if not off_chip:
        return ()
    view = part.layer.engine_view
    operation = part.layer.operation
    activations = off_chip.activations * keeps_inputs(part.layer) * activation_bytes(part, storage)
    fp_again, eb_again = (
        off_chip.activations * storage.activations.bytes_of(part.channels * values)
        for values in operation.reread(part.layer.input, part.layer.rows_at_once)
    )

    def of(phase: Phase, rows: int, number: NumberFormat, more: int) -> MemoryStream:
        each_row = off_chip.activations or (operation.recurs and phase is not Phase.PG)
        if operation.looks_up:
            passes, parameters = rows, number.bytes_of(off_chip.channels)
        else:
            passes = -(-rows // part.layer.rows_at_once) if each_row else 1
            parameters = off_chip.channels * channel_bytes(part, number)
        times = 2 if phase is Phase.PG else 1  # gradients are read and written
        return MemoryStream(phase, rows, times * passes * parameters + more)

    moved = [of(Phase.FP, view.out_rows, storage.weights, activations + fp_again)]
    if part.layer.has_eb:
        more = eb_again if part.layer.has_pg else activations + eb_again
        moved.append(of(Phase.EB, view.in_rows, storage.weights, more))
    if part.layer.has_pg:
        moved.append(of(Phase.PG, view.out_rows, storage.gradients, activations))
    return tuple(stream for stream in moved if stream.sample_bytes)


def block_rows(part: Slice, off_chip: OffChip) -> int:
    """Return how many rows of a slice wait for one another, because it reads once what each of them needs off chip."""
    layer = part.layer
    reads = off_chip.activations and (off_chip.channels or any(layer.operation.reread(layer.input)))
    return layer.rows_at_once if reads else 1


def activation_bytes(part: Slice, storage: Storage = SINGLE_STORAGE) -> int:
    """Return the bytes of a sample's input activations of a slice."""
    _, rows, columns = part.layer.input
    return storage.activations.bytes_of(part.held_inputs * rows * columns + part.kept_values)


def port_bytes(part: Slice, off_chip: OffChip, storage: Storage = SINGLE_STORAGE) -> int:
    """Return the bytes that a slice moves over its board's memory port for a sample."""
    return sum(stream.sample_bytes for stream in memory_streams(part, off_chip, storage))


def update_bytes(part: Slice, off_chip: OffChip, storage: Storage = SINGLE_STORAGE) -> int:
    """Return the bytes that an update moves: what is kept of parameters off chip beside gradients, in and out."""
    arrays = storage_of(part, storage).arrays[2:]
    return 2 * off_chip.channels * sum(channel_bytes(part, number) for number in arrays)


def stored_bytes(part: Slice, off_chip: OffChip, in_flight: int, storage: Storage = SINGLE_STORAGE) -> int:
    """Return the bytes of a slice in off-chip memory: weights, gradients, and activations of the samples in flight."""
    weights = off_chip.channels * storage_of(part, storage).weight_bytes(channel_values(part))
    return weights + off_chip.activations * keeps_inputs(part.layer) * in_flight * activation_bytes(part, storage)
