"""Convolutions that add their products in blocks of `block`: exactly within a block, and then once
to the sum, in fp32 (`block_kernel.py`). Blocks lie along what is summed:

- forward: `block` input channels at one place of the kernel; blocks ascending, and within them
  kernel row and column ascending
- error: `block` output channels at one place of the kernel; blocks descending, and within them
  kernel row and column ascending
- gradient: `block` output pixels of a sample, row by row; samples and blocks ascending

from channel 0, or the map's first pixel, on; the last block may be shorter. So sums have the same
bits however channels are cut between blocks, and samples between micro-batches.

Frames have the channels last. Packed weights have all channels of a block at a place of the kernel
side by side: k is (block, kernel row, kernel column, channel in the block). Error takes weights of
its own (`turn_weights`), since those of blocks are rounded in another direction there; and so does
gradient, of a place of the kernel after the other (`inputs_at`, `gradient_at`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jit import FLOAT_BYTES, Floats, Kernels, address_of, of_float32
from ..memory import aligned
from ..number import NARROW_BITS
from ..window import extent, output_size
from .convolution import Framing, layout
from .geometry import (
    BlockContraction,
    Geometry,
    Phase,
    padded_lanes,
    phases_of,
)
from .integers import (
    Integers,
    Packing,
    block_tables,
    column_tables,
    contract,
    sizes_of,
    words_of,
)
from .operands import (
    Tables,
    add_nothing,
    apart,
    flat_at,
    in_blocks,
    maps_at,
    offsets_of,
    panel_widths,
    whole_at,
)

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
    dilation: _Pair = (1, 1)
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
        reach = extent(self.kernel, self.dilation)
        output = output_size(self.size, reach, stride=self.stride, pad=self.pad)
        ic, oc = self.in_channels, self.out_channels
        # Of a kernel that covers the map, each place is a phase of its own: EB skips all padding.
        is_whole_map = self.size == self.kernel and self.pad == (0, 0)
        stride = self.kernel if is_whole_map else self.stride
        window = self.kernel, stride, self.pad
        geometry = Geometry(ic, oc, self.size, *window, output, self.dilation)
        phases = tuple(phases_of(geometry))
        known = {
            "output": output,
            "packed_size": int(padded_lanes(oc)) * geometry.taps,
            "turned_size": int(padded_lanes(ic)) * sum(phase.depth(oc) for phase in phases),
            "_packed": Packing(self.block),
            "_geometry": geometry,
            "_phases": phases,
            "_frame": (*geometry.framed, ic),
            "_error_frame": (*geometry.error_framed, oc),
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

    def frame(self, x: Floats, out: Floats) -> None:
        """See `Convolution`."""
        g = self._geometry
        _frame(x, g.size, g.ic, (g.pad, g.pad), whole_at(out, self.frame_shape(len(x)), "out"))

    def error_frame(self, dy: Floats, out: Floats) -> None:
        """See `Convolution`."""
        g, target = self._geometry, whole_at(out, self.error_frame_shape(len(dy)), "out")
        _frame(dy, g.output, g.oc, (g.error_before, g.error_after), target)

    def pack(self, w: Floats, out: Floats | None = None) -> Floats:
        """Return weights (oc, ic, kh, kw) as FP and PG use them, in `out` or in new memory."""
        if w.shape != self._shape:
            raise ValueError(f"weights {w.shape} do not fit; {self._shape} are needed")
        rows = of_float32(w, "w").reshape(self.out_channels, self.in_channels, self.places)
        if out is None:
            out = aligned(FLOAT_BYTES * self.packed_size).view(np.float32)
        own = in_blocks(rows, self.block)
        layout.pack(own.ctypes.data, *own.shape, flat_at(out, self.packed_size, "out"), False)
        return out

    def unpack(self, packed: Floats, out: Floats | None = None) -> Floats:
        """Return packed weights as weights (oc, ic, kh, kw), in `out` or in new memory."""
        depth = self._geometry.taps
        flat = np.empty((self.out_channels, depth), np.float32)
        place = flat_at(packed, self.packed_size, "packed")
        layout.pack(flat.ctypes.data, self.out_channels, depth, place, True)
        w = np.empty(self._shape, np.float32) if out is None else out
        w.reshape(self.out_channels, self.in_channels, self.places)[...] = apart(
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
                source, g.oc, g.ic, self.kernel, phase.first, g.tap_steps, self.block, place
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
            for width in panel_widths(lanes):
                for rows, size in reversed(sizes) if turned else sizes:
                    end = begin + rows * count * width
                    if rows:
                        yield flat[begin:end].reshape(-1, size, width)
                    begin = end

    def turn_weights(self, w: Floats, out: Floats) -> None:
        """Write weights (oc, ic, kh, kw) to `out` as EB reads them."""
        target, (down, across) = flat_at(out, self.turned_size, "out"), self._geometry.tap_steps
        for phase in self._phases:
            own = w[:, :, phase.first[0] :: down, phase.first[1] :: across]
            rows = own.reshape(self.out_channels, self.in_channels, -1).swapaxes(0, 1)
            own = in_blocks(rows, self.block, descending=True)
            layout.pack(own.ctypes.data, *own.shape, target + FLOAT_BYTES * phase.begin, False)

    def changed(self, weights: Floats) -> None:
        """Take note that packed or turned weights have changed: what is made of them at their next
        use is kept until this is called for them again.
        """
        self._packed.changed(address_of(weights))

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
            area = math.prod(g.framed)
            records = self._packed.records("a", source, samples, area, sizes_of(g.ic, self.block))
            panels = self._packed.weights(weights, weights, g.oc, tables.keep[3])
            to = place, pixel, pitch, 0, samples * self.pixels, g.oc
            if contract(to, records, tables, panels):
                return
        count = samples * self.pixels
        a, b = (source, a_pixel, a_k, g.taps), (weights, 0, lengths, tables.keep[3].size)
        operands = BlockContraction(place, pixel, pitch, count, g.oc, *a, *b)
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
            sizes = sizes_of(g.oc, self.block)
            area = math.prod(g.error_framed)
            records = self._packed.records("a", source, samples, area, sizes)
        for phase, tables in zip(self._phases, self._error_tables(samples), strict=True):
            pixel, a_pixel, a_k, lengths, *_ = tables.places
            if records:
                begin = weights + FLOAT_BYTES * phase.begin
                panels = self._packed.weights(weights, begin, g.ic, tables.keep[3])
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
        panels = self._errors(dy)
        if panels:
            self._gradients(packed_gradient, frame, dy, panels, lambda _, x: x, False, fresh=fresh)
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
        packs = True if to_7_bits else None
        self._gradients(packed_gradient, frame, dy, self._errors(dy), rounded, packs, fresh=fresh)

    def _gradients(
        self,
        packed_gradient: Floats,
        frame: Floats,
        dy: Floats,
        panels: Integers | None,
        rounded: Rounded,
        rounds: bool | None,
        *,
        fresh: bool,
    ) -> None:
        """Run `gradients`; unless `rounds` is None, inputs are tried as integers from their frame
        first, and rounded while they are packed, or not.
        """
        samples, channels = len(dy), self.in_channels
        for place in range(self.places):
            if panels and frame.size and rounds is not None:
                begin, offsets = self._read_at(frame, place), self._input_tables(samples).keep[1]
                lengths, tables = self._pixel_blocks(samples).keep[0], self._pixel_tables(samples)
                own = self._packed.pixels(begin, offsets, channels, lengths, rounds=rounds)
                to = packed_gradient, samples, place
                if self._integer_gradient(*to, own, tables, panels, fresh=fresh):
                    continue
            x = rounded(place, self.inputs_at(frame, place))
            self._gradient_at(packed_gradient, place, x, dy, panels, fresh=fresh)

    def inputs_at(self, frame: Floats, place: int) -> Floats:
        """Return what the outputs read through a place of the kernel, 0 to `places` - 1, from
        framed inputs: (n, ic, output pixels), a copy.
        """
        samples, channels = len(frame), self.in_channels
        x = np.empty((samples, channels, self.pixels), np.float32)
        if x.size:
            begin, steps = self._read_at(frame, place), np.array(self._pixel_steps(samples))
            by = tuple(steps[:, 1].tolist())
            layout.inputs_at(begin, by, samples, self.output, channels, address_of(x))
        return x

    def _read_at(self, frame: Floats, place: int) -> int:
        """Return the address of what the first output reads through a place of the kernel."""
        row, column = divmod(place, self.kernel[1])
        down, across = self.dilation
        pixel = row * down * self._geometry.framed[1] + column * across
        begin = whole_at(frame, self.frame_shape(len(frame)), "frame")
        return begin + FLOAT_BYTES * pixel * self.in_channels

    def _pixel_steps(self, samples: int) -> tuple[_Pair, _Pair, _Pair]:
        """Return the numbers of samples, and of rows and columns of outputs, and the floats of
        framed inputs from what one of them reads to what the next one does.
        """
        (hp, wp), (down, across) = self._geometry.framed, self._geometry.stride
        (rows, columns), ic = self.output, self.in_channels
        return (samples, hp * wp * ic), (rows, down * wp * ic), (columns, across * ic)

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
            sizes = sizes_of(pixels, self.block)
            records = self._packed.records("a", begin, samples, ic, sizes)
            tables = self._line_tables(samples)
            if self._integer_gradient(*to, place, records, tables, panels, fresh=fresh):
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
        inputs: Integers | None,
        tables: Tables,
        panels: Integers,
        *,
        fresh: bool,
    ) -> bool:
        """Run PG of a place in integers, if both operands are some; return whether they are."""
        if inputs is None:
            return False
        rows, channels = self._rows(place), (self.in_channels, self.out_channels)
        if fresh:
            self._clear(packed_gradient, rows.keep[0])
        target = flat_at(packed_gradient, self.packed_size, "packed_gradient")
        to = target, rows.places[0], 1, self._geometry.taps, *channels
        return contract(to, inputs, tables, panels)

    def _line_tables(self, samples: int) -> Tables:
        """Return the offsets of records of input channels and of blocks of pixels, and the words of
        blocks.
        """
        key = "lines", samples
        if key not in self._tables:
            ic, size = self.in_channels, FLOAT_BYTES * self._packed.record
            words = words_of(self._pixel_blocks(samples).keep[0])
            blocks = offsets_of((words.size, ic * size))
            self._tables[key] = Tables.of(offsets_of((ic, size)), blocks, words)
        return self._tables[key]

    def _pixel_tables(self, samples: int) -> Tables:
        """Return the same of channels side by side, as `Packing.pixels` writes them."""
        key = "words", samples
        if key not in self._tables:
            words = words_of(self._pixel_blocks(samples).keep[0])
            self._tables[key] = column_tables(self.in_channels, words)
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
        for width in panel_widths(self.out_channels):
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
            ends = np.empty(2, np.uint32)
            block_kernel.extent(np.ascontiguousarray(operand).reshape(-1).view(np.uint32), ends)
            # A number below fp32's normal ones counts as smaller than it is.
            least += int(ends[0]) >> 23
            largest += int(ends[1]) >> 23
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
            self._tables[key] = Tables.of(np.tile(sizes_of(self.pixels, self.block), samples))
        return self._tables[key]

    def _input_tables(self, samples: int) -> Tables:
        """Return the number of each output pixel, the offsets of pixels and of taps in the framed
        inputs, and the lengths of blocks.
        """
        key = "input", samples
        if key not in self._tables:
            g = self._geometry
            (hp, wp), pixels = g.framed, samples * self.pixels
            steps, (down, across) = self._pixel_steps(samples), g.dilation
            kernel = (g.kernel[0], down * wp), (g.kernel[1], across)
            read = offsets_of(*steps)
            places = np.arange(pixels), read, offsets_of(*kernel)
            self._tables[key] = block_tables(*places, self._packed, g.ic, hp * wp)
        return self._tables[key]

    def _error_tables(self, samples: int) -> list[Tables]:
        """Return the same of each phase, as `Convolution._error_tables`, with the lengths of
        blocks.
        """
        key = "error", samples
        if key not in self._tables:
            g = self._geometry
            hp, wp = g.error_framed
            (h, w), (sh, sw), (by_row, by_column) = g.size, g.stride, g.error_steps
            tables = []
            for phase in self._phases:
                rows, columns = phase.rows, phase.columns
                down, right = g.error_begin(phase)
                pixels = offsets_of((samples, h * w), (len(rows), sh * w), (len(columns), sw))
                read = offsets_of((samples, hp * wp), (len(rows), wp), (len(columns), 1))
                tables.append(
                    block_tables(
                        pixels + (rows.start * w + columns.start),
                        (read + down * wp + right) * g.oc,
                        offsets_of((phase.down, -by_row * wp), (phase.across, -by_column)),
                        self._packed,
                        g.oc,
                        hp * wp,
                        descending=True,
                    )
                )
            self._tables[key] = tables
        return self._tables[key]


def _frame(maps: Floats, size: _Pair, channels: int, zeros: tuple[_Pair, _Pair], out: int) -> None:
    """Write maps with rows and columns of zeros before and after them to an address."""
    place, pitch = maps_at(maps, (len(maps), *size, channels), "maps")
    if maps.size or len(maps) * channels:
        layout.frame_pixels(place, pitch, len(maps), channels, size, *zeros, out)
