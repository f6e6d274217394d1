"""Slices of recurrent layers by whole units: what one device of a chain computes, a step at a time or all at once.

A slice holds the units [begin, end) of a layer of `hidden` units. Its output channels are gates * unit + gate, unit by
unit, in the order of gates of PyTorch (LSTM: i, f, g, o; GRU: r, z, n); its weights w [channels, inputs] and
r [channels, width of h] have a row for each. A layer cut into slices gives the bits of the whole layer:

- `input_products` for all rows (samples and steps) of the input at once;
- `forward` takes the whole h of the step before, and gives h of the own units, which others gather;
- `backward` takes the complete errors of the own units' h, and adds to errors of the whole h before, from what slices
  of higher units have summed; likewise `input_errors`, for all rows at once;
- `gradients` adds to given gradients, samples ascending, then t.

The whole layer is the slice of all units; it runs any number of steps in one call, with the weights packed once.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import ClassVar

from ..jit import FLOAT_BYTES, Floats, address_of
from .arrays import NOTHING, Lengths, checked, new, rows_of, target
from .panels import ROW
from .tape import Packed, Tape, add_gradient, gradients, of_rows, packed_size, packing, products, transposed


@dataclasses.dataclass(frozen=True)
class Slice:
    """The units [begin, end) of a layer of `hidden` units with `inputs` inputs; `end` is `hidden` if None.

    Raises:
        ValueError: a size is below 1, or the units are not some of the layer's.
    """

    inputs: int
    hidden: int
    begin: int = 0
    end: int | None = None
    gates: ClassVar[int]

    def __post_init__(self) -> None:
        if self.inputs < 1 or self.hidden < 1:
            raise ValueError(f"inputs = {self.inputs}, hidden = {self.hidden}: at least 1 of each is needed")
        if not 0 <= self.begin < self._end <= self.hidden:
            raise ValueError(f"units {self.begin} to {self._end}: some of 0 to {self.hidden} are needed")

    @functools.cached_property
    def _end(self) -> int:
        return self.hidden if self.end is None else self.end

    @functools.cached_property
    def units(self) -> int:
        """Number of own units."""
        return self._end - self.begin

    @functools.cached_property
    def channels(self) -> int:
        """Number of own output channels: gates * units."""
        return self.gates * self.units

    @functools.cached_property
    def width(self) -> int:
        """Width of h, which R multiplies."""
        return self.hidden

    @functools.cached_property
    def is_whole(self) -> bool:
        """Whether the slice is the whole layer."""
        return self.units == self.hidden

    def pack(
        self,
        w: Floats,
        r: Floats,
        b_w: Floats,
        b_r: Floats,
        p: Floats | None = None,
        *,
        gate_major: bool = False,
        inputs: bool = True,
        errors: bool = True,
    ) -> Packed:
        """Return the packed weights of the own channels.

        Rows are those of the own channels; where `gate_major`, those of the whole layer, gate by gate, as in PyTorch.
        Without `errors`, the weights are for FP alone; without `inputs`, W is left out: `input_products_of` and
        `input_errors_of` take it as it is.

        Raises:
            ValueError: shapes do not fit.
            TypeError: an array is not of float32.
        """
        rows = self.gates * (self.hidden if gate_major else self.units)
        w = checked(w, (rows, self.inputs), "w", "(gates * units, inputs)")
        r = checked(r, (rows, self.width), "r", "(gates * units, width of h)")
        b_w, b_r = (
            self._own(checked(b, (rows,), name, "(gates * units)"), gate_major)
            for b, name in ((b_w, "b_w"), (b_r, "b_r"))
        )
        w_ahead = self._pack_rows(w, gate_major, back=False) if inputs else NOTHING
        w_back = self._pack_rows(w, gate_major, back=True) if inputs and errors else NOTHING
        r_ahead = self._pack_rows(r, gate_major, back=False)
        r_back = self._pack_rows(r, gate_major, back=True) if errors else NOTHING
        p_ahead, p_back = self._pack_projection(p, errors)
        return Packed(w_ahead, r_ahead, b_w, b_r, p_ahead, w_back, r_back, p_back)

    def input_products(self, packed: Packed, x: Floats) -> Floats:
        """Return the sums over the inputs of all rows x [..., inputs]: [..., channels]."""
        rows = checked(x.reshape(-1, x.shape[-1]), (None, self.inputs), "x", "(rows, inputs)")
        z = new(*x.shape[:-1], self.channels)
        products.product(
            address_of(z),
            self.channels,
            address_of(rows),
            self.inputs,
            1,
            len(rows),
            address_of(packed.w),
            self.channels,
            self.inputs,
            1,
            0,
            ROW,
        )
        return z

    def input_errors(self, packed: Packed, delta: Floats, start: Floats | None = None) -> Floats:
        """Return the errors of all rows of the input [..., inputs], for errors of the sums [..., channels].

        `start` [..., inputs] is what slices of higher units have summed; it is changed and returned.
        """
        rows = checked(delta.reshape(-1, delta.shape[-1]), (None, self.channels), "delta", "(rows, channels)")
        dx = new(*delta.shape[:-1], self.inputs) if start is None else start
        place = target(dx, (*delta.shape[:-1], self.inputs), "start")
        products.product(
            place,
            self.inputs,
            address_of(rows) + FLOAT_BYTES * (self.channels - 1),
            self.channels,
            -1,
            len(rows),
            address_of(packed.w_back),
            self.inputs,
            self.channels,
            int(start is None),
            0,
            ROW,
        )
        return dx

    def input_products_of(self, w: Floats, x: Floats) -> Floats:
        """Return what `input_products` does, for weights as in PyTorch that are used once: they are not kept packed."""
        w = checked(w, (self.gates * self.hidden, self.inputs), "w", "(gates * units, inputs)")
        rows = checked(x.reshape(-1, x.shape[-1]), (None, self.inputs), "x", "(rows, inputs)")
        z = new(*x.shape[:-1], self.channels)
        count, place = len(rows), address_of(w) + FLOAT_BYTES * self.begin * self.inputs
        order = self._order(gate_major=True)
        of_rows.product_of_rows(
            address_of(z), address_of(rows), count, place, order, self.gates, self.units, self.inputs
        )
        return z

    def input_errors_of(self, w: Floats, delta: Floats) -> Floats:
        """Return what `input_errors` does, for weights w as in PyTorch that are used once: they are not kept packed."""
        w = checked(w, (self.gates * self.hidden, self.inputs), "w", "(gates * units, inputs)")
        rows = checked(delta.reshape(-1, delta.shape[-1]), (None, self.channels), "delta", "(rows, channels)")
        dx = new(*delta.shape[:-1], self.inputs)
        count, place = len(rows), address_of(w) + FLOAT_BYTES * self.begin * self.inputs
        order = self._order(gate_major=True)
        of_rows.errors_of_rows(
            address_of(dx), address_of(rows), count, place, order, self.gates, self.units, self.inputs
        )
        return dx

    def gradients(
        self,
        tape: Tape,
        x: Floats,
        dw: Floats,
        dr: Floats,
        db_w: Floats,
        db_r: Floats,
        dp: Floats | None = None,
        *,
        gate_major: bool = False,
        fresh: bool = False,
    ) -> None:
        """Add the gradients of the tape's samples to the given ones, in place; where `fresh`, overwrite these.

        `x` [N, T, inputs] are the inputs; after the end of a sample's sequence they are multiplied by 0, so must be
        finite. Rows of gradients are those of weights in `pack`.
        """
        x = checked(x, (tape.samples, tape.steps, self.inputs), "x", "(samples, steps, inputs)")
        rows = self.gates * (self.hidden if gate_major else self.units)
        turned = transposed(tape.delta)
        self._gradient_of(target(dw, (rows, self.inputs), "dw"), gate_major, (0, self.gates), turned, x, fresh)
        if tape.delta_r is not tape.delta:
            turned = transposed(tape.delta_r)
        for gates, source in self._sources(tape):
            self._gradient_of(target(dr, (rows, self.width), "dr"), gate_major, gates, turned, source, fresh)
        self._bias_gradient(tape.delta, db_w, "db_w", gate_major, fresh)
        if fresh and tape.delta_r is tape.delta:
            db_r[...] = db_w
        else:
            self._bias_gradient(tape.delta_r, db_r, "db_r", gate_major, fresh)
        self._projection_gradient(tape, dp, fresh)

    def _bias_gradient(self, delta: Floats, total: Floats, name: str, gate_major: bool, fresh: bool) -> None:
        target(total, (self.gates * (self.hidden if gate_major else self.units),), name)
        view = self._units_first(total, gate_major)
        own = new(self.channels, cleared=fresh)
        if not fresh:
            own[...] = view.reshape(-1)
        gradients.sum_rows(own, delta.reshape(-1))
        view[...] = own.reshape(view.shape)

    def _units_first(self, b: Floats, gate_major: bool) -> Floats:
        """Return a view [units, gates] of the own numbers of a bias."""
        return b.reshape(self.gates, -1).T[self.begin : self._end] if gate_major else b.reshape(-1, self.gates)

    def _own(self, b: Floats, gate_major: bool) -> Floats:
        found = new(self.channels)
        found[...] = self._units_first(b, gate_major).reshape(-1)
        return found

    def _order(self, gate_major: bool) -> tuple[int, int]:
        return (1, self.hidden) if gate_major else (self.gates, 1)

    def _pack_rows(self, w: Floats, gate_major: bool, *, back: bool) -> Floats:
        depth = w.shape[1]
        place = address_of(w) + (FLOAT_BYTES * self.begin * depth if gate_major else 0)
        lanes, k = (depth, self.channels) if back else (self.channels, depth)
        out = new(packed_size(lanes, k))
        pack = packing.pack_backward if back else packing.pack_forward
        pack(place, self._order(gate_major), self.gates, self.units, depth, ROW, address_of(out))
        return out

    def _pack_projection(self, p: Floats | None, errors: bool) -> tuple[Floats, Floats]:
        if p is not None:
            raise ValueError("p: only a whole LSTM has a projection")
        return NOTHING, NOTHING

    def _sources(self, tape: Tape) -> list[tuple[tuple[int, int], Floats]]:
        """Return by what the errors of which gates (first, last + 1) are multiplied for the gradients of R."""
        return [((0, self.gates), tape.h_before)]

    def _gradient_of(
        self,
        place: int,
        gate_major: bool,
        gates: tuple[int, int],
        turned: Floats,
        source: Floats,
        fresh: bool,
    ) -> None:
        depth = source.shape[-1]
        begin = FLOAT_BYTES * self.begin * depth if gate_major else 0
        add_gradient(place + begin, self._order(gate_major), self.gates, gates, self.units, turned, source, fresh)

    def _projection_gradient(self, tape: Tape, dp: Floats | None, fresh: bool) -> None:
        if dp is not None:
            raise ValueError("dp: only a whole LSTM has a projection")

    def _check_steps(self, tape: Tape, steps: tuple[int, int], *, may_be_many: bool) -> None:
        first, last = steps
        if not 0 <= first <= last <= tape.steps:
            raise ValueError(f"steps = {steps}: first and last + 1 of 0 to {tape.steps} are needed")
        if last - first != 1 and not may_be_many:
            raise ValueError(f"steps = {steps}: a slice of a layer runs one step a call, since it needs the whole h")

    def _tape(self, z: Floats, inner: int, c: int, cells: int, y: int, lengths: Lengths | None, reverse: bool) -> Tape:
        checked(z, (None, None, self.channels), "z", "(samples, steps, channels)")
        samples, steps, _ = z.shape
        if not z.size:
            raise ValueError(f"z has shape {z.shape}: at least one sample and one step are needed")
        rows, ragged = rows_of(samples, steps, lengths, reverse=reverse), lengths is not None
        sizes = inner, c, self.width, cells, y
        return Tape(rows, ragged, z, *(new(samples, steps, size, cleared=ragged) for size in sizes))
