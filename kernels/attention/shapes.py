"""What the kernels of attention are called with: shapes, places of rows, and addresses of the memory they work in."""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

BLOCK = 64  # queries at a time: their scores stay in the second-level cache
_LINE = 16  # floats of a cache line, and of the widest vector


class Shape(NamedTuple):
    """Rows `first` to `last` of `rows` of each sample, in `heads` heads of `size` channels; where `causal`, masked."""

    samples: int
    rows: int
    heads: int
    size: int
    first: int
    last: int
    causal: bool


class Maps(NamedTuple):
    """Rows of samples: the address of the first, and the floats to the next sample, and to the next row."""

    place: int
    sample: int
    row: int


class Work(NamedTuple):
    """Addresses of memory for a head: numbers for queries and keys, numbers for queries, packed rows, and sums."""

    scores: int
    errors: int
    kept: int
    top: int
    inverse: int
    queries: int
    of_outputs: int
    query_rows: int
    error_rows: int
    key_rows: int
    keys: int
    values: int
    rows: int
    key_errors: int
    value_errors: int
    scale: int
    one: int


@functools.lru_cache(maxsize=256)
def layout(rows: int, size: int, *, backward: bool, drops: bool) -> tuple[int, Work]:
    """Return the floats of all this memory, and where each part of it begins."""
    pairs, packed, lanes = rows * BLOCK, 2 * BLOCK * size, -(-size // _LINE) * _LINE
    sizes = Work(
        scores=pairs,
        errors=pairs * backward,
        kept=pairs * drops,
        top=BLOCK,
        inverse=BLOCK,
        queries=packed,
        of_outputs=packed * backward,
        query_rows=BLOCK * lanes * backward,
        error_rows=BLOCK * lanes * backward,
        key_rows=rows * lanes,
        keys=rows * size,
        values=rows * size * backward,
        rows=BLOCK * size,
        key_errors=rows * size * backward,
        value_errors=rows * size * backward,
        scale=1,
        one=1,
    )
    *begins, end = itertools.accumulate((-(-floats // _LINE) * _LINE for floats in sizes), initial=0)
    return end, Work(*begins)


def table_size(rows: int, size: int) -> int:
    """Return how many numbers the offset tables hold."""
    return 3 * max(rows, size, BLOCK) + BLOCK
