"""Convolution of float32 maps: forward, error and gradient, bit-exact under any partition.

These are FP, EB and PG of FPDeep (sections 5.3, 5.4, 5.5; equations 1, 2, 3):

- forward, FP: y[n, r, c, o] = sum of x[n, r * stride + u - pad, c * stride + v - pad, i] * w[o, i,
  u, v]
- error, EB: dx, the derivative by x of sum(dy * y)
- gradient, PG: dw, the derivative by w of sum(dy * y)

Every value adds its products one by one, each by one fused multiply-add, in this order:

- forward: input channel, kernel row, kernel column, all ascending
- error: output channel descending, then kernel row, kernel column ascending
- gradient: sample, output row, output column, all ascending

and starts from a given partial sum, or from +0. So channels may be summed in slices that pass their
partial sums on (forward: from low to high, error: from high to low), and samples in micro-batches,
with the same bits. Padding counts as zeros (an infinite weight at a padded place gives a NaN).

`Convolution` works on maps whose channels come last, and on weights that are packed once for each
update, as training needs; functions at the end have the same for plain maps (n, channels, rows,
columns) and weights (oc, ic, kh, kw), for all other uses.

A fully connected layer is a convolution whose kernel is as large as the map; each of its inputs is
then a channel of one pixel, so that FP and EB are products of a matrix and a vector for each
sample, and PG adds their outer products.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..jit import FLOAT_BYTES, Floats, Kernels, of_float32
from ..memory import aligned
from ..window import Pair, extent, output_size, pair
from .geometry import Contraction, Geometry, Phase, Sums, lanes_together, padded_lanes, phases_of
from .operands import Tables, add_nothing, backwards, flat_at, maps_at, offsets_of, whole_at

layout, microkernel, narrow_kernel = (
    Kernels("conv.layout"),
    Kernels("conv.microkernel"),
    Kernels("conv.narrow_kernel"),
)


class Framing:
    """How a convolution writes maps with zeros around them, its frames, which its phases read."""

    in_channels: int
    out_channels: int
    size: tuple[int, int]
    output: tuple[int, int]
    _geometry: Geometry
    _frame: tuple[int, ...]
    _error_frame: tuple[int, ...]

    def frame_shape(self, samples: int) -> tuple[int, ...]:
        """Return the shape of the input maps in their frame."""
        return samples, *self._frame

    def error_frame_shape(self, samples: int) -> tuple[int, ...]:
        """Return the shape of the output errors in their frame."""
        return samples, *self._error_frame

    def frame(self, x: Floats, out: Floats) -> None:
        """Write the inputs `x` (n, rows, columns, ic) to the frame `out` that `forward` and
        `gradient` read.
        """
        samples = len(x)
        place, pitch = maps_at(x, (samples, *self.size, self.in_channels), "x")
        target = whole_at(out, self.frame_shape(samples), "out")
        pad = self._geometry.pad
        if out.size:
            layout.frame(
                place, pitch, samples, self.in_channels, self.size, pad, pad, False, target
            )

    def error_frame(self, dy: Floats, out: Floats) -> None:
        """Write the output errors `dy` (n, ho, wo, oc) to the frame `out` that `error` reads."""
        samples, g = len(dy), self._geometry
        place, pitch = maps_at(dy, (samples, *self.output, self.out_channels), "dy")
        target = whole_at(out, self.error_frame_shape(samples), "out")
        if out.size:
            layout.frame(
                place, pitch, samples, g.oc, g.output, g.error_before, g.error_after, True, target
            )


@dataclasses.dataclass(frozen=True)
class Convolution(Framing):
    """A convolution of `in_channels` maps of `size` (rows, columns) to `out_channels` maps.

    `kernel`, `stride`, `pad` and `dilation` are (rows, columns). All maps are float32 (n, rows, columns,
    channels); they may be slices of the channels of wider maps. What it sums is in the format of
    `sums`. Raises ValueError where the kernel does not fit. Its methods raise ValueError where
    shapes do not fit and TypeError where an array is not float32.

    `packed_size` and `turned_size` are the floats of the packed weights, and of the weights in the
    order of EB. `outputs_together` is the length of the runs in which packed weights of successive
    output channels, from 0 on, lie side by side; 1 if they do not. `is_whole_map` says whether the
    kernel covers the whole map, as in a fully connected layer.
    """

    in_channels: int
    out_channels: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    dilation: tuple[int, int] = (1, 1)
    sums: Sums = Sums.FP32
    output: tuple[int, int] = dataclasses.field(init=False)
    _geometry: Geometry = dataclasses.field(init=False, repr=False, compare=False)
    _frame: tuple[int, ...] = dataclasses.field(init=False, repr=False, compare=False)
    _error_frame: tuple[int, ...] = dataclasses.field(init=False, repr=False, compare=False)
    packed_size: int = dataclasses.field(init=False, compare=False)
    outputs_together: int = dataclasses.field(init=False, compare=False)
    turned_size: int = dataclasses.field(init=False, compare=False)
    is_whole_map: bool = dataclasses.field(init=False, compare=False)
    _phases: tuple[Phase, ...] = dataclasses.field(init=False, repr=False, compare=False)
    _tables: dict[Any, Any] = dataclasses.field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        reach = extent(self.kernel, self.dilation)
        output = output_size(self.size, reach, stride=self.stride, pad=self.pad)
        ic, oc = self.in_channels, self.out_channels
        window = self.kernel, self.stride, self.pad
        geometry = Geometry(ic, oc, self.size, *window, output, self.dilation)
        is_whole_map = self.size == self.kernel and self.pad == (0, 0)
        if is_whole_map:  # each input is a channel of one pixel, so a sum has no places to skip
            one = 1, 1
            geometry = Geometry(ic * self.size[0] * self.size[1], oc, one, one, one, (0, 0), one)
        phases = tuple(phases_of(geometry))
        known = {
            "output": output,
            "packed_size": int(padded_lanes(oc)) * geometry.taps,
            "outputs_together": int(lanes_together(oc)),
            "turned_size": (
                int(padded_lanes(geometry.ic)) * sum(phase.depth(oc) for phase in phases)
            ),
            "is_whole_map": is_whole_map,
            "_geometry": geometry,
            "_phases": phases,
            "_frame": (geometry.ic, *geometry.framed),
            "_error_frame": (oc, *geometry.error_framed),
        }
        for (
            name,
            value,
        ) in known.items():  # as frozen dataclasses set what follows from their fields
            object.__setattr__(self, name, value)

    def pack(self, w: Floats, out: Floats | None = None) -> Floats:
        """Return weights (oc, ic, kh, kw) as FP and PG use them: flat, in panels, with spare
        lanes 0.

        They are written to `out`, or to new memory that starts on a cache line.
        """
        expected = self.out_channels, self.in_channels, *self.kernel
        if w.shape != expected:
            raise ValueError(f"weights {w.shape} do not fit; {expected} are needed")
        plain, packed = (
            np.ascontiguousarray(of_float32(w, "w")),
            _new(self.packed_size) if out is None else out,
        )
        place = flat_at(packed, self.packed_size, "out")
        layout.pack(plain.ctypes.data, self.out_channels, self._geometry.taps, place, False)
        return packed

    def unpack(self, packed: Floats, out: Floats | None = None) -> Floats:
        """Return packed weights as weights (oc, ic, kh, kw), in `out` or in new memory."""
        place, shape = (
            flat_at(packed, self.packed_size, "packed"),
            (self.out_channels, self.in_channels, *self.kernel),
        )
        w = np.empty(shape, np.float32) if out is None else out
        layout.pack(whole_at(w, shape, "out"), self.out_channels, self._geometry.taps, place, True)
        return w

    def turn(self, packed: Floats, out: Floats) -> None:
        """Write packed weights to `out` in the order in which EB reads them."""
        g = self._geometry
        source, target = (
            flat_at(packed, self.packed_size, "packed"),
            flat_at(out, self.turned_size, "out"),
        )
        for phase in self._phases:
            place = target + FLOAT_BYTES * phase.begin
            layout.turn(source, g.oc, g.ic, g.kernel, phase.first, g.tap_steps, place)

    def forward(self, y: Floats, frame: Floats, packed: Floats, *, fresh: bool) -> None:
        """Run FP: add the outputs to `y` (n, ho, wo, oc) in place; where `fresh`, overwrite `y`."""
        samples, g = len(y), self._geometry
        place, pitch = maps_at(y, (samples, *self.output, self.out_channels), "y")
        source = whole_at(frame, self.frame_shape(samples), "frame")
        if not (y.size and frame.size):
            add_nothing(y, fresh)
            return
        pixel, a_pixel, a_k = self._input_tables(samples).places
        pixels, weights = (
            samples * g.output[0] * g.output[1],
            flat_at(packed, self.packed_size, "packed"),
        )
        self._contract(
            Contraction(
                place, pixel, pitch, pixels, g.oc, source, a_pixel, a_k, g.taps, weights, 0, fresh
            )
        )

    def gradient(self, packed_gradient: Floats, frame: Floats, dy: Floats, *, fresh: bool) -> None:
        """Run PG: add the gradient of `dy` (n, ho, wo, oc) to packed gradients; where `fresh`,
        overwrite them.
        """
        samples, g = len(dy), self._geometry
        place, pitch = maps_at(dy, (samples, *self.output, self.out_channels), "dy")
        source = whole_at(frame, self.frame_shape(samples), "frame")
        target = flat_at(packed_gradient, self.packed_size, "packed_gradient")
        if not (dy.size and frame.size):
            add_nothing(packed_gradient, fresh)
            return
        # FP's tables, exchanged: the pixels q of PG are taps, and it sums over output pixels.
        row, (_, a_k, a_pixel) = self._rows().places[0], self._input_tables(samples).places
        depth = samples * g.output[0] * g.output[1]
        operands = Contraction(
            target, row, 0, g.taps, g.oc, source, a_pixel, a_k, depth, place, pitch, fresh
        )
        self._contract_rows(operands)

    def error(self, dx: Floats, error_frame: Floats, turned: Floats, *, fresh: bool) -> None:
        """Run EB: add the input errors to `dx` (n, rows, columns, ic) in place; where `fresh`,
        overwrite `dx`.
        """
        samples, g = len(dx), self._geometry
        shape = samples, *self.size, self.in_channels
        place, pitch = maps_at(dx, shape, "dx")
        source = whole_at(error_frame, self.error_frame_shape(samples), "error_frame")
        weights = flat_at(turned, self.turned_size, "turned")
        if not (dx.size and error_frame.size):
            add_nothing(dx, fresh)
            return
        if self.is_whole_map and self.size != (1, 1):
            self._error_of_whole_map(dx, place, pitch, source, weights, fresh)
            return
        # The phases write only what a tap reaches; inputs that the strides skip have no error.
        if fresh and not self._reaches_all:
            dx[...] = 0
            fresh = False
        for phase, tables in zip(self._phases, self._error_tables(samples), strict=True):
            pixel, a_pixel, a_k = tables.places
            pixels, depth = tables.keep[0].size, phase.depth(g.oc)
            panels = weights + FLOAT_BYTES * phase.begin
            self._contract(
                Contraction(
                    place, pixel, pitch, pixels, g.ic, source, a_pixel, a_k, depth, panels, 0, fresh
                )
            )

    def _contract(self, operands: Contraction) -> None:
        if self.sums is Sums.FP32:
            microkernel.contract(operands)
        else:
            narrow_kernel.contract(self.sums.value, operands)

    def _contract_rows(self, operands: Contraction) -> None:
        if self.sums is Sums.FP32:
            microkernel.contract_rows(operands)
        else:
            narrow_kernel.contract_rows(self.sums.value, operands)

    @property
    def _reaches_all(self) -> bool:
        """Whether the strides skip no input."""
        g = self._geometry
        sides = zip(g.kernel, g.tap_steps, g.stride, strict=True)
        return all(min(kernel, classes) == step for kernel, classes, step in sides)

    def _error_of_whole_map(
        self, dx: Floats, place: int, pitch: int, source: int, weights: int, fresh: bool
    ) -> None:
        """Run EB of a fully connected layer whose inputs are maps: its lanes are all inputs,
        channel by channel.
        """
        samples, g = len(dx), self._geometry
        lanes = np.empty((samples, g.ic), np.float32)
        if not fresh:
            layout.frame(
                place,
                pitch,
                samples,
                self.in_channels,
                self.size,
                (0, 0),
                (0, 0),
                False,
                lanes.ctypes.data,
            )
        pixel, a_pixel, a_k = self._error_tables(samples)[0].places
        sums = lanes.ctypes.data
        self._contract(
            Contraction(
                sums, pixel, g.ic, samples, g.ic, source, a_pixel, a_k, g.oc, weights, 0, fresh
            )
        )
        layout.unframe(
            lanes.ctypes.data, samples, self.in_channels, self.size[0] * self.size[1], place, pitch
        )

    def _rows(self) -> Tables:
        """Return the table of the rows of the packed gradients."""
        if "rows" not in self._tables:
            self._tables["rows"] = Tables.of(np.arange(self._geometry.taps))
        return self._tables["rows"]

    def _input_tables(self, samples: int) -> Tables:
        """Return the number of each output pixel, and the offsets of pixels and of taps in the
        framed inputs.
        """
        key = "input", samples
        if key not in self._tables:
            g = self._geometry
            hp, wp = g.framed
            self._tables[key] = Tables.of(
                np.arange(samples * g.output[0] * g.output[1]),
                offsets_of(
                    (samples, g.ic * hp * wp),
                    (g.output[0], g.stride[0] * wp),
                    (g.output[1], g.stride[1]),
                ),
                offsets_of(
                    (g.ic, hp * wp),
                    (g.kernel[0], g.dilation[0] * wp),
                    (g.kernel[1], g.dilation[1]),
                ),
            )
        return self._tables[key]

    def _error_tables(self, samples: int) -> list[Tables]:
        """Return for each phase the numbers of input pixels, and offsets of pixels and products in
        the framed errors.

        Rows fall into as many classes as the stride says: kernel row u contributes only to rows r
        where r + pad - u * dilation is a multiple of the stride, from the output row that it is a
        multiple by. So the errors need no zeros between them. Products go down the channels, and up each map, as u
        and v rise. The frame is flipped and pixels are taken from the last to the first, so that
        all reads go forward, which is faster.
        """
        key = "error", samples
        if key not in self._tables:
            g = self._geometry
            hp, wp = g.error_framed
            (h, w), (sh, sw), size = g.size, g.stride, g.oc * hp * wp
            by_row, by_column = g.error_steps
            tables = []
            for phase in self._phases:
                rows, columns = phase.rows, phase.columns
                down, right = g.error_begin(phase)
                begin = (
                    hp * wp - 1 - (down * wp + right)
                )  # in the plane of the last channel, which comes first
                tables.append(
                    Tables.of(
                        backwards(
                            offsets_of((samples, h * w), (len(rows), sh * w), (len(columns), sw))
                            + (rows.start * w + columns.start)
                        ),
                        backwards(
                            offsets_of((samples, size), (len(rows), -wp), (len(columns), -1))
                            + begin
                        ),
                        offsets_of(
                            (g.oc, hp * wp),
                            (phase.down, by_row * wp),
                            (phase.across, by_column),
                        ),
                    )
                )
            self._tables[key] = tables
        return self._tables[key]


def _new(size: int) -> Floats:
    return aligned(FLOAT_BYTES * size).view(np.float32)


def output_shape(
    x_shape: tuple[int, ...], w_shape: tuple[int, ...], *, stride: Pair, pad: Pair
) -> tuple[int, int, int, int]:
    """Return the shape (n, oc, ho, wo) of the convolution of x (n, ic, h, w) with w (oc, ic, kh,
    kw).

    Raise ValueError where shapes do not fit.
    """
    if len(x_shape) != 4 or len(w_shape) != 4:
        raise ValueError(
            f"maps (n, ic, h, w) and weights (oc, ic, kh, kw) are needed, not {x_shape} and"
            f" {w_shape}"
        )
    if x_shape[1] != w_shape[1]:
        raise ValueError(
            f"maps {x_shape} have {x_shape[1]} channels, but weights {w_shape} take {w_shape[1]}"
        )
    ho, wo = output_size(x_shape[2:], w_shape[2:], stride=stride, pad=pad)
    return x_shape[0], w_shape[0], ho, wo


def forward(
    x: Floats,
    w: Floats,
    *,
    stride: Pair,
    pad: Pair,
    partial: Floats | None = None,
    sums: Sums = Sums.FP32,
) -> Floats:
    """Convolve `x` (n, ic, h, w) with `w` (oc, ic, kh, kw); return y (n, oc, ho, wo), a new array.

    `partial` (n, oc, ho, wo) is the sum over the input channels before these; it and y are in the
    format of `sums` (`narrow_kernel.py`). Raise ValueError where shapes do not fit,
    TypeError where an array is not float32.
    """
    shape = output_shape(x.shape, w.shape, stride=stride, pad=pad)
    convolution = _convolution(x.shape, w.shape, stride, pad, sums)
    y = _start(shape, partial, "partial")
    convolution.forward(
        y, _framed_inputs(convolution, x), convolution.pack(w), fresh=partial is None
    )
    return _channels_first(y)


def error(
    dy: Floats,
    w: Floats,
    x_shape: tuple[int, ...],
    *,
    stride: Pair,
    pad: Pair,
    partial: Floats | None = None,
    sums: Sums = Sums.FP32,
) -> Floats:
    """Return dx, of shape `x_shape` (n, ic, h, w), for `dy` (n, oc, ho, wo) and `w` (oc, ic, kh,
    kw), a new array.

    `partial` (n, ic, h, w) is the sum over the output channels after these; it and dx are in the
    format of `sums`. Raise ValueError where shapes do not fit, TypeError where an array is not
    float32.
    """
    _check(x_shape, w.shape, dy.shape, stride, pad)
    convolution = _convolution(x_shape, w.shape, stride, pad, sums)
    dx = _start(tuple(x_shape), partial, "partial")
    framed, turned = (
        np.empty(convolution.error_frame_shape(len(dy)), np.float32),
        aligned(FLOAT_BYTES * convolution.turned_size).view(np.float32),
    )
    convolution.error_frame(_channels_last(dy, "dy"), framed)
    convolution.turn(convolution.pack(w), turned)
    convolution.error(dx, framed, turned, fresh=partial is None)
    return _channels_first(dx)


def gradient(
    x: Floats,
    dy: Floats,
    w_shape: tuple[int, ...],
    *,
    stride: Pair,
    pad: Pair,
    accumulate: Floats | None = None,
    sums: Sums = Sums.FP32,
) -> Floats:
    """Return dw, of shape `w_shape` (oc, ic, kh, kw), for `x` (n, ic, h, w) and `dy` (n, oc, ho,
    wo), a new array.

    `accumulate` (oc, ic, kh, kw) is the sum over the samples before these; it and dw are in the
    format of `sums`. Raise ValueError where shapes do not fit, TypeError where an array is not
    float32.
    """
    _check(x.shape, w_shape, dy.shape, stride, pad)
    convolution = _convolution(x.shape, w_shape, stride, pad, sums)
    if accumulate is not None and accumulate.shape != tuple(w_shape):
        raise ValueError(f"accumulate has shape {accumulate.shape}; {tuple(w_shape)} is needed")
    packed = _new(convolution.packed_size) if accumulate is None else convolution.pack(accumulate)
    convolution.gradient(
        packed, _framed_inputs(convolution, x), _channels_last(dy, "dy"), fresh=accumulate is None
    )
    return convolution.unpack(packed)


def _convolution(
    x_shape: tuple[int, ...], w_shape: tuple[int, ...], stride: Pair, pad: Pair, sums: Sums
) -> Convolution:
    (_, _, h, w), (oc, ic, kh, kw) = x_shape, w_shape
    return Convolution(ic, oc, (h, w), (kh, kw), pair(stride), pair(pad), sums=sums)


def _check(
    x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], stride: Pair, pad: Pair
) -> None:
    expected = output_shape(x, w, stride=stride, pad=pad)
    if tuple(y) != expected:
        raise ValueError(
            f"maps {tuple(x)} and weights {tuple(w)} with stride {stride} and pad {pad} give"
            f" outputs {expected}, not {tuple(y)}"
        )


def _start(shape: tuple[int, ...], given: Floats | None, name: str) -> Floats:
    """Return maps with the channels last to add to: a copy of `given`, or a new array."""
    n, channels, h, w = shape
    if given is None:
        return np.empty((n, h, w, channels), np.float32)
    if given.shape != shape:
        raise ValueError(f"{name} has shape {given.shape}; {shape} is needed")
    return np.array(_channels_last(given, name))


def _framed_inputs(convolution: Convolution, x: Floats) -> Floats:
    framed = np.empty(convolution.frame_shape(len(x)), np.float32)
    convolution.frame(_channels_last(x, "x"), framed)
    return framed


def _channels_last(maps: Floats, name: str) -> Floats:
    return np.ascontiguousarray(of_float32(maps, name).transpose(0, 2, 3, 1))


def _channels_first(maps: Floats) -> Floats:
    return np.ascontiguousarray(maps.transpose(0, 3, 1, 2))
