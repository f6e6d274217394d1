"""Time steps of a recurrent layer, of LSTM and GRU alike: some of them, or all of a whole layer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...kernels.recurrent import GruSlice, LstmSlice, Packed, Tape

Data = NDArray[np.float32]
Kernel = LstmSlice | GruSlice

TAPE = ("gates", "inner", "c_before", "h_before", "cells")
"""What EB needs of a tape."""


def forward_steps(kernel: Kernel, packed: Packed, tape: Tape, h: Data, c: Data, steps: tuple[int, int]) -> Data:
    """Run FP of some steps from the state h and c; return the own units' h."""
    if isinstance(kernel, LstmSlice):
        return kernel.forward(packed, tape, h, c, steps)
    return kernel.forward(packed, tape, h, steps)


def backward_steps(
    kernel: Kernel,
    packed: Packed,
    tape: Tape,
    dy: Data,
    of_state: tuple[Data, Data, Data],
    steps: tuple[int, int],
    start: Data | None,
) -> Data:
    """Run EB of some steps; `of_state` are errors of h and c, and what is carried past R."""
    dh, dc, carry = of_state
    if start is not None:
        start = np.ascontiguousarray(start)
    if isinstance(kernel, LstmSlice):
        return kernel.backward(packed, tape, dy, dh, dc, carry, steps, start)
    return kernel.backward(packed, tape, dy, dh, carry, steps, start)


def all_forward(kernel: Kernel, packed: Packed, tape: Tape) -> Data:
    """Run FP of all steps of a whole layer from the state 0; return the outputs (samples, steps, state)."""
    h, c = (np.zeros((tape.samples, size), np.float32) for size in (kernel.width, kernel.units))
    forward_steps(kernel, packed, tape, h, c, (0, tape.steps))
    return tape.y


def all_backward(kernel: Kernel, packed: Packed, tape: Tape, dy: Data) -> None:
    """Run EB of all steps of a whole layer into its tape, from errors of its outputs (samples, steps, state)."""
    backward_steps(kernel, packed, tape, dy, state_errors(kernel, tape, dy), (0, tape.steps), None)


def state_errors(kernel: Kernel, tape: Tape, dy: Data) -> tuple[Data, Data, Data]:
    """Return the errors of h and c behind the last step, and what is carried past R: all 0."""
    dh, carry = (np.zeros((tape.samples, dy.shape[2]), np.float32) for _ in range(2))
    return dh, np.zeros((tape.samples, kernel.units), np.float32), carry


def states_before(y: Data, lengths: NDArray[np.int64] | None, *, reverse: bool) -> Data:
    """Return the state before each step, from the outputs of all (samples, steps, state); 0 where no step is."""
    before = np.zeros_like(y)
    if reverse:
        before[:, :-1] = y[:, 1:]
    else:
        before[:, 1:] = y[:, :-1]
    if lengths is not None:
        before[np.arange(y.shape[1]) >= lengths[:, None]] = 0
    return before
