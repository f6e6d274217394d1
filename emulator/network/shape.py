"""Shapes of maps, and the tensors that have them."""

from __future__ import annotations

import dataclasses

Pair = tuple[int, int]
Shape = tuple[int, int, int]
"""(channels, rows, columns)"""


def shown(shape: tuple[int, ...]) -> str:
    """Return a shape as text for messages: 3x32x32."""
    return "x".join(map(str, shape))


@dataclasses.dataclass(frozen=True)
class Tensor:
    """Maps between operations: a number and (channels, rows, columns); the name is for display only."""

    number: int
    shape: Shape
    name: str = dataclasses.field(default="", compare=False)

    @property
    def is_images(self) -> bool:
        """Whether these are the network's inputs, whose errors are not needed."""
        return self.number == 0
