"""The numerics of each kind of layer."""

from __future__ import annotations

from typing import Literal

from ...kernels import Arena
from ..mapping import Slice
from .conv_slice import ConvSlice
from .slice_numerics import SliceNumerics


def numerics_of(part: Slice, start: Literal["he", "xavier"], seed: int, arena: Arena) -> SliceNumerics:
    """Return the numerics of a slice; `start` is the rule for the first weights of all but recurrent layers."""
    if part.layer.operation.recurs:
        from .recurrent_slice import RecurrentSlice  # its kernels are loaded by runs that need them

        return RecurrentSlice(part, seed, arena)
    return ConvSlice(part, start, seed, arena)
