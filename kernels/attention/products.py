"""The products of attention, as contractions: panels of rows and of queries, and products that leave masked keys out.

A block is up to BLOCK query rows. What belongs to each of its queries and a key lies key by key, BLOCK floats a key, so
that queries are lanes: scores and what follows from them. Queries are packed in panels of PART lanes, k a channel; what
is summed over rows, keys or queries, in panels of channels, k a row.

In causal attention, no product has more of the masked keys than those in the last GROUP before its own query.

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..conv.geometry import Contraction
from ..conv.layout import SIDE, transpose_block
from ..conv.microkernel import contract, vectors_of
from ..jit import FLOAT_BYTES, compiled
from ..llvm import INDEX_BYTES, WIDTH, clear, copy_rows
from .shapes import BLOCK

PART = 2 * WIDTH  # with two vectors, all forms are near their peak, and few masked scores are computed
GROUP = min(SIDE, PART)
_AHEAD = 8  # rows that are prefetched while they are packed: they lie in pages of their own


class Tables(NamedTuple):
    """Addresses of offset tables: 0, 1 ..; BLOCK - 1, BLOCK - 2 .. 0; keys in scores; rows of the inputs."""

    ascending: Any
    descending: Any
    keys: Any
    rows: Any


@compiled
def fill_tables(tables: Any, row: Any) -> Any:
    """Fill three tables and one of BLOCK numbers, with `row` floats from row to row; return their addresses."""
    count = (tables.size - BLOCK) // 3
    for number in range(count):
        tables[number] = number
        tables[count + number] = BLOCK * number
        tables[2 * count + number] = row * number
    for number in range(BLOCK):
        tables[3 * count + number] = BLOCK - 1 - number
    place = tables.ctypes.data
    return Tables(
        ascending=place,
        descending=place + INDEX_BYTES * 3 * count,
        keys=place + INDEX_BYTES * count,
        rows=place + INDEX_BYTES * 2 * count,
    )


@compiled
def pack_queries(rows: Any, pitch: Any, count: Any, size: Any, out: Any) -> None:
    """Pack `count` rows of `size` floats, `pitch` apart, in panels whose PART lanes are rows; spare lanes are 0."""
    for first in range(0, count, PART):
        some, panel = min(PART, count - first), out + FLOAT_BYTES * first * size
        if some < PART:
            clear(panel, PART * size)
        for lane in range(0, some, SIDE):
            for channel in range(0, size, SIDE):
                come = rows + FLOAT_BYTES * ((first + lane) * pitch + channel)
                to = panel + FLOAT_BYTES * (channel * PART + lane)
                transpose_block(come, pitch, min(SIDE, some - lane), min(SIDE, size - channel), to, PART)


@compiled
def pack_rows(rows: Any, pitch: Any, count: Any, size: Any, out: Any) -> None:
    """Pack `count` rows of `size` floats, `pitch` apart, maybe backwards, in panels whose lanes are their floats."""
    panel, lane = out, 0
    while lane < size:
        vectors = vectors_of(size - lane)
        width = min(vectors * WIDTH, size - lane)
        copy_rows(vectors, panel, rows + FLOAT_BYTES * lane, pitch, count, width, FLOAT_BYTES * _AHEAD * pitch)
        panel += FLOAT_BYTES * count * vectors * WIDTH
        lane += vectors * WIDTH


class Query(NamedTuple):
    """A block of queries: `count`, after `before` rows, which see `keys` keys; of causal attention, or not."""

    before: Any
    count: Any
    keys: Any
    causal: Any


@compiled
def keys_of(block: Any, part: Any) -> Any:
    """Return how many keys are computed for the queries of the part that begins with number `part` of a block."""
    return block.before + min(part + PART, block.count) if block.causal else block.keys


@compiled
def score(block: Any, tables: Any, panels: Any, rows: Any, size: Any, out: Any) -> None:
    """Set out[key][query] to the products of rows of keys and packed queries, channels ascending."""
    for part in range(0, block.count, PART):
        contract(
            Contraction(
                c=out + FLOAT_BYTES * part,
                c_pixel=tables.ascending,
                c_step=BLOCK,
                pixels=keys_of(block, part),
                lanes=PART,
                a=rows,
                a_pixel=tables.rows,
                a_k=tables.ascending,
                depth=size,
                b=panels + FLOAT_BYTES * part * size,
                b_step=0,
                fresh=True,
            )
        )


class Sums(NamedTuple):
    """Sums over rows: to `size` channels of `out`, `pitch` floats a row, of panels of `rows` rows."""

    out: Any
    pitch: Any
    panels: Any
    rows: Any
    size: Any


@compiled
def _add(
    sums: Any, row: Any, first: Any, tables: Any, a: Any, a_pixel: Any, a_k: Any, pixels: Any, depth: Any, fresh: Any
) -> None:
    """Add to `pixels` sums, from number `row` on, the products of a and `depth` rows of the panels from `first` on."""
    panel, lane = sums.panels, 0
    while lane < sums.size and pixels > 0 and depth > 0:
        width = vectors_of(sums.size - lane) * WIDTH
        contract(
            Contraction(
                c=sums.out + FLOAT_BYTES * (row * sums.pitch + lane),
                c_pixel=tables.ascending,
                c_step=sums.pitch,
                pixels=pixels,
                lanes=min(width, sums.size - lane),
                a=a,
                a_pixel=a_pixel,
                a_k=a_k,
                depth=depth,
                b=panel + FLOAT_BYTES * first * width,
                b_step=0,
                fresh=fresh,
            )
        )
        panel += FLOAT_BYTES * sums.rows * width
        lane += width


@compiled
def over_keys(block: Any, tables: Any, factors: Any, sums: Any) -> None:
    """Set a sum of each query to the products of its factors[key] and the rows of keys, ascending."""
    common = block.before if block.causal else block.keys
    _add(sums, 0, 0, tables, factors, tables.ascending, tables.keys, block.count, common, True)
    if block.causal:
        own = factors + FLOAT_BYTES * BLOCK * common
        for first in range(0, block.count, GROUP):
            some = min(GROUP, block.count - first)
            a = own + FLOAT_BYTES * first
            _add(sums, first, common, tables, a, tables.ascending, tables.keys, some, first + some, common == 0)


@compiled
def over_queries(block: Any, tables: Any, factors: Any, sums: Any, fresh: Any) -> None:
    """Add to a sum of each key the products of its factors[query] and the rows of queries, packed descending."""
    common, down = block.before if block.causal else block.keys, tables.descending + INDEX_BYTES * (BLOCK - block.count)
    _add(sums, 0, 0, tables, factors, tables.keys, down, common, block.count, fresh)
    if block.causal:
        own = factors + FLOAT_BYTES * BLOCK * common
        for first in range(0, block.count, GROUP):
            some, a = min(GROUP, block.count - first), own + FLOAT_BYTES * BLOCK * first
            _add(sums, common + first, 0, tables, a, tables.keys, down, some, block.count - first, fresh)
