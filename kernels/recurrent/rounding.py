"""Rounding of the operands of a step (see `operands.py`), a sample at a time, where they lie.

Errors of gates' sums lie unit by unit; they are rounded gate by gate, in lines:

    [i f g o][i f g o]..        [i i ..][f f ..][g g ..][o o ..]

Arguments are addresses, and counts of floats; nothing is checked here. `room` has the bits of
numbers while they are rounded: GATES * units of them, twice for all but
`round_gates` and `round_states`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..attention.operands import BY_BLOCK, BY_SCALE, BY_TENSOR
from ..jit import FLOAT_BYTES, compiled
from ..llvm import copy
from ..quantise.loops import round_lines, round_rows, round_under_scale
from ..quantise.philox import DRAWN, Source
from ..quantise.rounding import Blocks, Tensors
from ..quantise.tensors import round_tensor_lines
from .operands import LINES
from .packing import transpose


@compiled
def _round(narrow: Any, bits: Any, size: Any, line: Any, sample: Any) -> None:
    """Round lines of `size` numbers in place, each a tensor of its own; `line` is the number of the
    first one in the sample.
    """
    own, words = narrow.source, np.empty(1, np.uint32)
    numbers = narrow.numbers[sample : sample + 1] if own.kind == DRAWN else narrow.numbers
    source = Source(own.kind, size, own.first + line * own.step, own.step, own.tensor, own.key)
    limits, counts = narrow.limits, narrow.counts
    if narrow.way == BY_BLOCK:
        form = narrow.blocks
        blocks = Blocks(form.size, size, 1, form.rises, form.largest)
        round_lines(bits, bits, True, blocks, limits, source, words, numbers, counts)
    elif narrow.way == BY_TENSOR:
        form = narrow.tensors
        tensors = Tensors(form.size, size, 1, size, form.most, form.largest, form.least, form.scale)
        round_tensor_lines(bits, bits, True, tensors, limits, source, words, numbers, counts)
    elif narrow.way == BY_SCALE:
        round_under_scale(bits, narrow.scale, limits, source, words, numbers, counts)
    else:
        round_rows(bits, bits, True, limits, source, words, numbers, counts)


@compiled
def round_states(narrow: Any, at: Any, size: Any, sample: Any, t: Any, room: Any) -> None:
    """Round the `size` numbers of step t of a sample."""
    place = room.ctypes.data
    copy(place, at, size)
    _round(narrow, room[:size], size, t, sample)
    copy(at, place, size)


@compiled
def round_gates(
    narrow: Any, at: Any, units: Any, gates: Any, sample: Any, t: Any, room: Any
) -> None:
    """Round the errors of the sums of all gates of some units, at step t of a sample."""
    place = room.ctypes.data
    transpose(at, units, gates, place, units)
    _round(narrow, room[: gates * units], units, LINES * t, sample)
    transpose(place, gates, units, at, gates)


@compiled
def round_split(
    narrow: Any, of_w: Any, of_r: Any, units: Any, gates: Any, sample: Any, t: Any, room: Any
) -> None:
    """Round the errors of the sums of all gates, those that W takes and those that R takes, which
    differ in the last gate alone.
    """
    count, last = gates * units, (gates - 1) * units
    place = room.ctypes.data
    other = place + FLOAT_BYTES * count
    transpose(of_r, units, gates, other, units)
    round_gates(narrow, of_w, units, gates, sample, t, room)
    _round(narrow, room[count + last : count + count], units, LINES * t + gates, sample)
    copy(place + FLOAT_BYTES * last, other + FLOAT_BYTES * last, units)
    transpose(place, gates, units, of_r, gates)


@compiled
def round_some(
    narrow: Any, places: Any, units: Any, gates: Any, some: Any, sample: Any, t: Any, room: Any
) -> None:
    """Round the errors of the sums of some gates, (the first, their number), at the first of two
    places, and write them to the second one, too.
    """
    at, other = places
    count, first, size = gates * units, some[0] * units, some[1] * units
    place = room.ctypes.data
    kept = place + FLOAT_BYTES * count
    transpose(at, units, gates, place, units)
    _round(narrow, room[first : first + size], units, LINES * t + some[0], sample)
    transpose(place, gates, units, at, gates)
    transpose(other, units, gates, kept, units)
    copy(kept + FLOAT_BYTES * first, place + FLOAT_BYTES * first, size)
    transpose(kept, gates, units, other, gates)
