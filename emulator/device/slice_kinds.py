"""The numerics of a slice, by the kind of its layer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena
from ..mapping import Slice
from ..network import Start
from .conv_slice import ConvSlice
from .formats import MapFormats
from .slice_numerics import SliceNumerics


def numerics_of(
    part: Slice,
    start: Start,
    seed: int,
    arena: Arena,
    formats: MapFormats | None = None,
    kept: NDArray[np.bool_] | None = None,
) -> SliceNumerics:
    """Return the numerics of a slice; `start` is the rule for the first weights of all but recurrent layers.

    Without `formats`, all numbers are in fp32; those of recurrent layers always are. `kept` are the channels whose
    weights are stored with the slice; None: all.
    """
    if part.layer.operation.recurs:
        from .recurrent_slice import RecurrentSlice  # its kernels are loaded by runs that need them

        return RecurrentSlice(part, seed, arena)
    if not part.layer.has_weights:
        from .attention_slice import AttentionSlice

        return AttentionSlice(part, seed, arena)
    if part.layer.vocabulary_parallel:
        from .vocabulary_slice import VocabularySlice

        return VocabularySlice(part, start, seed, arena, kept)
    return ConvSlice(part, start, seed, arena, formats, kept)
