"""Compile the kernels of recurrent layers, or load them: call each once on tiny arrays, as training calls it."""

from __future__ import annotations

import numpy as np

from .activations import sigmoid
from .layers import gru_backward, gru_forward, lstm_backward, lstm_forward
from .lstm import LstmSlice


def warm_lstm() -> None:
    """Call those of whole LSTM layers."""
    x, one = np.ones((1, 2, 1), np.float32), np.ones((4, 1), np.float32)
    y, _, _, saved = lstm_forward(x, one, one, one[:, 0], one[:, 0], p=one[:1])
    lstm_backward(saved, y)


def warm_slice() -> None:
    """Call those of LSTM slices, and those that all slices share."""
    x, one = np.ones((1, 2, 1), np.float32), np.ones((4, 1), np.float32)
    sigmoid(x)
    of = LstmSlice(1, 1)  # the GRU has `gradients` and packing for both
    packed = of.pack(one, one, one[:, 0], one[:, 0])
    tape, h, c = of.tape(of.input_products(packed, x)), np.zeros((1, 1), np.float32), np.zeros((1, 1), np.float32)
    of.forward(packed, tape, h, c, (0, 2))
    of.backward(packed, tape, x, h, c, np.zeros_like(h), (0, 2))
    of.input_errors(packed, tape.delta)


def warm_gru() -> None:
    """Call those of GRU layers."""
    x, one = np.ones((1, 2, 1), np.float32), np.ones((3, 1), np.float32)
    for linear_before_reset in (True, False):
        y, _, kept = gru_forward(x, one, one, one[:, 0], one[:, 0], linear_before_reset=linear_before_reset)
        gru_backward(kept, y)
