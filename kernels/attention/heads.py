"""Attention of some query rows, forward and backward, for all samples and heads: block by block of
queries.

Forward takes the rows of a call ascending; backward descending, and adds to the errors of all keys.
Nothing depends on how rows are cut into calls and blocks, or heads into slices. Of causal
attention, with blocks of 4 queries:

    keys      0 . . 3 4 . . 7
    queries 0 x
            . x x                    a block's queries see the keys before the block in common, and of the block's
            . x x x                  own, each those up to itself
            3 x x x x
            4 x x x x x
            . x x x x x x            backward goes from query 7 up to query 0: so a row's dk and dv are complete as
            . x x x x x x x          soon as its own block is done
            7 x x x x x x x x

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..conv.layout import SIDE, transpose_block
from ..jit import FLOAT_BYTES, compiled
from ..llvm import WIDTH, clear, copy
from ..quantise.loops import round_columns, round_rows, round_under_scale
from ..quantise.philox import DRAWN, Source
from ..quantise.rounding import Blocks, Tensors
from ..quantise.tensors import round_tensor_columns
from .attention import BLOCK, Work
from .operands import BY_BLOCK, BY_SCALE, BY_TENSOR, WHOLE
from .products import (
    PANEL,
    PART,
    Query,
    Rows,
    Sums,
    fill_tables,
    keys_of,
    near,
    over_keys,
    over_queries,
    pack_dense,
    pack_queries,
    pack_rows,
    score,
)
from .softmax import (
    Scores,
    add_errors,
    add_terms,
    finish,
    multiply,
    normalise,
    score_errors,
    softmax,
)


@compiled
def scores_of(block: Any, work: Any, part: Any, scale: Any, back: Any) -> Any:
    """Return the scores of a part of a block, to be multiplied by the number at `scale`, and their
    errors by that at `back`.
    """
    at = FLOAT_BYTES * part
    return Scores(
        place=work.scores + at,
        common=block.before + part if block.causal else block.keys,
        keys=keys_of(block, part),
        scale=scale,
        back=back,
        top=work.top + at,
        inverse=work.inverse + at,
    )


@compiled
def turn_kept(block: Any, kept: Any, rows: Any, out: Any) -> None:
    """Write what dropout keeps for a block, query by query with `rows` floats each, key by key."""
    keys = keys_of(block, block.count - 1)
    for query in range(0, block.count, SIDE):
        for key in range(0, keys, SIDE):
            come, to = (
                kept + FLOAT_BYTES * (query * rows + key),
                out + FLOAT_BYTES * (key * BLOCK + query),
            )
            transpose_block(
                come, rows, min(SIDE, block.count - query), min(SIDE, keys - key), to, BLOCK
            )


@compiled
def _keep(block: Any, numbers: Any, kept: Any) -> None:
    """Multiply a block's numbers by what dropout keeps."""
    for part in range(0, block.count, PART):
        multiply(numbers + FLOAT_BYTES * part, kept + FLOAT_BYTES * part, keys_of(block, part))


@compiled
def _pack_descending(block: Any, rows: Any, size: Any, out: Any) -> None:
    last = rows.place + FLOAT_BYTES * (block.count - 1) * rows.pitch
    pack_rows(last, -rows.pitch, block.count, size, out)


@compiled
def clear_unseen(block: Any, numbers: Any) -> None:
    """Set to +0 what no query of a block computes: lanes behind it, and keys that a part does not
    see.
    """
    keys = keys_of(block, block.count - 1)
    for part in range(0, block.count, PART):
        for key in range(keys_of(block, part), keys):
            clear(numbers + FLOAT_BYTES * (BLOCK * key + part), PART)
    for key in range(keys):
        clear(numbers + FLOAT_BYTES * (BLOCK * key + block.count), BLOCK - block.count)


@compiled
def _round(block: Any, narrow: Any, element: Any, sample: Any, memory: Any, place: Any) -> None:
    """Round a block's numbers, from number `place` of the memory on; `element` is that of its first
    query and key 0.
    """
    begin = (place - memory.ctypes.data) // FLOAT_BYTES
    keys = keys_of(block, block.count - 1)
    clear_unseen(block, place)
    bits = memory.view(np.uint32)[begin : begin + BLOCK * keys]
    own, words = narrow.source, np.empty(1, np.uint32)
    numbers = narrow.numbers[sample : sample + 1] if own.kind == DRAWN else narrow.numbers
    row = BLOCK if own.kind == DRAWN else bits.size
    source = Source(own.kind, row, own.first + element, own.step, own.tensor, own.key)
    limits, counts = narrow.limits, narrow.counts
    if narrow.way == BY_BLOCK:
        form = narrow.blocks
        blocks = Blocks(form.size, keys, BLOCK, form.rises, form.largest)
        round_columns(bits, bits, True, blocks, limits, source, words, numbers, counts)
    elif narrow.way == BY_TENSOR:
        form = narrow.tensors
        own_form = Tensors(
            form.size, keys, BLOCK, 1, form.most, form.largest, form.least, form.scale
        )
        round_tensor_columns(bits, bits, True, own_form, limits, source, words, numbers, counts)
    elif narrow.way == BY_SCALE:
        round_under_scale(bits, narrow.scale, limits, source, words, numbers, counts)
    else:
        round_rows(bits, bits, True, limits, source, words, numbers, counts)


@compiled
def _with_terms(block: Any, work: Any, terms: Any) -> Any:
    """Scale a block's scores and add their terms, if there are any; return the address of the
    number by which they are still to be multiplied.
    """
    if terms == 0:
        return work.scale
    for part in range(0, block.count, PART):
        scores = scores_of(block, work, part, work.one, work.one)
        add_terms(scores, terms + FLOAT_BYTES * part, work.scale)
    return work.one


@compiled
def forward_block(
    block: Any,
    size: Any,
    queries: Any,
    keys: Any,
    out: Any,
    drops: Any,
    work: Any,
    tables: Any,
    shares: Any,
    element: Any,
    sample: Any,
    memory: Any,
    terms: Any,
) -> None:
    """Set the outputs of a block's queries, and their `top` and `inverse`; `terms` are those of its
    first query and key 0.
    """
    pack_queries(block, queries, size, work.queries)
    score(block, tables, work.queries, keys, size, work.scores)
    scale = _with_terms(block, work, terms)
    for part in range(0, block.count, PART):
        scores = scores_of(block, work, part, scale, work.scale)
        softmax(scores)
        if shares.way != WHOLE:
            normalise(scores)
    if drops:
        _keep(block, work.scores, work.kept)
    if shares.way != WHOLE:
        _round(block, shares, element, sample, memory, work.scores)
    over_keys(block, tables, work.scores, Sums(work.rows, work.key_rows, block.keys, size))
    if shares.way != WHOLE:
        finish(work.rows, block.count, size, work.one, 0, out)
    else:
        finish(work.rows, block.count, size, work.inverse, 1, out)


@compiled
def backward_block(
    block: Any,
    size: Any,
    queries: Any,
    keys: Any,
    values: Any,
    errors: Any,
    out: Any,
    drops: Any,
    work: Any,
    tables: Any,
    fresh: Any,
    shares: Any,
    score_rounding: Any,
    element: Any,
    sample: Any,
    memory: Any,
    terms: Any,
    term_errors: Any,
) -> None:
    """Set the errors of a block's queries, and add to those of the keys and values; and to those of
    terms, if they are wanted.
    """
    pack_queries(block, queries, size, work.queries)
    pack_queries(block, errors, size, work.of_outputs)
    score(block, tables, work.queries, keys, size, work.scores)
    score(block, tables, work.of_outputs, values, size, work.errors)
    if drops:
        _keep(block, work.errors, work.kept)
    scale, back = _with_terms(block, work, terms), work.one if term_errors else work.scale
    for part in range(0, block.count, PART):
        scores = scores_of(block, work, part, scale, back)
        score_errors(scores, work.errors + FLOAT_BYTES * part)
    if term_errors:
        clear_unseen(block, work.errors)
        last = (block.count - 1) // PART * PART
        for part in range(last, -1, -PART):
            at = FLOAT_BYTES * part
            keys_seen = keys_of(block, part)
            add_errors(work.errors + at, keys_seen, work.scale, term_errors + at)
    if score_rounding.way != WHOLE:
        _round(block, score_rounding, element, sample, memory, work.errors)
    over_keys(block, tables, work.errors, Sums(work.rows, work.key_rows, block.keys, size))
    finish(work.rows, block.count, size, work.one, 0, out)
    _pack_descending(block, queries, size, work.query_rows)
    _pack_descending(block, errors, size, work.error_rows)
    over_queries(
        block, tables, work.errors, Sums(work.key_errors, work.query_rows, block.count, size), fresh
    )
    if drops:
        _keep(block, work.scores, work.kept)
    if shares.way != WHOLE:
        _round(block, shares, element, sample, memory, work.scores)
    over_queries(
        block,
        tables,
        work.scores,
        Sums(work.value_errors, work.error_rows, block.count, size),
        fresh,
    )


_FEW = 2 * BLOCK  # rows that are read where they are: there are too few blocks for a copy to pay


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
        rows=place + FLOAT_BYTES * places.rows,
        key_errors=place + FLOAT_BYTES * places.key_errors,
        value_errors=place + FLOAT_BYTES * places.value_errors,
        scale=place + FLOAT_BYTES * places.scale,
        one=place + FLOAT_BYTES * places.one,
    )


@compiled
def _after(rows: Any, number: Any) -> Any:
    """Return the rows from a number on."""
    return Rows(rows.place + FLOAT_BYTES * number * rows.pitch, rows.pitch)


@compiled
def _channels(rows: Any, first: Any) -> Any:
    """Return the same rows from a channel on."""
    return Rows(rows.place + FLOAT_BYTES * first, rows.pitch)


@compiled
def _sample(maps: Any, number: Any) -> Any:
    return Rows(maps.place + FLOAT_BYTES * number * maps.sample, maps.row)


@compiled
def _terms_at(terms: Any, place: Any, sample: Any, head: Any, number: Any) -> Any:
    """Return the address of a number of a head's terms, or of their errors; 0 if there are none."""
    if place == 0:
        return place
    return place + FLOAT_BYTES * (terms.sample * sample + terms.head * head + number)


@compiled
def _clear_rows(rows: Any, count: Any, size: Any) -> None:
    for row in range(count):
        clear(rows.place + FLOAT_BYTES * row * rows.pitch, size)


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
    terms: Any,
    shares: Any,
) -> None:
    """Set outputs and statistics of some rows; `shares` says how operands of values are rounded."""
    work, size = _work(memory, places, scale), shape.size
    pitch = x.row if shape.keys <= _FEW else size
    numbers = fill_tables(tables, pitch)
    for sample in range(shape.samples):
        count = shape.last if shape.causal else lengths[sample] if lengths.size else shape.keys
        for head in range(shape.heads):
            own, place = (
                _channels(_sample(x, sample), shape.width * head),
                sample * shape.heads + head,
            )
            q, k = _after(own, shape.query_row), _channels(own, shape.key_channel)
            values = _after(_channels(own, shape.value_channel), shape.value_row)
            outputs = _channels(_sample(y, sample), head * size)
            top = statistics + FLOAT_BYTES * 2 * place * shape.rows
            inverse = top + FLOAT_BYTES * shape.rows
            if count:
                keys = near(k, pitch, count, size, work.keys)
                pack_rows(values.place, values.pitch, count, size, work.key_rows)
            for first in range(shape.first, shape.last, BLOCK):
                block = Query(
                    before=first,
                    count=min(BLOCK, shape.last - first),
                    keys=count,
                    causal=shape.causal,
                )
                out = _after(outputs, first)
                if kept:
                    mask = kept + FLOAT_BYTES * (place * shape.rows + first) * shape.keys
                    turn_kept(block, mask, shape.keys, work.kept)
                if count:
                    element = head * shape.keys * shape.rows + first
                    rounds = shares, element, sample, memory
                    own_rows = _after(q, first), keys, out
                    own_terms = _terms_at(terms, terms.place, sample, head, first + shape.keys - 1)
                    forward_block(
                        block, size, *own_rows, kept != 0, work, numbers, *rounds, own_terms
                    )
                else:
                    clear(work.top, BLOCK)
                    clear(work.inverse, BLOCK)
                    _clear_rows(out, block.count, size)
                copy(top + FLOAT_BYTES * first, work.top, block.count)
                copy(inverse + FLOAT_BYTES * first, work.inverse, block.count)


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
    terms: Any,
    shares: Any,
    score_rounding: Any,
) -> None:
    """Set the errors of some rows' queries, and add to those of keys and values; with the last
    rows, from +0.

    `shares` and `score_rounding` say how shares and errors of scores are rounded.
    """
    work, size = _work(memory, places, scale), shape.size
    pitch = x.row if shape.keys <= _FEW else size
    numbers = fill_tables(tables, pitch)
    for sample in range(shape.samples):
        count = shape.last if shape.causal else lengths[sample] if lengths.size else shape.keys
        for head in range(shape.heads):
            own, place = (
                _channels(_sample(x, sample), shape.width * head),
                sample * shape.heads + head,
            )
            q, k = _after(own, shape.query_row), _channels(own, shape.key_channel)
            v = _after(_channels(own, shape.value_channel), shape.value_row)
            of_own = _channels(_sample(dx, sample), shape.width * head)
            dq, dk = _after(of_own, shape.query_row), _channels(of_own, shape.key_channel)
            dv = _after(_channels(of_own, shape.value_channel), shape.value_row)
            errors = _channels(_sample(dy, sample), head * size)
            top = statistics + FLOAT_BYTES * 2 * place * shape.rows
            inverse = top + FLOAT_BYTES * shape.rows
            fresh, last = shape.last == shape.rows, shape.last
            if fresh:
                _clear_rows(_after(dk, count), shape.keys - count, size)
                _clear_rows(_after(dv, count), shape.keys - count, size)
            if not count:
                _clear_rows(_after(dq, shape.first), last - shape.first, size)
                continue
            pack_rows(k.place, k.pitch, count, size, work.key_rows)
            keys = Rows(work.key_rows, size)
            if pitch != size or size % WIDTH or size > PANEL:  # else these panels are dense
                keys = near(k, pitch, count, size, work.keys)
            values = near(v, pitch, count, size, work.values)
            if not fresh:
                pack_dense(dk.place, dk.pitch, count, size, work.key_errors)
                pack_dense(dv.place, dv.pitch, count, size, work.value_errors)
            while last > shape.first:
                first = max(shape.first, last - BLOCK)
                block = Query(before=first, count=last - first, keys=count, causal=shape.causal)
                if kept:
                    mask = kept + FLOAT_BYTES * (place * shape.rows + first) * shape.keys
                    turn_kept(block, mask, shape.keys, work.kept)
                clear(work.top, BLOCK)
                clear(work.inverse, BLOCK)
                copy(work.top, top + FLOAT_BYTES * first, block.count)
                copy(work.inverse, inverse + FLOAT_BYTES * first, block.count)
                own_rows = _after(q, first), keys, values, _after(errors, first), _after(dq, first)
                element = head * shape.keys * shape.rows + first
                rounds = shares, score_rounding, element, sample, memory
                far = first + shape.keys - 1
                own_terms = _terms_at(terms, terms.place, sample, head, far)
                term_errors = _terms_at(terms, terms.errors, sample, head, far)
                both = own_terms, term_errors
                backward_block(
                    block, size, *own_rows, kept != 0, work, numbers, fresh, *rounds, *both
                )
                fresh, last = False, first
            finish(work.key_errors, count, size, work.one, 0, dk)
            finish(work.value_errors, count, size, work.one, 0, dv)
