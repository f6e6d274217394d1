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
    """Maps between operations: a number and (channels, rows, columns); the name is for display
    only.
    """

    number: int
    shape: Shape
    name: str = dataclasses.field(default="", compare=False)
    fixed: bool = dataclasses.field(default=False, compare=False)
    """Whether nothing that is learnt lies before them (`frozen.py`)."""

    formats: int = dataclasses.field(default=0, compare=False)
    """In which of a run's formats its numbers are (`Precision.of`)."""
    error_formats: int = dataclasses.field(default=0, compare=False)
    """In which their errors are, where one layer alone reads them."""

    @property
    def is_images(self) -> bool:
        """Whether these are the network's inputs, whose errors are not needed."""
        return self.number == 0

    @property
    def needs_errors(self) -> bool:
        """Whether their errors are needed: not those of images, and not of what no learnt parameter
        has a part in.
        """
        return not (self.is_images or self.fixed)
