"""Whole recurrent layers on PyTorch's arrays, gate by gate: forward, backward with all gradients, both directions.

Each is the slice of all units, as training runs it, whose arrays are unit by unit.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from ..jit import Floats
from ..memory import new
from .arrays import Lengths, checked, rows_of, sigmoid, state
from .cells import GruSlice, LstmSlice
from .slices import Packed, Slice, Tape


@dataclasses.dataclass(frozen=True)
class Saved:
    """What forward leaves for backward. The weights must not change between the two."""

    kernel: LstmSlice | GruSlice
    packed: Packed
    tape: Tape
    x: Floats


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
    kernel = LstmSlice(*_sizes(x, w, 4), outputs=0 if p is None else p.shape[0])
    packed = _packed(kernel, w, r, b_w, b_r, p)
    h, c = state(h0, len(x), kernel.width, "h0"), state(c0, len(x), kernel.units, "c0")
    x = _within(x, lengths)
    tape = kernel.tape(kernel.input_products(packed, x), lengths=lengths, reverse=reverse)
    kernel.forward(packed, tape, h, c, (0, tape.steps))
    return tape.y, h, c, Saved(kernel, packed, tape, x)


def lstm_backward(saved: Saved, dy: Floats, *, dh: Floats | None = None, dc: Floats | None = None) -> LstmGradients:
    """Return the gradients for errors `dy` of y, and `dh` and `dc` of the last h and c, or zeros.

    Raises:
        ValueError: shapes do not fit.
        TypeError: an array is not of float32.
    """
    kernel, tape = saved.kernel, saved.tape
    if not isinstance(kernel, LstmSlice):
        raise TypeError("saved is of a GRU; that of an LSTM is needed")
    later, dc0 = state(dh, tape.samples, kernel.width, "dh"), state(dc, tape.samples, kernel.units, "dc")
    carry = new(tape.samples, kernel.width, cleared=True)
    dh0 = kernel.backward(saved.packed, tape, dy, later, dc0, carry, (0, tape.steps))
    dh0 += carry
    dp = new(kernel.outputs, kernel.units) if kernel.outputs else None
    return LstmGradients(*_gradients(saved, dp), dh0, dc0, dp)


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
    kernel = GruSlice(*_sizes(x, w, 3), linear_before_reset=linear_before_reset)
    packed = _packed(kernel, w, r, b_w, b_r)
    h = state(h0, len(x), kernel.hidden, "h0")
    x = _within(x, lengths)
    tape = kernel.tape(kernel.input_products(packed, x), lengths=lengths, reverse=reverse)
    kernel.forward(packed, tape, h, (0, tape.steps))
    return tape.y, h, Saved(kernel, packed, tape, x)


def gru_backward(saved: Saved, dy: Floats, *, dh: Floats | None = None) -> GruGradients:
    """Return the gradients for errors `dy` of y, and `dh` of the last h, or zeros.

    Raises:
        ValueError: shapes do not fit.
        TypeError: an array is not of float32.
    """
    kernel, tape = saved.kernel, saved.tape
    if not isinstance(kernel, GruSlice):
        raise TypeError("saved is of an LSTM; that of a GRU is needed")
    later, carry = state(dh, tape.samples, kernel.hidden, "dh"), new(tape.samples, kernel.hidden, cleared=True)
    dh0 = kernel.backward(saved.packed, tape, dy, later, carry, (0, tape.steps))
    dh0 += carry
    return GruGradients(*_gradients(saved), dh0)


def _gradients(saved: Saved, dp: Floats | None = None) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return the errors of x, and the gradients of W, R, b_W and b_R, after EB; write those of P to `dp`."""
    kernel = saved.kernel
    own = (
        new(kernel.channels, kernel.inputs),
        new(kernel.channels, kernel.width),
        new(kernel.channels),
        new(kernel.channels),
    )
    kernel.gradients(saved.tape, saved.x, *own, dp, fresh=True)
    dw, dr, db_w, db_r = (by_gate(array, kernel.gates) for array in own)
    return kernel.input_errors(saved.packed, saved.tape.delta), dw, dr, db_w, db_r


def by_unit(array: Floats, gates: int) -> Floats:
    """Return rows of gates, gate by gate, as rows unit by unit."""
    return _swapped(array, gates, len(array) // gates)


def by_gate(array: Floats, gates: int) -> Floats:
    """Return rows of gates, unit by unit, as rows gate by gate: the inverse of `by_unit`."""
    return _swapped(array, len(array) // gates, gates)


def _swapped(array: Floats, first: int, second: int) -> Floats:
    turned = array.reshape(first, second, -1).swapaxes(0, 1)
    return np.ascontiguousarray(turned).reshape(array.shape)


def _packed(kernel: Slice, w: Floats, r: Floats, b_w: Floats, b_r: Floats, p: Floats | None = None) -> Packed:
    w = checked(w, (kernel.channels, kernel.inputs), "w", "(gates * units, inputs)")
    r = checked(r, (kernel.channels, kernel.width), "r", "(gates * units, width of h)")
    b_w, b_r = (checked(b, (kernel.channels,), name, "(gates * units)") for b, name in ((b_w, "b_w"), (b_r, "b_r")))
    w, r, b_w, b_r = (by_unit(array, kernel.gates) for array in (w, r, b_w, b_r))
    return kernel.pack(w, r, b_w, b_r, p)


def _sizes(x: Floats, w: Floats, gates: int) -> tuple[int, int]:
    """Return the numbers of inputs and of units."""
    if w.ndim != 2 or not w.size or w.shape[0] % gates:
        raise ValueError(f"w has shape {w.shape}; ({gates} * units, inputs) is needed")
    if not checked(x, (None, None, w.shape[1]), "x", "(samples, steps, inputs)").size:
        raise ValueError(f"x has shape {x.shape}: at least one sample and one step are needed")
    return w.shape[1], w.shape[0] // gates


def _within(x: Floats, lengths: Lengths | None) -> Floats:
    """Return x with zeros after the end of each sample."""
    if lengths is None:
        return x
    rows_of(len(x), x.shape[1], lengths, reverse=False)  # which checks them
    return np.where(np.arange(x.shape[1])[:, None] < np.asarray(lengths)[:, None, None], x, np.float32(0))


def warm_lstm() -> None:
    """Compile the kernels of LSTM layers, or load them: call each once on tiny arrays, as training calls it."""
    x, one = np.ones((1, 2, 1), np.float32), np.ones((4, 1), np.float32)
    y, _, _, saved = lstm_forward(x, one, one, one[:, 0], one[:, 0], p=one[:1])
    lstm_backward(saved, y)
    sigmoid(x)


def warm_gru() -> None:
    """Do the same of GRU layers."""
    x, one = np.ones((1, 2, 1), np.float32), np.ones((3, 1), np.float32)
    for linear_before_reset in (True, False):
        y, _, kept = gru_forward(x, one, one, one[:, 0], one[:, 0], linear_before_reset=linear_before_reset)
        gru_backward(kept, y)
