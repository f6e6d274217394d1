"""Layers over tokens: sequences whose rows and channels change places, because a node takes the one
where the others are.

A graph's own views move no number (`values`), so a map is transposed only where a node needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .node import OnnxNode
from .values import Value

if TYPE_CHECKING:
    from .walk import Walk


class MixedTokens(Exception):
    """A layer over tokens, in a graph whose pixels or steps were not taken as rows of a sequence
    from the start.
    """


def with_channels(walk: Walk, node: OnnxNode, value: Value, place: int) -> Value:
    """Return a sequence whose axis at a place is its channels, transposed where rows are there; any
    other value as it is.

    Raises:
        MixedTokens: the axis is of pixels, or of steps of which nothing has told so.
    """
    from ..operations.sequence import Transpose  # it reads this room
    from ..operations.tokens import Tokens

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
    turned = {own: "channels", "channels": "rows"}
    axes = tuple(turned.get(name, name) for name in axes)
    for number, step in enumerate(walk.steps):
        if step.kind is Transpose and step.takes == (value.step,):
            return Value(number, axes=axes)
    return walk.step(node, Transpose, {}, value, axes=axes)


def expect_channels(walk: Walk, node: OnnxNode, value: Value, place: int) -> None:
    """Say that an axis of the network's input, of which nothing has told so far, is channels.

    Raises:
        MixedTokens: another one was channels before, or it is not the last one.
    """
    axes = walk.axes_of(value)
    if len(axes) != 3 or not axes[place].isdigit():
        return
    if walk.has_tokens:
        rows = ("rows", "channels") if place == -1 else ("channels", "rows")
        walk.expect_sequence(node, value, ("samples", *rows))
    elif place != -1 or "channels" in axes:
        raise MixedTokens
    else:
        walk.expect_axes(node, value, (*axes[:2], "channels"))
