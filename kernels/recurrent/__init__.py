"""LSTM and GRU: forward, errors and gradients, with one fixed order of accumulation; whole layers,
and slices of units.

Every sum takes its products one by one, each by one fused multiply-add, from +0, in this order:

- a gate: inputs ascending, then hidden units ascending; then + b_W, then + b_R, each rounded. In
  the GRU that is linear before reset, the sum over the hidden units of n is a chain of its own.
- errors of x and of h before: output channels descending, where output channel = gates * unit +
  gate
- the projection: units ascending; its errors: outputs descending
- gradients: samples ascending, then t ascending, from the gradients given; of biases likewise, by
  rounded additions

Errors of h at a step are dy + (the chain over R + carry): `gru_steps.py` says what is carried past
R. `lstm_steps.py`, `gru_steps.py` and `llvm/lanes.py` have the element-wise lines. So bits depend
neither on the number of samples, nor on the form of the micro-kernel, on how units are cut into
slices, or on how many steps a call does.

Operands of products may be rounded to a format (`operands.py`). Sums may be in narrow formats, of
blocks, or of whole numbers (`summed.py`).
"""

from .arrays import sigmoid, tanh
from .layers import (
    GruGradients,
    GruSlice,
    LstmGradients,
    LstmSlice,
    Saved,
    by_unit,
    gru_backward,
    gru_forward,
    lstm_backward,
    lstm_forward,
    warm_gru,
    warm_lstm,
)
from .operands import LINES, Operands
from .slices import Again, Packed, Tape
from .summed import EB, FP, PG, Adder, SummedGru, SummedLstm, SummedPacked, warm_summed

__all__ = [
    "EB",
    "FP",
    "LINES",
    "PG",
    "Adder",
    "Again",
    "GruGradients",
    "GruSlice",
    "LstmGradients",
    "LstmSlice",
    "Operands",
    "Packed",
    "Saved",
    "SummedGru",
    "SummedLstm",
    "SummedPacked",
    "Tape",
    "by_unit",
    "gru_backward",
    "gru_forward",
    "lstm_backward",
    "lstm_forward",
    "sigmoid",
    "tanh",
    "warm_gru",
    "warm_lstm",
    "warm_summed",
]
