"""INCEPTIONN's compression and decompression engines, a burst at a time, as the paper draws them.

Li et al. (MICRO 2018), section VI, Figs. 9 and 10. Plain Python, slow, and the reference for
`inceptionn.py`: both give the same bytes. Bit vectors are integers, bit 0 first on the wire. A
burst is the 256 bits that the bus takes in a cycle.

Compression: eight Compression Blocks; a binary shifter tree that puts their outputs side by side;
the Alignment Unit, which collects until there are 256 bits. Decompression: the Burst Buffer; the
Tag Decoder, which gives the lengths of eight vectors from 16 bits of tags; eight Decompression
Blocks.

Cycles are those in which an engine takes or gives a burst, at most one of each. The paper does not
give the depth of the pipelines; their delay is to be added for each message. It also lets the Burst
Buffer hold two bursts, 512 bits, and read when less than one is left. A burst of eight values may
take 272 bits though; so if 256 or 264 are left of one that is longer, this one reads too, and has
to hold up to 520. `decompress` takes the buffer's size as a parameter.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .format import CodecError
from .inceptionn import Rule

BUS_BITS, VALUES, TAG_BITS = 256, 8, 16
WIDTH_BITS = (0, 8, 16, 32)
_BIAS, _MANTISSA = 127, 23  # of float32


@dataclasses.dataclass(frozen=True)
class Vector:
    """A bit vector."""

    bits: int
    length: int


@dataclasses.dataclass(frozen=True)
class Block:
    """The output of a Compression Block for one value."""

    tag: int
    payload: Vector


def compress(
    values: NDArray[np.float32], error_bound_exponent: int, rule: Rule = "bound"
) -> tuple[bytes, int]:
    """Return the compression engine's bytes for `values`, and its cycles. The exponent is one of
    [-127, 0].
    """
    words = values.reshape(-1).view(np.uint32).tolist()
    units = [
        compression_unit(words[first : first + VALUES], error_bound_exponent, rule)
        for first in range(0, len(words), VALUES)
    ]
    bursts = list(alignment_unit(units))
    size = sum(unit.length for unit in units) // 8
    whole = b"".join(
        burst.to_bytes(BUS_BITS // 8, "little") for burst in bursts if burst is not None
    )
    return whole[:size], len(bursts)


def compression_unit(words: Sequence[int], error_bound_exponent: int, rule: Rule) -> Vector:
    """Return the tags and payloads of up to eight values: 16 to 272 bits."""
    blocks = [compression_block(word, error_bound_exponent, rule) for word in words]
    tags = sum(block.tag << 2 * place for place, block in enumerate(blocks))
    payloads = [block.payload for block in blocks] + [Vector(0, 0)] * (VALUES - len(blocks))
    return joined(Vector(tags, TAG_BITS), shifter_tree(payloads))


def compression_block(word: int, error_bound_exponent: int, rule: Rule) -> Block:
    """Run Algorithm 2 on the 32 bits of one value."""
    sign, exponent, mantissa = word >> 31, word >> _MANTISSA & 0xFF, word & (1 << _MANTISSA) - 1
    if exponent >= _BIAS:
        return Block(3, Vector(word, 32))
    if exponent:
        significand, shift = 1 << _MANTISSA | mantissa, _BIAS - exponent
    else:
        significand, shift = mantissa, _BIAS - 1  # subnormal: no leading one
    places = _MANTISSA + shift  # the value is significand / 2**places

    def is_within(lost: int) -> bool:
        """Return whether lost / 2**places is below the bound."""
        return lost < 1 << max(0, places + error_bound_exponent)

    if is_within(significand):
        return Block(0, Vector(0, 0))
    if rule == "range":
        bound_exponent = _BIAS + error_bound_exponent
        middle = bound_exponent + -(-(_BIAS - bound_exponent) // 2)
        widths = [16 if exponent >= middle else 8]
    else:
        widths = [
            width for width in (8, 16) if is_within(significand & (1 << places - (width - 1)) - 1)
        ]
    if not widths:
        return Block(3, Vector(word, 32))
    width = widths[0]
    fraction = significand >> places - (width - 1)
    return Block(WIDTH_BITS.index(width), Vector(sign << width - 1 | fraction, width))


def shifter_tree(vectors: Sequence[Vector]) -> Vector:
    """Join eight vectors: four pairs, two pairs of these, and one of these."""
    first = [joined(vectors[0], vectors[1]), joined(vectors[2], vectors[3])]
    first += [joined(vectors[4], vectors[5]), joined(vectors[6], vectors[7])]
    second = [joined(first[0], first[1]), joined(first[2], first[3])]
    return joined(second[0], second[1])


def joined(low: Vector, high: Vector) -> Vector:
    """Join two vectors: the upper one passes a shifter for each bit of the lower one's length."""
    bits = high.bits
    for stage in range(low.length.bit_length()):
        if low.length >> stage & 1:
            bits <<= 1 << stage
    return Vector(low.bits | bits, low.length + high.length)


def alignment_unit(vectors: Sequence[Vector]) -> Iterator[int | None]:
    """Yield each cycle's output burst, or None where there is none. The last is padded with
    zeros.
    """
    held, waiting = Vector(0, 0), list(reversed(vectors))
    while waiting or held.length:
        if waiting and held.length < BUS_BITS:
            held = joined(held, waiting.pop())
        if held.length >= BUS_BITS or not waiting:
            yield held.bits & (1 << BUS_BITS) - 1
            held = Vector(held.bits >> BUS_BITS, max(0, held.length - BUS_BITS))
        else:
            yield None


def decompress(
    buffer: bytes, count: int, burst_buffer_bits: int | None = None
) -> tuple[NDArray[np.float32], int]:
    """Return the decompression engine's values for `buffer`, and its cycles.

    The Burst Buffer reads a burst only if it has room for it; None: it always has.

    Raises:
        CodecError: the bytes end early, or the Burst Buffer is too small for eight values.
    """
    size = BUS_BITS // 8
    waiting = [
        Vector(
            int.from_bytes(buffer[first : first + size], "little"),
            8 * len(buffer[first : first + size]),
        )
        for first in range(0, len(buffer), size)
    ][::-1]
    held, cycles = Vector(0, 0), 0
    words: list[int] = []
    while len(words) < count:
        cycles += 1
        if held.length >= TAG_BITS and not _is_short(held):
            lengths = tag_decoder(held.bits)
            words += decompression_unit(held.bits, lengths)
            held = Vector(held.bits >> sum(lengths), held.length - sum(lengths))
        elif not waiting:
            raise CodecError(f"the bytes end after {len(words)} of {count} values")
        if waiting and (held.length < BUS_BITS or _is_short(held)):
            has_room = (
                burst_buffer_bits is None or held.length + waiting[-1].length <= burst_buffer_bits
            )
            if has_room:
                held = joined(held, waiting.pop())
            elif held.length < TAG_BITS or _is_short(held):
                raise CodecError(
                    f"a Burst Buffer of {burst_buffer_bits} bits is too small: it holds"
                    f" {held.length}"
                )
    return np.array(words[:count], np.uint32).view(np.float32), cycles


def _is_short(held: Vector) -> bool:
    return held.length < sum(tag_decoder(held.bits))


def tag_decoder(bits: int) -> tuple[int, ...]:
    """Return the lengths in bits of the tags, and of the eight payloads, from 16 bits of tags."""
    return (TAG_BITS, *(WIDTH_BITS[bits >> 2 * place & 3] for place in range(VALUES)))


def decompression_unit(bits: int, lengths: Sequence[int]) -> list[int]:
    """Return eight values from the tags and payloads of the given lengths."""
    ends = list(itertools.accumulate(lengths))
    return [
        decompression_block(Vector(bits >> begin & (1 << length) - 1, length))
        for begin, length in zip(ends[:-1], lengths[1:], strict=True)
    ]


def decompression_block(payload: Vector) -> int:
    """Run Algorithm 3 on a payload; return the 32 bits of its value."""
    if payload.length in (0, 32):
        return payload.bits
    places = payload.length - 1
    sign, fraction = payload.bits >> places, payload.bits & (1 << places) - 1
    if fraction == 0:
        return sign << 31
    distance = places + 1 - fraction.bit_length()  # from the binary point to the first 1
    mantissa = (fraction << _MANTISSA - places + distance) & (1 << _MANTISSA) - 1
    return sign << 31 | _BIAS - distance << _MANTISSA | mantissa
