"""Slices of LSTM and of GRU layers; `slices.py` has what they share, `lstm_steps.py` and `gru_steps.py` the lines."""

from __future__ import annotations

import dataclasses
import functools
from typing import ClassVar

from ..jit import Floats, Kernels, address_of
from ..memory import new, spare
from .arrays import NOTHING, Lengths, checked, target
from .slices import Channels, Packed, Slice, Tape, add_gradient, pack_rows, transposed

_lstm_steps = Kernels("recurrent.lstm_steps")


@dataclasses.dataclass(frozen=True)
class LstmSlice(Slice):
    """Units of an LSTM; with `outputs` > 0, h = P (o * tanh c) has that size, and the slice is the whole layer.

    Raises:
        ValueError: a size is below 1, or the units are not some of the layer's, or not all where there is a projection.
    """

    outputs: int = 0
    gates: ClassVar[int] = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.outputs < 0 or (self.outputs and not self.is_whole):
            raise ValueError(f"outputs = {self.outputs} of the projection: at least 0 is needed, and all units")

    @functools.cached_property
    def width(self) -> int:
        """Width of h, which R multiplies."""
        return self.outputs or self.hidden

    @functools.cached_property
    def own_width(self) -> int:
        """Numbers of h that the slice gives."""
        return self.outputs or self.units

    def tape(self, z: Floats, *, lengths: Lengths | None = None, reverse: bool = False) -> Tape:
        """Return the tape for samples whose sums over the inputs are `z` [N, T, channels], which it takes over.

        `lengths` [N] are the steps of each sample, all T if None; later ones change no state, and give 0 in y.
        """
        cells = self.units if self.outputs else 0
        return self._tape(z, self.units, self.units, cells, self.own_width, lengths, reverse)

    def forward(self, packed: Packed, tape: Tape, h: Floats, c: Floats, steps: tuple[int, int]) -> Floats:
        """Run FP of the steps (first, last + 1) from the whole h [N, width]; return h of the own units [N, own width].

        `c` [N, units] is changed. Where the slice is the whole layer, h is changed, and returned.

        Raises:
            ValueError: shapes do not fit, or a slice that is not the whole layer is to run other than one step.
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
            tuple(map(address_of, (tape.gates, tape.inner, tape.c_before, tape.h_before, tape.cells, tape.y))),
            places,
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
    ) -> Floats:
        """Run EB of the steps (first, last + 1) from the last to the first; return errors of the whole h before.

        - dy [N, T, own width]: errors of y, and dh [N, own width], complete errors of h after the last of the steps
        - dc [N, units], carry [N, own width]: changed; at first the errors of the last c, or 0, and 0
        - start [N, width]: what slices of higher units have summed; it is changed and returned

        The complete errors of the state before the steps are what is returned by all slices together, plus `carry`.

        Raises:
            ValueError: shapes do not fit, or a slice that is not the whole layer is to run other than one step.
        """
        self._check_steps(tape, steps, may_be_many=self.is_whole and start is None)
        n, units, own = tape.samples, self.units, self.own_width
        dy = checked(dy, (n, tape.steps, own), "dy", "(samples, steps, units)")
        dh = checked(dh, (n, own), "dh", "(samples, units)")
        places = target(carry, (n, own), "carry"), target(dc, (n, units), "dc")
        before = new(n, self.width) if start is None else start
        place = target(before, (n, self.width), "start")
        source = dh
        if self.is_whole and start is None:  # each step then reads what the one after it has written
            before[...] = dh
            source = before
        if tape.delta.size == 0:
            tape.delta = tape.delta_r = new(n, tape.steps, self.channels, cleared=tape.ragged)
            if self.outputs:
                tape.of_outputs = new(n, tape.steps, self.outputs, cleared=tape.ragged)
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
        )
        del memory
        return before

    def _packed_projection(self, p: Floats | None) -> tuple[Floats, Floats]:
        if (p is not None) != (self.outputs > 0):
            raise ValueError(f"p: weights of a projection are needed where outputs = {self.outputs} > 0, only there")
        if p is None:
            return NOTHING, NOTHING
        return pack_rows(checked(p, (self.outputs, self.hidden), "p", "(outputs of the projection, units)"))

    def _projection_gradient(self, tape: Tape, dp: Floats | None, fresh: bool) -> None:
        if (dp is not None) != (self.outputs > 0):
            raise ValueError(f"dp: needed where outputs = {self.outputs} > 0, only there")
        if dp is not None:
            place, turned = target(dp, (self.outputs, self.hidden), "dp"), transposed(tape.of_outputs)
            add_gradient(place, (0, self.outputs, 1), turned, tape.cells, fresh)


_gru_steps = Kernels("recurrent.gru_steps")


@dataclasses.dataclass(frozen=True)
class GruSlice(Slice):
    """Units of a GRU: linear before reset, as PyTorch's and cuDNN's, or the other form, then the whole layer.

    Raises:
        ValueError: a size is below 1, or the units are not some of the layer's, or not all in the other form.
    """

    linear_before_reset: bool = True
    gates: ClassVar[int] = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.linear_before_reset or self.is_whole):
            raise ValueError("a GRU that resets before the product is not cut: its n needs r * h of all units")

    def tape(self, z: Floats, *, lengths: Lengths | None = None, reverse: bool = False) -> Tape:
        """Return the tape for samples whose sums over the inputs are `z` [N, T, channels], which it takes over.

        `lengths` [N] are the steps of each sample, all T if None; later ones change no state, and give 0 in y.
        """
        return self._tape(z, self.units, 0, 0, self.units, lengths, reverse)

    def forward(self, packed: Packed, tape: Tape, h: Floats, steps: tuple[int, int]) -> Floats:
        """Run FP of the steps (first, last + 1) from the whole h [N, hidden]; return h of the own units [N, units].

        Where the slice is the whole layer, h is changed, and returned.

        Raises:
            ValueError: shapes do not fit, or a slice that is not the whole layer is to run other than one step.
        """
        self._check_steps(tape, steps, may_be_many=self.is_whole)
        n = tape.samples
        place = target(h, (n, self.hidden), "h")
        own = h if self.is_whole else h[:, self.begin : self._end].copy()
        memory, (sums, q) = spare(n * self.channels, n * self.units)
        weights = tuple(map(address_of, (packed.r, packed.b_w, packed.b_r)))
        kept = tuple(map(address_of, (tape.gates, tape.inner, tape.h_before, tape.y)))
        if self.linear_before_reset:
            sizes, state = (self.units, self.hidden, self.begin), (place, address_of(own), self.units)
            _gru_steps.forward_steps(steps, sizes, tape.rows, weights, state, kept, sums)
        else:
            _gru_steps.forward_reset_steps(steps, self.units, tape.rows, weights, place, kept, (sums, q))
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
    ) -> Floats:
        """Run EB of the steps (first, last + 1) from the last to the first; return errors of the whole h before.

        - dy [N, T, units]: errors of y, and dh [N, units], complete errors of h after the last of the steps, but
          without `carry`
        - carry [N, units]: changed; at first 0: the part of the errors of h that goes past R
        - start [N, hidden]: what slices of higher units have summed; it is changed and returned

        The complete errors of the state before the steps are what is returned by all slices together, plus `carry`.

        Raises:
            ValueError: shapes do not fit, or a slice that is not the whole layer is to run other than one step.
        """
        self._check_steps(tape, steps, may_be_many=self.is_whole and start is None)
        n, units = tape.samples, self.units
        dy = checked(dy, (n, tape.steps, units), "dy", "(samples, steps, units)")
        dh = checked(dh, (n, units), "dh", "(samples, units)")
        carry_place = target(carry, (n, units), "carry")
        before = new(n, self.width) if start is None else start
        place, source = target(before, (n, self.width), "start"), dh
        if self.is_whole and start is None:  # each step then reads what the one after it has written
            before[...] = dh
            source = before
        if tape.delta.size == 0:
            tape.delta = tape.delta_r = new(n, tape.steps, self.channels, cleared=tape.ragged)
            if self.linear_before_reset:
                tape.delta_r = new(n, tape.steps, self.channels, cleared=tape.ragged)
        memory, (copied, errors, s) = spare(n * self.channels, n * units, n * units)
        delta = address_of(tape.delta)
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
            )
        del memory
        return before

    def _sources(self, tape: Tape) -> list[tuple[Channels, Floats]]:
        if self.linear_before_reset:
            return super()._sources(tape)
        sources = (tape.h_before, tape.h_before, tape.inner)
        return [((gate, self.units, self.gates), source) for gate, source in enumerate(sources)]
