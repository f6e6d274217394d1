"""The products of attention, as contractions: panels of rows and of queries, and products that
leave masked keys out.

A block is up to BLOCK query rows. What belongs to each of its queries and a key, as scores do, lies
key by key, BLOCK floats a key, so that queries are lanes. Queries are packed in panels of PANEL
lanes, k a channel; what is summed over rows, keys or queries, in panels of channels, k a row.

In causal attention, no product has more of the masked keys than those in the last GROUP before its
own query.

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..conv.geometry import Contraction
from ..conv.layout import SIDE, transpose_block
from ..conv.microkernel import MOST_VECTORS, contract, vectors_of
from ..jit import FLOAT_BYTES, compiled
from ..llvm import INDEX_BYTES, LINE_BYTES, WIDTH, clear, copy, copy_rows, prefetch_line
from .attention import BLOCK

PANEL = MOST_VECTORS * WIDTH
PART = 2 * WIDTH  # queries in the loops between the products
HALF = max(
    PANEL // 2, 2 * SIDE
)  # of a panel this wide, the second half leaves out most of the masked keys
GROUP = min(SIDE, PART)
_AHEAD = 8  # rows that are prefetched while they are packed: they lie in pages of their own


class Tables(NamedTuple):
    """Addresses of offset tables: 0, 1 ..; BLOCK - 1, BLOCK - 2 .. 0; keys in scores; rows of
    keys.
    """

    ascending: Any
    descending: Any
    keys: Any
    rows: Any


class Rows(NamedTuple):
    """Rows of floats: the address of the first, and the floats from each to the next."""

    place: Any
    pitch: Any


@compiled
def fill_tables(tables: Any, pitch: Any) -> Any:
    """Fill three tables and one of BLOCK numbers, for rows of keys `pitch` floats apart; return
    their addresses.
    """
    count = (tables.size - BLOCK) // 3
    for number in range(count):
        tables[number] = number
        tables[count + number] = BLOCK * number
        tables[2 * count + number] = pitch * number
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
def _lanes(block: Any, first: Any) -> Any:
    """Return the lanes of the panel that begins with number `first` of a block's queries: whole
    parts.
    """
    return (min(PANEL, block.count - first) + PART - 1) // PART * PART


@compiled
def pack_queries(block: Any, rows: Any, size: Any, out: Any) -> None:
    """Pack a block's rows of `size` floats in panels whose lanes are rows; spare lanes are 0.

    Behind a panel of causal attention lie the lanes from HALF on once more, if there are any, as a
    panel of their own.
    """
    panel = out
    for first in range(0, block.count, PANEL):
        lanes, some = _lanes(block, first), min(PANEL, block.count - first)
        if some < lanes:
            clear(panel, lanes * size)
        for lane in range(0, some, SIDE):
            for channel in range(0, size, SIDE):
                come = rows.place + FLOAT_BYTES * ((first + lane) * rows.pitch + channel)
                to = panel + FLOAT_BYTES * (channel * lanes + lane)
                transpose_block(
                    come, rows.pitch, min(SIDE, some - lane), min(SIDE, size - channel), to, lanes
                )
        source, rest = panel + FLOAT_BYTES * HALF, lanes - HALF
        panel += FLOAT_BYTES * lanes * size
        if block.causal and rest > 0:
            copy_rows(vectors_of(rest), panel, source, lanes, size, rest, 0)
            panel += FLOAT_BYTES * rest * size


@compiled
def pack_dense(rows: Any, pitch: Any, count: Any, size: Any, out: Any) -> None:
    """Copy `count` rows of `size` floats, `pitch` apart, so that they follow one another."""
    for row in range(count):
        come = rows + FLOAT_BYTES * row * pitch
        for line in range(0, size, LINE_BYTES // FLOAT_BYTES):
            prefetch_line(come + FLOAT_BYTES * (_AHEAD * pitch + line))
        copy(out + FLOAT_BYTES * row * size, come, size)


@compiled
def near(rows: Any, pitch: Any, count: Any, size: Any, out: Any) -> Any:
    """Return rows `pitch` floats apart: the given ones, if they are, or else their copy in
    `out`.
    """
    if pitch == rows.pitch:
        return rows
    pack_dense(rows.place, rows.pitch, count, size, out)
    return Rows(out, pitch)


@compiled
def pack_rows(rows: Any, pitch: Any, count: Any, size: Any, out: Any) -> None:
    """Pack `count` rows of `size` floats, `pitch` apart, maybe backwards, in panels whose lanes are
    their floats.
    """
    panel, lane = out, 0
    while lane < size:
        vectors = vectors_of(size - lane)
        width = min(vectors * WIDTH, size - lane)
        copy_rows(
            vectors,
            panel,
            rows + FLOAT_BYTES * lane,
            pitch,
            count,
            width,
            FLOAT_BYTES * _AHEAD * pitch,
        )
        panel += FLOAT_BYTES * count * vectors * WIDTH
        lane += vectors * WIDTH


class Query(NamedTuple):
    """A block of queries: `count`, after `before` rows, which see `keys` keys; of causal attention,
    or not.
    """

    before: Any
    count: Any
    keys: Any
    causal: Any


@compiled
def keys_of(block: Any, part: Any) -> Any:
    """Return how many keys are computed for the queries of the part that begins with number `part`
    of a block.
    """
    return block.before + min(part + PART, block.count) if block.causal else block.keys


@compiled
def _score(
    tables: Any, panel: Any, lanes: Any, rows: Any, first: Any, end: Any, size: Any, out: Any
) -> None:
    """Set out[key][lane] of keys `first` to `end`."""
    contract(
        Contraction(
            c=out + FLOAT_BYTES * BLOCK * first,
            c_pixel=tables.ascending,
            c_step=BLOCK,
            pixels=end - first,
            lanes=lanes,
            a=rows.place + FLOAT_BYTES * first * rows.pitch,
            a_pixel=tables.rows,
            a_k=tables.ascending,
            depth=size,
            b=panel,
            b_step=0,
            fresh=True,
        )
    )


@compiled
def score(block: Any, tables: Any, panels: Any, rows: Any, size: Any, out: Any) -> None:
    """Set out[key][query] to the products of rows of keys and packed queries, channels
    ascending.
    """
    panel = panels
    for first in range(0, block.count, PANEL):
        lanes, to = _lanes(block, first), out + FLOAT_BYTES * first
        end, rest = block.keys, lanes - HALF
        if block.causal:
            end = block.before + min(first + min(lanes, HALF), block.count)
        _score(tables, panel, lanes, rows, 0, end, size, to)
        panel += FLOAT_BYTES * lanes * size
        if block.causal and rest > 0:
            whole = block.before + min(first + lanes, block.count)
            _score(tables, panel, rest, rows, end, whole, size, to + FLOAT_BYTES * HALF)
            panel += FLOAT_BYTES * rest * size


class Sums(NamedTuple):
    """Sums over rows: to dense rows of `size` channels, of panels of `rows` rows."""

    out: Any
    panels: Any
    rows: Any
    size: Any


@compiled
def _add(
    sums: Any,
    row: Any,
    first: Any,
    tables: Any,
    a: Any,
    a_pixel: Any,
    a_k: Any,
    pixels: Any,
    depth: Any,
    fresh: Any,
) -> None:
    """Add to `pixels` sums, from number `row` on, the products of a and `depth` rows of the panels
    from `first` on.
    """
    panel, lane = sums.panels, 0
    while lane < sums.size and pixels > 0 and depth > 0:
        width = vectors_of(sums.size - lane) * WIDTH
        contract(
            Contraction(
                c=sums.out + FLOAT_BYTES * (row * sums.size + lane),
                c_pixel=tables.ascending,
                c_step=sums.size,
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
    """Set a sum of each query to the products of its factors[key] and the rows of keys,
    ascending.
    """
    common = block.before if block.causal else block.keys
    _add(sums, 0, 0, tables, factors, tables.ascending, tables.keys, block.count, common, True)
    if block.causal:
        own = factors + FLOAT_BYTES * BLOCK * common
        for first in range(0, block.count, GROUP):
            some = min(GROUP, block.count - first)
            a = own + FLOAT_BYTES * first
            _add(
                sums,
                first,
                common,
                tables,
                a,
                tables.ascending,
                tables.keys,
                some,
                first + some,
                common == 0,
            )


@compiled
def over_queries(block: Any, tables: Any, factors: Any, sums: Any, fresh: Any) -> None:
    """Add to a sum of each key the products of its factors[query] and the rows of queries, packed
    descending.
    """
    common, down = (
        block.before if block.causal else block.keys,
        tables.descending + INDEX_BYTES * (BLOCK - block.count),
    )
    _add(sums, 0, 0, tables, factors, tables.keys, down, common, block.count, fresh)
    if block.causal:
        own = factors + FLOAT_BYTES * BLOCK * common
        for first in range(0, block.count, GROUP):
            some, a = min(GROUP, block.count - first), own + FLOAT_BYTES * BLOCK * first
            _add(
                sums,
                common + first,
                0,
                tables,
                a,
                tables.keys,
                down,
                some,
                block.count - first,
                fresh,
            )
