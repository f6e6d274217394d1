"""Attention of some query rows, forward and backward, for all samples and heads: block by block of queries.

Forward takes the rows of a call ascending; backward descending, and adds to the errors of all keys. Nothing depends on
how rows are cut into calls and blocks, or heads into slices.

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..conv.layout import SIDE, transpose_block
from ..jit import FLOAT_BYTES, compiled
from ..llvm import clear, copy
from .products import (
    PART,
    Query,
    Sums,
    fill_tables,
    keys_of,
    over_keys,
    over_queries,
    pack_dense,
    pack_queries,
    pack_rows,
    score,
)
from .shapes import BLOCK, Work
from .softmax import Scores, finish, multiply, score_errors, softmax


@compiled
def _scores(block: Any, work: Any, part: Any) -> Any:
    at = FLOAT_BYTES * part
    return Scores(
        place=work.scores + at,
        common=block.before + part if block.causal else block.keys,
        keys=keys_of(block, part),
        scale=work.scale,
        top=work.top + at,
        inverse=work.inverse + at,
    )


@compiled
def _turn_kept(block: Any, kept: Any, rows: Any, out: Any) -> None:
    """Write what dropout keeps for a block, query by query with `rows` floats each, key by key."""
    keys = keys_of(block, block.count - 1)
    for query in range(0, block.count, SIDE):
        for key in range(0, keys, SIDE):
            come, to = kept + FLOAT_BYTES * (query * rows + key), out + FLOAT_BYTES * (key * BLOCK + query)
            transpose_block(come, rows, min(SIDE, block.count - query), min(SIDE, keys - key), to, BLOCK)


@compiled
def _keep(block: Any, numbers: Any, kept: Any) -> None:
    """Multiply a block's numbers by what dropout keeps."""
    for part in range(0, block.count, PART):
        multiply(numbers + FLOAT_BYTES * part, kept + FLOAT_BYTES * part, keys_of(block, part))


@compiled
def _work(memory: Any, places: Any, scale: Any) -> Any:
    """Return the addresses of the parts of the memory."""
    memory[places.scale], memory[places.one] = scale, np.float32(1)
    place = memory.ctypes.data
    return Work(
        scores=place + FLOAT_BYTES * places.scores,
        errors=place + FLOAT_BYTES * places.errors,
        kept=place + FLOAT_BYTES * places.kept,
        top=place + FLOAT_BYTES * places.top,
        inverse=place + FLOAT_BYTES * places.inverse,
        queries=place + FLOAT_BYTES * places.queries,
        of_outputs=place + FLOAT_BYTES * places.of_outputs,
        query_rows=place + FLOAT_BYTES * places.query_rows,
        error_rows=place + FLOAT_BYTES * places.error_rows,
        key_rows=place + FLOAT_BYTES * places.key_rows,
        keys=place + FLOAT_BYTES * places.keys,
        values=place + FLOAT_BYTES * places.values,
        scale=place + FLOAT_BYTES * places.scale,
        one=place + FLOAT_BYTES * places.one,
    )


@compiled
def _clear_rows(place: Any, pitch: Any, rows: Any, size: Any) -> None:
    for row in range(rows):
        clear(place + FLOAT_BYTES * row * pitch, size)


@compiled
def _forward_block(
    block: Any, size: Any, x: Any, q: Any, y: Any, pitch: Any, kept: Any, work: Any, tables: Any
) -> None:
    """Set the outputs of a block's queries at `y`, and their `top` and `inverse`."""
    pack_queries(block, q + FLOAT_BYTES * block.before * x.row, x.row, size, work.queries)
    score(block, tables, work.queries, work.keys, size, work.scores)
    for part in range(0, block.count, PART):
        softmax(_scores(block, work, part))
    if kept:
        _keep(block, work.scores, work.kept)
    over_keys(block, tables, work.scores, Sums(y, pitch, work.key_rows, block.keys, size))
    finish(y, pitch, block.count, size, work.inverse, 1)


@compiled
def forward(
    shape: Any,
    x: Any,
    y: Any,
    statistics: Any,
    lengths: Any,
    kept: Any,
    memory: Any,
    places: Any,
    scale: Any,
    tables: Any,
) -> None:
    """Set outputs and statistics of some rows."""
    numbers, work, size = fill_tables(tables, shape.size), _work(memory, places, scale), shape.size
    for sample in range(shape.samples):
        keys = shape.last if shape.causal else lengths[sample] if lengths.size else shape.rows
        for head in range(shape.heads):
            q = x.place + FLOAT_BYTES * (sample * x.sample + 3 * head * size)
            place = sample * shape.heads + head
            own = statistics + FLOAT_BYTES * 2 * place * shape.rows
            if keys:
                pack_dense(q + FLOAT_BYTES * size, x.row, keys, size, work.keys)
                pack_rows(q + FLOAT_BYTES * 2 * size, x.row, keys, size, work.key_rows)
            for first in range(shape.first, shape.last, BLOCK):
                block = Query(before=first, count=min(BLOCK, shape.last - first), keys=keys, causal=shape.causal)
                out = y.place + FLOAT_BYTES * (sample * y.sample + first * y.row + head * size)
                if kept:
                    _turn_kept(
                        block, kept + FLOAT_BYTES * (place * shape.rows + first) * shape.rows, shape.rows, work.kept
                    )
                if keys:
                    _forward_block(block, size, x, q, out, y.row, kept, work, numbers)
                else:
                    clear(work.top, BLOCK)
                    clear(work.inverse, BLOCK)
                    _clear_rows(out, y.row, block.count, size)
                copy(own + FLOAT_BYTES * first, work.top, block.count)
                copy(own + FLOAT_BYTES * (shape.rows + first), work.inverse, block.count)


@compiled
def _backward_block(
    block: Any,
    size: Any,
    x: Any,
    q: Any,
    dy: Any,
    e: Any,
    dx: Any,
    dq: Any,
    kept: Any,
    work: Any,
    tables: Any,
    fresh: Any,
) -> None:
    """Set the errors of a block's queries, and add to those of the keys and values."""
    own, last = q + FLOAT_BYTES * block.before * x.row, block.count - 1
    pack_queries(block, own, x.row, size, work.queries)
    pack_queries(block, e, dy.row, size, work.of_outputs)
    score(block, tables, work.queries, work.keys, size, work.scores)
    score(block, tables, work.of_outputs, work.values, size, work.errors)
    if kept:
        _keep(block, work.errors, work.kept)
    for part in range(0, block.count, PART):
        score_errors(_scores(block, work, part), work.errors + FLOAT_BYTES * part)
    out = dq + FLOAT_BYTES * block.before * dx.row
    over_keys(block, tables, work.errors, Sums(out, dx.row, work.key_rows, block.keys, size))
    finish(out, dx.row, block.count, size, work.one, 0)
    pack_rows(own + FLOAT_BYTES * last * x.row, -x.row, block.count, size, work.query_rows)
    pack_rows(e + FLOAT_BYTES * last * dy.row, -dy.row, block.count, size, work.error_rows)
    dk, dv = dq + FLOAT_BYTES * size, dq + FLOAT_BYTES * 2 * size
    over_queries(block, tables, work.errors, Sums(dk, dx.row, work.query_rows, block.count, size), fresh)
    if kept:
        _keep(block, work.scores, work.kept)
    over_queries(block, tables, work.scores, Sums(dv, dx.row, work.error_rows, block.count, size), fresh)


@compiled
def backward(
    shape: Any,
    x: Any,
    dy: Any,
    dx: Any,
    statistics: Any,
    lengths: Any,
    kept: Any,
    memory: Any,
    places: Any,
    scale: Any,
    tables: Any,
) -> None:
    """Set the errors of some rows' queries, and add to those of keys and values; with the last rows, from +0."""
    numbers, work, size = fill_tables(tables, shape.size), _work(memory, places, scale), shape.size
    for sample in range(shape.samples):
        keys = shape.last if shape.causal else lengths[sample] if lengths.size else shape.rows
        for head in range(shape.heads):
            q = x.place + FLOAT_BYTES * (sample * x.sample + 3 * head * size)
            dq = dx.place + FLOAT_BYTES * (sample * dx.sample + 3 * head * size)
            dk, place = dq + FLOAT_BYTES * size, sample * shape.heads + head
            own = statistics + FLOAT_BYTES * 2 * place * shape.rows
            fresh, last = shape.last == shape.rows, shape.last
            if fresh:
                _clear_rows(dk + FLOAT_BYTES * keys * dx.row, dx.row, shape.rows - keys, 2 * size)
            if not keys:
                _clear_rows(dq + FLOAT_BYTES * shape.first * dx.row, dx.row, last - shape.first, size)
                continue
            pack_rows(q + FLOAT_BYTES * size, x.row, keys, size, work.key_rows)
            pack_dense(q + FLOAT_BYTES * size, x.row, keys, size, work.keys)
            pack_dense(q + FLOAT_BYTES * 2 * size, x.row, keys, size, work.values)
            while last > shape.first:
                first = max(shape.first, last - BLOCK)
                block = Query(before=first, count=last - first, keys=keys, causal=shape.causal)
                if kept:
                    _turn_kept(
                        block, kept + FLOAT_BYTES * (place * shape.rows + first) * shape.rows, shape.rows, work.kept
                    )
                clear(work.top, BLOCK)
                clear(work.inverse, BLOCK)
                copy(work.top, own + FLOAT_BYTES * first, block.count)
                copy(work.inverse, own + FLOAT_BYTES * (shape.rows + first), block.count)
                e = dy.place + FLOAT_BYTES * (sample * dy.sample + first * dy.row + head * size)
                _backward_block(block, size, x, q, dy, e, dx, dq, kept, work, numbers, fresh)
                fresh, last = False, first
            finish(dk, dx.row, keys, 2 * size, work.one, 0)
