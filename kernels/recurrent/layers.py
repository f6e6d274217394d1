"""Slices of LSTM and of GRU layers, and whole layers on PyTorch's arrays, gate by gate: forward,
backward with all gradients, both directions. `slices.py` has what slices share, `lstm_steps.py` and
`gru_steps.py` the lines.

A whole layer is the slice of all units, as training runs it, whose arrays are unit by unit.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import ClassVar, NamedTuple

import numpy as np

from ..jit import Floats, Kernels, address_of
from ..memory import new, spare
from .arrays import NOTHING, Lengths, checked, rows_of, sigmoid, state, target
from .operands import PLAIN, Operands
from .slices import Channels, Packed, Slice, Tape, add_gradient, pack_rows, transposed

_lstm_steps = Kernels("recurrent.lstm_steps")


@dataclasses.dataclass(frozen=True)
class LstmSlice(Slice):
    """Units of an LSTM; with `outputs` > 0, h = P (o * tanh c) has that size, and the slice is the
    whole layer.

    Raises:
        ValueError: a size is below 1, or the units are not some of the layer's, or not all where
            there is a projection.
    """

    outputs: int = 0
    gates: ClassVar[int] = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.outputs < 0 or (self.outputs and not self.is_whole):
            raise ValueError(
                f"outputs = {self.outputs} of the projection: at least 0 is needed, and all units"
            )

    @functools.cached_property
    def width(self) -> int:
        """Width of h, which R multiplies."""
        return self.outputs or self.hidden

    @functools.cached_property
    def own_width(self) -> int:
        """Numbers of h that the slice gives."""
        return self.outputs or self.units

    def tape(self, z: Floats, *, lengths: Lengths | None = None, reverse: bool = False) -> Tape:
        """Return the tape for samples whose sums over the inputs are `z` [N, T, channels], which it
        takes over.

        `lengths` [N] are the steps of each sample, all T if None; later ones change no state, and
        give 0 in y.
        """
        cells = self.units if self.outputs else 0
        return self._tape(z, self.units, self.units, cells, self.own_width, lengths, reverse)

    def forward(
        self,
        packed: Packed,
        tape: Tape,
        h: Floats,
        c: Floats,
        steps: tuple[int, int],
        operands: Operands = PLAIN,
    ) -> Floats:
        """Run FP of the steps (first, last + 1) from the whole h [N, width]; return h of the own
        units [N, own width].

        `c` [N, units] is changed. Where the slice is the whole layer, h is changed, and returned.
        `operands` says what is rounded; blocks of a slice begin with its own units.

        Raises:
            ValueError: shapes do not fit, or a slice that is not the whole layer is to run other
                than one step.
        """
        self._check_steps(tape, steps, may_be_many=self.is_whole)
        n, units = tape.samples, self.units
        place, c_place = target(h, (n, self.width), "h"), target(c, (n, units), "c")
        own = h if self.is_whole else h[:, self.begin : self._end].copy()
        memory, places = spare(n * self.channels, n * units, n * self.outputs)
        _lstm_steps.forward_steps(
            steps,
            (units, self.width, self.outputs),
            tape.rows,
            tuple(map(address_of, (packed.r, packed.b_w, packed.b_r, packed.p))),
            (place, address_of(own), self.own_width, c_place),
            tuple(
                map(
                    address_of,
                    (tape.gates, tape.inner, tape.c_before, tape.h_before, tape.cells, tape.y),
                )
            ),
            places,
            operands.of_forward(n, tape.steps, (self.width, self.hidden)),
        )
        del memory
        return own

    def backward(
        self,
        packed: Packed,
        tape: Tape,
        dy: Floats,
        dh: Floats,
        dc: Floats,
        carry: Floats,
        steps: tuple[int, int],
        start: Floats | None = None,
        operands: Operands = PLAIN,
    ) -> Floats:
        """Run EB of the steps (first, last + 1) from the last to the first; return errors of the
        whole h before.

        - dy [N, T, own width]: errors of y, and dh [N, own width], complete errors of h after the
          last of the steps
        - dc [N, units], carry [N, own width]: changed; at first the errors of the last c, or 0, and
          0
        - start [N, width]: what slices of higher units have summed; it is changed and returned
        - operands: what is rounded

        The complete errors of the state before the steps are what is returned by all slices
        together, plus `carry`.

        Raises:
            ValueError: shapes do not fit, or a slice that is not the whole layer is to run other
                than one step.
        """
        self._check_steps(tape, steps, may_be_many=self.is_whole and start is None)
        n, units, own = tape.samples, self.units, self.own_width
        dy = checked(dy, (n, tape.steps, own), "dy", "(samples, steps, units)")
        dh = checked(dh, (n, own), "dh", "(samples, units)")
        places = target(carry, (n, own), "carry"), target(dc, (n, units), "dc")
        before = new(n, self.width) if start is None else start
        place = target(before, (n, self.width), "start")
        source = dh
        if (
            self.is_whole and start is None
        ):  # each step then reads what the one after it has written
            before[...] = dh
            source = before
        self._make_errors(tape)
        memory, spares = spare(n * self.channels, n * own, n * units)
        _lstm_steps.backward_steps(
            steps,
            (units, self.width, self.outputs),
            tape.rows,
            (address_of(packed.r_back), address_of(packed.p_back)),
            (address_of(source), own, place, *places),
            tuple(map(address_of, (dy, tape.gates, tape.inner, tape.c_before))),
            (address_of(tape.delta), address_of(tape.of_outputs)),
            spares,
            int(start is None),
            operands.of_backward(n, tape.steps, (self.hidden, self.outputs)),
        )
        del memory
        return before

    def _make_errors(self, tape: Tape) -> None:
        """Make room for errors of sums, unless there is."""
        if tape.delta.size == 0:
            shape = tape.samples, tape.steps
            tape.delta = tape.delta_r = new(*shape, self.channels, cleared=tape.ragged)
            if self.outputs:
                tape.of_outputs = new(*shape, self.outputs, cleared=tape.ragged)

    def _packed_projection(self, p: Floats | None) -> tuple[Floats, Floats]:
        if (p is not None) != (self.outputs > 0):
            raise ValueError(
                f"p: weights of a projection are needed where outputs = {self.outputs} > 0, only"
                " there"
            )
        if p is None:
            return NOTHING, NOTHING
        return pack_rows(
            checked(p, (self.outputs, self.hidden), "p", "(outputs of the projection, units)")
        )

    def _projection_gradient(self, tape: Tape, dp: Floats | None, fresh: bool) -> None:
        if (dp is not None) != (self.outputs > 0):
            raise ValueError(f"dp: needed where outputs = {self.outputs} > 0, only there")
        if dp is not None:
            place, turned = (
                target(dp, (self.outputs, self.hidden), "dp"),
                transposed(tape.of_outputs),
            )
            add_gradient(place, (0, self.outputs, 1), turned, tape.cells, fresh)


_gru_steps = Kernels("recurrent.gru_steps")


@dataclasses.dataclass(frozen=True)
class GruSlice(Slice):
    """Units of a GRU: linear before reset, as PyTorch's and cuDNN's, or the other form, then the
    whole layer.

    Raises:
        ValueError: a size is below 1, or the units are not some of the layer's, or not all in the
            other form.
    """

    linear_before_reset: bool = True
    gates: ClassVar[int] = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.linear_before_reset or self.is_whole):
            raise ValueError(
                "a GRU that resets before the product is not cut: its n needs r * h of all units"
            )

    def tape(self, z: Floats, *, lengths: Lengths | None = None, reverse: bool = False) -> Tape:
        """Return the tape for samples whose sums over the inputs are `z` [N, T, channels], which it
        takes over.

        `lengths` [N] are the steps of each sample, all T if None; later ones change no state, and
        give 0 in y.
        """
        return self._tape(z, self.units, 0, 0, self.units, lengths, reverse)

    def forward(
        self,
        packed: Packed,
        tape: Tape,
        h: Floats,
        steps: tuple[int, int],
        operands: Operands = PLAIN,
    ) -> Floats:
        """Run FP of the steps (first, last + 1) from the whole h [N, hidden]; return h of the own
        units [N, units].

        Where the slice is the whole layer, h is changed, and returned. `operands` says what is
        rounded; blocks of a slice begin with its own units.

        Raises:
            ValueError: shapes do not fit, or a slice that is not the whole layer is to run other
                than one step.
        """
        self._check_steps(tape, steps, may_be_many=self.is_whole)
        n = tape.samples
        place = target(h, (n, self.hidden), "h")
        own = h if self.is_whole else h[:, self.begin : self._end].copy()
        memory, (sums, q) = spare(n * self.channels, n * self.units)
        weights = tuple(map(address_of, (packed.r, packed.b_w, packed.b_r)))
        kept = tuple(map(address_of, (tape.gates, tape.inner, tape.h_before, tape.y)))
        rounds = operands.of_forward(n, tape.steps, (self.hidden, self.hidden))
        if self.linear_before_reset:
            sizes, state = (
                (self.units, self.hidden, self.begin),
                (place, address_of(own), self.units),
            )
            _gru_steps.forward_steps(steps, sizes, tape.rows, weights, state, kept, sums, rounds)
        else:
            _gru_steps.forward_reset_steps(
                steps, self.units, tape.rows, weights, place, kept, (sums, q), rounds
            )
        del memory
        return own

    def backward(
        self,
        packed: Packed,
        tape: Tape,
        dy: Floats,
        dh: Floats,
        carry: Floats,
        steps: tuple[int, int],
        start: Floats | None = None,
        operands: Operands = PLAIN,
    ) -> Floats:
        """Run EB of the steps (first, last + 1) from the last to the first; return errors of the
        whole h before.

        - dy [N, T, units]: errors of y, and dh [N, units], complete errors of h after the last of
          the steps, but without `carry`
        - carry [N, units]: changed; at first 0: the part of the errors of h that goes past R
        - start [N, hidden]: what slices of higher units have summed; it is changed and returned
        - operands: what is rounded

        The complete errors of the state before the steps are what is returned by all slices
        together, plus `carry`.

        Raises:
            ValueError: shapes do not fit, or a slice that is not the whole layer is to run other
                than one step.
        """
        self._check_steps(tape, steps, may_be_many=self.is_whole and start is None)
        n, units = tape.samples, self.units
        dy = checked(dy, (n, tape.steps, units), "dy", "(samples, steps, units)")
        dh = checked(dh, (n, units), "dh", "(samples, units)")
        carry_place = target(carry, (n, units), "carry")
        before = new(n, self.width) if start is None else start
        place, source = target(before, (n, self.width), "start"), dh
        if (
            self.is_whole and start is None
        ):  # each step then reads what the one after it has written
            before[...] = dh
            source = before
        self._make_errors(tape)
        memory, (copied, errors, s) = spare(n * self.channels, n * units, n * units)
        delta = address_of(tape.delta)
        rounds = operands.of_backward(n, tape.steps, (self.hidden, 1))
        if self.linear_before_reset:
            _gru_steps.backward_steps(
                steps,
                (units, self.width, self.begin),
                tape.rows,
                address_of(packed.r_back),
                (address_of(source), units, place, carry_place),
                tuple(map(address_of, (dy, tape.gates, tape.inner, tape.h_before))),
                (delta, address_of(tape.delta_r)),
                (copied, errors),
                int(start is None),
                rounds,
            )
        else:
            if start is not None:
                raise ValueError("start: a GRU that resets before the product is not cut")
            _gru_steps.backward_reset_steps(
                steps,
                units,
                tape.rows,
                address_of(packed.r_back),
                (place, carry_place),
                tuple(map(address_of, (dy, tape.gates, tape.h_before))),
                delta,
                (copied, errors, s),
                rounds,
            )
        del memory
        return before

    def _make_errors(self, tape: Tape) -> None:
        """Make room for errors of sums, unless there is."""
        if tape.delta.size == 0:
            shape = tape.samples, tape.steps, self.channels
            tape.delta = tape.delta_r = new(*shape, cleared=tape.ragged)
            if self.linear_before_reset:
                tape.delta_r = new(*shape, cleared=tape.ragged)

    def _sources(self, tape: Tape) -> list[tuple[Channels, Floats]]:
        if self.linear_before_reset:
            return super()._sources(tape)
        sources = (tape.h_before, tape.h_before, tape.inner)
        return [((gate, self.units, self.gates), source) for gate, source in enumerate(sources)]


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
    """Run an LSTM over x [N, T, inputs]; return y [N, T, H], the last h and c [N, H], and what
    backward takes.

    - w [4 H, inputs], r [4 H, H], b_w, b_r [4 H]: gate by gate, i, f, g, o, as PyTorch's
    - h0, c0 [N, H]: zeros if None
    - p [P, H]: a projection, PyTorch's weight_hr; h, y and r's columns then are of P numbers
    - lengths [N]: steps of each sample, all T if None; y is 0 after them, and the last h and c are
      those at the end
    - reverse: from each sample's last step to its first; y stays in the order of x, so that a
      bidirectional layer is two calls, whose y are concatenated, and whose dx are added

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


def lstm_backward(
    saved: Saved, dy: Floats, *, dh: Floats | None = None, dc: Floats | None = None
) -> LstmGradients:
    """Return the gradients for errors `dy` of y, and `dh` and `dc` of the last h and c, or zeros.

    Raises:
        ValueError: shapes do not fit.
        TypeError: an array is not of float32.
    """
    kernel, tape = saved.kernel, saved.tape
    if not isinstance(kernel, LstmSlice):
        raise TypeError("saved is of a GRU; that of an LSTM is needed")
    later, dc0 = (
        state(dh, tape.samples, kernel.width, "dh"),
        state(dc, tape.samples, kernel.units, "dc"),
    )
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
    """Run a GRU over x [N, T, inputs]; return y [N, T, H], the last h [N, H], and what backward
    takes.

    - w [3 H, inputs], r [3 H, H], b_w, b_r [3 H]: gate by gate, r, z, n, as PyTorch's
    - linear_before_reset: n = tanh(W x + b_W + r (R h + b_R)), as PyTorch; otherwise tanh(W x + R
      (r h) + b_W + b_R)
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
    later, carry = (
        state(dh, tape.samples, kernel.hidden, "dh"),
        new(tape.samples, kernel.hidden, cleared=True),
    )
    dh0 = kernel.backward(saved.packed, tape, dy, later, carry, (0, tape.steps))
    dh0 += carry
    return GruGradients(*_gradients(saved), dh0)


def _gradients(
    saved: Saved, dp: Floats | None = None
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return the errors of x, and the gradients of W, R, b_W and b_R, after EB; write those of P to
    `dp`.
    """
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


def _packed(
    kernel: Slice, w: Floats, r: Floats, b_w: Floats, b_r: Floats, p: Floats | None = None
) -> Packed:
    w = checked(w, (kernel.channels, kernel.inputs), "w", "(gates * units, inputs)")
    r = checked(r, (kernel.channels, kernel.width), "r", "(gates * units, width of h)")
    b_w, b_r = (
        checked(b, (kernel.channels,), name, "(gates * units)")
        for b, name in ((b_w, "b_w"), (b_r, "b_r"))
    )
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
    return np.where(
        np.arange(x.shape[1])[:, None] < np.asarray(lengths)[:, None, None], x, np.float32(0)
    )


def warm_lstm() -> None:
    """Compile the kernels of LSTM layers, or load them: call each once on tiny arrays, as training
    calls it.
    """
    x, one = np.ones((1, 2, 1), np.float32), np.ones((4, 1), np.float32)
    y, _, _, saved = lstm_forward(x, one, one, one[:, 0], one[:, 0], p=one[:1])
    lstm_backward(saved, y)
    sigmoid(x)


def warm_gru() -> None:
    """Do the same of GRU layers."""
    x, one = np.ones((1, 2, 1), np.float32), np.ones((3, 1), np.float32)
    for linear_before_reset in (True, False):
        y, _, kept = gru_forward(
            x, one, one, one[:, 0], one[:, 0], linear_before_reset=linear_before_reset
        )
        gru_backward(kept, y)
