"""Queries, keys, values and results of attention on their way through views: which number of a
layer stands where.

People write the views around attention in many ways: Split, Reshape and Transpose in any order,
heads merged into samples. So each value here is an array of places: the numbers that a layer makes,
counted sample by sample, row by row and channel by channel. A view moves places as it moves
numbers. Where samples are open, a prime number of them stands for all.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from ...onnx_graph import INT64, Axes, Constant, OnnxNode, Value, Walk
from ...shape import Shape

Places = NDArray[np.int32]

_PRIMES = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43)
"""Not all of them divide a number of channels and rows; 2 and 3 divide many."""

_MOST_PLACES = 2**27
"""Most numbers that are followed: half a gigabyte."""

_AXES: Axes = ("samples", "rows", "columns", "channels")


@dataclasses.dataclass(frozen=True, eq=False)
class Norm:
    """An RMS norm of vectors of numbers at these places (…, channels), by an array of scales plus
    `offset`, or by none.
    """

    array: str | None
    epsilon: float
    places: Places
    offset: float = 0.0

    @property
    def keys(self) -> dict[str, object]:
        """Those of the operation that differ from what they are by default."""
        keys: dict[str, object] = {"epsilon": self.epsilon}
        keys |= {"offset": self.offset} if self.offset else {}
        return keys if self.array is not None else {**keys, "scale": False}

    def fits(self, places: Places) -> bool:
        """Return whether the vectors at these places are among those that it normalises."""
        own, given = (vectors.reshape(-1, vectors.shape[-1]) for vectors in (self.places, places))
        if own.shape[1] != given.shape[1]:
            return False
        order = own[np.argsort(own[:, 0])]
        at = np.searchsorted(order[:, 0], given[:, 0]).clip(0, len(order) - 1)
        return bool((order[at] == given).all())


@dataclasses.dataclass(frozen=True)
class Heads:
    """Numbers that a step made for this many samples, at other places, normalised, times
    `factor`.
    """

    step: int
    samples: int
    places: Places
    factor: float = 1.0
    norm: Norm | None = None


def by_heads(heads: Heads, count: int) -> Heads:
    """Return (samples, rows, channels) as (samples, heads, rows, values)."""
    samples, rows, channels = heads.places.shape
    places = heads.places.reshape(samples, rows, count, channels // count).transpose(0, 2, 1, 3)
    return dataclasses.replace(heads, places=places)


def spread(heads: Heads, over: Heads) -> Heads:
    """Return keys or values by the heads that products take them `over`: one may be for all."""
    own, wanted = heads.places.shape, over.places.shape[:-2]
    if len(own) != len(wanted) + 2 or any(
        size not in (1, count) for size, count in zip(own, wanted, strict=False)
    ):
        return heads
    return dataclasses.replace(heads, places=np.broadcast_to(heads.places, (*wanted, *own[-2:])))


def samples_for(walk: Walk, shape: Shape) -> int:
    """Return how many samples there are, or stand for all where that is open: as no other axis is
    long.
    """
    if walk.batch is not None:
        return walk.batch
    return next(prime for prime in _PRIMES if math.prod(shape) % prime)


def heads_of(walk: Walk, node: OnnxNode, value: Value) -> Heads:
    """Return a value as the numbers that its step made.

    Raises:
        InputError: its axes or sizes are not known.
    """
    shape, axes = walk.shape(value), walk.axes_of(value)
    if shape is None or value.is_flat or value.state:
        raise node.refusal(
            f"takes {walk.shown_axes(value)} for attention, whose sizes are not known"
        )
    channels, rows, columns = shape
    samples = samples_for(walk, shape)
    if samples * math.prod(shape) > _MOST_PLACES:
        raise node.refusal(
            f"was exported with {samples} samples, too many to follow the heads of attention; one"
            " is enough"
        )
    sizes = dict(zip(_AXES, (samples, rows, columns, channels), strict=True))
    parts = [part for axis in axes for part in axis.split("·") if part in sizes]
    others = [axis for axis in _AXES if axis not in parts]
    order = [_AXES.index(part) for part in (*parts, *others)]
    places = (
        np.arange(math.prod(sizes.values()), dtype=np.int32)
        .reshape(tuple(sizes.values()))
        .transpose(order)
    )
    merged = []
    for axis in axes:
        merged.append(math.prod(sizes.get(part, 1) for part in axis.split("·")))
    return Heads(value.step, samples, places.reshape(merged))


def plain(walk: Walk, heads: Heads) -> Value | None:
    """Return a value as a sequence, if its numbers stand in the order of one, maybe with its channels
    in another order.
    """
    shape = walk.shape(Value(heads.step))
    if shape is None:
        return None
    channels, rows, _ = shape
    if heads.places.size != heads.samples * rows * channels:
        return None
    whole = np.arange(heads.places.size, dtype=np.int32).reshape(heads.samples, rows, channels)
    turned = whole.transpose(1, 0, 2)
    for axes, order in (
        (("samples", "rows", "channels"), whole),
        (("samples·rows", "channels"), whole.reshape(-1, channels)),
        (("rows", "samples", "channels"), turned),
        (("rows·samples", "channels"), turned.reshape(-1, channels)),
    ):
        if heads.places.shape != order.shape:
            continue
        if (heads.places == order).all():
            return Value(heads.step, axes=axes)
        first = heads.places.reshape(-1, channels)[0] % channels
        if (heads.places == order[..., first]).all():
            return Value(heads.step, axes=axes, channels=tuple(first.tolist()))
    return None


def sizes_of(walk: Walk, node: OnnxNode, heads: Heads) -> Constant:
    """Return the sizes of a value as what Shape makes of it."""
    entries: list[int | str] = [*heads.places.shape]
    if walk.batch is None:
        samples = heads.samples
        entries = [
            "samples" if size == samples else size if size % samples else "product"
            for size in heads.places.shape
        ]
    entries = entries[node.integer("start", 0) : node.integer("end", len(entries))]
    numbers = tuple(entry for entry in entries if isinstance(entry, int))
    known = numbers if len(numbers) == len(entries) else None
    return Constant(node.outputs[0], (len(entries),), known, tuple(entries), kind=INT64)


def moved(walk: Walk, node: OnnxNode, heads: Heads) -> list[Heads]:
    """Return a value after a view, by the view's outputs.

    Raises:
        InputError: it is none of the views that are known, or does not fit.
    """
    try:
        if node.operator == "Reshape":
            made: Places | list[Places] = _reshape(walk, node, heads)
        else:
            made = _MOVES[node.operator](walk, node, heads.places)
    except (ValueError, IndexError) as error:
        raise node.refusal(f"does not fit queries, keys or values of attention: {error}") from None
    return [
        dataclasses.replace(heads, places=places)
        for places in (made if isinstance(made, list) else [made])
    ]


def _reshape(walk: Walk, node: OnnxNode, heads: Heads) -> Places:
    entries, places = walk.entries(node, 1), heads.places
    wanted = [
        heads.samples if entry == "samples" else -1 if isinstance(entry, str) else entry
        for entry in entries
    ]
    if not node.integer("allowzero", 0):
        wanted = [places.shape[place] if size == 0 else size for place, size in enumerate(wanted)]
    return places.reshape(wanted)


def _transpose(walk: Walk, node: OnnxNode, places: Places) -> Places:
    return places.transpose(node.integers("perm", tuple(reversed(range(places.ndim)))))


def _split(walk: Walk, node: OnnxNode, places: Places) -> list[Places]:
    axis, parts = node.integer("axis", 0), [*map(int, walk.numbers(node, "split"))]
    if parts:
        return np.split(places, np.cumsum(parts)[:-1], axis=axis)
    return np.array_split(places, len(node.outputs), axis=axis)


def _cut(walk: Walk, node: OnnxNode, places: Places) -> Places:
    def given(name: str, place: int) -> tuple[int, ...]:
        return node.integers(name, ()) or tuple(map(int, walk.numbers(node, name, place)))

    starts, ends = given("starts", 1), given("ends", 2)
    axes = given("axes", 3) or tuple(range(len(starts)))
    steps = given("steps", 4) or (1,) * len(starts)
    cuts = [slice(None)] * places.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        cuts[axis] = slice(start, end, step)
    return places[tuple(cuts)]


def _squeeze(walk: Walk, node: OnnxNode, places: Places) -> Places:
    axes = walk.integers(node, "axes")
    return places.squeeze(axes or None)


def _unsqueeze(walk: Walk, node: OnnxNode, places: Places) -> Places:
    return np.expand_dims(places, walk.integers(node, "axes"))


def _gather(walk: Walk, node: OnnxNode, places: Places) -> Places:
    constant = walk.constant(node, 1)
    index = np.array(walk.integers(node, "indices"), np.int64)
    return np.take(
        places,
        index.reshape(constant.shape if constant is not None else ()),
        axis=node.integer("axis", 0),
    )


def _expand(walk: Walk, node: OnnxNode, places: Places) -> Places:
    wanted = tuple(size if isinstance(size, int) else 1 for size in walk.entries(node, 1))
    return np.broadcast_to(places, np.broadcast_shapes(places.shape, wanted))


def _tile(walk: Walk, node: OnnxNode, places: Places) -> Places:
    return np.tile(places, tuple(map(int, walk.numbers(node, "repeats"))))


def _flatten(walk: Walk, node: OnnxNode, places: Places) -> Places:
    axis = node.integer("axis", 1)
    return places.reshape(math.prod(places.shape[:axis]), -1)


_MOVES: Mapping[str, Callable[[Walk, OnnxNode, Places], Places | list[Places]]] = {
    "Cast": lambda walk, node, places: places,
    "CastLike": lambda walk, node, places: places,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Identity": lambda walk, node, places: places,
    "Slice": _cut,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}

MOVES = frozenset({*_MOVES, "Reshape"})
"""The views that are known."""
