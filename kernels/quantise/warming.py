"""Every kernel of the quantisers, called once."""

from __future__ import annotations

import numpy as np

from ..number import BlockGrid, FloatGrid, Rounding
from .block import on_blocks
from .grid import on_grid
from .philox import PhiloxStream
from .source import Draws


def warm() -> None:
    """Compile the kernels, or load them."""
    values, stream = np.ones((2, 2), np.float32), PhiloxStream(0, 0, 0, 0)
    element = FloatGrid(3, -6, 448.0)
    on_grid(values, element, Rounding.STOCHASTIC, Draws(stream))
    for axis in (0, 1):
        on_blocks(values, BlockGrid(element), axis, Rounding.STOCHASTIC, Draws(stream))
    stream.words(0, 4)
