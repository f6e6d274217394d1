"""A block of queries of a head, forward and backward, in memory that holds all that belongs to it.

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

from ..conv.layout import SIDE, transpose_block
from ..jit import FLOAT_BYTES, compiled
from .products import PART, Sums, keys_of, over_keys, over_queries, pack_queries, pack_rows, score
from .shapes import BLOCK
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
def turn_kept(block: Any, kept: Any, rows: Any, out: Any) -> None:
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
def _pack_descending(block: Any, rows: Any, size: Any, out: Any) -> None:
    last = rows.place + FLOAT_BYTES * (block.count - 1) * rows.pitch
    pack_rows(last, -rows.pitch, block.count, size, out)


@compiled
def forward_block(block: Any, size: Any, queries: Any, keys: Any, out: Any, drops: Any, work: Any, tables: Any) -> None:
    """Set the outputs of a block's queries, and their `top` and `inverse`."""
    pack_queries(block, queries, size, work.queries)
    score(block, tables, work.queries, keys, size, work.scores)
    for part in range(0, block.count, PART):
        softmax(_scores(block, work, part))
    if drops:
        _keep(block, work.scores, work.kept)
    over_keys(block, tables, work.scores, Sums(work.rows, work.key_rows, block.keys, size))
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
) -> None:
    """Set the errors of a block's queries, and add to those of the keys and values."""
    pack_queries(block, queries, size, work.queries)
    pack_queries(block, errors, size, work.of_outputs)
    score(block, tables, work.queries, keys, size, work.scores)
    score(block, tables, work.of_outputs, values, size, work.errors)
    if drops:
        _keep(block, work.errors, work.kept)
    for part in range(0, block.count, PART):
        score_errors(_scores(block, work, part), work.errors + FLOAT_BYTES * part)
    over_keys(block, tables, work.errors, Sums(work.rows, work.key_rows, block.keys, size))
    finish(work.rows, block.count, size, work.one, 0, out)
    _pack_descending(block, queries, size, work.query_rows)
    _pack_descending(block, errors, size, work.error_rows)
    over_queries(block, tables, work.errors, Sums(work.key_errors, work.query_rows, block.count, size), fresh)
    if drops:
        _keep(block, work.scores, work.kept)
    over_queries(block, tables, work.scores, Sums(work.value_errors, work.error_rows, block.count, size), fresh)
