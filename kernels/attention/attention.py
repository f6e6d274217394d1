"""Attention of rows to rows, by heads, on arrays: shapes are checked here, and memory is handed
out.

Kernels are called with shapes, places of rows, and addresses of the memory that they work in.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..jit import FLOAT_BYTES, Floats, Kernels, address_of, of_float32
from ..memory import new
from .operands import Narrow, Operand, whole

BLOCK = 64  # queries at a time: their scores stay in the second-level cache
_LINE = 16  # floats of a cache line, and of the widest vector


class Shape(NamedTuple):
    """Queries `first` to `last` of `rows` of each sample, in `heads` heads of `size` channels; where
    `causal`, masked.

    There are `keys` keys. A head's numbers begin `width` channels after those of the head before;
    queries, and values, begin at a row and a channel of theirs, and keys at a channel.
    """

    samples: int
    rows: int
    heads: int
    size: int
    first: int
    last: int
    causal: bool
    keys: int
    width: int
    query_row: int = 0
    key_channel: int = 0
    value_row: int = 0
    value_channel: int = 0


class Maps(NamedTuple):
    """Rows of samples: the address of the first, and the floats to the next sample, and to the next
    row.
    """

    place: int
    sample: int
    row: int


class Terms(NamedTuple):
    """Addresses of terms of scores, by distance, and of the sums of their errors, 0 where there are
    none; floats to the next sample, and to the next head.
    """

    place: int
    errors: int
    sample: int
    head: int


class Work(NamedTuple):
    """Addresses of memory for a head: numbers for queries and keys, numbers for queries, packed
    rows, and sums.
    """

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
def layout(keys: int, size: int, *, backward: bool, drops: bool) -> tuple[int, Work]:
    """Return the floats of all this memory, and where each part of it begins."""
    pairs, packed, lanes = keys * BLOCK, 2 * BLOCK * size, -(-size // _LINE) * _LINE
    # A size times False is 0: what only the backward pass or dropout needs takes no memory.
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
        key_rows=keys * lanes,
        keys=keys * size,
        values=keys * size * backward,
        rows=BLOCK * size,
        key_errors=keys * size * backward,
        value_errors=keys * size * backward,
        scale=1,
        one=1,
    )
    *begins, end = itertools.accumulate(
        (-(-floats // _LINE) * _LINE for floats in sizes), initial=0
    )
    return end, Work(*begins)


def distances(rows: int, keys: int) -> int:
    """Return how many terms a head has: number `keys` - 1 + i - j is that of query i and key j. Those
    behind the last one are for vectors.
    """
    return keys + -(-rows // BLOCK) * BLOCK


def table_size(keys: int, size: int) -> int:
    """Return how many numbers the offset tables hold."""
    return 3 * max(keys, size, BLOCK) + BLOCK


Lengths = NDArray[np.integer[Any]]
Rows = tuple[int, int]

_heads = Kernels("attention.heads")

_EVERY: NDArray[np.int64] = np.empty(0, np.int64)  # instead of lengths: all rows are keys


@dataclasses.dataclass(frozen=True)
class Attention:
    """Attention in `heads` heads of `size` channels; where `causal`, a row sees itself and those
    before, else all.

    Inputs x are float32 (n, rows, 3 * heads * size), head by head: q, k and v of head 0, then of
    head 1, and so on. Outputs y are (n, rows, heads * size). Both may be slices of the channels of
    wider arrays. `scale` multiplies the products of q and k; without one, it is 1 / sqrt(size).
    Statistics, (n, heads, 2, rows), are the largest score of each row and head, and 1 / sum: all
    that the backward pass needs beside x.

    With `keys`, queries are of another sequence than keys and values: inputs are float32
    (n, 2 * keys + rows, heads * size), rows of keys, then as many of values, then the queries.

    A call may have some rows alone, (first, behind the last): forward reads no later row in causal
    attention. `lengths` (n,) are the keys of each sample; the rows behind are masked as keys.
    `kept` (n, heads, rows, keys), by which dropout multiplies what a row (axis 2) has of each
    other, is 0 or 1 / (1 - rate).

    `terms` (n, heads, distances), or one for all samples (1, ..), are added to scaled products, by
    the distance of the query from the key (`distances`). The sums of their errors are added to
    `term_errors`, which lie alike, (n, ..), if these are given.

    Operands may be rounded: `shares`, what a row has of the values of each other, times `kept`, the
    same in both sweeps; and `score_errors`, those of the scaled products of q and k. What softmax
    computes, and all sums, stay in fp32; neither depends on how rows are cut into calls.

    Raises:
        ValueError: a size is below 1, or the scale is not above 0, or keys of another sequence are
            masked as causal.
    """

    heads: int
    size: int
    causal: bool
    scale: float | None = None
    keys: int | None = None

    def __post_init__(self) -> None:
        if self.heads < 1 or self.size < 1:
            raise ValueError(f"heads = {self.heads}, size = {self.size}: both must be at least 1")
        if self.scale is not None and not 0 < self.scale < np.inf:
            raise ValueError(f"scale = {self.scale}: must be above 0")
        if self.keys is not None and (self.keys < 1 or self.causal):
            raise ValueError(f"keys = {self.keys}: must be at least 1, and not causal")

    @property
    def channels(self) -> int:
        """Number of output channels: a third of those of the inputs, where these are of one
        sequence.
        """
        return self.heads * self.size

    def queries(self, rows: int) -> int:
        """Return how many of a sample's rows of inputs are those of queries."""
        return rows - 2 * (self.keys or 0)

    def forward(
        self,
        x: Floats,
        y: Floats,
        statistics: Floats,
        *,
        rows: Rows | None = None,
        lengths: Lengths | None = None,
        kept: Floats | None = None,
        terms: Floats | None = None,
        shares: Operand | None = None,
    ) -> None:
        """Write some rows of the outputs of `x` to `y`, and of the statistics, in place; without
        `rows`, all.

        Raises:
            ValueError: shapes, rows or lengths do not fit, or there are lengths in causal
                attention.
            TypeError: an array is not of float32.
        """
        shape = self._shape(x, rows)
        maps = _maps(x, self._inputs(x), "x"), _maps(y, self._outputs(x), "y")
        own = self._terms(shape, terms)
        self._run(_heads.forward, shape, maps, statistics, lengths, kept, own, (shares,))

    def backward(
        self,
        x: Floats,
        statistics: Floats,
        dy: Floats,
        dx: Floats,
        *,
        rows: Rows | None = None,
        lengths: Lengths | None = None,
        kept: Floats | None = None,
        terms: Floats | None = None,
        term_errors: Floats | None = None,
        shares: Operand | None = None,
        score_errors: Operand | None = None,
    ) -> None:
        """Write the errors of the inputs to `dx` (as x) for those of some rows of the outputs, in
        place.

        Rows go from the last to the first: the call with the last row sets dk and dv, others add to
        them, and each sets the dq of its own rows. In causal attention, a row's dk and dv are
        complete with its own call.

        Raises:
            ValueError: as in `forward`.
            TypeError: an array is not of float32.
        """
        shape = self._shape(x, rows)
        maps = (
            _maps(x, self._inputs(x), "x"),
            _maps(dy, self._outputs(x), "dy"),
            _maps(dx, self._inputs(x), "dx"),
        )
        roundings, own = (shares, score_errors), self._terms(shape, terms, term_errors)
        self._run(_heads.backward, shape, maps, statistics, lengths, kept, own, roundings)

    def statistics_shape(self, samples: int, rows: int) -> tuple[int, int, int, int]:
        """Return the shape of the statistics for this number of samples and rows."""
        return samples, self.heads, 2, rows

    def _inputs(self, x: Floats) -> tuple[int, ...]:
        return *x.shape[:2], self.channels if self.keys else 3 * self.channels

    def _outputs(self, x: Floats) -> tuple[int, ...]:
        return x.shape[0], self.queries(x.shape[1]), self.channels

    def _shape(self, x: Floats, rows: Rows | None) -> Shape:
        if x.ndim != 3 or self.queries(x.shape[1]) < 0:
            raise ValueError(f"x has shape {x.shape}; {self._needed} is needed")
        count = self.queries(x.shape[1])
        first, last = (0, count) if rows is None else rows
        if not 0 <= first <= last <= count:
            raise ValueError(f"rows = {rows}: x has {count} rows")
        own = x.shape[0], count, self.heads, self.size, int(first), int(last), self.causal
        if self.keys:
            return Shape(*own, self.keys, self.size, query_row=2 * self.keys, value_row=self.keys)
        size = self.size
        return Shape(*own, count, 3 * size, key_channel=size, value_channel=2 * size)

    def _terms(self, shape: Shape, terms: Floats | None, errors: Floats | None = None) -> Terms:
        """Return where terms lie, and their errors."""
        if terms is None:
            return Terms(0, 0, 0, 0)
        count = distances(shape.rows, shape.keys)
        samples = shape.samples if errors is not None else len(terms)
        sizes = samples, self.heads, count
        if samples not in (1, shape.samples):
            raise ValueError(f"terms have shape {terms.shape}: one or {shape.samples} are needed")
        place = _whole(terms, sizes, "terms")
        of_errors = 0 if errors is None else _whole(errors, sizes, "errors of terms")
        return Terms(place, of_errors, self.heads * count * (samples > 1), count)

    @property
    def _needed(self) -> str:
        if self.keys:
            return f"(samples, {2 * self.keys} + rows, heads * size)"
        return "(samples, rows, 3 * heads * size)"

    def _run(
        self,
        kernel: Any,
        shape: Shape,
        maps: tuple[Maps, ...],
        statistics: Floats,
        lengths: Lengths | None,
        kept: Floats | None,
        terms: Terms,
        roundings: tuple[Operand | None, ...],
    ) -> None:
        own = _whole(statistics, (shape.samples, self.heads, 2, shape.rows), "statistics")
        keys = _EVERY if lengths is None else self._keys(shape, lengths)
        mask = (
            0
            if kept is None
            else _whole(kept, (shape.samples, self.heads, shape.rows, shape.keys), "kept")
        )
        if shape.samples and shape.first < shape.last:
            floats, places = layout(
                shape.keys, self.size, backward=len(maps) > 2, drops=kept is not None
            )
            scale = np.float32(self.size**-0.5 if self.scale is None else self.scale)
            tables = np.empty(table_size(shape.keys, self.size), np.int64)
            narrow = (_narrow(operand, shape) for operand in roundings)
            memory = new(floats), places, scale, tables
            kernel(shape, *maps, own, keys, mask, *memory, terms, *narrow)

    def _keys(self, shape: Shape, lengths: Lengths) -> NDArray[np.int64]:
        if self.causal:
            raise ValueError("causal attention takes no lengths: no row sees those behind it")
        given = np.asarray(lengths)
        fits = given.shape == (shape.samples,) and np.issubdtype(given.dtype, np.integer)
        if not fits or ((given < 0) | (given > shape.keys)).any():
            raise ValueError(
                f"lengths = {lengths}: {shape.samples} whole numbers from 0 to {shape.keys} are"
                " needed, one a sample"
            )
        return np.require(given, np.int64, ["C", "A", "W"])


def _narrow(operand: Operand | None, shape: Shape) -> Narrow:
    if operand is None:
        return whole()
    return operand.narrow(shape.samples, shape.heads, shape.keys, shape.rows)


def _maps(array: Floats, shape: tuple[int, ...], name: str) -> Maps:
    """Return where the rows of an array (n, rows, channels) lie."""
    if of_float32(array, name).shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; {shape} is needed")
    sample, row, channel = array.strides
    if array.size and (
        (channel != FLOAT_BYTES and shape[2] > 1) or sample % FLOAT_BYTES or row % FLOAT_BYTES
    ):
        raise ValueError(
            f"{name} has strides {array.strides}: the channels of a row must lie side by side"
        )
    return Maps(address_of(array), sample // FLOAT_BYTES, row // FLOAT_BYTES)


def _whole(array: Floats, shape: tuple[int, ...], name: str) -> int:
    """Return the address of a contiguous array."""
    if of_float32(array, name).shape != shape or not array.flags.c_contiguous:
        raise ValueError(f"{name} has shape {array.shape}; contiguous {shape} is needed")
    return address_of(array)


def forward(x: Floats, attention: Attention, **masks: Any) -> tuple[Floats, Floats]:
    """Return (y, statistics), new arrays; `masks` are `lengths`, `kept`, `terms` and `shares`. See
    `Attention.forward`.
    """
    samples, rows = x.shape[0], attention.queries(x.shape[1])
    y, statistics = (
        new(samples, rows, attention.channels),
        new(*attention.statistics_shape(samples, rows)),
    )
    attention.forward(x, y, statistics, **masks)
    return y, statistics


def backward(
    x: Floats, statistics: Floats, dy: Floats, attention: Attention, **masks: Any
) -> Floats:
    """Return dx, a new array; `masks` are `lengths`, `kept`, `shares` and `score_errors`. See
    `Attention.backward`.
    """
    dx = new(*x.shape)
    attention.backward(x, statistics, dy, dx, **masks)
    return dx


def warm() -> None:
    """Compile all kernels: call each once on tiny arrays, as training calls it."""
    attention, x = Attention(1, 1, causal=True), np.ones((1, 1, 3), np.float32)
    y, statistics = forward(x, attention)
    backward(x, statistics, y, attention)
