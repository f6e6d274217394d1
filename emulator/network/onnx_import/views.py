"""Views of maps whose sizes are known: axes of one that come and go, and neighbours that merge.

No number changes place. So each view is known by how it groups the axes that maps have and that
hold more than one value each: `rows·columns` are the pixels of a map, `one` is an axis of none of
them. Where sizes are not known, as of sequences until a recurrent layer takes them, names alone
decide (`sequences`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence as Several

import numpy as np

from ..onnx_graph import MAPS, ONE, Axes, OnnxNode, Value, Walk
from ..operations.moves import Border
from ..operations.sequence import Sequence

EVERYTHING: Axes = ("everything",)
"""All values of all samples in a row."""

_STEPS: Axes = ("samples", "rows", "channels")
_ROWS: tuple[Axes, ...] = (("samples", "rows", "channels·columns"), ("samples", "rows", "columns"))
"""Maps whose rows are time steps; without channels, there is only one."""


def regrouped(walk: Walk, node: OnnxNode, value: Value, groups: Several[Several[str]]) -> Value:
    """Return a value whose axes behind samples are these groups of axes of maps."""
    axes = "samples", *("·".join(group) or ONE for group in groups)
    if axes in _ROWS:
        return walk.step(node, Sequence, {}, value, axes=_STEPS)
    if len(axes) == 2:
        order = "samples", *(part for group in groups for part in group)
        return dataclasses.replace(value, is_flat=True, axes=None, order=order)
    return value.with_axes(axes)


def groups_of(walk: Walk, value: Value) -> list[list[str]] | None:
    """Return the axes of maps, those that hold several values, in each axis of a value; None if
    they are not known.
    """
    shape, axes = walk.shape(value), walk.axes_of(value)
    if shape is None or value.state or axes[0] != "samples":
        return None
    sizes = dict(zip(MAPS[1:], shape, strict=True))
    if value.is_flat:
        axes = "samples", "·".join((value.order or MAPS)[1:])
    groups = []
    for axis in axes[1:]:
        parts = axis.split("·")
        if not {*sizes, ONE} >= {*parts}:
            return None
        groups.append([part for part in parts if sizes.get(part, 1) > 1])
    return groups


def reshape(
    walk: Walk, node: OnnxNode, value: Value, entries: tuple[int | str, ...]
) -> Value | None:
    """Return a value with other axes for the same numbers of each sample; None if it is not known
    to be one.
    """
    groups, shape = groups_of(walk, value), walk.shape(value)
    if groups is None or shape is None or not entries:
        return None
    sizes = dict(zip(MAPS[1:], shape, strict=True))
    if not node.integer("allowzero", 0):
        whole = walk.sizes(value)
        entries = tuple(
            whole[place] if entry == 0 and place < len(whole) else entry
            for place, entry in enumerate(entries)
        )
    if entries == (-1,):
        order = "samples", *(part for group in groups for part in group)
        return dataclasses.replace(value, is_flat=False, axes=EVERYTHING, order=order)
    samples, *wanted = entries
    if samples not in ("samples", -1, walk.samples) or not all(
        isinstance(size, int) for size in wanted
    ):
        return None
    numbers = [size for size in wanted if isinstance(size, int)]
    if numbers.count(-1) == 1 and samples != -1:
        known = math.prod(size for size in numbers if size != -1)
        numbers[numbers.index(-1)] = math.prod(shape) // known if known > 0 else 0
    left = [part for group in groups for part in group]
    made: list[list[str]] = []
    for size in numbers:
        made.append([])
        while left and math.prod(sizes[part] for part in made[-1]) < size:
            made[-1].append(left.pop(0))
        if math.prod(sizes[part] for part in made[-1]) != size:
            return None
    if left:
        return None
    return regrouped(walk, node, value, made)


def in_order(walk: Walk, node: OnnxNode, value: Value) -> Value:
    """Return maps of which all values were put in a row, and then looked up in their order
    (PyTorch's as_strided).

    Raises:
        InputError: they are looked up in another order.
    """
    places, shape = walk.constant(node, 1), walk.shape(value)
    if (
        places is not None
        and shape is not None
        and math.prod(places.shape) == math.prod(shape) * (walk.samples or 0)
    ):
        order = walk.expressions.value(places.name).ravel()
        made = reshape(
            walk,
            node,
            dataclasses.replace(value, axes=None, is_flat=True),
            ("samples", *places.shape[1:]),
        )
        if made is not None and (order == np.arange(len(order))).all():
            return made
    raise node.refusal(
        "looks up values of maps in another order than theirs, which is not supported"
    )


def squeeze(walk: Walk, node: OnnxNode, value: Value, places: tuple[int, ...]) -> Value | None:
    """Return a value without axes of one; None if they are not known to be that."""
    groups = groups_of(walk, value)
    if groups is None:
        return None
    count = len(groups) + 1
    if places and not all(-count <= place < count for place in places):
        return None
    empty = {place for place, group in enumerate(groups, 1) if not group}
    dropped = {place % count for place in places} or empty
    if 0 in dropped or any(groups[place - 1] for place in dropped):
        return None
    return regrouped(
        walk, node, value, [group for place, group in enumerate(groups, 1) if place not in dropped]
    )


def unsqueeze(walk: Walk, node: OnnxNode) -> Value:
    """Return a value with more axes of one.

    Raises:
        InputError: the value's sizes are not known, or the axes are out of range.
    """
    value, places = walk.take(node), walk.integers(node, "axes")
    groups = groups_of(walk, value)
    count = 0 if groups is None else len(groups) + 1 + len(places)
    made = {place % count if count and -count <= place < count else 0 for place in places}
    if groups is None or 0 in made or len(made) < len(places):
        raise node.refusal(
            f"`axes` = {list(places)}: only axes of one behind samples may be put in"
        )
    rest = iter(groups)
    return regrouped(
        walk, node, value, [[] if place in made else next(rest) for place in range(1, count)]
    )


def take_one(walk: Walk, node: OnnxNode, value: Value, place: int, index: int) -> Value | None:
    """Return a value without an axis of one, of which the only entry is taken; None if it is not
    that.
    """
    return squeeze(walk, node, value, (place,)) if index in (0, -1) else None


def expand(walk: Walk, node: OnnxNode) -> Value:
    """Return a value for each channel, repeated for the rows and columns of maps, or a value as it
    is.

    Raises:
        InputError: other values are repeated.
    """
    value, entries = walk.take(node), walk.entries(node, 1)
    sizes = walk.sizes(value)
    if len(entries) > len(sizes):
        raise node.refusal(f"to the shape {list(entries)}: repeats {walk.shown_axes(value)}")
    own = sizes[len(sizes) - len(entries) :]
    samples = {"samples", "product", walk.samples}
    grows = [
        place
        for place, (entry, size) in enumerate(zip(entries, own, strict=True))
        if entry not in (1, -1, size) and not (size == "samples" and entry in samples)
    ]
    if not grows:
        return value
    if any(own[place] != 1 for place in grows) or "channels" not in walk.axes_of(value):
        raise node.refusal(
            f"to the shape {list(entries)}: repeats {walk.shown_axes(value)}; only a value for each"
            " channel may be repeated, as the factor of maps"
        )
    return dataclasses.replace(value, spread_by=node)


def pad(walk: Walk, node: OnnxNode) -> Value:
    """Return maps with zeros around them, which the next window is to take in, or with a border of
    their values.

    Raises:
        InputError: the padding is by other values, of other axes, or negative.
    """
    axes = len(walk.axes_of(walk.take(node, padded=True)))
    value = walk.maps(node, padded=True, over=1 if axes == 3 else 2)
    mode = node.attributes.get("mode", "constant")
    if len(node.inputs) > 2 and node.has_input(2) and any(walk.numbers(node, "value", 2)):
        raise node.refusal("pads by another value than zero; only zeros are supported")
    if node.attributes.get("value", 0.0) != 0:
        raise node.refusal("pads by another value than zero; only zeros are supported")
    given = walk.integers(node, "pads")
    if node.has_input(3):
        places = [place % axes for place in map(int, walk.numbers(node, "axes", 3))]
        given = _spread(given, places)
    elif len(given) == 6:  # over time
        given = _spread(given, [0, 1, 2])
    if len(given) != 8 or given[:2] != (0, 0) or given[4:6] != (0, 0) or min(given) < 0:
        raise node.refusal(
            f"`pads` = {list(given)}: only padding around rows and columns is supported"
        )
    above, left, below, right = *given[2:4], *given[6:8]
    if not any(given):
        return value
    if mode != "constant":
        walk.take(node)  # without zeros around it
        return Border.around(walk, node, value, (above, left, below, right))
    before = value.pads or (0, 0, 0, 0)
    pads = before[0] + above, before[1] + left, before[2] + below, before[3] + right
    return dataclasses.replace(value, pads=pads, padded_by=node)


def _spread(given: tuple[int, ...], axes: list[int]) -> tuple[int, ...]:
    """Return the padding of all four axes, from that of some."""
    if len(given) != 2 * len(axes):
        return given
    begins = dict(zip(axes, given, strict=False))
    ends = dict(zip(axes, given[len(axes) :], strict=True))
    return tuple(side.get(place, 0) for side in (begins, ends) for place in range(4))
