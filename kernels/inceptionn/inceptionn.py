"""The INCEPTIONN codec: float32 gradients in 0, 8, 16 or 32 bits each, within an error bound.

Li et al., "A Network-Centric Hardware/Algorithm Co-Design to Accelerate Distributed Training of
Deep Neural Networks" (MICRO 2018), section V, Algorithms 2 and 3. Gradients crowd around zero, so
all those below 1 become fixed-point fractions: the mantissa with its leading 1, shifted right until
the exponent is that of 1, is cut to 7 or 15 bits behind a sign. `Limits` describes how the width is
chosen.

Eight values form a burst. It begins with 16 bits of tags: value i's are bits 2i and 2i + 1, and 0,
1, 2, 3 mean 0, 8, 16, 32 bits. The payloads follow in order. All numbers are little-endian. In
payloads of 8 and 16 bits the uppermost bit is the sign, and the next has the value 1/2. (The
paper's shifted vector begins with the integer bit, always 0 here, which is left out.) An incomplete
last burst has tags of 0 for its missing values.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..jit import Kernel, Kernels, address_of
from .format import (
    BURST,
    LONGEST,
    ONE,
    STEP,
    TAG_BYTES,
    TALLIES,
    Buffer,
    CodecError,
    is_integer,
    opened,
    values_of,
)

Rule = Literal["bound", "range"]
WIDTHS = (0, 8, 16, 32)
"""Bits of a value, without its tag."""

LEAST_EXPONENT, EXPONENT_OF_ONE, MANTISSA_BITS = -127, 127, 23

RUNS, RUN, SAMPLED_FROM = 32, 16, 4096
"""A sample of values: runs, and the bursts of each; and the bursts above which one is taken."""

burst = Kernels("inceptionn.burst")


@dataclasses.dataclass(frozen=True)
class Limits:
    """The thresholds for a value's width, compared with its bits without sign, which order as
    numbers do.

    A value of 1 or more (also infinities and NaN) takes 32 bits, and one below `zero_below` takes
    none. Any other takes 16 bits if it is at least `wide_from`, or if any of `digits` is set among
    the 15 of its fraction, and else 8. Only if `tolerance` is below 2**-15, so that 16 bits may
    lose too much, another test decides: the shortest width that loses less than `tolerance`.
    """

    zero_below: int
    wide_from: int
    digits: int
    tolerance: np.float32

    @classmethod
    def of(cls, error_bound_exponent: int, rule: Rule = "bound") -> Limits:
        """Return the limits of a bound 2**error_bound_exponent.

        Rule "bound" gives the shortest width whose error is below the bound. Rule "range" is the
        paper's: the exponent alone decides between 8 and 16 bits, with 16 from the middle of
        [bound, 1) on. The paper does not say where one range ends and the other begins; this is the
        middle that the public reimplementation GRACE takes.

        Raises:
            CodecError: the exponent is not an integer of [-127, 0], or there is no such rule.
        """
        exponent = error_bound_exponent
        if not is_integer(exponent):
            raise CodecError(f"the error bound's exponent must be an integer, not {exponent!r}")
        if not LEAST_EXPONENT <= exponent <= 0:
            raise CodecError(
                f"the error bound's exponent must be one of {LEAST_EXPONENT} to 0, not {exponent}"
            )
        if rule not in get_args(Rule):
            raise CodecError(f"there is no rule {rule!r}; it may be {' or '.join(get_args(Rule))}")
        return _limits(int(exponent), rule)


@functools.cache
def _limits(exponent: int, rule: Rule) -> Limits:
    bound = np.float32(2.0**exponent)
    zero_below = int(bound.view(np.uint32))
    if rule == "bound":
        digits = 0xFF & -int(bound / STEP)  # the bits that 8 bits lack, from the bound on
        return Limits(zero_below, ONE, digits, bound)
    middle = -(-exponent // 2)
    if 2.0**middle < STEP:
        return Limits(zero_below, middle + EXPONENT_OF_ONE << MANTISSA_BITS, 0, np.float32(1))
    return Limits(zero_below, ONE, 0x7FFF & -int(2.0**middle / STEP), np.float32(1))


def compress(
    values: NDArray[np.float32], error_bound_exponent: int, rule: Rule = "bound"
) -> NDArray[np.uint8]:
    """Compress an array of float32 numbers, in C order if it has several dimensions.

    With rule "bound" a value below 1 is restored with an error below 2**error_bound_exponent, and
    with its sign if the result is not zero; 1 and more, infinities and NaN are restored bit for
    bit. Restored values compress to the same bytes again. Rule "range", the paper's, bounds errors
    only by 2**-7.

    Raises:
        CodecError: the array is not of float32, the exponent not an integer of [-127, 0], or there
            is no such rule.
    """
    limits = Limits.of(error_bound_exponent, rule)
    flat = values_of(values)
    whole, rest = divmod(flat.size, BURST)
    for_last = LONGEST * bool(rest)
    out = np.empty(_room(flat, whole, limits) + for_last, np.uint8)
    size, done = _compress(flat, whole, out[: out.size - for_last], limits)
    if done < whole:
        # The sample was too coarse: the rest gets room for bursts of the greatest length.
        out, made = np.empty(size + LONGEST * (whole - done) + for_last, np.uint8), out
        out[:size] = made[:size]
        size += _compress(flat[BURST * done :], whole - done, out[size:], limits)[0]
    if rest:
        last = np.zeros(BURST, np.float32)
        last[:rest] = flat[BURST * whole :]
        size += _compress(last, 1, out[size:], limits)[0]
    # A view keeps the whole array in memory, so that much spare room is given back by a copy.
    return out[:size] if 2 * size > out.size else out[:size].copy()


def _compress(
    values: NDArray[np.float32], bursts: int, out: NDArray[np.uint8], limits: Limits
) -> tuple[int, int]:
    """Compress bursts while `out` has room for the longest; return the bytes and the bursts."""
    done = np.empty(2, np.int64)
    numbers = limits.zero_below, limits.wide_from, limits.digits, limits.tolerance
    burst.compress(address_of(values), bursts, address_of(out), out.size, numbers, done)
    return int(done[0]), int(done[1])


def _room(values: NDArray[np.float32], bursts: int, limits: Limits) -> int:
    """Return the bytes to begin with: for the greatest length, or where that is much, by a sample,
    with some to spare.

    Memory for the greatest length, most of it given back, would come from the system, with page
    faults, at each call.
    """
    if bursts <= SAMPLED_FROM:
        return LONGEST * bursts
    runs = values[: BURST * (bursts // RUNS * RUNS)].reshape(RUNS, -1)[:, : BURST * RUN]
    size, sampled = _compress(
        runs.reshape(-1), RUNS * RUN, np.empty(LONGEST * RUNS * RUN, np.uint8), limits
    )
    return min(LONGEST * bursts, size * bursts // sampled * 5 // 4 + LONGEST)


def decompress(buffer: Buffer, count: int) -> NDArray[np.float32]:
    """Return the `count` values that were compressed to a buffer.

    Raises:
        CodecError: the buffer is not of bytes, ends early, has trailing bytes, or has values beyond
            `count`.
    """
    data, bursts = _opened(buffer, count)
    out = np.empty(BURST * bursts, np.float32)
    _read(burst.decompress, data, bursts, count, out)
    return out[:count]


def width_counts(buffer: Buffer, count: int) -> tuple[int, int, int, int]:
    """Return the numbers of values that a buffer holds in 0, 8, 16 and 32 bits (as in Table III).

    Raises:
        CodecError: as `decompress`.
    """
    data, bursts = _opened(buffer, count)
    counts = np.zeros(256, np.int64)
    _read(burst.count_tags, data, bursts, count, counts)
    zero, byte, half, full = (counts @ TALLIES).tolist()
    # The values that are missing in the last burst have tags of 0, too.
    return zero - (BURST * bursts - count), byte, half, full


def _opened(buffer: Buffer, count: int) -> tuple[NDArray[np.uint8], int]:
    """Return the buffer as a flat array, and its bursts. Raise CodecError if it is too short for
    their tags.
    """
    data, values = opened(buffer, count)
    bursts = -(-values // BURST)
    if data.size < TAG_BYTES * bursts:
        raise CodecError(
            f"the buffer is cut short: {count} values have {TAG_BYTES * bursts} bytes of tags"
            f" alone, but it has {data.size} bytes"
        )
    return data, bursts


def _read(
    kernel: Kernel, data: NDArray[np.uint8], bursts: int, count: int, out: NDArray[Any]
) -> None:
    """Run a kernel over the buffer as far as the longest burst fits, then over a padded copy of the
    rest.
    """
    reached = np.zeros(3, np.int64)
    kernel(address_of(data), data.size - LONGEST + 1, bursts, out, reached)
    begin = int(reached[0])
    if reached[1] < bursts:
        padded = np.zeros(2 * LONGEST, np.uint8)
        padded[: data.size - begin] = data[begin:]
        # Both kernels count from the buffer's first byte, which the copy does not have.
        kernel(address_of(padded) - begin, data.size, bursts, out, reached)
    at, done, last = reached.tolist()
    if done < bursts or at > data.size:
        cut = done if at > data.size else done + 1
        raise CodecError(
            f"the buffer is cut short: its {data.size} bytes end before burst {cut} of {bursts}"
            " does"
        )
    if count % BURST and int.from_bytes(data[last : last + TAG_BYTES], "little") >> 2 * (
        count % BURST
    ):
        raise CodecError(
            f"the last burst has tags for more than the {count % BURST} values that it holds"
        )
    if at < data.size:
        raise CodecError(
            f"the buffer goes on after {count} values: {data.size - at} trailing bytes"
        )
