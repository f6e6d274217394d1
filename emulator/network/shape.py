"""Shapes of maps."""

from __future__ import annotations

Pair = tuple[int, int]
Shape = tuple[int, int, int]
"""(channels, rows, columns)"""


def shown(shape: Shape) -> str:
    """Return a shape as text for messages: 3x32x32."""
    return "x".join(map(str, shape))
