"""Whole recurrent layers on PyTorch's arrays: forward, backward with all gradients, both directions."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np

from ..jit import Floats, Kernels, address_of
from .arrays import NOTHING, Lengths, Rows, checked, new, rows_of, state
from .gru import GruSlice
from .pages import Block, take_block
from .tape import Packed, Tape

lstm_kernels = Kernels("recurrent.lstm_layer")
_gru = functools.lru_cache(GruSlice)  # sizes are worked out once
_rows_of = functools.lru_cache(functools.partial(rows_of, lengths=None))


@dataclasses.dataclass(frozen=True)
class LstmSaved:
    """What an LSTM's forward leaves for its backward. Neither weights nor x may change between the two."""

    sizes: tuple[int, int, int, int, int]
    """Samples, steps, inputs, units, and outputs of the projection or 0."""
    ragged: bool
    rows: Rows
    x: Floats
    weights: tuple[Floats, Floats, Floats]
    """W, R and P, which is empty without a projection."""
    memory: Block


@dataclasses.dataclass(frozen=True)
class GruSaved:
    """What a GRU's forward leaves for its backward. The weights must not change between the two."""

    of: GruSlice
    packed: Packed
    tape: Tape
    x: Floats
    w: Floats


Saved = LstmSaved | GruSaved


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
    x, units = _sizes(x, w, 4)
    samples, steps, inputs = x.shape
    outputs = 0 if p is None else p.shape[0]
    width = outputs or units
    w = checked(w, (4 * units, inputs), "w", "(gates * units, inputs)")
    r = checked(r, (4 * units, width), "r", "(gates * units, width of h)")
    b_w, b_r = (checked(b, (4 * units,), name, "(gates * units)") for b, name in ((b_w, "b_w"), (b_r, "b_r")))
    p = NOTHING if p is None else checked(p, (outputs, units), "p", "(outputs of the projection, units)")
    h, c = state(h0, samples, width, "h0"), state(c0, samples, units, "c0")
    ragged = lengths is not None
    rows = rows_of(samples, steps, lengths, reverse=reverse) if ragged else _rows_of(samples, steps, reverse=reverse)
    x = _within(x, lengths)
    sizes = samples, steps, inputs, units, outputs
    saved = LstmSaved(sizes, ragged, rows, x, (w, r, p), take_block(_memory_size(sizes)))
    y = new(samples, steps, width, cleared=ragged)
    lstm_kernels.forward(
        sizes,
        ragged,
        rows,
        address_of(x),
        (address_of(w), address_of(r), address_of(b_w), address_of(b_r), address_of(p)),
        (address_of(h), address_of(c)),
        address_of(y),
        saved.memory.floats,
    )
    return y, h, c, saved


def lstm_backward(saved: Saved, dy: Floats, *, dh: Floats | None = None, dc: Floats | None = None) -> LstmGradients:
    """Return the gradients for errors `dy` of y, and `dh` and `dc` of the last h and c, or zeros.

    Raises:
        ValueError: shapes do not fit.
        TypeError: an array is not of float32.
    """
    if not isinstance(saved, LstmSaved):
        raise TypeError("saved is of a GRU; that of an LSTM is needed")
    samples, steps, inputs, units, outputs = saved.sizes
    width = outputs or units
    dy = checked(dy, (samples, steps, width), "dy", "(samples, steps, units)")
    dh0, dc0 = state(dh, samples, width, "dh"), state(dc, samples, units, "dc")
    dx, dw, dr = new(samples, steps, inputs), new(4 * units, inputs), new(4 * units, width)
    db_w, db_r = new(4 * units), new(4 * units)
    dp = new(outputs, units) if outputs else None
    w, r, p = saved.weights
    lstm_kernels.backward(
        saved.sizes,
        saved.ragged,
        saved.rows,
        address_of(saved.x),
        (address_of(w), address_of(r), address_of(p)),
        address_of(dy),
        (address_of(dh0), address_of(dc0)),
        (*map(address_of, (dx, dw, dr, db_w, db_r)), 0 if dp is None else address_of(dp)),
        saved.memory.floats,
    )
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
    x = _within(x, lengths)
    tape = of.tape(of.input_products_of(w, x), lengths=lengths, reverse=reverse)
    of.forward(packed, tape, h, (0, tape.steps))
    return tape.y, h, GruSaved(of, packed, tape, x, w)


def gru_backward(saved: Saved, dy: Floats, *, dh: Floats | None = None) -> GruGradients:
    """Return the gradients for errors `dy` of y, and `dh` of the last h, or zeros.

    Raises:
        ValueError: shapes do not fit.
        TypeError: an array is not of float32.
    """
    if not isinstance(saved, GruSaved):
        raise TypeError("saved is of an LSTM; that of a GRU is needed")
    of, tape = saved.of, saved.tape
    later, carry = state(dh, tape.samples, of.hidden, "dh"), new(tape.samples, of.hidden, cleared=True)
    dh0 = of.backward(saved.packed, tape, dy, later, carry, (0, tape.steps))
    dh0 += carry
    dx = of.input_errors_of(saved.w, tape.delta)
    rows = of.gates * of.hidden
    found = new(rows, of.inputs), new(rows, of.width), new(rows), new(rows)
    of.gradients(tape, saved.x, *found, gate_major=True, fresh=True)
    return GruGradients(dx, *found, dh0)


def _sizes(x: Floats, w: Floats, gates: int) -> tuple[Floats, int]:
    """Return x, checked, and the number of units."""
    if w.ndim != 2 or not w.size or w.shape[0] % gates:
        raise ValueError(f"w has shape {w.shape}; ({gates} * units, inputs) is needed")
    x = checked(x, (None, None, w.shape[1]), "x", "(samples, steps, inputs)")
    if not x.size:
        raise ValueError(f"x has shape {x.shape}: at least one sample and one step are needed")
    return x, w.shape[0] // gates


def _within(x: Floats, lengths: Lengths | None) -> Floats:
    """Return x with zeros after the end of each sample."""
    if lengths is None:
        return x
    return np.where(np.arange(x.shape[1])[:, None] < np.asarray(lengths)[:, None, None], x, np.float32(0))


@functools.cache
def _memory_size(sizes: tuple[int, int, int, int, int]) -> int:
    """Return the floats that an LSTM of these sizes leaves, as `LstmSaved` has them."""
    return int(lstm_kernels.memory_size(sizes))
