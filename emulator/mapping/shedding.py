"""Shedding: what of a device's data leaves the chip where its on-chip memory is too small, and how much that moves.

On-chip memory is counted in banks. Buffers that feed engines (line buffers, error buffer, PAB) and biases stay.
Act-RAM, as a whole, and weights with their gradients, channel by channel, may go to the board's off-chip memory. What
frees the most banks for a byte on the memory port goes first: Act-RAM holds all samples in flight, and moves two maps a
sample. A slice that has shed its Act-RAM keeps its weights as long as it can, since they would be read for each row
(memory.py); and one that has shed its weights keeps its Act-RAM.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple

from ..cluster import BANK_BYTES
from ..number import Storage
from .balancing import SINGLE_STORAGE, channel_bytes, storage_of
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
    """What is off chip of each slice, the banks that this frees, and the bytes that it moves for a sample."""

    off_chip: tuple[OffChip, ...]
    freed: int
    moved: int


class WeightBanks(NamedTuple):
    """The banks of the weights of any number of a slice's cut channels, and of all other arrays of theirs.

    A channel adds `memories` of `words` words each, or, if it deepens them, `words` words to each of `memories`; so in
    each array, of which a bank holds `words_in_bank`. Where formats have blocks, banks are those of a slice's `part`.
    """

    memories: int
    words: int
    deepens: bool
    words_in_bank: tuple[int, ...] = (WORDS, WORDS)
    part: Slice | None = None
    storage: Storage = SINGLE_STORAGE

    @classmethod
    def of(cls, part: Slice, storage: Storage = SINGLE_STORAGE) -> WeightBanks:
        """Return those of a slice."""
        count, words = weight_memories(part, 1)
        arrays = storage_of(part, storage).arrays
        words_in_bank = tuple(number.values_in(BANK_BYTES) for number in arrays)
        blocks = any(number.block for number in arrays)
        deepens = part.layer.operation.one_memory or part.cut is Cut.OCP
        return cls(count, words, deepens, words_in_bank, part if blocks else None, storage)

    def of_channels(self, channels: int) -> int:
        """Return the banks of a number of channels."""
        if self.part is not None:
            arrays = parameter_memories(self.part, channels, storage_of(self.part, self.storage))
            return sum(array.banks for array in arrays)
        words = channels * self.words if self.deepens else self.words
        if words <= LUT_RAM_BITS:
            return 0
        banks = sum(-(-words // most) for most in self.words_in_bank)
        return self.memories * (1 if self.deepens else channels) * banks

    def most_channels(self, available: int, banks: int) -> int:
        """Return the most of `available` channels that take at most `banks`."""
        if self.of_channels(available) <= banks:
            return available
        if banks < 0:
            return 0
        if not self.deepens:
            return banks // self.of_channels(1)
        if self.part is None and len({*self.words_in_bank}) == 1:
            deep = banks // (len(self.words_in_bank) * self.memories) * self.words_in_bank[0] // self.words
        else:
            deep = bisect.bisect_right(range(available + 1), banks, key=self.of_channels) - 1
        return max(LUT_RAM_BITS // self.words, deep)


class SliceNeeds(NamedTuple):
    """The banks that a slice needs, and the bytes that move for a sample if its data are off chip.

    `fixed_banks` stay on chip. `weight_bytes` move for each channel that is off chip, `rows_weight_bytes` if Act-RAM is
    off chip, too.
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
        return self.fixed_banks + act_ram + self.weights.of_channels(self.channels - off_chip.channels)


def slice_needs(part: Slice, in_flight: int, storage: Storage = SINGLE_STORAGE) -> SliceNeeds:
    """Return what a slice needs with `in_flight` samples in flight, in the formats of `storage`."""
    memory = slice_memory(part, in_flight, part.channels, storage)
    bias = memories(1, part.sfu_parameters, storage.biases).banks
    act_ram_bytes = port_bytes(part, OffChip(activations=True), storage)
    fixed = memory.line_buffers.banks + memory.error_buffer.banks + memory.pab.banks
    return SliceNeeds(
        part,
        part.channels,
        fixed_banks=fixed + storage_of(part, storage).bias_arrays * bias,
        act_ram_banks=memory.act_ram.banks,
        act_ram_bytes=act_ram_bytes,
        weights=WeightBanks.of(part, storage),
        weight_bytes=port_bytes(part, OffChip(channels=1), storage),
        rows_weight_bytes=port_bytes(part, OffChip(channels=1, activations=True), storage) - act_ram_bytes,
        parameter_bytes=channel_bytes(part, storage.weights),
    )


def shed(needs: Sequence[SliceNeeds], excess_banks: int, most_bytes: int = _MOST_BYTES) -> Shed:
    """Take data off chip until `excess_banks` are free, or `most_bytes` move for a sample."""
    off_chip, freed, moved = [OffChip() for _ in needs], 0, 0
    best: list[_Step | None] = [None] * len(needs)
    done = [False] * len(needs)
    while freed < excess_banks:
        wanted, left = excess_banks - freed, most_bytes - moved
        chosen = None
        for place, held in enumerate(needs):
            step = best[place]
            if not done[place] and (step is None or step.freed > wanted or step.moved > left):
                step = best[place] = _best_step(place, held, off_chip[place], wanted, left)
                done[place] = step is None
            if step is not None and (chosen is None or step.cost < chosen.cost):
                chosen = step
        if chosen is None:
            break
        off_chip[chosen.place], best[chosen.place] = chosen.off_chip, None
        freed, moved = freed + chosen.freed, moved + chosen.moved
    return Shed(tuple(off_chip), freed, moved)


class _Step(NamedTuple):
    """A slice that sheds more: the banks that this frees in addition, and the bytes that it moves in addition."""

    place: int
    off_chip: OffChip
    freed: int
    moved: int
    cost: float


def _best_step(place: int, held: SliceNeeds, now: OffChip, wanted_banks: int, most_bytes: int) -> _Step | None:
    """Return how a slice frees up to `wanted_banks`, or more if it must, for fewest bytes each; None if it cannot."""
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
            cost = moved / min(freed, wanted_banks)
            if best is None or cost < best.cost:
                best = _Step(place, OffChip(channels, activations), freed, moved, cost)
    return best
