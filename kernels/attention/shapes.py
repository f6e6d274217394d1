"""What the kernels of attention are called with: shapes, places of rows, and addresses of the memory they work in."""

from __future__ import annotations

from typing import NamedTuple

BLOCK = 64  # queries at a time: their scores stay in the second-level cache
_WIDEST = 16  # floats of a vector


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
    """Addresses of memory for a head: numbers for queries and keys, numbers for queries, and packed rows."""

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
    scale: int
    one: int


def work_sizes(shape: Shape, *, backward: bool, drops: bool) -> Work:
    """Return the floats of each part of the memory."""
    pairs, packed, lanes = shape.rows * BLOCK, BLOCK * shape.size, -(-shape.size // _WIDEST) * _WIDEST
    return Work(
        scores=pairs,
        errors=pairs * backward,
        kept=pairs * drops,
        top=BLOCK,
        inverse=BLOCK,
        queries=packed,
        of_outputs=packed * backward,
        query_rows=BLOCK * lanes * backward,
        error_rows=BLOCK * lanes * backward,
        key_rows=shape.rows * lanes,
        scale=1,
        one=1,
    )


def table_size(shape: Shape) -> int:
    """Return how many numbers the offset tables hold."""
    return 3 * max(shape.rows, shape.size, BLOCK) + BLOCK
