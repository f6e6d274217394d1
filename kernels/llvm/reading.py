"""The rate at which one core reads an array again and again, from whichever cache or memory holds it.

Vectors as wide as the micro-kernel's are loaded and added, a row at a time, with the lines ahead prefetched. Every
other round goes from the last row to the first, as the steps of recurrent layers do: what a round has read last is then
still near. The measured rate bounds such a layer with few samples: it cannot be faster than its weights can be read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic
from numpy.typing import NDArray

from ..form import FORM
from ..jit import FLOAT_BYTES, compiled
from .emit import INDEX, LINE_BYTES, address, index, numbers_only, prefetch, vector

CHAINS, AHEAD = 8, 12
ROW = CHAINS * FORM.width
"""Floats that are read at a time: of an array of another size, the rest is left out."""


def read(numbers: NDArray[np.float32], rounds: int) -> float:
    """Read an array `rounds` times (at least once); return the sum of the first number of each vector.

    Raises:
        ValueError: the array has fewer than ROW floats.
    """
    rows = numbers.size // ROW
    if not rows:
        raise ValueError(f"numbers has {numbers.size} floats; at least {ROW} are needed")
    total = np.empty(FORM.width, np.float32)
    _run(numbers.ctypes.data, rows, rounds, total.ctypes.data)
    return float(total[0])


@compiled
def _run(numbers: Any, rows: Any, rounds: Any, total: Any) -> None:
    row = FLOAT_BYTES * ROW
    for number in range(rounds):
        if number % 2:
            _read(numbers + (rows - 1) * row, -row, rows, total)
        else:
            _read(numbers, row, rows, total)


@intrinsic
def _read(context: Any, place: Any, step: Any, rows: Any, total: Any) -> Any:
    """Read `rows` rows from `place` on, `step` bytes apart; write the sum of all vectors to `total`."""
    return numbers_only(4, _generate)


def _generate(builder: ir.IRBuilder, place: ir.Value, step: ir.Value, rows: ir.Value, total: ir.Value) -> None:
    kind, before = vector(FORM.width), builder.block
    loop, after = builder.append_basic_block("rows"), builder.append_basic_block("read")
    builder.branch(loop)
    builder.position_at_end(loop)
    done, row = builder.phi(INDEX), builder.phi(INDEX)
    chains = [builder.phi(kind) for _ in range(CHAINS)]
    sums = []
    for number, chain in enumerate(chains):
        at = address(builder, row, index(number * FORM.width), kind)
        sums.append(builder.fadd(chain, builder.load(at, align=FLOAT_BYTES)))
    ahead = builder.add(row, builder.mul(step, index(AHEAD)))
    for line in range(0, FLOAT_BYTES * ROW, LINE_BYTES):
        prefetch(builder, builder.add(ahead, index(line)))
    following, next_row = builder.add(done, index(1)), builder.add(row, step)
    zeros = ir.Constant(kind, [0.0] * FORM.width)
    starts = [index(0), place, *[zeros] * CHAINS]
    for phi, start, value in zip((done, row, *chains), starts, (following, next_row, *sums), strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed("<", following, rows), loop, after)
    builder.position_at_end(after)
    found = sums[0]
    for value in sums[1:]:
        found = builder.fadd(found, value)
    builder.store(found, address(builder, total, index(0), kind), align=FLOAT_BYTES)
