"""Scores of attention, and terms that are added to them, as `operations/attention.py` has them:
slopes of heads, by which scores fall with the distance of a query from a key, and tables of a
learnt term for each head and bucket of distances.

A number that all keys of a query have more changes nothing, because softmax does not see it: files
have slopes times keys' places, too (Bloom).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .....kernels.attention import alibi_slopes, bucket_numbers
from ....common import InputError
from ...onnx_graph import Constant, OnnxNode, Walk, shortest
from .heads import Heads, moved, spread
from .turned import Turn

_CLOSE = 1e-5
"""Of the largest term, how far another may be from that of a slope: single precision."""


@dataclasses.dataclass(frozen=True)
class Table:
    """An array (buckets, heads) of the file, times `factor`, which a node takes at a place: of each
    plane of scores (…) its column, and of each query and key the bucket, -1 where that is hidden.
    """

    node: OnnxNode
    place: int
    root: str
    factor: float
    columns: NDArray[np.int64]
    buckets: NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Scores:
    """Products of queries (…, rows, values) and keys alike, times `factor`, without those `hidden`
    (queries, keys), plus `terms` (…, queries, keys), and those of a `table`.

    They are `shares` after softmax, which `node` is, and dropped at the rate `dropout`; or only
    `nan`, where of these are not numbers.
    """

    q: Heads
    k: Heads
    factor: float
    hidden: NDArray[np.bool_] | None = None
    terms: NDArray[Any] | None = None
    table: Table | None = None
    node: OnnxNode | None = None
    dropout: float = 0.0
    nan: bool = False
    turn: Turn | None = None

    def shape(self, *last: int) -> tuple[int, ...]:
        """Return the shape of what belongs to scores, with these sizes of queries and keys."""
        return *self.q.places.shape[:-2], *last


def scale_of(node: OnnxNode, scores: Scores, v: Heads) -> float | None:
    """Return the number by which scores are multiplied; None: 1 over the root of a head's size.

    Raises:
        InputError: it is not above 0, or values are multiplied, too.
    """
    if v.factor != 1:
        raise node.refusal(
            f"takes values times {v.factor:g}; only products of queries and keys may be scaled"
        )
    if math.isclose(scores.factor, scores.q.places.shape[-1] ** -0.5, rel_tol=1e-5):
        return None
    if not 1e-9 <= scores.factor <= 1e9:
        raise node.refusal(f"scales products by {scores.factor:g}; should be 1e-9 to 1e9")
    return float(str(np.float32(scores.factor)))  # the shortest that is the same in fp32


def taken_apart(walk: Walk, node: OnnxNode, scores: Scores) -> Scores:
    """Return scores, or shares, whose heads and samples are taken apart, or merged."""
    rows, keys = scores.q.places.shape[-2], scores.k.places.shape[-2]
    shape = scores.shape(rows, keys)
    whole = dataclasses.replace(scores.q, places=np.broadcast_to(np.int32(0), shape))
    [made] = moved(walk, node, whole)
    lead = made.places.shape[:-2]
    if made.places.shape[-2:] != (rows, keys):
        raise node.refusal("takes rows or keys of scores apart, which is not supported")

    def of_heads(heads: Heads) -> Heads:
        places = heads.places.reshape(*lead, *heads.places.shape[-2:])
        return dataclasses.replace(heads, places=places)

    terms = scores.terms
    if terms is not None:
        terms = terms.reshape(*lead, *terms.shape[-2:])
    q, k, table = of_heads(scores.q), of_heads(spread(scores.k, scores.q)), scores.table
    if table is not None:
        table = dataclasses.replace(table, columns=table.columns.reshape(lead))
    return dataclasses.replace(scores, q=q, k=k, terms=terms, table=table)


def table_of(walk: Walk, node: OnnxNode, place: int) -> tuple[Table | None, NDArray[Any]]:
    """Return the table whose numbers a node adds to scores, and what it adds beside; None if it
    adds no learnt numbers.
    """
    constant = walk.constant(node, place)
    for root in sorted(constant.roots if constant is not None else ()):
        known = walk.constants[root]
        if constant is None or len(known.shape) != 2 or known.is_buffer or len(constant.shape) < 3:
            continue
        try:
            table = _table(walk, node, place, constant, known)
        except (InputError, KeyError):
            continue
        if table is not None:
            return table
    return None, np.zeros(0)


def _table(
    walk: Walk, node: OnnxNode, place: int, constant: Constant, root: Constant
) -> tuple[Table, NDArray[Any]] | None:
    """Return it, where each number is one of the array's, times a factor, or hidden."""
    numbers = np.arange(np.prod(root.shape), dtype=np.float32).reshape(root.shape)
    beside, ones, own = (
        walk.expressions.with_array(constant.name, root.name, array).astype(np.float64)
        for array in (np.zeros_like(numbers), np.ones_like(numbers), numbers)
    )
    seen = np.abs(beside) < _LARGE
    factors = (ones - beside)[seen]
    if not factors.size or not factors[0] or np.abs(factors - factors[0]).max() > 1e-5:
        return None
    places = np.where(seen, np.rint((own - beside) / factors[0]), -1).astype(np.int64)
    buckets, columns = np.divmod(places, root.shape[1])
    buckets = np.where(places < 0, -1, buckets)
    of_planes = np.where(seen, columns, -1).max((-1, -2))
    planes = buckets.reshape(-1, *buckets.shape[-2:])
    if (np.where(seen, columns, of_planes[..., None, None]) != of_planes[..., None, None]).any():
        return None
    if (planes != planes[0]).any():
        return None
    factor = shortest(float(factors[0]))
    return Table(node, place, root.name, factor, of_planes, planes[0]), beside


_LARGE = 1e4
"""Beside numbers of a table, what hides a key: its exponential is 0."""


def buckets_of(walk: Walk, table: Table, tied: NDArray[np.intp], *, causal: bool) -> dict[str, int]:
    """Return the keys of `attention` for a table, of whose heads all samples' stand at the places
    `tied` here.

    Raises:
        InputError: buckets or heads are in another order.
    """
    count, heads = walk.constants[table.root].shape
    if (tied % heads != table.columns.ravel()).any() or len({*tied.tolist()}) % heads:
        raise table.node.refusal(f"{OTHER_BUCKETS}, in the order of the heads")
    rows, exact = table.buckets.shape[-1], (count if causal else count // 2) // 2
    far = np.arange(rows)[:, None] - np.arange(rows) + rows - 1
    seen = (table.buckets >= 0) & (far >= rows - 1 if causal else True)
    if exact >= 1 and (causal or count % 2 == 0):
        for most in (128, *range(exact + 1, max(1024, 8 * rows))):
            if most > exact:
                numbers = bucket_numbers(rows, rows, count, most, causal=causal)[far]
                if (numbers == table.buckets)[seen].all():
                    return {"buckets": count, "max_distance": most}
    raise table.node.refusal(OTHER_BUCKETS)


OTHER_BUCKETS = (
    "adds a learnt table to scores by other buckets than T5's: of distances one by one, and then of"
    " their logarithms, of both sides where attention is not causal"
)


def slopes_of(
    node: OnnxNode, terms: NDArray[Any], heads: int, tied: NDArray[np.intp], *, causal: bool
) -> dict[str, object]:
    """Return the keys of `attention` for terms (…, rows, rows) of all samples' heads, which stand
    at the places `tied` here.

    Raises:
        InputError: they are no slopes, or not the same for all samples.
    """
    rows = terms.shape[-1]
    far = np.arange(rows)[:, None] - np.arange(rows)
    seen = far >= 0 if causal else np.ones_like(far, bool)
    slopes = np.full(heads, np.nan)
    for plane, place in zip(np.ndindex(terms.shape[:-2]), (tied % heads).tolist(), strict=True):
        own = terms[plane] - terms[plane].diagonal()[:, None]
        slope = -own[-1, 0] / max(1, rows - 1)
        largest = max(1.0, np.abs(own[seen]).max())
        apart = np.abs(own + slope * np.abs(far))[seen].max()
        is_new = bool(np.isnan(slopes[place]))
        if apart > _CLOSE * largest or not (is_new or np.isclose(slopes[place], slope)):
            raise node.refusal(OTHER_TERMS)
        slopes[place] = slope
    alibi = np.array(alibi_slopes(heads))
    if np.allclose(slopes, alibi, rtol=_CLOSE, atol=0):
        return {"alibi": True}
    return {"slopes": tuple(shortest(float(slope)) for slope in slopes)} if slopes.any() else {}


OTHER_TERMS = (
    "adds other terms to scores than slopes of heads times the distance of query and key (ALiBi),"
    " the same for all samples, which is not supported"
)
