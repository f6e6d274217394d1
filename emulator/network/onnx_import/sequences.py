"""Views of sequences: what PyTorch writes around LSTM and GRU to move, merge, drop and pick axes.

No number changes place, but for maps that become sequences (`sequence`), for some of their rows or
channels (`last-step`, `first-step`, `rows`, `channels`), and where a node needs the one axis where
the other is, as layers over tokens do (`transpose`).
"""

from __future__ import annotations

import dataclasses
import itertools

from ..onnx_graph import CELLS, FROM_IMAGES, MAPS, MixedTokens, OnnxNode, Value, Walk, shown_axes
from ..operation import SfuOperation
from ..operations.joins import SomeChannels
from ..operations.sequence import Embedding, LastStep, Rows, Sequence, Transpose
from ..operations.tokens import FirstStep, Tokens
from .apart import turned
from .views import EVERYTHING, in_order, take_one

Axes = tuple[str, ...]

_SEQUENCE: Axes = ("samples", "rows", "channels")
_PIXELS = (("samples", "rows·columns", "channels"), ("samples", "columns", "channels"))
"""Pixels that are rows of a sequence from now on, in networks with attention or layers over
tokens.
"""

_MERGED = {
    ("directions", "channels"): "channels",
    ("channels", "columns"): "channels",
    ("samples", "rows"): "samples·rows",
    ("rows", "samples"): "rows·samples",
}
"""What two axes side by side may become."""


def transpose(walk: Walk, node: OnnxNode) -> Value:
    """Return maps or a sequence with its axes in another order."""
    value = walk.take(node, apart=True)
    axes = walk.axes_of(value)
    if value.apart is not None:
        return turned(walk, node, value, node.integers("perm", ()))
    order = node.integers("perm", tuple(reversed(range(len(axes)))))
    if value.is_flat or sorted(order) != list(range(len(axes))):
        raise node.refusal(
            f"`perm` = {list(order)} of {shown_axes(axes)}: only maps and sequences have axes to"
            " move"
        )
    moved = tuple(axes[place] for place in order)
    if moved in _PIXELS and walk.has_tokens:
        return walk.step(node, Tokens, {}, value, axes=_SEQUENCE)
    return value.with_axes(moved)


def with_channels(walk: Walk, node: OnnxNode, value: Value, place: int) -> Value:
    """Return a sequence whose axis at a place is its channels, transposed where rows are there; any
    other value as it is.

    Raises:
        MixedTokens: the axis is of pixels, or of steps of which nothing has told so.
    """
    axes, shape = walk.axes_of(value), walk.shape(value)
    others = {name for number, name in enumerate(axes) if number != place % len(axes)}
    is_view = not value.is_flat and not value.state and value.padded_by is None
    if not is_view or len(axes) != 3 or "channels" not in others:
        return value
    own, are_pixels = axes[place], axes[place] in ("rows·columns", "columns")
    if (are_pixels or own.isdigit()) and not walk.has_tokens:
        raise MixedTokens
    if are_pixels:
        value = walk.step(node, Tokens, {}, value)
    elif own != "rows" or (shape is not None and shape[2] != 1):
        return value
    roles = {own: "channels", "channels": "rows"}
    axes = tuple(roles.get(name, name) for name in axes)
    for number, step in enumerate(walk.steps):
        if step.kind is Transpose and step.takes == (value.step,):
            return Value(number, axes=axes)
    return walk.step(node, Transpose, {}, value, axes=axes)


def gather(walk: Walk, node: OnnxNode) -> Value:
    """Return what an embedding looks up, the last step of a sequence, or the last state of a
    layer.
    """
    if node.inputs[:1] and node.inputs[0] in walk.constants:
        return Embedding.from_onnx(walk, node)
    value = walk.take(node, states=True)
    axes = walk.axes_of(value)
    if axes == EVERYTHING:
        return in_order(walk, node, value)
    places = walk.entries(node, 1)
    axis = _axis(node, axes, node.integer("axis", 0))
    index = places[0] if len(places) == 1 else None
    if value.state and axis == "directions" and isinstance(index, int):
        return _state(walk, node, value, index)
    if (
        isinstance(index, int)
        and (view := take_one(walk, node, value, axes.index(axis), index)) is not None
    ):
        return view
    shape = walk.shape(value)
    rows = None if shape is None else shape[1]
    if axis == "rows" and isinstance(index, int) and (rows is None or -rows <= index < rows):
        first = index % rows if rows is not None and index != -1 else index
        return _some_rows(walk, node, value, first, 1).with_axes(_without(axes, "rows"))
    raise node.refusal(
        f"takes {list(places)} along {axis}: only one row of a sequence may be taken so"
    )


def cut(walk: Walk, node: OnnxNode) -> Value:
    """Return some rows of a sequence, or some channels; or all of an axis."""
    value = walk.take(node)
    axes = walk.axes_of(value)
    bounds = [
        node.integers(name, ()) or walk.entries(node, 1 + n)
        for n, name in enumerate(("starts", "ends"))
    ]
    place = node.integers("axes", ()) or (walk.entries(node, 3) if node.has_input(3) else (0,))
    step = walk.entries(node, 4) if node.has_input(4) else (1,)
    one = len(place) == len(bounds[0]) == len(bounds[1]) == 1 and step == (1,)
    axis = _axis(node, axes, place[0]) if len(place) == 1 else ""
    size = walk.sizes(value)[axes.index(axis)] if axis else None
    if one and bounds[0] == (0,) and _is_end(bounds[1][0], axis, size):
        return value
    is_last = axis == "rows" and axes != MAPS and bounds[0] == (-1,)
    if one and is_last and _is_end(bounds[1][0], axis, size):
        return _some_rows(walk, node, value, -1, 1)
    first, end = bounds[0][:1], bounds[1][:1]
    if one and isinstance(first[0], int) and isinstance(end[0], int) and isinstance(size, int):
        begin, behind, _ = slice(first[0], end[0]).indices(size)
        if begin < behind:
            return _some(walk, node, value, axis, begin, behind - begin)
    raise node.refusal(f"cuts {shown_axes(axes)} in a way that is not followed: {_CUTS}")


_CUTS = "only rows of a sequence, or channels, side by side are taken"


def split(walk: Walk, node: OnnxNode) -> Value:
    """Return the first of the parts of a value along an axis; the walk knows the others."""
    value = walk.take(node)
    axes = walk.axes_of(value)
    axis = _axis(node, axes, node.integer("axis", 0))
    size, counts = walk.sizes(value)[axes.index(axis)], [*map(int, walk.numbers(node, "split"))]
    if not isinstance(size, int):
        raise node.refusal(f"splits {axis}, whose number is not known")
    if not counts:
        most = -(-size // len(node.outputs))
        counts = [min(most, size - begin) for begin in range(0, size, most)]
    if sum(counts) != size or len(counts) < len(node.outputs) or min(counts) < 1:
        raise node.refusal(f"splits {size} {axis} into {counts}, which do not fit")
    parts, first = [value], 0
    for name, count in zip(node.outputs, counts, strict=False):
        parts.append(_some(walk, node, value, axis, first, count) if walk.is_used(name) else value)
        first += count
    for place, part in enumerate(parts[2:], 1):
        walk.name(node, part, place)
    return parts[1]


def _some(walk: Walk, node: OnnxNode, value: Value, axis: str, first: int, count: int) -> Value:
    """Return `count` rows or channels of a value, from `first` on."""
    shape, axes = walk.shape(value), walk.axes_of(value)
    if axis == "rows" and axes != MAPS and (shape is None or shape[2] == 1):
        return _some_rows(walk, node, value, first, count)
    if axis == "channels" or (axis == "values" and shape is not None and shape[1:] == (1, 1)):
        keys = {"first": first, "count": count} if first else {"count": count}
        return walk.step(node, SomeChannels, keys, value, like=value)
    raise node.refusal(f"cuts {axis} of {shown_axes(axes)}: {_CUTS}")


def _some_rows(walk: Walk, node: OnnxNode, value: Value, first: int, count: int) -> Value:
    """Return `count` rows of a sequence, from `first` on; -1 is the last one."""
    axes, last = walk.axes_of(value), _last(walk, value)
    if value.step == FROM_IMAGES and "channels" not in axes and first >= 0:
        before = 0 if value.rows is None else value.rows[0]
        return dataclasses.replace(value, rows=(before + first, count))
    if count > 1:
        keys = {"first": first, "count": count} if first else {"count": count}
        return walk.step(node, Rows, keys, value, axes=axes)
    one = tuple("last" if name == "rows" else name for name in axes)
    if first in (-1, last):
        return _last_step(walk, node, value, one)
    if first == 0:
        return _last_step(walk, node, value, one, FirstStep)
    return walk.step(node, Rows, {"first": first, "count": 1}, value, axes=one)


def squeeze(walk: Walk, node: OnnxNode, value: Value, places: tuple[int, ...]) -> Value:
    """Return a sequence, or the state of a recurrent layer, without an axis of one."""
    axes = walk.axes_of(value)
    dropped = [_axis(node, axes, place) for place in places]
    if value.state and dropped == ["directions"]:
        return _state(walk, node, value, -1)
    for axis in dropped:
        if axis != "last" and (axis != "directions" or _is_bidirectional(walk, value)):
            raise node.refusal(
                f"`axes` = {list(places)} of {shown_axes(axes)}: {axis} are more than one; only"
                " axes of one may be left out"
            )
    return value.with_axes(tuple(axis for axis in axes if axis not in dropped))


def reshape(walk: Walk, node: OnnxNode) -> Value | None:
    """Return a sequence with two axes merged, or with those apart again; None for maps that become
    a row of values.
    """
    target = walk.constant(node, 1)
    value = walk.take(node)
    axes = walk.axes_of(value)
    if (
        value.is_flat
        or target is None
        or target.entries is None
        or (axes == MAPS and len(target.entries) == 2)
    ):
        return None
    entries = target.entries
    if len(entries) == 2 and axes[0] == "samples" and entries[0] in ("samples", walk.batch):
        return None  # it becomes a row of values
    if len(entries) == len(axes) and walk.shape(value) is None and _fits(entries, axes):
        return value
    if len(entries) == len(axes) + 1 and "·" in axes[0]:
        return value.with_axes((*axes[0].split("·"), *axes[1:]))
    for place, pair in reversed(list(enumerate(itertools.pairwise(axes)))):
        merged = _MERGED.get(pair, "channels" if {*pair} == {"last", "channels"} else None)
        kept = (*axes[:place], "", *axes[place + 2 :])
        if merged is None or len(entries) != len(kept) or not _fits(entries, kept):
            continue
        made = (*axes[:place], merged, *axes[place + 2 :])
        size = entries[place]
        if pair == ("channels", "columns"):
            value = dataclasses.replace(walk.step(node, Sequence, {}, value), axes=axes)
        if merged == "channels" and isinstance(size, int) and size > 0:
            walk.expect(node, value, channels=size)
        return value.with_axes(made)
    raise node.refusal(
        f"{shown_axes(axes)} to the shape {list(entries)}: sequences may have directions, or"
        " channels and columns, merged, or samples and steps"
    )


def _last_step(
    walk: Walk, node: OnnxNode, value: Value, axes: Axes, kind: type[SfuOperation] = LastStep
) -> Value:
    return walk.step(node, kind, {}, value, axes=axes).with_axes(axes)


def _state(walk: Walk, node: OnnxNode, value: Value, index: int) -> Value:
    """Return the last output of one of the layers of a state."""
    if CELLS in value.state:
        raise node.refusal("takes the cells of an LSTM; only its outputs may be used")
    if any(walk.steps[step].keys["bidirectional"] for step in value.state):
        raise node.refusal(
            "takes the state of one direction; only the outputs of both at the last step may be"
            " used, as y[:, -1]"
        )
    if not -len(value.state) <= index < len(value.state):
        raise node.refusal(f"takes the state of layer {index} of {len(value.state)}")
    layer = Value(value.state[index])
    return _last_step(walk, node, layer, ("samples", "channels"))


def _is_bidirectional(walk: Walk, value: Value) -> bool:
    step = walk.step_of(value)
    while step is not None and "bidirectional" not in step.keys:
        step = walk.steps[step.takes[0]] if step.takes and step.takes[0] != FROM_IMAGES else None
    return step is None or bool(step.keys["bidirectional"])


def _without(axes: Axes, dropped: str) -> Axes:
    return tuple(axis for axis in axes if axis != dropped)


def _axis(node: OnnxNode, axes: Axes, place: int | str) -> str:
    if not isinstance(place, int) or not -len(axes) <= place < len(axes):
        raise node.refusal(f"axis {place} of {shown_axes(axes)}: there is none such")
    return axes[place]


def _is_end(end: int | str, axis: str, size: int | str | None) -> bool:
    """Return whether a cut with this end goes to the end of an axis."""
    return end in (axis, size) or (isinstance(end, int) and end > 1 << 30)


def _last(walk: Walk, value: Value) -> int | None:
    """Return the place of the last time step; None where it is not known."""
    shape = walk.shape(value)
    return None if shape is None else shape[1] - 1


def _fits(entries: tuple[int | str, ...], axes: Axes) -> bool:
    """Return whether sizes may be those of axes; layers' weights say what numbers should be."""
    return all(
        not isinstance(entry, str) or entry in (axis, "product") or not axis
        for entry, axis in zip(entries, axes, strict=True)
    )
