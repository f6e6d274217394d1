"""The multiply-add peak of one core: fused multiply-adds in registers, without loads and without stalls.

Twelve chains, each a vector of the micro-kernel's width, run side by side: more than enough to hide an instruction's
latency (two units of four to five cycles take eight to ten), and few enough to stay in registers. The measured rate
bounds every kernel here: a convolution cannot be faster than this on the same core at the same moment.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from ..form import FORM
from ..jit import FLOAT_BYTES, compiled
from ..pages import aligned
from .emit import INDEX, address, broadcast, index, numbers_only, vector
from .fma import emit_fma

CHAINS, UNROLLED = 12, 4
FLOP_OF_ROUND = 2 * CHAINS * UNROLLED * FORM.width


def multiply_add(rounds: int) -> float:
    """Run `rounds` rounds (at least one) of FLOP_OF_ROUND floating-point operations each.

    The numbers tend to 1, so that none is small enough to cost speed. Return the sum of one number of each chain.
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
    """Run the chains, chain i from numbers[i]; write the sum of all chains to numbers[0 .. width - 1]."""
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
    for phi, start, value in zip((done, *chains), (index(0), *starts), (following, *values), strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed("<", following, rounds), loop, after)
    builder.position_at_end(after)
    total = values[0]
    for value in values[1:]:
        total = builder.fadd(total, value)
    builder.store(total, address(builder, numbers, index(0), kind), align=FLOAT_BYTES)
