"""Axes of maps that are taken apart, put in another order and merged again, as by ChannelShuffle,
PixelShuffle, PixelUnshuffle and Unflatten.

    Reshape     samples x channels x rows x columns        ->  samples x groups x channels x rows x columns
    Transpose                                              ->  samples x channels x groups x rows x columns
    Reshape                                                ->  samples x channels x rows x columns

Between, the places of all values of a sample are followed, number by number. Where these are maps
again, the move that puts values there becomes a step.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..onnx_graph import MAPS, Apart, OnnxNode, Value, Walk
from ..operations.moves import PixelShuffle, PixelUnshuffle, Shuffle, Unflatten
from ..shape import Shape

Places = NDArray[np.int64]
_Together: TypeAlias = Shuffle | PixelShuffle | PixelUnshuffle | Unflatten


def taken_apart(
    walk: Walk, node: OnnxNode, value: Value, entries: Sequence[int | str]
) -> Value | None:
    """Return a value whose axes a node takes apart or merges, put together by a move if they are
    maps then; None if the sizes of the value or of its axes are not known.
    """
    places = _places(walk, value)
    samples, *sizes = entries
    if places is None or samples not in ("samples", 0, -1, walk.samples):
        return None
    numbers = [size for size in sizes if isinstance(size, int)]
    if len(numbers) < len(sizes) or 0 in numbers or numbers.count(-1) > (samples != -1):
        return None
    known = math.prod(size for size in numbers if size != -1)
    if places.size % known or (-1 not in numbers and places.size != known):
        return None
    return _together(walk, node, value, places.reshape(numbers))


def turned(walk: Walk, node: OnnxNode, value: Value, order: Sequence[int]) -> Value:
    """Return a value that was taken apart with its axes in another order.

    Raises:
        InputError: samples do not stay first.
    """
    assert value.apart is not None
    if order[:1] != (0,) or sorted(order) != list(range(value.apart.places.ndim + 1)):
        raise node.refusal(f"`perm` = {list(order)}: samples should stay first")
    places = value.apart.places.transpose([place - 1 for place in order[1:]])
    return _together(walk, node, value, places)


def _places(walk: Walk, value: Value) -> Places | None:
    """Return which value of a sample, channel by channel, stands at each place of maps or of a row
    of values.
    """
    if value.apart is not None:
        return value.apart.places
    shape = walk.shape(value)
    axes = (value.order or MAPS) if value.is_flat else walk.axes_of(value)
    parts = [MAPS[1:].index(part) for part in axes[1:] if part in MAPS]
    if shape is None or sorted(parts) != [0, 1, 2]:
        is_row = value.is_flat and shape is not None and shape[1:] == (1, 1)
        return np.arange(math.prod(shape)) if is_row and shape is not None else None
    return np.arange(math.prod(shape)).reshape(shape).transpose(parts)


def _together(walk: Walk, node: OnnxNode, value: Value, places: Places) -> Value:
    """Return maps that a move makes of the values that stand at these places; a value that is still
    apart if none does.
    """
    shape, whole = walk.shape(value), dataclasses.replace(value, apart=None)
    assert shape is not None
    if places.ndim == 3:
        maps = np.arange(math.prod(shape)).reshape(shape)
        if np.array_equal(places, maps):
            return dataclasses.replace(whole, is_flat=False, axes=None)
        for move in _moves_to(places.shape, shape):
            try:
                fits = np.array_equal(places, move.moved(maps))
            except ValueError:
                continue
            if fits:
                return walk.step(node, type(move), dataclasses.asdict(move), whole)
    return dataclasses.replace(whole, apart=Apart(node, places))


def _moves_to(made: tuple[int, ...], shape: Shape) -> Iterator[_Together]:
    """Yield the moves that may make maps of these sizes of others."""
    channels, rows, columns = made
    row = Unflatten(shape=(channels, rows, columns))
    if shape[1:] == (1, 1):
        yield row  # or pixels of channels, which are in the same places
    if made == shape:
        yield from (Shuffle(groups=count) for count in range(2, shape[0]) if shape[0] % count == 0)
    elif made[1] > shape[1]:
        yield PixelShuffle(scale=made[1] // shape[1])
    elif made[1] < shape[1]:
        yield PixelUnshuffle(scale=shape[1] // made[1])
    yield row
