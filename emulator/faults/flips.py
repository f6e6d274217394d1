"""Random streams of faults, each of one event: its seed, fault, place, and sample or mini-batch;
and bit flips.

Of narrow numbers, bits are those of codes and scales, as memories and links hold them. A scale that
is hit changes its whole block or tensor.
"""

from __future__ import annotations

import dataclasses
import enum

import numpy as np
from numpy.typing import NDArray

from ...kernels.number import FP32, SCALE_BITS, FloatGrid, NumberFormat
from .fault import FlipFault


class Purpose(enum.IntEnum):
    """What is drawn."""

    LOSS = 1
    WEIGHTS = 2
    ACTIVATIONS = 3
    MESSAGES = 4
    GRADIENTS = 5


def stream(
    seed: int, purpose: Purpose, fault: int, board: int, part: int, number: int
) -> np.random.Generator:
    """Return the random stream of one event.

    Args:
        seed: of the faults.
        purpose: what is drawn.
        fault: place of the fault in its list.
        board: where it happens; of messages the sender.
        part: what on that board: a layer or a data path.
        number: which time: sample, mini-batch or message.
    """
    # Philox counts up in the first word of its counter, which no event exhausts; the other words
    # keep the streams of events apart.
    key = np.array([seed, purpose << 32 | fault], np.uint64)
    return np.random.Generator(
        np.random.Philox(key=key, counter=np.array([0, number, part, board], np.uint64))
    )


@dataclasses.dataclass(frozen=True)
class LineFormat:
    """How the last axis of values lies in memory or on a link: as a line in a format, which begins
    at a place of the whole line; `in_tensor` lines are a tensor. Numbers that have a scale by
    mini-batches before are divided by it first: `scale` is its exponent.
    """

    number: NumberFormat = FP32
    begin: int = 0
    in_tensor: int = 1
    scale: int = 0


_SINGLE = LineFormat()


@dataclasses.dataclass(frozen=True)
class Flipper:
    """Flips bits of values on one board, for one purpose.

    `faults` are those that hit it, each with its place in the list of flips.
    """

    seed: int
    purpose: Purpose
    board: int
    faults: tuple[tuple[int, FlipFault], ...]

    def __bool__(self) -> bool:
        """Return whether there is anything to flip."""
        return bool(self.faults)

    def values(
        self,
        values: NDArray[np.float32],
        part: int,
        number: int,
        form: LineFormat = _SINGLE,
    ) -> NDArray[np.float32]:
        """Return values with some bits flipped: a copy, or `values` where none flips.

        `part` and `number` are those of `stream`.
        """
        if form.number.grid is not None and values.size:
            return self._narrow(values, part, number, form)
        hit = values
        for place, fault in self.faults:
            width = fault.highest_bit - fault.lowest_bit + 1
            at, bit = self._drawn(place, fault, values.size, width, part, number)
            if len(at):
                hit = values.copy() if hit is values else hit
                masks = np.left_shift(np.uint32(1), (bit + fault.lowest_bit).astype(np.uint32))
                # Of several bits of one value, `hit[at] ^= masks` would flip only the last.
                np.bitwise_xor.at(hit.reshape(-1).view(np.uint32), at, masks)
        return hit

    def _narrow(
        self, values: NDArray[np.float32], part: int, number: int, form: LineFormat
    ) -> NDArray[np.float32]:
        """Return values with some bits of their codes and scales flipped."""
        from ...kernels.quantise import decoded, encoded

        held, layout = form.number, (form.in_tensor, form.begin)
        hit, scale = values, np.float32(2.0**form.scale)
        for place, fault in self.faults:
            lines = np.ascontiguousarray(hit / scale).reshape(-1, values.shape[-1])
            coded = None
            for at, (bits, size) in enumerate(_words(lines.shape, form)):
                width = min(fault.highest_bit + 1, bits) - fault.lowest_bit
                if width <= 0 or not size:
                    continue
                # Scales are drawn after codes, from streams of their own.
                chosen, bit = self._drawn(
                    place, fault, size, width, part | at << _SCALES_FROM, number
                )
                if not len(chosen):
                    continue
                coded = encoded(lines, held, *layout) if coded is None else coded
                masks = np.left_shift(np.uint32(1), (bit + fault.lowest_bit).astype(np.uint32))
                np.bitwise_xor.at(coded[at].reshape(-1), chosen, masks)
            if coded is None:
                continue
            before = decoded(encoded(lines, held, *layout), held, *layout)
            after = decoded(coded, held, *layout)
            if isinstance(held.grid, FloatGrid) and held.grid.is_fixed_point:
                after[np.isnan(after)] = 0  # -0, which hardware has for no NaN
            differs = after.view(np.uint32) != before.view(np.uint32)
            hit = np.where(differs, after, lines).reshape(values.shape) * scale
        return hit

    def samples(
        self,
        values: NDArray[np.float32],
        part: int,
        first: int,
        form: LineFormat = _SINGLE,
    ) -> NDArray[np.float32]:
        """Return maps (samples, …) with some bits flipped, each sample by its number, from `first`
        on.
        """
        hit = values
        for place in range(len(values)):
            own = values[place]
            one = self.values(own, part, first + place, form)
            if one is not own:
                hit = values.copy() if hit is values else hit
                hit[place] = one
        return hit

    def payload(self, payload: NDArray[np.uint8], part: int, number: int) -> NDArray[np.uint8]:
        """Return the bytes of a message with some bits flipped, of all bits: a copy, or `payload`
        where none flips.
        """
        hit = payload
        for place, fault in self.faults:
            at, bit = self._drawn(place, fault, payload.size, 8, part, number)
            if len(at):
                hit = payload.copy() if hit is payload else hit
                np.bitwise_xor.at(hit, at, np.left_shift(np.uint8(1), bit.astype(np.uint8)))
        return hit

    def _drawn(
        self, place: int, fault: FlipFault, count: int, width: int, part: int, number: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the values that are hit, and in each a bit of `width`."""
        drawn, bits = (
            stream(self.seed, self.purpose, place, self.board, part, number),
            count * width,
        )
        # How many, then which: as one draw for each bit would have it, with far fewer draws.
        chosen = drawn.choice(bits, drawn.binomial(bits, fault.rate), replace=False, shuffle=False)
        return chosen // width, chosen % width


_SCALES_FROM = 60
"""In a stream's part, where it says that scales are hit: of blocks 1, of tensors 2."""


def _words(shape: tuple[int, ...], form: LineFormat) -> list[tuple[int, int]]:
    """Return the bits of a word, and how many there are, of codes, scales of blocks, and of
    tensors.

    A tensor's scale is a power of two: its bits are those of an exponent.
    """
    lines, length = shape
    tensors = -(-lines // form.in_tensor) if form.number.tensor_bytes and length else 0
    blocks = form.number.blocks(length, form.begin)
    return [
        (form.number.bits, lines * length),
        (SCALE_BITS, lines * blocks),
        (SCALE_BITS, tensors),
    ]
