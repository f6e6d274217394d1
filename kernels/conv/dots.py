"""Convolutions that add their products in blocks of `block`: exactly within a block, and then once
to the sum, in fp32 (`block_kernel.py`). Blocks lie along what is summed:

- forward: `block` input channels at one place of the kernel; blocks ascending, and within them
  kernel row and column ascending
- error: `block` output channels at one place of the kernel; blocks descending, and within them
  kernel row and column ascending
- gradient: `block` output pixels of a sample, row by row; samples and blocks ascending

from channel 0, or the map's first pixel, on; the last block may be shorter. So sums have the same
bits however channels are cut between blocks, and samples between micro-batches.

Packed weights have all channels of a block at a place of the kernel side by side: k is (block,
kernel row, kernel column, channel in the block). Error takes weights of its own (`turn_weights`),
since those of blocks are rounded in another direction there; and so does gradient, of a place of
the kernel after the other (`inputs_at`, `gradient_at`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..form import FORM
from ..jit import FLOAT_BYTES, Floats, Kernels, address_of, of_float32
from ..memory import aligned
from ..number import NARROW_BITS
from ..window import output_size
from .convolution import Framing, layout, microkernel
from .geometry import (
    BlockContraction,
    Geometry,
    Phase,
    Window,
    padded_lanes,
    phases_of,
)
from .integers import Integers, Packing, contract, words_of
from .operands import Tables, add_nothing, backwards, flat_at, maps_at, offsets_of, whole_at

block_kernel = Kernels("conv.block_kernel")

_Pair = tuple[int, int]
Rounded = Callable[[int, Floats], Floats]
_BIAS, _LEAST_EXPONENT, _MOST_EXPONENT = 127, -149, 127


@dataclasses.dataclass(frozen=True)
class DotConvolution(Framing):
    """A convolution as `Convolution` has it, but for its sums.

    `narrow` says for forward, error and gradient whether the sum of a block takes at most
    `NARROW_BITS` bits: from the last bit that a product may have to the first one of their sum, at
    one scale. All take at most `WIDE_BITS`.
    """

    in_channels: int
    out_channels: int
    size: _Pair
    kernel: _Pair
    stride: _Pair
    pad: _Pair
    block: int
    narrow: tuple[bool, bool, bool]
    output: _Pair = dataclasses.field(init=False)
    packed_size: int = dataclasses.field(init=False, compare=False)
    turned_size: int = dataclasses.field(init=False, compare=False)
    _geometry: Geometry = dataclasses.field(init=False, repr=False, compare=False)
    _frame: tuple[int, ...] = dataclasses.field(init=False, repr=False, compare=False)
    _error_frame: tuple[int, ...] = dataclasses.field(init=False, repr=False, compare=False)
    _phases: tuple[Phase, ...] = dataclasses.field(init=False, repr=False, compare=False)
    _packed: Packing = dataclasses.field(init=False, repr=False, compare=False)
    _tables: dict[Any, Any] = dataclasses.field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        output = output_size(self.size, self.kernel, stride=self.stride, pad=self.pad)
        ic, oc = self.in_channels, self.out_channels
        # Of a kernel that covers the map, each place is a phase of its own: EB skips all padding.
        is_whole_map = self.size == self.kernel and self.pad == (0, 0)
        stride = self.kernel if is_whole_map else self.stride
        geometry = Geometry(ic, oc, self.size, self.kernel, stride, self.pad, output)
        phases = tuple(phases_of(geometry))
        known = {
            "output": output,
            "packed_size": int(padded_lanes(oc)) * geometry.taps,
            "turned_size": int(padded_lanes(ic)) * sum(phase.depth(oc) for phase in phases),
            "_packed": Packing(self.block),
            "_geometry": geometry,
            "_phases": phases,
            "_frame": (ic, *geometry.framed),
            "_error_frame": (oc, *geometry.error_framed),
        }
        for name, value in known.items():  # as frozen dataclasses set what follows from fields
            object.__setattr__(self, name, value)

    @property
    def outputs_together(self) -> int:
        """See `Convolution`."""
        return 1

    @property
    def places(self) -> int:
        """Places of the kernel."""
        return self.kernel[0] * self.kernel[1]

    @property
    def pixels(self) -> int:
        """Pixels of an output map."""
        return self.output[0] * self.output[1]

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        return self.out_channels, self.in_channels, *self.kernel

    def pack(self, w: Floats, out: Floats | None = None) -> Floats:
        """Return weights (oc, ic, kh, kw) as FP and PG use them, in `out` or in new memory."""
        if w.shape != self._shape:
            raise ValueError(f"weights {w.shape} do not fit; {self._shape} are needed")
        rows = of_float32(w, "w").reshape(self.out_channels, self.in_channels, self.places)
        if out is None:
            out = aligned(FLOAT_BYTES * self.packed_size).view(np.float32)
        _pack(_in_blocks(rows, self.block), flat_at(out, self.packed_size, "out"))
        return out

    def unpack(self, packed: Floats, out: Floats | None = None) -> Floats:
        """Return packed weights as weights (oc, ic, kh, kw), in `out` or in new memory."""
        depth = self._geometry.taps
        flat = np.empty((self.out_channels, depth), np.float32)
        place = flat_at(packed, self.packed_size, "packed")
        layout.pack(flat.ctypes.data, self.out_channels, depth, place, True)
        w = np.empty(self._shape, np.float32) if out is None else out
        w.reshape(self.out_channels, self.in_channels, self.places)[...] = _apart(
            flat, self.in_channels, self.block
        )
        return w

    def turn(self, packed: Floats, out: Floats) -> None:
        """Write packed weights to `out` as EB reads them."""
        g, source = self._geometry, flat_at(packed, self.packed_size, "packed")
        target = flat_at(out, self.turned_size, "out")
        for phase in self._phases:
            place = target + FLOAT_BYTES * phase.begin
            layout.turn_blocks(
                source, g.oc, g.ic, self.kernel, phase.first, g.stride, self.block, place
            )

    def packed_blocks(self, packed: Floats) -> Iterator[Floats]:
        """Yield parts of packed weights as (n, channels, lanes), of which the channels of a block
        at a place of the kernel are the second axis; views.
        """
        yield from self._parts(packed, self.in_channels, self.out_channels, [self.places])

    def turned_blocks(self, turned: Floats) -> Iterator[Floats]:
        """Yield parts of weights as EB reads them, as `packed_blocks` does."""
        places = [phase.down * phase.across for phase in self._phases]
        yield from self._parts(turned, self.out_channels, self.in_channels, places, turned=True)

    def _parts(
        self, flat: Floats, channels: int, lanes: int, places: list[int], *, turned: bool = False
    ) -> Iterator[Floats]:
        begin, rest = 0, channels % self.block
        sizes = [(channels - rest, self.block), (rest, rest)]
        for count in places:
            for width in _panel_widths(lanes):
                for rows, size in reversed(sizes) if turned else sizes:
                    end = begin + rows * count * width
                    if rows:
                        yield flat[begin:end].reshape(-1, size, width)
                    begin = end

    def turn_weights(self, w: Floats, out: Floats) -> None:
        """Write weights (oc, ic, kh, kw) to `out` as EB reads them."""
        target, (down, across) = flat_at(out, self.turned_size, "out"), self._geometry.stride
        for phase in self._phases:
            own = w[::-1, :, phase.first[0] :: down, phase.first[1] :: across]
            rows = own.reshape(self.out_channels, self.in_channels, -1).swapaxes(0, 1)
            _pack(_in_blocks(rows, self.block, turned=True), target + FLOAT_BYTES * phase.begin)

    def forward(self, y: Floats, frame: Floats, packed: Floats, *, fresh: bool) -> None:
        """Run FP: add the outputs to `y` (n, ho, wo, oc) in place; where `fresh`, overwrite `y`."""
        samples, g = len(y), self._geometry
        place, pitch = maps_at(y, (samples, *self.output, self.out_channels), "y")
        source = whole_at(frame, self.frame_shape(samples), "frame")
        weights = flat_at(packed, self.packed_size, "packed")
        add_nothing(y, fresh)
        if not (y.size and frame.size):
            return
        tables = self._input_tables(samples)
        pixel, a_pixel, a_k, lengths, *_ = tables.places
        if self.narrow[0]:
            records = self._packed.records("frame", frame, _sizes(g.ic, self.block))
            panels = self._packed.panels("panels", weights, 0, g.oc, tables.keep[3])
            to = place, pixel, pitch, 0, samples * self.pixels, g.oc
            if contract(to, records, tables, panels):
                return
        operands = BlockContraction(
            place,
            pixel,
            pitch,
            samples * self.pixels,
            g.oc,
            source,
            a_pixel,
            a_k,
            g.taps,
            weights,
            0,
            lengths,
            tables.keep[3].size,
        )
        block_kernel.contract(self._is_wide(0, frame, packed), operands)

    def error(self, dx: Floats, error_frame: Floats, turned: Floats, *, fresh: bool) -> None:
        """Run EB: add the input errors to `dx` (n, rows, columns, ic) in place; where `fresh`,
        overwrite `dx`.
        """
        samples, g = len(dx), self._geometry
        place, pitch = maps_at(dx, (samples, *self.size, self.in_channels), "dx")
        source = whole_at(error_frame, self.error_frame_shape(samples), "error_frame")
        weights = flat_at(turned, self.turned_size, "turned")
        add_nothing(dx, fresh)
        if not (dx.size and error_frame.size):
            return
        wide, records = -1, None
        if self.narrow[1]:
            sizes = _sizes(g.oc, self.block)[::-1].copy()
            records = self._packed.records("error_frame", error_frame, sizes)
        for phase, tables in zip(self._phases, self._error_tables(samples), strict=True):
            pixel, a_pixel, a_k, lengths, *_ = tables.places
            if records:
                panels = self._packed.panels(
                    "panels", weights + FLOAT_BYTES * phase.begin, 0, g.ic, tables.keep[3]
                )
                to = place, pixel, pitch, 0, tables.keep[0].size, g.ic
                if contract(to, records, tables, panels):
                    continue
            if wide < 0:
                wide = self._is_wide(1, error_frame, turned)
            operands = BlockContraction(
                place,
                pixel,
                pitch,
                tables.keep[0].size,
                g.ic,
                source,
                a_pixel,
                a_k,
                phase.depth(g.oc),
                weights + FLOAT_BYTES * phase.begin,
                0,
                lengths,
                tables.keep[3].size,
            )
            block_kernel.contract(wide, operands)

    def gradient(self, packed_gradient: Floats, frame: Floats, dy: Floats, *, fresh: bool) -> None:
        """Run PG: add the gradient of `dy` (n, ho, wo, oc) to packed gradients; where `fresh`,
        overwrite them.
        """
        samples, g = len(dy), self._geometry
        if self._errors(dy):
            self.gradients(packed_gradient, frame, dy, lambda _, x: x, fresh=fresh)
            return
        place = whole_at(frame, self.frame_shape(samples), "frame")
        # FP's tables, exchanged: the pixels q of PG are taps, and it sums over output pixels.
        _, a_k, a_pixel, *_ = self._input_tables(samples).places
        rows = self._rows(None)
        self._gradient(packed_gradient, rows, g.taps, frame, (place, a_pixel, a_k), dy, fresh=fresh)

    def gradients(
        self,
        packed_gradient: Floats,
        frame: Floats,
        dy: Floats,
        rounded: Rounded,
        *,
        fresh: bool,
        to_7_bits: bool = False,
    ) -> None:
        """Run PG of one place of the kernel after the other, of what `rounded` returns of a place
        and its `inputs_at`; see `gradient_at`.

        Where that is `to_7_bits`, as MXINT8 has, to even, in blocks as sums have, it is done while
        inputs are packed.
        """
        panels, to = self._errors(dy), (packed_gradient, len(dy))
        for place in range(self.places):
            if to_7_bits and panels and frame.size:
                begin, count, window = self._window(frame, place)
                records = self._packed.lines(begin, count, window, rounds=True)
                if self._integer_gradient(*to, place, records, panels, fresh=fresh):
                    continue
            x = rounded(place, self.inputs_at(frame, place))
            self._gradient_at(packed_gradient, place, x, dy, panels, fresh=fresh)

    def inputs_at(self, frame: Floats, place: int) -> Floats:
        """Return what the outputs read through a place of the kernel, 0 to `places` - 1, from
        framed inputs: (n, ic, output pixels), a copy.
        """
        x = np.empty((len(frame), self.in_channels, self.pixels), np.float32)
        if x.size:
            layout.inputs_at(*self._window(frame, place), address_of(x))
        return x

    def _window(self, frame: Floats, place: int) -> tuple[int, int, Window]:
        """Return where the outputs begin to read through a place of the kernel, the number of
        planes, and what they read of each.
        """
        row, column = divmod(place, self.kernel[1])
        (down, across), (height, width) = self._geometry.stride, self._geometry.framed
        begin = whole_at(frame, self.frame_shape(len(frame)), "frame")
        window = Window(height * width, down * width, *self.output, across)
        first = begin + FLOAT_BYTES * (row * width + column)
        return first, len(frame) * self.in_channels, window

    def gradient_at(
        self, packed_gradient: Floats, place: int, x: Floats, dy: Floats, *, fresh: bool
    ) -> None:
        """Run PG of a place of the kernel, from the inputs `x` (n, ic, output pixels) that `dy` (n,
        ho, wo, oc) meets there; where `fresh`, the place's gradients are overwritten.
        """
        self._gradient_at(packed_gradient, place, x, dy, self._errors(dy), fresh=fresh)

    def _gradient_at(
        self,
        packed_gradient: Floats,
        place: int,
        x: Floats,
        dy: Floats,
        panels: Integers | None,
        *,
        fresh: bool,
    ) -> None:
        """Run PG of a place, in integers if `panels` are the errors as integers, and inputs are
        some.
        """
        samples, ic, pixels = len(dy), self.in_channels, self.pixels
        begin, rows = whole_at(x, (samples, ic, pixels), "x"), self._rows(place)
        if panels and x.size:
            to = packed_gradient, samples
            records = self._packed.lines(begin, samples * ic, Window(pixels, pixels, 1, pixels, 1))
            if self._integer_gradient(*to, place, records, panels, fresh=fresh):
                return
        key = "place", samples
        if key not in self._tables:
            self._tables[key] = Tables.of(
                offsets_of((ic, pixels)), offsets_of((samples, ic * pixels), (pixels, 1))
            )
        a_pixel, a_k = self._tables[key].places
        self._gradient(packed_gradient, rows, ic, x, (begin, a_pixel, a_k), dy, fresh=fresh)

    def _integer_gradient(
        self,
        packed_gradient: Floats,
        samples: int,
        place: int,
        records: Integers | None,
        panels: Integers,
        *,
        fresh: bool,
    ) -> bool:
        """Run PG of a place in integers, if both operands are some; return whether they are."""
        if records is None:
            return False
        rows, channels = self._rows(place), (self.in_channels, self.out_channels)
        if fresh:
            self._clear(packed_gradient, rows.keep[0])
        target = flat_at(packed_gradient, self.packed_size, "packed_gradient")
        to = target, rows.places[0], 1, self._geometry.taps, *channels
        return contract(to, records, self._line_tables(samples), panels)

    def _line_tables(self, samples: int) -> Tables:
        """Return the offsets of records of input channels and of blocks of pixels, and the words of
        blocks.
        """
        key = "lines", samples
        if key not in self._tables:
            ic, blocks = self.in_channels, -(-self.pixels // self.block)
            size = FLOAT_BYTES * self._packed.record
            self._tables[key] = Tables.of(
                offsets_of((ic, blocks * size)),
                offsets_of((samples, ic * blocks * size), (blocks, size)),
                words_of(self._pixel_blocks(samples).keep[0]),
            )
        return self._tables[key]

    def _errors(self, dy: Floats) -> Integers | None:
        """Return output errors as integers, in blocks of pixels."""
        samples, channels = len(dy), self.out_channels
        place, pitch = maps_at(dy, (samples, *self.output, channels), "dy")
        if not (self.narrow[2] and dy.size):
            return None
        lengths = self._pixel_blocks(samples).keep[0]
        return self._packed.panels("errors", place, pitch, channels, lengths)

    def _gradient(
        self,
        packed_gradient: Floats,
        rows: Tables,
        count: int,
        x: Floats,
        tables: tuple[int, int, int],
        dy: Floats,
        *,
        fresh: bool,
    ) -> None:
        samples, g = len(dy), self._geometry
        place, pitch = maps_at(dy, (samples, *self.output, self.out_channels), "dy")
        target = flat_at(packed_gradient, self.packed_size, "packed_gradient")
        if fresh:
            self._clear(packed_gradient, rows.keep[0])
        if not (dy.size and x.size):
            return
        lengths = self._pixel_blocks(samples)
        begin, a_pixel, a_k = tables
        operands = BlockContraction(
            target,
            rows.places[0],
            g.taps,
            count,
            g.oc,
            begin,
            a_pixel,
            a_k,
            samples * self.pixels,
            place,
            pitch,
            lengths.places[0],
            lengths.keep[0].size,
        )
        block_kernel.contract_rows(self._is_wide(2, x, dy), operands)

    def _clear(self, packed_gradient: Floats, rows: NDArray[np.int64]) -> None:
        if rows.size == self._geometry.taps:
            packed_gradient[...] = 0
            return
        begin = 0
        for width in _panel_widths(self.out_channels):
            size = width * self._geometry.taps
            packed_gradient[begin : begin + size].reshape(-1, width)[rows] = 0
            begin += size

    def _is_wide(self, phase: int, *operands: Floats) -> int:
        """Return 1 if sums of blocks need fp64: they have too many bits, or operands are too small
        or too large.
        """
        if not self.narrow[phase]:
            return 1
        least = largest = -2 * _BIAS
        for operand in operands:
            found = np.empty(2, np.uint32)
            block_kernel.extent(np.ascontiguousarray(operand).reshape(-1).view(np.uint32), found)
            # A number below fp32's normal ones counts as smaller than it is.
            least += int(found[0]) >> 23
            largest += int(found[1]) >> 23
        is_held = least - NARROW_BITS >= _LEAST_EXPONENT
        return int(not is_held or largest + 2 + self.block.bit_length() > _MOST_EXPONENT)

    def _rows(self, place: int | None) -> Tables:
        """Return the rows of packed gradients of a place of the kernel, of all channels; None: all
        rows.
        """
        key = "rows", place
        if key not in self._tables:
            if place is None:
                rows = np.arange(self._geometry.taps)
            else:
                channels = np.arange(self.in_channels)
                first = channels // self.block * self.block
                sizes = np.minimum(self.block, self.in_channels - first)
                rows = first * self.places + place * sizes + channels - first
            self._tables[key] = Tables.of(rows)
        return self._tables[key]

    def _pixel_blocks(self, samples: int) -> Tables:
        key = "pixels", samples
        if key not in self._tables:
            self._tables[key] = Tables.of(np.tile(_sizes(self.pixels, self.block), samples))
        return self._tables[key]

    def _input_tables(self, samples: int) -> Tables:
        """Return the number of each output pixel, the offsets of pixels and of taps in the framed
        inputs, and the lengths of blocks.
        """
        key = "input", samples
        if key not in self._tables:
            g = self._geometry
            hp, wp = g.framed
            (rows, columns), (down, across) = self.output, g.stride
            taps = offsets_of((g.kernel[0], wp), (g.kernel[1], 1))
            channels, sizes = offsets_of((g.ic, hp * wp)), _sizes(g.ic, self.block)
            lengths, record = np.repeat(sizes, taps.size), FLOAT_BYTES * self._packed.record
            self._tables[key] = Tables.of(
                np.arange(samples * rows * columns),
                offsets_of((samples, g.ic * hp * wp), (rows, down * wp), (columns, across)),
                _block_offsets(channels, taps, sizes),
                lengths,
                record
                * offsets_of((samples, sizes.size * hp * wp), (rows, down * wp), (columns, across)),
                record * (offsets_of((sizes.size, hp * wp))[:, None] + taps).reshape(-1),
                words_of(lengths),
            )
        return self._tables[key]

    def _error_tables(self, samples: int) -> list[Tables]:
        """Return the same of each phase, as `Convolution._error_tables`, with the lengths of
        blocks.
        """
        key = "error", samples
        if key not in self._tables:
            g = self._geometry
            hp, wp = g.error_framed
            (h, w), (sh, sw), before, size = g.size, g.stride, g.error_before, g.oc * hp * wp
            sizes = _sizes(g.oc, self.block)[::-1]  # the last channel comes first
            tables, record = [], FLOAT_BYTES * self._packed.record
            for phase in self._phases:
                rows, columns = phase.rows, phase.columns
                down = before[0] + (rows.start + g.pad[0] - phase.first[0]) // sh
                right = before[1] + (columns.start + g.pad[1] - phase.first[1]) // sw
                begin = hp * wp - 1 - (down * wp + right)
                pixels = offsets_of((samples, h * w), (len(rows), sh * w), (len(columns), sw))
                places = (len(rows), -wp), (len(columns), -1)
                framed = offsets_of((samples, size), *places)
                records = offsets_of((samples, sizes.size * hp * wp), *places)
                taps = offsets_of((phase.down, wp), (phase.across, 1))
                lengths = np.repeat(sizes, taps.size)
                tables.append(
                    Tables.of(
                        backwards(pixels + (rows.start * w + columns.start)),
                        backwards(framed + begin),
                        _block_offsets(offsets_of((g.oc, hp * wp)), taps, sizes),
                        lengths,
                        record * backwards(records + begin),
                        record * (offsets_of((sizes.size, hp * wp))[:, None] + taps).reshape(-1),
                        words_of(lengths),
                    )
                )
            self._tables[key] = tables
        return self._tables[key]


def _sizes(count: int, block: int) -> NDArray[np.int64]:
    """Return the lengths of blocks of `count` values, from the first one on."""
    whole, rest = divmod(count, block)
    return np.array([block] * whole + [rest] * (rest > 0), np.int64)


def _block_offsets(
    channels: NDArray[np.int64], taps: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the offsets of (block of channels, tap, channel in the block)."""
    ends = np.cumsum(sizes)
    blocks = [channels[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    return np.concatenate([(taps[:, None] + block).reshape(-1) for block in blocks])


def _in_blocks(rows: Floats, block: int, *, turned: bool = False) -> Floats:
    """Return rows (lanes, channels, taps) as (lanes, (block, tap, channel in the block)); where
    `turned`, the shorter block is the first.
    """
    lanes, channels, taps = rows.shape
    rest = channels % block
    begin, end = (rest, channels) if turned else (0, channels - rest)
    whole = rows[:, begin:end].reshape(lanes, -1, block, taps).swapaxes(2, 3).reshape(lanes, -1)
    if not rest:
        return np.ascontiguousarray(whole)
    part = (rows[:, :rest] if turned else rows[:, end:]).swapaxes(1, 2).reshape(lanes, -1)
    return np.concatenate([part, whole] if turned else [whole, part], axis=1)


def _apart(flat: Floats, channels: int, block: int) -> Floats:
    """Return what `_in_blocks` took, (lanes, channels, taps), of rows that are not turned."""
    lanes, rest = len(flat), channels % block
    taps, whole = flat.shape[1] // channels, channels - rest
    rows = np.empty((lanes, channels, taps), np.float32)
    apart = flat[:, : whole * taps].reshape(lanes, -1, taps, block)
    rows[:, :whole] = apart.swapaxes(2, 3).reshape(lanes, whole, taps)
    if rest:
        rows[:, whole:] = flat[:, whole * taps :].reshape(lanes, taps, rest).swapaxes(1, 2)
    return rows


def _pack(rows: Floats, target: int) -> None:
    rows = np.ascontiguousarray(rows)
    layout.pack(rows.ctypes.data, *rows.shape, target, False)


def _panel_widths(lanes: int) -> Sequence[int]:
    """Return the widths of the panels of packed weights of some lanes."""
    widths = []
    while lanes > 0:
        widths.append(int(microkernel.vectors_of(lanes)) * FORM.width)
        lanes -= widths[-1]
    return widths
