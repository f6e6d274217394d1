"""Rates that bound kernels: of multiply-adds, and of reading.

The multiply-add peak of one core is that of fused multiply-adds in registers, without loads and
without stalls.

Twelve chains, each a vector of the micro-kernel's width, run side by side: more than enough to hide
an instruction's latency (two units of four to five cycles take eight to ten), and few enough to
stay in registers. The measured rate bounds every kernel here: a convolution cannot be faster than
this on the same core at the same moment.

And the rate at which one core reads an array again and again, from whichever cache or memory holds
it: vectors are loaded and added, a row at a time, with the lines ahead prefetched. Every other
round goes from the last row to the first, as the steps of recurrent layers do: what a round has
read last is then still near. This rate bounds such a layer with few samples: it cannot be faster
than its weights can be read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic
from numpy.typing import NDArray

from ..form import FORM
from ..jit import FLOAT_BYTES, compiled
from ..memory import aligned
from .emit import (
    INDEX,
    LINE_BYTES,
    address,
    broadcast,
    emit_fma,
    index,
    numbers_only,
    prefetch,
    vector,
)

CHAINS, UNROLLED = 12, 4
FLOP_OF_ROUND = 2 * CHAINS * UNROLLED * FORM.width


def multiply_add(rounds: int) -> float:
    """Run `rounds` rounds (at least one) of FLOP_OF_ROUND floating-point operations each.

    The numbers tend to 1, so that none is small enough to cost speed. Return the sum of one number
    of each chain.
    """
    numbers = aligned(FLOAT_BYTES * max(CHAINS, FORM.width)).view(np.float32)
    numbers[:] = np.linspace(0.5, 0.6, numbers.size)
    _run(numbers.ctypes.data, rounds)
    return float(numbers[0])


@compiled
def _run(numbers: Any, rounds: Any) -> None:
    _run_chains(numbers, rounds)


@intrinsic
def _run_chains(context: Any, numbers: Any, rounds: Any) -> Any:
    """Run the chains, chain i from numbers[i]; write the sum of all chains to numbers[0 .. width -
    1].
    """
    return numbers_only(2, _generate)


def _generate(builder: ir.IRBuilder, numbers: ir.Value, rounds: ir.Value) -> None:
    kind = vector(FORM.width)

    def number(place: int) -> ir.Value:
        pointer = address(builder, numbers, index(place), ir.FloatType())
        return broadcast(builder, builder.load(pointer, align=FLOAT_BYTES), FORM.width)

    starts = [number(chain) for chain in range(CHAINS)]
    half = starts[0]
    before = builder.block
    loop, after = builder.append_basic_block("rounds"), builder.append_basic_block("done")
    builder.branch(loop)
    builder.position_at_end(loop)
    done = builder.phi(INDEX)
    chains = [builder.phi(kind) for _ in starts]
    values: list[ir.Value] = list(chains)
    for _ in range(UNROLLED):
        values = [emit_fma(builder, value, half, half) for value in values]
    following = builder.add(done, index(1))
    for phi, start, value in zip(
        (done, *chains), (index(0), *starts), (following, *values), strict=True
    ):
        phi.add_incoming(start, before)
        phi.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed("<", following, rounds), loop, after)
    builder.position_at_end(after)
    total = values[0]
    for value in values[1:]:
        total = builder.fadd(total, value)
    builder.store(total, address(builder, numbers, index(0), kind), align=FLOAT_BYTES)


READERS, AHEAD = 8, 12
ROW = READERS * FORM.width
"""Floats that are read at a time: of an array of another size, the rest is left out."""


def read(numbers: NDArray[np.float32], rounds: int) -> float:
    """Read an array `rounds` times (at least once); return the sum of the first number of each
    vector.

    Raises:
        ValueError: the array has fewer than ROW floats.
    """
    rows = numbers.size // ROW
    if not rows:
        raise ValueError(f"numbers has {numbers.size} floats; at least {ROW} are needed")
    total = np.empty(FORM.width, np.float32)
    _run_reading(numbers.ctypes.data, rows, rounds, total.ctypes.data)
    return float(total[0])


@compiled
def _run_reading(numbers: Any, rows: Any, rounds: Any, total: Any) -> None:
    row = FLOAT_BYTES * ROW
    for number in range(rounds):
        if number % 2:
            _read(numbers + (rows - 1) * row, -row, rows, total)
        else:
            _read(numbers, row, rows, total)


@intrinsic
def _read(context: Any, place: Any, step: Any, rows: Any, total: Any) -> Any:
    """Read `rows` rows from `place` on, `step` bytes apart; write the sum of all vectors to
    `total`.
    """
    return numbers_only(4, _generate_reading)


def _generate_reading(
    builder: ir.IRBuilder, place: ir.Value, step: ir.Value, rows: ir.Value, total: ir.Value
) -> None:
    kind, before = vector(FORM.width), builder.block
    loop, after = builder.append_basic_block("rows"), builder.append_basic_block("read")
    builder.branch(loop)
    builder.position_at_end(loop)
    done, row = builder.phi(INDEX), builder.phi(INDEX)
    chains = [builder.phi(kind) for _ in range(READERS)]
    sums = []
    for number, chain in enumerate(chains):
        at = address(builder, row, index(number * FORM.width), kind)
        sums.append(builder.fadd(chain, builder.load(at, align=FLOAT_BYTES)))
    ahead = builder.add(row, builder.mul(step, index(AHEAD)))
    for line in range(0, FLOAT_BYTES * ROW, LINE_BYTES):
        prefetch(builder, builder.add(ahead, index(line)))
    following, next_row = builder.add(done, index(1)), builder.add(row, step)
    zeros = ir.Constant(kind, [0.0] * FORM.width)
    starts = [index(0), place, *[zeros] * READERS]
    for phi, start, value in zip(
        (done, row, *chains), starts, (following, next_row, *sums), strict=True
    ):
        phi.add_incoming(start, before)
        phi.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed("<", following, rows), loop, after)
    builder.position_at_end(after)
    whole = sums[0]
    for value in sums[1:]:
        whole = builder.fadd(whole, value)
    builder.store(whole, address(builder, total, index(0), kind), align=FLOAT_BYTES)
