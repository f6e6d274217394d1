"""The engines' units (section VI-A, Figs. 9 and 10), of the plain Python engines that the codec is checked against."""

from __future__ import annotations

import bisect
import itertools

import numpy as np
from numpy.typing import NDArray

from .....kernels import CodecError, inceptionn
from .....kernels.inceptionn import hardware
from ..measure import Measure, Measured
from .codec import EXPONENT, numbers

_VALUES = 1600


def _blocks_in() -> Measured:
    """Count the payloads of 32 bits in a compression unit's output."""
    unit = hardware.compression_unit([0x3F80_0000] * hardware.VALUES, EXPONENT, "bound")
    return Measured((unit.length - hardware.TAG_BITS) // 32, "payloads of 32 bits that a unit makes at once")


def _blocks_out() -> Measured:
    words = hardware.decompression_unit(0, hardware.tag_decoder(0))
    return Measured(len(words), "values that a unit makes of 16 bits of tags")


def _shifter() -> Measured:
    """Join eight vectors of 0, 8 or 32 ones in all combinations; measure the range of lengths, count wrong results."""
    lengths, wrong = [], 0
    for widths in itertools.product((0, 8, 32), repeat=hardware.VALUES):
        whole = hardware.shifter_tree([hardware.Vector((1 << width) - 1, width) for width in widths])
        lengths.append(whole.length)
        wrong += whole != hardware.Vector((1 << sum(widths)) - 1, sum(widths))
    return Measured([min(lengths), max(lengths), wrong], f"bits, least and most; wrong of {len(lengths)}")


def _same_bytes() -> Measured:
    """Check that all bursts but the last are full, and that the bytes are the codec's."""
    values = numbers()[:_VALUES]
    made = inceptionn.compress(values, EXPONENT)
    units = [
        hardware.compression_unit(words.tolist(), EXPONENT, "bound")
        for words in values.view(np.uint32).reshape(-1, hardware.VALUES)
    ]
    sent = sum(burst is not None for burst in hardware.alignment_unit(units))
    same = hardware.compress(values, EXPONENT)[0] == made.tobytes()
    how = f"{sent} bursts for {len(made)} bytes; the same bytes as the codec's"
    return Measured([sent == -(-8 * len(made) // hardware.BUS_BITS), same], how)


def _refill() -> Measured:
    """Count the values that the Burst Buffer's engine restores wrongly; measure its cycles over bursts in or out."""
    values = numbers()[:_VALUES]
    made = inceptionn.compress(values, EXPONENT)
    back, cycles = hardware.decompress(made.tobytes(), values.size)
    wrong = int(np.count_nonzero(back.view(np.uint32) != inceptionn.decompress(made, values.size).view(np.uint32)))
    bursts = max(-(-8 * len(made) // hardware.BUS_BITS), values.size // hardware.VALUES)
    return Measured([wrong, round(cycles / bursts, 2)], "wrong values; cycles over bursts, taken or given")


def _burst_buffer() -> Measured:
    """Find the least Burst Buffer, in bits, that decompresses random values and the worst case."""
    worst = np.concatenate([[0.25], np.zeros(hardware.VALUES - 1), np.ones(20 * hardware.VALUES)]).astype(np.float32)
    gradients = numbers()[np.abs(numbers()) < 1][:_VALUES]
    needed = {
        "random": _least_buffer(numbers()[:_VALUES]),
        "the worst case": _least_buffer(worst),
        "gradients below 1": _least_buffer(gradients),
    }
    return Measured(max(needed.values()), f"bits needed: {', '.join(f'{of} {bits}' for of, bits in needed.items())}")


def _least_buffer(values: NDArray[np.float32]) -> int:
    made = inceptionn.compress(values, EXPONENT).tobytes()

    def is_enough(bits: int) -> bool:
        try:
            hardware.decompress(made, values.size, bits)
        except CodecError:
            return False
        return True

    sizes = range(hardware.BUS_BITS, 4 * hardware.BUS_BITS, 8)
    return sizes[bisect.bisect_left(sizes, True, key=is_enough)]


MEASURES: dict[str, Measure] = {
    "inceptionn-cb-count": _blocks_in,
    "inceptionn-db-count": _blocks_out,
    "inceptionn-shifter": _shifter,
    "inceptionn-alignment": _same_bytes,
    "inceptionn-bb-refill": _refill,
    "inceptionn-burst-buffer": _burst_buffer,
}
