"""Philox4x32-10 in vectors: as many counters side by side as the micro-kernel's vectors have
floats.

A lane is a 64-bit integer of which the lower half counts: of two such lanes a processor multiplies
the lower halves.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.extending import intrinsic

from ..form import FORM
from ..jit import FLOAT_BYTES, compiled
from ..llvm import INDEX, INT, address, broadcast, index, numbers_only, shuffle
from .philox import MOST_EXTRA, ROUNDS

# Of Salmon et al.: what each round multiplies by, and what it adds to both words of the key.
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85
_WORD = 0xFFFFFFFF
_WORDS = 4
"""Words of a counter."""
LANES = FORM.width
# At most 3 words come before the first element, and 4 LANES - 1 behind the last.
assert _WORDS * (LANES + 1) <= MOST_EXTRA


@compiled
def draw(first: Any, count: Any, tensor: Any, number: Any, key: Any, words: Any) -> Any:
    """Write the words of `count` elements from `first` on, with others around; return the place of
    the first one.

    `tensor` is the counter's second word, `number` both others. Words for MOST_EXTRA elements more
    have to fit.
    """
    begin = first >> 2
    place = first - 4 * begin
    at = words.ctypes.data
    for step in range((place + count + 4 * LANES - 1) // (4 * LANES)):
        counter = begin + LANES * step
        _draw_lanes(counter, tensor, number, key, at + 4 * FLOAT_BYTES * LANES * step)
    return place


@intrinsic
def _draw_lanes(context: Any, begin: Any, tensor: Any, number: Any, key: Any, at: Any) -> Any:
    """Write the words of LANES counters from `begin` on to the address `at`."""
    return numbers_only(5, _generate)


def _generate(
    builder: ir.IRBuilder,
    begin: ir.Value,
    tensor: ir.Value,
    number: ir.Value,
    key: ir.Value,
    at: ir.Value,
) -> None:
    half, word = _all(32), _all(_WORD)

    def lower(value: ir.Value) -> ir.Value:
        return builder.and_(value, word)

    def upper(value: ir.Value) -> ir.Value:
        return builder.lshr(value, half)

    def keys(value: ir.Value, step: int) -> list[ir.Value]:
        """Return the key of each round."""
        return [
            broadcast(builder, builder.add(value, index(step * number & _WORD)), LANES)
            for number in range(ROUNDS)
        ]

    both = broadcast(builder, number, LANES)
    counters = ir.Constant(ir.VectorType(INDEX, LANES), list(range(LANES)))
    first, second = (
        builder.add(broadcast(builder, begin, LANES), counters),
        broadcast(builder, tensor, LANES),
    )
    third, fourth = both, upper(both)
    for low, high in zip(
        keys(key, _WEYL[0]), keys(builder.lshr(key, index(32)), _WEYL[1]), strict=True
    ):
        one = builder.mul(lower(first), _all(_MULTIPLIERS[0]))
        two = builder.mul(lower(third), _all(_MULTIPLIERS[1]))
        first, third = (
            builder.xor(builder.xor(upper(two), second), low),
            builder.xor(builder.xor(upper(one), fourth), high),
        )
        second, fourth = two, one
    _store(builder, [first, second, third, fourth], at)


def _store(builder: ir.IRBuilder, words: list[ir.Value], at: ir.Value) -> None:
    """Store the lower halves of four vectors, a lane of each after the other."""
    kind = ir.VectorType(INT, 2 * LANES)
    one, two, three, four = (builder.bitcast(word, kind) for word in words)
    pairs = [place for lane in range(LANES) for place in (2 * lane, 2 * LANES + 2 * lane)]
    front, back = shuffle(builder, one, two, pairs), shuffle(builder, three, four, pairs)
    for part in range(2):
        lanes = range(part * LANES // 2, (part + 1) * LANES // 2)
        places = [
            place + end
            for lane in lanes
            for place in (2 * lane, 2 * LANES + 2 * lane)
            for end in (0, 1)
        ]
        pointer = address(builder, at, index(part * 2 * LANES), kind)
        builder.store(shuffle(builder, front, back, places), pointer, align=FLOAT_BYTES)


def _all(value: int) -> ir.Constant:
    return ir.Constant(ir.VectorType(INDEX, LANES), [value] * LANES)
