"""Whole recurrent layers on PyTorch's arrays: forward, backward with all gradients, both directions."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np

from ..jit import Floats
from .arrays import Lengths, checked, new, state
from .gru import GruSlice
from .lstm import LstmSlice
from .tape import Packed, Tape

_lstm, _gru = functools.lru_cache(LstmSlice), functools.lru_cache(GruSlice)  # sizes are worked out once


@dataclasses.dataclass(frozen=True)
class Saved:
    """What a layer's forward leaves for its backward. The weights must not change between the two."""

    of: LstmSlice | GruSlice
    packed: Packed
    tape: Tape
    x: Floats
    w: Floats


class LstmGradients(NamedTuple):
    """Derivatives of the loss; `dp` is None without a projection."""

    dx: Floats
    dw: Floats
    dr: Floats
    db_w: Floats
    db_r: Floats
    dh0: Floats
    dc0: Floats
    dp: Floats | None


class GruGradients(NamedTuple):
    """Derivatives of the loss."""

    dx: Floats
    dw: Floats
    dr: Floats
    db_w: Floats
    db_r: Floats
    dh0: Floats


def lstm_forward(
    x: Floats,
    w: Floats,
    r: Floats,
    b_w: Floats,
    b_r: Floats,
    h0: Floats | None = None,
    c0: Floats | None = None,
    p: Floats | None = None,
    *,
    lengths: Lengths | None = None,
    reverse: bool = False,
) -> tuple[Floats, Floats, Floats, Saved]:
    """Run an LSTM over x [N, T, inputs]; return y [N, T, H], the last h and c [N, H], and what backward takes.

    - w [4 H, inputs], r [4 H, H], b_w, b_r [4 H]: gate by gate, i, f, g, o, as PyTorch's
    - h0, c0 [N, H]: zeros if None
    - p [P, H]: a projection, PyTorch's weight_hr; h, y and r's columns then are of P numbers
    - lengths [N]: steps of each sample, all T if None; y is 0 after them, and the last h and c are those at the end
    - reverse: from each sample's last step to its first; y stays in the order of x, so that a bidirectional layer is
      two calls, whose y are concatenated, and whose dx are added

    Raises:
        ValueError: shapes do not fit.
        TypeError: an array is not of float32.
    """
    x, hidden = _sizes(x, w, 4)
    outputs = 0 if p is None else p.shape[0]
    of = _lstm(x.shape[2], hidden, outputs=outputs)
    packed = of.pack(w, r, b_w, b_r, p, gate_major=True, inputs=False)
    samples = len(x)
    h, c = state(h0, samples, of.width, "h0"), state(c0, samples, hidden, "c0")
    tape, x = _tape(of, w, x, lengths, reverse)
    of.forward(packed, tape, h, c, (0, tape.steps))
    return tape.y, h, c, Saved(of, packed, tape, x, w)


def lstm_backward(saved: Saved, dy: Floats, *, dh: Floats | None = None, dc: Floats | None = None) -> LstmGradients:
    """Return the gradients for errors `dy` of y, and `dh` and `dc` of the last h and c, or zeros.

    Raises:
        ValueError: shapes do not fit.
        TypeError: an array is not of float32.
    """
    of, tape = saved.of, saved.tape
    if not isinstance(of, LstmSlice):
        raise TypeError("saved is of a GRU; that of an LSTM is needed")
    samples = tape.samples
    later, dc0 = state(dh, samples, of.width, "dh"), state(dc, samples, of.hidden, "dc")
    carry = new(samples, of.width, cleared=True)
    dh0 = of.backward(saved.packed, tape, dy, later, dc0, carry, (0, tape.steps))
    dh0 += carry
    dp = new(of.outputs, of.hidden) if of.outputs else None
    dx, dw, dr, db_w, db_r = _gradients(saved, dp)
    return LstmGradients(dx, dw, dr, db_w, db_r, dh0, dc0, dp)


def gru_forward(
    x: Floats,
    w: Floats,
    r: Floats,
    b_w: Floats,
    b_r: Floats,
    h0: Floats | None = None,
    linear_before_reset: bool = True,
    *,
    lengths: Lengths | None = None,
    reverse: bool = False,
) -> tuple[Floats, Floats, Saved]:
    """Run a GRU over x [N, T, inputs]; return y [N, T, H], the last h [N, H], and what backward takes.

    - w [3 H, inputs], r [3 H, H], b_w, b_r [3 H]: gate by gate, r, z, n, as PyTorch's
    - linear_before_reset: n = tanh(W x + b_W + r (R h + b_R)), as PyTorch; otherwise tanh(W x + R (r h) + b_W + b_R)
    - h0, lengths, reverse: as in `lstm_forward`

    Raises:
        ValueError: shapes do not fit.
        TypeError: an array is not of float32.
    """
    x, hidden = _sizes(x, w, 3)
    of = _gru(x.shape[2], hidden, linear_before_reset=linear_before_reset)
    packed = of.pack(w, r, b_w, b_r, gate_major=True, inputs=False)
    h = state(h0, len(x), hidden, "h0")
    tape, x = _tape(of, w, x, lengths, reverse)
    of.forward(packed, tape, h, (0, tape.steps))
    return tape.y, h, Saved(of, packed, tape, x, w)


def gru_backward(saved: Saved, dy: Floats, *, dh: Floats | None = None) -> GruGradients:
    """Return the gradients for errors `dy` of y, and `dh` of the last h, or zeros.

    Raises:
        ValueError: shapes do not fit.
        TypeError: an array is not of float32.
    """
    of, tape = saved.of, saved.tape
    if not isinstance(of, GruSlice):
        raise TypeError("saved is of an LSTM; that of a GRU is needed")
    later, carry = state(dh, tape.samples, of.hidden, "dh"), new(tape.samples, of.hidden, cleared=True)
    dh0 = of.backward(saved.packed, tape, dy, later, carry, (0, tape.steps))
    dh0 += carry
    return GruGradients(*_gradients(saved, None), dh0)


def _sizes(x: Floats, w: Floats, gates: int) -> tuple[Floats, int]:
    """Return x, checked, and the number of units."""
    if w.ndim != 2 or not w.size or w.shape[0] % gates:
        raise ValueError(f"w has shape {w.shape}; ({gates} * units, inputs) is needed")
    x = checked(x, (None, None, w.shape[1]), "x", "(samples, steps, inputs)")
    if not x.size:
        raise ValueError(f"x has shape {x.shape}: at least one sample and one step are needed")
    return x, w.shape[0] // gates


def _tape(
    of: LstmSlice | GruSlice, w: Floats, x: Floats, lengths: Lengths | None, reverse: bool
) -> tuple[Tape, Floats]:
    """Return the tape, and x with zeros after the end of each sample."""
    tape = of.tape(of.input_products_of(w, x), lengths=lengths, reverse=reverse)
    if lengths is not None:
        x = np.where(np.arange(tape.steps)[:, None] < np.asarray(lengths)[:, None, None], x, np.float32(0))
    return tape, x


def _gradients(saved: Saved, dp: Floats | None) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    of, tape = saved.of, saved.tape
    dx = of.input_errors_of(saved.w, tape.delta)
    rows = of.gates * of.hidden
    found = new(rows, of.inputs), new(rows, of.width), new(rows), new(rows)
    of.gradients(tape, saved.x, *found, dp, gate_major=True, fresh=True)
    return dx, *found
