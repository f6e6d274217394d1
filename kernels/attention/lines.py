"""What attention computes between its products where these lie as whole arrays: softmax and its
errors, for all heads.

Arrays are (heads, blocks of BLOCK queries, keys, BLOCK): key by key, as `softmax.py` takes them.
Lanes behind the last query are zero. Nothing is checked here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..jit import FLOAT_BYTES, compiled
from ..llvm import clear
from .attention import BLOCK
from .heads import clear_unseen, scores_of
from .products import PART, Query, keys_of
from .softmax import normalise, softmax
from .softmax import score_errors as errors_of_part


class Lines(NamedTuple):
    """The addresses of a block's scores, of the scale, and of its queries' statistics."""

    scores: int
    scale: int
    top: int
    inverse: int


@compiled
def _block(shape: Any, number: Any, keys: Any) -> Any:
    first = BLOCK * number
    return Query(first, min(BLOCK, shape.last - first), keys, shape.causal)


@compiled
def _lines(scores: Any, statistics: Any, scale: Any, head: Any, number: Any) -> Any:
    place = statistics[head, 0, BLOCK * number :].ctypes.data
    return Lines(
        scores=scores[head, number].ctypes.data,
        scale=scale.ctypes.data,
        top=place,
        inverse=place + FLOAT_BYTES * statistics.shape[2],
    )


@compiled
def shares(shape: Any, scores: Any, statistics: Any, lengths: Any, scale: Any) -> None:
    """Turn scores into what queries have of keys, and set the statistics (heads, 2, queries)."""
    for head in range(scores.shape[0]):
        for number in range(scores.shape[1]):
            at = _lines(scores, statistics, scale, head, number)
            block = _block(shape, number, lengths[head])
            if lengths[head]:
                for part in range(0, block.count, PART):
                    own = scores_of(block, at, part, at.scale, at.scale)
                    softmax(own)
                    normalise(own)
                clear_unseen(block, at.scores)
            else:
                clear(at.top, BLOCK)
                clear(at.inverse, BLOCK)
            for key in range(keys_of(block, block.count - 1), scores.shape[2]):
                clear(at.scores + FLOAT_BYTES * BLOCK * key, BLOCK)


@compiled
def score_errors(
    shape: Any, scores: Any, errors: Any, statistics: Any, lengths: Any, scale: Any
) -> None:
    """Turn scores into what queries have of keys, and errors of that into those of scores."""
    for head in range(scores.shape[0]):
        for number in range(scores.shape[1]):
            at = _lines(scores, statistics, scale, head, number)
            block, place = _block(shape, number, lengths[head]), errors[head, number].ctypes.data
            if lengths[head]:
                for part in range(0, block.count, PART):
                    own = scores_of(block, at, part, at.scale, at.scale)
                    errors_of_part(own, place + FLOAT_BYTES * part)
                clear_unseen(block, at.scores)
                clear_unseen(block, place)
            for key in range(keys_of(block, block.count - 1), scores.shape[2]):
                clear(at.scores + FLOAT_BYTES * BLOCK * key, BLOCK)
                clear(place + FLOAT_BYTES * BLOCK * key, BLOCK)
