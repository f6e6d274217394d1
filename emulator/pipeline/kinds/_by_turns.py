"""What the kinds of 1F1B have in common: a generator from their warm-ups."""

from __future__ import annotations

from collections.abc import Callable

from ...schedule import Schedule, warm_up
from ..shape import Shape


def by_turns(name: str) -> Callable[[Shape], Schedule]:
    """Return the generator of a schedule of warm-up forwards, and then B and F by turns."""

    def generate(shape: Shape) -> Schedule:
        assert shape.warm_ups is not None  # PipelineKind.schedule sets them
        return warm_up(name, shape.epoch, shape.warm_ups)

    return generate
