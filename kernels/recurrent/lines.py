"""What LSTM and GRU compute between their products where these lie as whole arrays: of samples that
have a step, one after the other, as `lstm_steps.py` and `gru_steps.py` state it; and how operands
of these are rounded.

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import FLOAT_BYTES, compiled
from ..llvm import WIDTH
from .arrays import LINEAR, RESET, GruBackward, GruForward, LstmBackward, LstmForward
from .gru_steps import GATES as GRU_GATES
from .gru_steps import (
    backward_linear,
    backward_new,
    backward_reset,
    forward_linear,
    forward_new,
    forward_reset,
)
from .lstm_steps import GATES as LSTM_GATES
from .lstm_steps import backward_units, forward_units
from .rounding import round_gates, round_some, round_split, round_states


@compiled
def lstm_forward(samples: Any, units: Any, at: Any) -> None:
    """Take all units from the sums to h; `y` and `h` may be one place."""
    gates = LSTM_GATES
    for n in range(samples):
        for first in range(0, units, WIDTH):
            own, bias = FLOAT_BYTES * (n * units + first), FLOAT_BYTES * gates * first
            here = LstmForward(
                sums=at.sums + gates * own,
                bias_w=at.bias_w + bias,
                bias_r=at.bias_r + bias,
                c=at.c + own,
                gates=at.gates + gates * own,
                t=at.t + own,
                c_before=at.c_before + own,
                y=at.y + own,
                h=at.h + own,
            )
            forward_units(min(WIDTH, units - first), here)


@compiled
def lstm_backward(samples: Any, units: Any, at: Any) -> None:
    """Take all units from the errors of h to those of the sums."""
    gates = LSTM_GATES
    for n in range(samples):
        for first in range(0, units, WIDTH):
            own = FLOAT_BYTES * (n * units + first)
            here = LstmBackward(
                error=at.error + own,
                gates=at.gates + gates * own,
                t=at.t + own,
                c_before=at.c_before + own,
                dc=at.dc + own,
                delta=at.delta + gates * own,
                copied=at.copied + gates * own,
            )
            backward_units(min(WIDTH, units - first), here)


@compiled
def gru_forward(part: Any, samples: Any, units: Any, at: Any) -> None:
    """Do a part of what takes all units from the sums to h."""
    gates = GRU_GATES
    for n in range(samples):
        for first in range(0, units, WIDTH):
            own, bias = FLOAT_BYTES * (n * units + first), FLOAT_BYTES * gates * first
            here = GruForward(
                sums=at.sums + gates * own,
                bias_w=at.bias_w + bias,
                bias_r=at.bias_r + bias,
                h_before=at.h_before + own,
                gates=at.gates + gates * own,
                inner=at.inner + own,
                y=at.y + own,
                h=at.h + own,
            )
            count = min(WIDTH, units - first)
            if part == LINEAR:
                forward_linear(count, here)
            elif part == RESET:
                forward_reset(count, here)
            else:
                forward_new(count, here)


@compiled
def gru_backward(part: Any, samples: Any, units: Any, at: Any) -> None:
    """Do a part of what takes all units from the errors of h to those of the sums."""
    gates = GRU_GATES
    for n in range(samples):
        for first in range(0, units, WIDTH):
            own = FLOAT_BYTES * (n * units + first)
            here = GruBackward(
                error=at.error + own,
                gates=at.gates + gates * own,
                inner=at.inner + own,
                h_before=at.h_before + own,
                carry=at.carry + own,
                delta=at.delta + gates * own,
                delta_r=at.delta_r + gates * own,
                copied=at.copied + gates * own,
            )
            count = min(WIDTH, units - first)
            if part == LINEAR:
                backward_linear(count, here)
            elif part == RESET:
                backward_reset(count, here)
            else:
                backward_new(count, here)


@compiled
def round_rows(narrow: Any, at: Any, size: Any, samples: Any, steps: Any) -> None:
    """Round a row of `size` numbers of each of some samples, at a step of its own."""
    room = np.empty(size, np.uint32)
    for n in range(samples.size):
        round_states(narrow, at + FLOAT_BYTES * n * size, size, samples[n], steps[n], room)


@compiled
def round_errors(
    narrow: Any, places: Any, units: Any, gates: Any, samples: Any, steps: Any, some: Any
) -> None:
    """Round the errors of sums at the first of two places: of all gates; where the places differ,
    also those at the second one, which R takes; or of `some` gates, and write them to both.
    """
    room = np.empty(2 * gates * units, np.uint32)
    for n in range(samples.size):
        skipped = FLOAT_BYTES * n * gates * units
        at, other = places[0] + skipped, places[1] + skipped
        if some[1] < gates:
            round_some(narrow, (at, other), units, gates, some, samples[n], steps[n], room)
        elif at != other:
            round_split(narrow, at, other, units, gates, samples[n], steps[n], room)
        else:
            round_gates(narrow, at, units, gates, samples[n], steps[n], room)
