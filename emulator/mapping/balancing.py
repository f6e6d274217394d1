"""Parameter balancing: weights that do not fit where they are used are stored on devices to the
left (FPDeep, Fig. 6).

Early layers have large maps and few parameters, late ones the opposite, so there is room to the
left. For each sample, balanced parameters travel with the activations from the device that stores
them to the one that uses them (data path 5), and their gradients back (path 6). FP of one sample
and EB of another use them as they pass. That they pass once a sample, not once a row, assumes that
the using device convolves one output channel after the other, over whole maps, which its Act-RAM
holds.

Each device, from the last to the first, keeps what it can of its own parameters and then takes in
what devices to its right could not keep, nearest first. With f(l) the bytes over link l, f(d-1) =
max(0, f(d) + own(d) - room(d)), and link d-1 cannot carry less, because devices d and beyond have
no more room. So, up to the size of a channel, no other choice loads any link less, including the
busiest.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Sequence

from ...kernels.number import FP32, Lines, NumberFormat
from ..network import BIASES, Layer, Recurrent
from ..number import SINGLE, Precision, Storage
from .slices import Cut, Slice
from .traffic import DataPath, Stream

SINGLE_STORAGE = Storage()
"""Everything in single precision, a parameter and its gradient."""
COPIES = 2
"""Room that a stored parameter takes, in units of its size: itself and its gradient. Some
optimisers need more.
"""


def formats_of(part: Slice, storage: Storage) -> Storage:
    """Return the formats of what a board stores of a slice's layer, as if it were trained."""
    return storage.of_layer(part.layer.formats, part.layer.reads.formats)


def storage_of(part: Slice, storage: Storage) -> Storage:
    """Return the formats of what a slice stores: where its layer is frozen, the values of its
    parameters alone.
    """
    own = formats_of(part, storage)
    return own.at_rest if part.layer.frozen else own


@dataclasses.dataclass(frozen=True)
class BalancedParameters:
    """A block of balanced parameters: cut channels begin … end-1 of a layer, used and stored on
    different devices.

    The storing device is to the left of the using one. `parameter_bytes` travel for each sample on
    path 5, and their gradients on path 6; the storing device holds both.
    """

    layer: Layer
    begin: int
    end: int
    user_device: int
    store_device: int
    parameter_bytes: int

    @property
    def part(self) -> Slice:
        """The channels as a slice of the layer."""
        return Slice(self.layer, self.begin, self.end)

    @property
    def weights(self) -> Lines:
        """The parameters."""
        return weight_lines(self.part, self.end - self.begin)

    @property
    def values(self) -> int:
        """Number of parameters."""
        return self.weights.values

    def __str__(self) -> str:
        return f"{self.layer.name}[{self.begin}:{self.end}]"


@dataclasses.dataclass(frozen=True)
class Balancing:
    """All blocks of balanced parameters, and for each device the bytes that do not fit anywhere."""

    blocks: tuple[BalancedParameters, ...]
    shortfall_bytes: tuple[int, ...]

    @property
    def fits(self) -> bool:
        """Whether everything has a place."""
        return not any(self.shortfall_bytes)

    def link_bytes(self, link: int) -> int:
        """Return the bytes a sample on path 5 between devices `link` and `link + 1`; path 6 carries
        as many back.
        """
        return sum(
            block.parameter_bytes
            for block in self.blocks
            if block.store_device <= link < block.user_device
        )

    def balanced_channels(self, part: Slice, device: int) -> int:
        """Return the number of a slice's channels that are stored elsewhere."""
        return sum(block.part.channels for _, block in blocks_of(self.blocks, part, device))


def blocks_of(
    blocks: Sequence[BalancedParameters], part: Slice, device: int
) -> list[tuple[int, BalancedParameters]]:
    """Return the blocks whose weights a slice uses, with their numbers."""
    return [
        (n, block)
        for n, block in enumerate(blocks)
        if (block.user_device, block.layer) == (device, part.layer)
    ]


def channel_values(part: Slice) -> int:
    """Return the number of weights of one of a slice's cut channels."""
    return weight_lines(part, 1).values


def channel_bytes(part: Slice, number: NumberFormat = FP32) -> int:
    """Return the bytes of the weights of one of a slice's cut channels."""
    return weight_lines(part, 1).bytes_in(number)


def weight_lines(part: Slice, channels: int) -> Lines:
    """Return the weights of `channels` of a slice's cut channels; lines run along the dimension
    that is not cut, and a channel's are a tensor.

    Of a recurrent layer, a gate of a unit has a line of inputs and one of states, and biases in
    fp32. A tied table has lines of symbols at both ends.
    """
    operation = part.layer.operation
    if isinstance(operation, Recurrent):
        rows = channels * operation.rows_of_piece
        units = channels if operation.is_divisible else operation.units
        beside = [Lines(operation.hidden, rows, side_by_side=units)]
        if operation.projection is not None:
            count = channels * operation.directions * operation.projection
            beside.append(Lines(operation.units, count, side_by_side=operation.projection))
        first = Lines(part.layer.input[0], rows, side_by_side=units)
        return dataclasses.replace(first, beside=tuple(beside), wide=BIASES * rows)
    outs, ins, kernel_rows, kernel_columns = part.layer.weight_shape
    taps = kernel_rows * kernel_columns
    if part.cut is Cut.ICP:
        return Lines(outs, taps * channels, in_tensor=taps)
    return Lines(channels, ins) if part.lies_along_outputs else Lines(ins * taps, channels)


def lines_of_weights(part: Slice, channels: int, storage: Storage) -> Lines:
    """Return the lines of the weights that FP reads, of `channels` of a slice's cut channels: along
    the dimension that is not cut, or along what FP sums, where blocks of products are summed.
    """
    operation, own = part.layer.operation, formats_of(part, storage)
    if operation.recurs or not own.lies_across:
        return weight_lines(part, channels)  # those of steps are what FP sums
    if operation.looks_up and not own.has_squares:  # a tied table has the lines of its head
        lines = weight_lines(part, channels)
        return Lines(channels, lines.length) if part.layer.shares_weights else lines
    outs, ins, kernel_rows, kernel_columns = part.layer.weight_shape
    ins, outs = (channels, outs) if part.cut is Cut.ICP else (ins, channels)
    count = outs * kernel_rows * kernel_columns
    return Lines(ins, count, side_by_side=outputs_side_by_side(part, outs))


def outputs_side_by_side(part: Slice, outputs: int) -> int:
    """Return how many of a slice's output channels are those of a group; all of one that is cut."""
    of_group = part.layer.channels // part.layer.operation.groups
    return outputs if outputs % of_group else of_group


def turned_lines(part: Slice, channels: int, storage: Storage) -> Lines | None:
    """Return the lines of the weights that EB has of its own, along the output channels; None if it
    reads those of FP.
    """
    layer = part.layer
    if not formats_of(part, storage).turns or not layer.has_eb or layer.operation.looks_up:
        return None
    if isinstance(layer.operation, Recurrent):
        return _turned_rows(layer, layer.operation, channels)
    outs, ins, kernel_rows, kernel_columns = layer.weight_shape
    ins, outs = (channels, outs) if part.cut is Cut.ICP else (ins, channels)
    taps, line = ins * kernel_rows * kernel_columns, layer.channels // layer.operation.groups
    if outs % line:  # a part of a group, or of several
        return Lines(outs, taps)
    return Lines(line, taps * (outs // line))


def _turned_rows(layer: Layer, operation: Recurrent, channels: int) -> Lines:
    """Return the same of a recurrent layer: lines of a gate's units, for each state and, if errors
    of inputs are needed, for each input; and of a projection's outputs.
    """
    units = channels if operation.is_divisible else operation.units
    columns = operation.hidden + layer.needs_errors * layer.input[0]
    rows = Lines(units, operation.directions * operation.gates * columns)
    if operation.projection is None:
        return rows
    beside = Lines(operation.projection, operation.directions * operation.units)
    return dataclasses.replace(rows, beside=(beside,))


def stored_weight_bytes(part: Slice, channels: int, storage: Storage) -> int:
    """Return the bytes of the weights of `channels` of a slice's cut channels, with all that is
    kept of them.
    """
    storage = formats_of(part, storage)
    turned = turned_lines(part, channels, storage)
    own = 0 if turned is None else turned.bytes_in(storage.weights)
    return own + storage.weight_bytes(lines_of_weights(part, channels, storage))


def balanced_streams(
    blocks: Sequence[BalancedParameters], link: int, precision: Precision = SINGLE
) -> tuple[Stream, ...]:
    """Return data paths 5 and 6 between devices `link` and `link + 1`: a stream for each block that
    crosses.

    Weights have their layer's format, and the sums of their gradients that of sums.
    """
    crossing = [
        (n, block)
        for n, block in enumerate(blocks)
        if block.store_device <= link < block.user_device
    ]

    def formats(layer: Layer) -> dict[DataPath, NumberFormat]:
        own = precision.of(layer.formats)
        return {DataPath.PARAMETERS: own.weights, DataPath.PARAMETER_GRADIENTS: own.sums}

    return tuple(
        Stream(
            path,
            number,
            block.values,
            1,
            1,
            number_format,
            lines=block.weights.count,
            tensors=block.weights.tensors,
        )
        for number, block in crossing
        for path, number_format in formats(block.layer).items()
    )


@dataclasses.dataclass(frozen=True)
class _Unplaced:
    """Channels of a slice that have no place yet."""

    part: Slice
    begin: int
    end: int
    user_device: int


def balance(
    slices: Sequence[Sequence[Slice]],
    room_bytes: Sequence[int],
    storage: Storage = SINGLE_STORAGE,
) -> Balancing:
    """Find a place for the weights of each device's slices.

    Args:
        slices: for each device the slices whose weights must be on chip.
        room_bytes: bytes that each device has left for weights and gradients; below zero if other
            buffers do not fit.
        storage: the formats of a parameter's arrays.
    """
    blocks: list[BalancedParameters] = []
    unplaced: list[_Unplaced] = []
    rooms = [
        room - _shared_bytes(held, storage) for room, held in zip(room_bytes, slices, strict=True)
    ]
    # From the last device back, since parameters are stored to the left of where they are used:
    # what finds no room is offered to the next device on the left.
    for device in reversed(range(len(slices))):
        room, rest = rooms[device], []
        may_move = (
            part for part in slices[device] if part.layer.weights and not stays(part, storage)
        )
        own = [_Unplaced(part, part.begin, part.end, device) for part in may_move]
        # Own weights first: those of other devices have to travel for each sample.
        for item in own + unplaced:
            kept = formats_of(item.part, storage)
            size = kept.weight_bytes(weight_lines(item.part, 1))
            placed = item.begin + min(item.end - item.begin, max(0, room) // size)
            carried = (placed - item.begin) * channel_bytes(item.part, kept.weights)
            room -= (placed - item.begin) * size
            if carried and item.user_device != device:
                block = BalancedParameters(
                    item.part.layer, item.begin, placed, item.user_device, device, carried
                )
                blocks.append(block)
            if placed < item.end:
                rest.append(dataclasses.replace(item, begin=placed))
        unplaced = rest
    # Below zero where other buffers, and weights that stay, are too large by themselves.
    shortfall = [max(0, -room) for room in rooms]
    for item in unplaced:
        shortfall[item.user_device] += (item.end - item.begin) * formats_of(
            item.part, storage
        ).weight_bytes(weight_lines(item.part, 1))
    return Balancing(tuple(blocks), tuple(shortfall))


def stays(part: Slice, storage: Storage = SINGLE_STORAGE) -> bool:
    """Return whether weights stay where they are used: those that layers share, which both update,
    frozen ones, those whose blocks lie across the channels that would go, or that have a scale.
    """
    own = formats_of(part, storage)
    is_tied = own.lies_across or own.has_scales
    return part.layer.shares_weights or part.layer.frozen or is_tied


def _shared_bytes(slices: Sequence[Slice], storage: Storage) -> int:
    """Return the bytes of weights that stay where they are used."""
    staying = (part for part in slices if stays(part, storage))
    return sum(
        stored_weight_bytes(part, part.channels, storage_of(part, storage)) for part in staying
    )


def balance_evenly(
    slices: Sequence[Sequence[Slice]],
    room_bytes: Sequence[int],
    capacity_bytes: Sequence[int],
    storage: Storage = SINGLE_STORAGE,
) -> Balancing:
    """Find a place for all weights so that the fullest device holds as little as possible: FPDeep's
    equation (12).

    The lowest level, in bytes, to which devices may be filled is found by bisection; where even
    full devices do not hold everything, the result is that of `balance`. Each device has
    `capacity_bytes`, of which its other buffers leave `room_bytes`.
    """

    def filled(level: int) -> Balancing:
        rooms = [
            # Other buffers take capacity - room at any level: below that, no room is left.
            room - max(0, capacity - max(level, capacity - room))
            for room, capacity in zip(room_bytes, capacity_bytes, strict=True)
        ]
        return balance(slices, rooms, storage)

    levels = range(max(capacity_bytes) + 1)
    # Where no level fits, `bisect_left` is one too far; the highest says what is missing.
    return filled(
        min(bisect.bisect_left(levels, True, key=lambda level: filled(level).fits), levels[-1])
    )
