"""Layers over tokens: sequences whose rows and channels change places, because a node takes the one
where the others are.

A graph's own views move no number (`values`), so a map is transposed only where a node needs it.
"""

from __future__ import annotations

from ..onnx_graph import MixedTokens, OnnxNode, Value, Walk
from ..operations.sequence import Transpose
from ..operations.tokens import Tokens


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
    turned = {own: "channels", "channels": "rows"}
    axes = tuple(turned.get(name, name) for name in axes)
    for number, step in enumerate(walk.steps):
        if step.kind is Transpose and step.takes == (value.step,):
            return Value(number, axes=axes)
    return walk.step(node, Transpose, {}, value, axes=axes)
