"""Terms that are added to scores, by the distance of a query from a key: those that fall with it,
by a slope of each head, and those of a table that is learnt.

Press, Smith and Lewis, 2022, "Train Short, Test Long: Attention with Linear Biases" (ALiBi).
Raffel et al., 2020, "Exploring the Limits of Transfer Learning" (T5), section 2.1, and its code:
distances fall into buckets, near ones into one each, far ones by their logarithm, and a head has a
term for each bucket. A table comes as rows before those of queries, keys and values: of each group
of heads that share k and v, in the channels of that group, the terms of its first head, then of the
next, row by row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..jit import Floats
from .attention import distances


def alibi_slopes(heads: int) -> tuple[float, ...]:
    """Return the slopes of the paper's heads: of n, a power of two, 2^(-8 / n), 2^(-16 / n) ..; of
    another number those of the power below, and then every other one of the power above (section 3,
    and the authors' code).
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * head / power) for head in range(1, power + 1)]
    between = (2 ** (-4 * head / power) for head in range(1, 2 * power, 2))
    return *slopes, *(slope for slope, _ in zip(between, range(heads - power), strict=False))


def away(rows: int, keys: int) -> NDArray[np.int64]:
    """Return how many rows before the query a key stands, by the number of a term: negative behind
    it.
    """
    return np.arange(distances(rows, keys)) - (keys - 1)


def bucket_numbers(
    rows: int, keys: int, buckets: int, max_distance: int, *, causal: bool
) -> NDArray[np.int64]:
    """Return the bucket of each term: of distances up to half of the buckets one each, of others by
    the logarithm, up to `max_distance`. Where attention is not causal, keys behind a query have the
    second half of the buckets.
    """
    far, first = away(rows, keys), np.zeros(1, np.int64)
    if not causal:
        buckets //= 2
        far, first = np.abs(far), buckets * (far < 0)
    exact = buckets // 2
    # In single precision, and in this order, as PyTorch computes it.
    share = np.log(np.maximum(far, 1).astype(np.float32) / np.float32(exact))
    share /= np.float32(math.log(max_distance / exact))
    logarithm = exact + (share * np.float32(buckets - exact)).astype(np.int64)
    return first + np.where(far < exact, np.maximum(far, 0), np.minimum(logarithm, buckets - 1))


def table_rows(sharing: int, buckets: int, width: int) -> int:
    """Return how many rows a table takes, where a group of `sharing` heads has `width` channels."""
    return -(-sharing * buckets // width)


def table_places(groups: int, sharing: int, buckets: int, width: int) -> NDArray[np.int64]:
    """Return where the numbers of a table (heads, buckets) stand in its rows, which follow one
    another.
    """
    group, own = np.divmod(np.arange(groups * sharing * buckets), sharing * buckets)
    row, channel = np.divmod(own, width)
    places = row * groups * width + group * width + channel
    return places.reshape(groups * sharing, buckets)


def by_distance(rows: Floats, places: NDArray[np.int64], numbers: NDArray[np.int64]) -> Floats:
    """Return the terms (n, heads, distances) of tables (n, rows, channels), by the buckets'
    `numbers`.
    """
    table = rows.reshape(len(rows), -1)[:, places]
    return np.ascontiguousarray(table[:, :, numbers])


def add_by_bucket(
    errors: Floats, places: NDArray[np.int64], numbers: NDArray[np.int64], rows: Floats
) -> None:
    """Write the errors of tables, of terms' `errors` (n, heads, distances), to `rows` (n, rows,
    channels): distances ascending, from the farthest key behind a query on; +0 where no number
    stands.
    """
    sums = np.zeros((len(errors), *places.shape), np.float32)
    for distance, number in enumerate(numbers.tolist()):
        sums[:, :, number] += errors[:, :, distance]
    flat = np.zeros((len(rows), rows[0].size), np.float32)
    flat[:, places] = sums
    rows[...] = flat.reshape(rows.shape)


def sloped(slopes: Sequence[float], rows: int, keys: int) -> Floats:
    """Return the terms (1, heads, distances) of slopes: less a slope for each row between."""
    own = np.array(slopes, np.float32)[:, None]
    return np.ascontiguousarray(-own * np.abs(away(rows, keys)).astype(np.float32))[None]
