"""Parameter balancing: weights that do not fit where they are used are stored on devices to the left (FPDeep, Fig. 6).

Early layers have large maps and few parameters, late ones the opposite, so room is to the left. For each sample a
loan's weights travel with the activations from where they are stored to where they are used (data path 5), and their
gradients back (path 6). FP of one sample and EB of another use them as they pass. That they pass once a sample, not
once a row, supposes that the user convolves them one output channel after the other, over whole maps, which its
Act-RAM has.

Each device, from the last to the first, keeps what it can of its own and then takes in what devices to its right could
not, nearest first. With f(l) the bytes over link l, this makes f(d-1) = max(0, f(d) + own(d) - room(d)), and whatever
flows otherwise, link d-1 cannot carry less: devices d and beyond have no more room than they have. So, up to the size
of a channel, no other choice loads any link less, and the busiest link neither.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Sequence

from ..network.layers import Layer
from .slices import Cut, Slice
from .traffic import VALUE_BYTES, DataPath, Stream

COPIES = 2
"""A parameter that is stored takes room for itself and for its gradient."""


@dataclasses.dataclass(frozen=True)
class Loan:
    """Cut channels begin … end-1 of a layer: used on one device, stored on another to its left.

    `parameter_bytes` is what travels for each sample on path 5, and on path 6 as gradients; in store they take both.
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

    def __str__(self) -> str:
        return f"{self.layer.name}[{self.begin}:{self.end}]"


@dataclasses.dataclass(frozen=True)
class Balancing:
    """All loans, and for each device the bytes of its needs that no place was found for."""

    loans: tuple[Loan, ...]
    shortfall_bytes: tuple[int, ...]

    @property
    def fits(self) -> bool:
        """Whether everything has a place."""
        return not any(self.shortfall_bytes)

    def link_bytes(self, link: int) -> int:
        """Bytes a sample on path 5 between devices `link` and `link + 1`; path 6 carries as many the other way."""
        return sum(loan.parameter_bytes for loan in self.loans if loan.store_device <= link < loan.user_device)

    def lent_channels(self, part: Slice, device: int) -> int:
        """How many of a slice's channels are stored elsewhere."""
        return sum(loan.end - loan.begin for _, loan in loans_of(self.loans, part, device))


def loans_of(loans: Sequence[Loan], part: Slice, device: int) -> list[tuple[int, Loan]]:
    """The loans whose weights a slice uses, with their numbers."""
    return [(n, loan) for n, loan in enumerate(loans) if (loan.user_device, loan.layer) == (device, part.layer)]


def channel_bytes(part: Slice, value_bytes: int = VALUE_BYTES) -> int:
    """Bytes of the weights of one of a slice's cut channels."""
    kernel_rows, kernel_columns = part.layer.kernel
    others = len(part.out_channels) if part.cut is Cut.ICP else len(part.in_channels)
    return others * kernel_rows * kernel_columns * value_bytes


def loan_streams(loans: Sequence[Loan], link: int) -> tuple[Stream, ...]:
    """Data paths 5 and 6 between devices `link` and `link + 1`: a lane for each loan that crosses."""
    crossing = [(n, loan) for n, loan in enumerate(loans) if loan.store_device <= link < loan.user_device]
    return tuple(
        Stream(path, number, loan.parameter_bytes // VALUE_BYTES, 1, 1)
        for number, loan in crossing
        for path in (DataPath.PARAMETERS, DataPath.PARAMETER_GRADIENTS)
    )


@dataclasses.dataclass(frozen=True)
class _Waiting:
    """Channels of a slice that have no place yet."""

    part: Slice
    begin: int
    end: int
    user_device: int


def balance(slices: Sequence[Sequence[Slice]], room_bytes: Sequence[int], value_bytes: int = VALUE_BYTES) -> Balancing:
    """Find a place for the weights of each device's slices.

    `slices` are those whose weights are to be on chip; `room_bytes` is what each device has left for weights and
    gradients, below zero where its other buffers do not fit.
    """
    loans: list[Loan] = []
    waiting: list[_Waiting] = []
    for device in reversed(range(len(slices))):
        room, rest = room_bytes[device], []
        own = [_Waiting(part, part.begin, part.end, device) for part in slices[device]]
        for item in own + waiting:
            size = channel_bytes(item.part, value_bytes)
            placed = item.begin + min(item.end - item.begin, max(0, room) // (COPIES * size))
            carried = (placed - item.begin) * size
            room -= COPIES * carried
            if carried and item.user_device != device:
                loans.append(Loan(item.part.layer, item.begin, placed, item.user_device, device, carried))
            if placed < item.end:
                rest.append(dataclasses.replace(item, begin=placed))
        waiting = rest
    shortfall = [max(0, -room) for room in room_bytes]
    for item in waiting:
        shortfall[item.user_device] += COPIES * (item.end - item.begin) * channel_bytes(item.part, value_bytes)
    return Balancing(tuple(loans), tuple(shortfall))


def balance_evenly(
    slices: Sequence[Sequence[Slice]],
    room_bytes: Sequence[int],
    capacity_bytes: Sequence[int],
    value_bytes: int = VALUE_BYTES,
) -> Balancing:
    """The same, so that the device that holds most holds as little as may be: equation (12) of FPDeep.

    Finds by bisection the lowest level, in bytes, to which devices may be filled; where even full devices do not hold
    everything, that is what `balance` gives. Each device has `capacity_bytes`, of which its other buffers leave
    `room_bytes`.
    """

    def filled(level: int) -> Balancing:
        rooms = [
            room - max(0, capacity - max(level, capacity - room))
            for room, capacity in zip(room_bytes, capacity_bytes, strict=True)
        ]
        return balance(slices, rooms, value_bytes)

    levels = range(max(capacity_bytes) + 1)
    return filled(min(bisect.bisect_left(levels, True, key=lambda level: filled(level).fits), levels[-1]))
