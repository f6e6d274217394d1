"""Slices of recurrent layers by whole units: what one device of a chain computes, a step at a time
or all at once.

A slice holds the units [begin, end) of a layer of `hidden` units. Its output channels are gates *
unit + gate, unit by unit, in the order of gates of PyTorch (LSTM: i, f, g, o; GRU: r, z, n); its
weights w [channels, inputs] and r [channels, width of h] have a row for each. A layer cut into
slices gives the bits of the whole layer:

- `input_products` for all rows (samples and steps) of the input at once;
- `forward` takes the whole h of the step before, and gives h of the own units, which others gather;
- `backward` takes the complete errors of the own units' h, and adds to errors of the whole h
  before, from what slices of higher units have summed; likewise `input_errors`, for all rows at
  once;
- `gradients` adds to given gradients, samples ascending, then t.

The whole layer is the slice of all units; it runs any number of steps in one call, with the weights
packed once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import ClassVar

from ..form import FORM
from ..jit import FLOAT_BYTES, Floats, Kernels, address_of
from ..memory import new
from .arrays import NOTHING, Lengths, Product, Rows, checked, rows_of, target

_packing, _products = Kernels("recurrent.packing"), Kernels("recurrent.step_parts")

Again = Callable[[str, int, Floats], Floats]
"""Rounds lines of steps (samples, lines, steps) that PG reads, in place, of a kind of operands.

Lines of `activations` are the inputs, then states before a step, then what P, or R's n, multiplies;
of `errors` the units of each gate, with those of n times r as gate 3, then a projection's outputs.
The number is that of the first line.
"""


@dataclasses.dataclass(frozen=True)
class Packed:
    """Weights of a slice, packed once for each update, and again for errors; what there is not is
    empty.
    """

    w: Floats
    w_back: Floats
    r: Floats
    r_back: Floats
    b_w: Floats
    b_r: Floats
    p: Floats
    p_back: Floats


@dataclasses.dataclass
class Tape:
    """What FP of some samples leaves for EB and PG; rows are samples * steps + t.

    `gates` begins as the sums over the inputs. `inner` is tanh c of the LSTM, R h + b_R for n of
    the GRU, or, where it resets before the product, r * h. `delta` are the errors of the sums: of
    `b_w` and W; `delta_r`, of `b_r` and R, is the same array except in the GRU that is linear
    before reset. `cells` and `of_outputs` belong to the projection.
    """

    rows: Rows
    ragged: bool
    gates: Floats
    inner: Floats
    c_before: Floats
    h_before: Floats
    cells: Floats
    y: Floats
    delta: Floats = dataclasses.field(default_factory=lambda: NOTHING)
    delta_r: Floats = dataclasses.field(default_factory=lambda: NOTHING)
    of_outputs: Floats = dataclasses.field(default_factory=lambda: NOTHING)

    @classmethod
    def restored(cls, arrays: Mapping[str, Floats], lengths: Lengths, *, reverse: bool) -> Tape:
        """Return a tape from arrays of one by name, those that are needed, of some samples of these
        `lengths`.

        `h_before` is always needed. Without `delta_r`, it is `delta`.
        """
        samples, steps, _ = arrays["h_before"].shape
        ragged = bool((lengths < steps).any())
        rows = rows_of(samples, steps, lengths, reverse=reverse)
        names = ("gates", "inner", "c_before", "h_before", "cells", "y")
        gates, inner, c_before, h_before, cells, y = (
            arrays.get(name, new(samples, steps, 0)) for name in names
        )
        tape = cls(rows, ragged, gates, inner, c_before, h_before, cells, y)
        if "delta" in arrays:
            tape.delta = arrays["delta"]
            tape.delta_r = arrays.get("delta_r", tape.delta)
        if "of_outputs" in arrays:
            tape.of_outputs = arrays["of_outputs"]
        return tape

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.rows.shape[1]

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.rows.shape[0]


@dataclasses.dataclass(frozen=True)
class Slice:
    """The units [begin, end) of a layer of `hidden` units with `inputs` inputs; `end` is `hidden`
    if None.

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
            raise ValueError(
                f"inputs = {self.inputs}, hidden = {self.hidden}: at least 1 of each is needed"
            )
        if not 0 <= self.begin < self._end <= self.hidden:
            raise ValueError(
                f"units {self.begin} to {self._end}: some of 0 to {self.hidden} are needed"
            )

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
        w: Floats | None,
        r: Floats,
        b_w: Floats,
        b_r: Floats,
        p: Floats | None = None,
        *,
        turned: Mapping[str, Floats] | None = None,
    ) -> Packed:
        """Return the packed weights of the own channels, of which each has a row; W may be left
        out, with its products.

        `turned` are those by which errors are multiplied, by the names of arrays, if they are
        others; sums in fp32 have none.

        Raises:
            ValueError: shapes do not fit.
            TypeError: an array is not of float32.
        """
        rows = self.channels
        if w is not None:
            w = checked(w, (rows, self.inputs), "w", "(gates * units, inputs)")
        r = checked(r, (rows, self.width), "r", "(gates * units, width of h)")
        biases = new(rows), new(rows)
        for own, b, name in zip(biases, (b_w, b_r), ("b_w", "b_r"), strict=True):
            own[...] = checked(b, (rows,), name, "(gates * units)")
        of_w = (NOTHING, NOTHING) if w is None else pack_rows(w)
        return Packed(*of_w, *pack_rows(r), *biases, *self._packed_projection(p))

    def input_products(self, packed: Packed, x: Floats) -> Floats:
        """Return the sums over the inputs of all rows x [..., inputs]: [..., channels]."""
        rows = checked(x.reshape(-1, x.shape[-1]), (None, self.inputs), "x", "(rows, inputs)")
        z = new(*x.shape[:-1], self.channels)
        _products.product(
            Product(
                c=address_of(z),
                c_step=self.channels,
                a=address_of(rows),
                a_step=self.inputs,
                a_k=1,
                samples=len(rows),
                b=address_of(packed.w),
                lanes=self.channels,
                depth=self.inputs,
            ),
            1,
            0,
        )
        return z

    def input_errors(self, packed: Packed, delta: Floats, start: Floats | None = None) -> Floats:
        """Return the errors of all rows of the input [..., inputs], for errors of the sums [...,
        channels].

        `start` [..., inputs] is what slices of higher units have summed; it is changed and
        returned.
        """
        rows = checked(
            delta.reshape(-1, delta.shape[-1]), (None, self.channels), "delta", "(rows, channels)"
        )
        dx = new(*delta.shape[:-1], self.inputs) if start is None else start
        place = target(dx, (*delta.shape[:-1], self.inputs), "start")
        _products.product(
            Product(
                c=place,
                c_step=self.inputs,
                a=address_of(rows) + FLOAT_BYTES * (self.channels - 1),
                a_step=self.channels,
                a_k=-1,
                samples=len(rows),
                b=address_of(packed.w_back),
                lanes=self.inputs,
                depth=self.channels,
            ),
            int(start is None),
            0,
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
        fresh: bool = False,
        again: Again | None = None,
    ) -> None:
        """Add the gradients of the tape's samples to the given ones, in place; where `fresh`,
        overwrite these. `again` rounds what is multiplied; sums in fp32 have none.

        `x` [N, T, inputs] are the inputs; after the end of a sample's sequence they are multiplied
        by 0, so must be finite. Rows of gradients are those of weights in `pack`.
        """
        x = checked(x, (tape.samples, tape.steps, self.inputs), "x", "(samples, steps, inputs)")
        turned = transposed(tape.delta)
        add_gradient(
            target(dw, (self.channels, self.inputs), "dw"), (0, self.channels, 1), turned, x, fresh
        )
        if tape.delta_r is not tape.delta:
            turned = transposed(tape.delta_r)
        for channels, source in self._sources(tape):
            add_gradient(
                target(dr, (self.channels, self.width), "dr"), channels, turned, source, fresh
            )
        self._bias_gradient(tape.delta, db_w, "db_w", fresh)
        if fresh and tape.delta_r is tape.delta:
            db_r[...] = db_w
        else:
            self._bias_gradient(tape.delta_r, db_r, "db_r", fresh)
        self._projection_gradient(tape, dp, fresh)

    def whole(self, phase: int, sums: Floats) -> Floats:
        """Return sums of FP, EB or PG that all slices have added as numbers, in place: those in
        fp32 are.
        """
        return sums

    def _bias_gradient(self, delta: Floats, total: Floats, name: str, fresh: bool) -> None:
        target(total, (self.channels,), name)
        if fresh:
            total.fill(0)
        _packing.sum_rows(total, delta.reshape(-1))

    def _packed_projection(self, p: Floats | None) -> tuple[Floats, Floats]:
        if p is not None:
            raise ValueError("p: only a whole LSTM has a projection")
        return NOTHING, NOTHING

    def _sources(self, tape: Tape) -> list[tuple[Channels, Floats]]:
        """Return by what the errors of which channels are multiplied for the gradients of R."""
        return [((0, self.channels, 1), tape.h_before)]

    def _projection_gradient(self, tape: Tape, dp: Floats | None, fresh: bool) -> None:
        if dp is not None:
            raise ValueError("dp: only a whole LSTM has a projection")

    def _check_steps(self, tape: Tape, steps: tuple[int, int], *, may_be_many: bool) -> None:
        first, last = steps
        if not 0 <= first <= last <= tape.steps:
            raise ValueError(f"steps = {steps}: first and last + 1 of 0 to {tape.steps} are needed")
        if last - first != 1 and not may_be_many:
            raise ValueError(
                f"steps = {steps}: a slice of a layer runs one step a call, since it needs the"
                " whole h"
            )

    def _tape(
        self,
        z: Floats,
        inner: int,
        c: int,
        cells: int,
        y: int,
        lengths: Lengths | None,
        reverse: bool,
    ) -> Tape:
        checked(z, (None, None, self.channels), "z", "(samples, steps, channels)")
        samples, steps, _ = z.shape
        if not z.size:
            raise ValueError(f"z has shape {z.shape}: at least one sample and one step are needed")
        rows, ragged = rows_of(samples, steps, lengths, reverse=reverse), lengths is not None
        sizes = inner, c, self.width, cells, y
        return Tape(rows, ragged, z, *(new(samples, steps, size, cleared=ragged) for size in sizes))


Channels = tuple[int, int, int]
"""Some output channels: the first, their number, and the step from one to the next."""


def pack_rows(w: Floats) -> tuple[Floats, Floats]:
    """Return rows of weights, packed for products with inputs, and for those with errors."""
    channels, depth = w.shape
    packings = new(_padded(channels) * depth), new(_padded(depth) * channels)
    for pack, out in zip((_packing.pack_forward, _packing.pack_backward), packings, strict=True):
        pack(address_of(w), channels, depth, address_of(out))
    return packings


def _padded(lanes: int) -> int:
    return -(-lanes // FORM.panel) * FORM.panel


def add_gradient(
    place: int, channels: Channels, turned: Floats, source: Floats, fresh: bool
) -> None:
    """Add errors of some channels times inputs to gradients at an address; where `fresh`, overwrite
    these.
    """
    depth = source.shape[-1]
    count, errors = source.size // depth, address_of(turned)
    _packing.gradient(
        place, channels, depth, errors, turned.shape[1], address_of(source), count, int(fresh)
    )


def transposed(rows: Floats) -> Floats:
    """Return rows [..., lanes] as [lanes, rows], of a pitch that is not a power of two."""
    lanes = rows.shape[-1]
    count = rows.size // lanes
    lanes_first = new(lanes, count // 16 * 16 + 16 + 16 * (count // 16 % 2))
    _packing.transpose(
        address_of(rows), count, lanes, address_of(lanes_first), lanes_first.shape[1]
    )
    return lanes_first
