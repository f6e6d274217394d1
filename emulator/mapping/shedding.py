"""Shedding: what of a device's data leaves the chip where its on-chip memory is too small, and how
much that moves.

On-chip memory is counted in banks. Buffers that feed engines (line buffers, error buffer, PAB) and
biases stay. Act-RAM, as a whole, and weights with their gradients, channel by channel, may go to
the board's off-chip memory. What frees the most banks for a byte on the memory port goes first:
Act-RAM holds all samples in flight, and moves two maps a sample. A slice that has shed its Act-RAM
keeps its weights as long as it can, since they would be read for each row (memory.py); and one that
has shed its weights keeps its Act-RAM.
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

from ..cluster import BANK_BYTES
from ..number import Storage
from .balancing import SINGLE_STORAGE, channel_bytes, formats_of, storage_of, turned_lines
from .memory import (
    LUT_RAM_BITS,
    WORDS,
    OffChip,
    memories,
    parameter_memories,
    port_bytes,
    slice_memory,
    weight_memories,
)
from .slices import Cut, Slice

_MOST_BYTES = 1 << 62


class Shed(NamedTuple):
    """What is off chip of each slice, the banks that this frees, and the bytes that it moves for a
    sample.
    """

    off_chip: tuple[OffChip, ...]
    freed: int
    moved: int


class WeightBanks(NamedTuple):
    """The banks of the weights of any number of a slice's cut channels, and of all other arrays of
    theirs.

    A channel adds `memories` of `words` words each, or, if it deepens them, `words` words to each
    of `memories`; so in each array, of which a bank holds `words_in_bank`, and a board has one of
    some `shares`. Where formats have blocks, banks are those of a slice's `part`.
    """

    memories: int
    words: int
    deepens: bool
    words_in_bank: tuple[int, ...] = (WORDS, WORDS)
    part: Slice | None = None
    storage: Storage = SINGLE_STORAGE
    shares: tuple[int, ...] = (1, 1)
    by_blocks: tuple[int, int, int] | None = None
    """Where blocks lie across channels that have memories of their own: banks of a channel, banks
    of the scales of a block, and its channels.
    """

    @classmethod
    def of(cls, part: Slice, storage: Storage = SINGLE_STORAGE) -> WeightBanks:
        """Return those of a slice."""
        count, words = weight_memories(part, 1)
        own, storage = storage_of(part, storage), formats_of(part, storage)
        arrays, shares = zip(*own.kept, strict=True)
        if turned_lines(part, 1, own) is not None:  # weights that EB has of its own
            arrays, shares = (*arrays, own.weights), (*shares, 1)
        words_in_bank = tuple(number.values_in(BANK_BYTES) for number in arrays)
        blocks = any(number.block for number in arrays)
        deepens = part.layer.operation.one_memory or part.cut is Cut.OCP
        of_part = part if blocks else None
        banks = cls(count, words, deepens, words_in_bank, of_part, storage, shares)
        sizes = {number.block for number in arrays if number.block}
        if not own.lies_across or deepens or len(sizes) > 1 or min(sizes) == 1:
            return banks
        one, two = banks.of_channels(1), banks.of_channels(2)
        return banks._replace(by_blocks=(two - one, 2 * one - two, *sizes))

    def of_channels(self, channels: int) -> int:
        """Return the banks of a number of channels."""
        if self.by_blocks is not None:
            of_channel, of_scales, size = self.by_blocks
            return channels * of_channel + -(-channels // size) * of_scales
        if self.part is not None:
            arrays = parameter_memories(self.part, channels, storage_of(self.part, self.storage))
            return sum(array.banks for array in arrays)
        words = channels * self.words if self.deepens else self.words
        banks = 0
        for most, shares in zip(self.words_in_bank, self.shares, strict=True):
            own = -(-words // shares)
            banks += -(-own // most) if own > LUT_RAM_BITS else 0
        return self.memories * (1 if self.deepens else channels) * banks

    @property
    def _has_sums_in_blocks(self) -> bool:
        return self.part is not None and self.storage.lies_across

    @property
    def _has_tensors(self) -> bool:
        """Whether channels share a memory for the scales of their tensors."""
        return any(number.tensor_bytes for number in self.storage.arrays)

    def most_channels(self, available: int, banks: int) -> int:
        """Return the most of `available` channels that take at most `banks`."""
        if self.of_channels(available) <= banks:
            return available
        if banks < 0:
            return 0
        if self._has_sums_in_blocks:  # a channel alone takes scales that it shares with others
            return bisect.bisect_right(range(available + 1), banks, key=self.of_channels) - 1
        if not self.deepens and not self._has_tensors:
            return banks // self.of_channels(1)
        if self.part is None and len({*self.words_in_bank}) == len({*self.shares}) == 1:
            deep = (
                banks
                // (len(self.words_in_bank) * self.memories)
                * self.words_in_bank[0]
                // self.words
            )
        else:
            deep = bisect.bisect_right(range(available + 1), banks, key=self.of_channels) - 1
        # A memory that is small enough lies in LUTs, and takes no bank.
        return max(LUT_RAM_BITS // self.words, deep)


class SliceNeeds(NamedTuple):
    """The banks that a slice needs, and the bytes that move for a sample if its data are off chip.

    `fixed_banks` stay on chip. `weight_bytes` move for each channel that is off chip,
    `rows_weight_bytes` if Act-RAM is off chip, too.
    """

    part: Slice
    channels: int
    fixed_banks: int
    act_ram_banks: int
    act_ram_bytes: int
    weights: WeightBanks
    weight_bytes: int
    rows_weight_bytes: int
    parameter_bytes: int
    """Bytes of a channel's weights on path 5."""

    @property
    def banks(self) -> int:
        """Banks of all data."""
        return self.fixed_banks + self.act_ram_banks + self.weights.of_channels(self.channels)

    def moved_bytes(self, off_chip: OffChip) -> int:
        """Return the bytes that move for a sample."""
        if off_chip.activations:
            return self.act_ram_bytes + off_chip.channels * self.rows_weight_bytes
        return off_chip.channels * self.weight_bytes

    def banks_with(self, off_chip: OffChip) -> int:
        """Return the banks of what is on chip."""
        act_ram = 0 if off_chip.activations else self.act_ram_banks
        return (
            self.fixed_banks + act_ram + self.weights.of_channels(self.channels - off_chip.channels)
        )


def slice_needs(part: Slice, in_flight: int, storage: Storage = SINGLE_STORAGE) -> SliceNeeds:
    """Return what a slice needs with `in_flight` samples in flight, in the formats of `storage`."""
    memory = slice_memory(part, in_flight, part.channels, storage)
    storage = formats_of(part, storage)
    biases = sum(
        memories(1, -(-part.sfu_parameters // shares), storage.biases).banks
        for shares in storage_of(part, storage).bias_shares
    )
    act_ram_bytes = port_bytes(part, OffChip(activations=True), storage)
    # Scales that channels share where blocks are summed count in equal parts.
    channels = part.channels if storage.lies_across else 1
    weights = port_bytes(part, OffChip(channels), storage)
    with_rows = port_bytes(part, OffChip(channels, activations=True), storage) - act_ram_bytes
    fixed = memory.line_buffers.banks + memory.error_buffer.banks + memory.pab.banks
    return SliceNeeds(
        part,
        part.channels,
        fixed_banks=fixed + biases,
        act_ram_banks=memory.act_ram.banks,
        act_ram_bytes=act_ram_bytes,
        weights=WeightBanks.of(part, storage),
        weight_bytes=-(-weights // channels),
        rows_weight_bytes=-(-with_rows // channels),
        parameter_bytes=channel_bytes(part, storage.weights),
    )


class ShedBounds(NamedTuple):
    """What shedding some slices can come to, whatever of them is shed.

    They need `banks`, of which `most_freed` can leave the chip; all of that moves `most_moved`
    bytes for a sample, and each bank at least `bank_bytes`. `is_free` says that something moves
    nothing, which is never shed.
    """

    banks: int
    most_freed: int
    most_moved: int
    bank_bytes: float
    is_free: bool = False

    @classmethod
    def of(cls, held: SliceNeeds) -> ShedBounds:
        """Return those of one slice."""
        weights, banks, bank_bytes = held.weights, held.banks, math.inf
        of_weights = weights.of_channels(held.channels)
        least_bytes = min(held.weight_bytes, held.rows_weight_bytes)
        if held.act_ram_banks:
            bank_bytes = held.act_ram_bytes / held.act_ram_banks
        if of_weights:
            # A channel frees no more than its words, and what rounding and a memory in LUTs add to
            # them.
            most = weights.memories * sum(
                weights.words / most + 2 for most in weights.words_in_bank
            )
            bank_bytes = min(bank_bytes, least_bytes / min(of_weights, most))
        most_moved = held.act_ram_bytes + held.channels * max(
            held.weight_bytes, held.rows_weight_bytes
        )
        return cls(
            banks,
            banks - held.fixed_banks,
            most_moved,
            bank_bytes,
            bool(of_weights) and not least_bytes,
        )

    def with_others(self, other: ShedBounds) -> ShedBounds:
        """Return those of these slices and of others together."""
        return ShedBounds(
            self.banks + other.banks,
            self.most_freed + other.most_freed,
            self.most_moved + other.most_moved,
            min(self.bank_bytes, other.bank_bytes),
            self.is_free or other.is_free,
        )

    def frees(self, banks: int, most_bytes: int) -> bool | None:
        """Return whether `shed` frees `banks` if `most_bytes` may move; None if only trying
        tells.
        """
        if banks * self.bank_bytes > most_bytes * (1 + 1e-9):
            return False
        return (
            True
            if self.most_moved <= most_bytes and not self.is_free and banks <= self.most_freed
            else None
        )


def shed(needs: Sequence[SliceNeeds], excess_banks: int, most_bytes: int = _MOST_BYTES) -> Shed:
    """Take data off chip until `excess_banks` are free, or `most_bytes` move for a sample."""
    off_chip, freed, moved = [OffChip() for _ in needs], 0, 0
    steps, due = _Steps(), [*range(len(needs))]
    while freed < excess_banks:
        wanted, left = excess_banks - freed, most_bytes - moved
        # Steps stay as they were but for that of the slice which has just shed, and those that are
        # now too large.
        for place in (*due, *steps.beyond(wanted, left)):
            step = _best_step(place, needs[place], off_chip[place], wanted, left)
            if step is not None:
                steps.add(step)
        chosen = steps.cheapest()
        if chosen is None:
            break
        off_chip[chosen.place], due = chosen.off_chip, [chosen.place]
        freed, moved = freed + chosen.freed, moved + chosen.moved
    return Shed(tuple(off_chip), freed, moved)


class _Step(NamedTuple):
    """A slice that sheds more: the banks that this frees in addition, and the bytes that it moves
    in addition.
    """

    place: int
    off_chip: OffChip
    freed: int
    moved: int
    cost: float


class _Steps:
    """The next step of each slice, by what it costs, frees and moves."""

    def __init__(self) -> None:
        self._steps: dict[int, _Step] = {}
        self._numbers: dict[int, int] = {}
        self._added = 0
        self._by_cost: list[tuple[float, int, int]] = []
        self._by_freed: list[tuple[float, int, int]] = []
        self._by_moved: list[tuple[float, int, int]] = []

    def add(self, step: _Step) -> None:
        """Add the step of a slice that has none."""
        self._added += (
            1  # numbers tell entries of heaps that have been replaced from those that count
        )
        self._steps[step.place], self._numbers[step.place] = step, self._added
        for heap, key in (
            (self._by_cost, step.cost),
            (self._by_freed, -step.freed),
            (self._by_moved, -step.moved),
        ):
            heapq.heappush(heap, (key, step.place, self._added))

    def cheapest(self) -> _Step | None:
        """Take the step that costs least, of equal ones the first slice's; None if there is
        none.
        """
        while self._by_cost:
            if (step := self._taken(self._by_cost)) is not None:
                return step
        return None

    def beyond(self, freed: int, moved: int) -> list[int]:
        """Take the steps that free or move more than this; return their slices."""
        places = []
        for heap, most in ((self._by_freed, freed), (self._by_moved, moved)):
            while heap and -heap[0][0] > most:
                if (step := self._taken(heap)) is not None:
                    places.append(step.place)
        return places

    def _taken(self, heap: list[tuple[float, int, int]]) -> _Step | None:
        """Take the first step of a heap; None if that was taken before."""
        _, place, number = heapq.heappop(heap)
        return self._steps.pop(place, None) if self._numbers[place] == number else None


def _best_step(
    place: int, held: SliceNeeds, now: OffChip, wanted_banks: int, most_bytes: int
) -> _Step | None:
    """Return how a slice frees up to `wanted_banks`, or more if it must, for fewest bytes each;
    None if it cannot.
    """
    before, moves, best = held.banks_with(now), held.moved_bytes(now), None
    for activations in (False, True):
        if activations and not held.act_ram_banks:
            continue
        channel_bytes, fixed_bytes = (
            (held.rows_weight_bytes, held.act_ram_bytes) if activations else (held.weight_bytes, 0)
        )
        others = held.fixed_banks + (0 if activations else held.act_ram_banks)
        kept = held.weights.most_channels(held.channels, max(0, before - wanted_banks - others))
        can_move = max(0, most_bytes + moves - fixed_bytes)
        channels = min(held.channels - kept, can_move // channel_bytes) if channel_bytes else 0
        freed = before - others - held.weights.of_channels(held.channels - channels)
        moved = fixed_bytes + channels * channel_bytes - moves
        if freed > 0 and moved <= most_bytes:
            cost = moved / min(
                freed, wanted_banks
            )  # banks beyond those that are wanted are worth nothing
            if best is None or cost < best.cost:
                best = _Step(place, OffChip(channels, activations), freed, moved, cost)
    return best
