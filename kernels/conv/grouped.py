"""Convolution in groups: the output channels of a group are sums over its own input channels.

`Convolving` is what convolutions of all kinds have in common. A depthwise convolution, where each
channel has a kernel of its own, has loops of its own; the groups of others are convolutions side by
side, on parts of the same maps, frames and packed weights. Every value has the bits of
`Convolution` on its group alone.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..jit import FLOAT_BYTES, Floats, Kernels, in_place, of_float32, source, target
from ..memory import aligned
from ..window import extent, output_size
from .convolution import Convolution
from .geometry import Sums


class Convolving(Protocol):
    """A convolution of maps of `size`; what its methods take, give and refuse is said at
    `Convolution`.
    """

    @property
    def in_channels(self) -> int:
        """Number of input channels."""

    @property
    def out_channels(self) -> int:
        """Number of output channels."""

    @property
    def size(self) -> tuple[int, int]:
        """(rows, columns) of the input maps."""

    @property
    def output(self) -> tuple[int, int]:
        """(rows, columns) of the output maps."""

    @property
    def packed_size(self) -> int:
        """Floats of the packed weights."""

    @property
    def outputs_together(self) -> int:
        """Length of the runs in which packed weights of successive output channels, from 0 on, lie
        side by side.
        """

    @property
    def turned_size(self) -> int:
        """Floats of the weights as EB reads them."""

    def frame_shape(self, samples: int) -> tuple[int, ...]:
        """Return the shape of the input maps in their frame."""

    def error_frame_shape(self, samples: int) -> tuple[int, ...]:
        """Return the shape of the output errors in their frame."""

    def pack(self, w: Floats, out: Floats | None = None) -> Floats:
        """Return weights (oc, input channels of an output channel, kh, kw) as FP and PG use them,
        in `out` if given.
        """

    def unpack(self, packed: Floats, out: Floats | None = None) -> Floats:
        """Return packed weights as they were, in `out` if given."""

    def turn(self, packed: Floats, out: Floats) -> None:
        """Write packed weights to `out` as EB reads them."""

    def frame(self, x: Floats, out: Floats) -> None:
        """Write the inputs to the frame that `forward` and `gradient` read."""

    def error_frame(self, dy: Floats, out: Floats) -> None:
        """Write the output errors to the frame that `error` reads."""

    def forward(self, y: Floats, frame: Floats, packed: Floats, *, fresh: bool) -> None:
        """Run FP: add the outputs to `y` in place; where `fresh`, overwrite it."""

    def gradient(self, packed_gradient: Floats, frame: Floats, dy: Floats, *, fresh: bool) -> None:
        """Run PG: add the gradient to packed gradients in place; where `fresh`, overwrite them."""

    def error(self, dx: Floats, error_frame: Floats, turned: Floats, *, fresh: bool) -> None:
        """Run EB: add the input errors to `dx` in place; where `fresh`, overwrite it."""


kernels = Kernels("conv.depthwise_kernel")


@dataclasses.dataclass(frozen=True)
class Depthwise:
    """A convolution of `in_channels` maps of `size` (rows, columns), each by itself; see
    `Convolution`.

    Frames are the maps themselves, dense and channels last. Weights are packed as (taps, channels).
    """

    in_channels: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    dilation: tuple[int, int] = (1, 1)
    output: tuple[int, int] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        reach = extent(self.kernel, self.dilation)
        output = output_size(self.size, reach, stride=self.stride, pad=self.pad)
        object.__setattr__(self, "output", output)

    @property
    def out_channels(self) -> int:
        """Number of output channels."""
        return self.in_channels

    @property
    def packed_size(self) -> int:
        """Floats of the packed weights."""
        return math.prod(self.kernel) * self.in_channels

    @property
    def outputs_together(self) -> int:
        """See `Convolution`."""
        return 1

    @property
    def turned_size(self) -> int:
        """Floats of the weights as EB reads them."""
        return self.packed_size

    @property
    def _window(self) -> tuple[_Pair, _Pair, _Pair, _Pair]:
        return self.kernel, self.stride, self.pad, self.dilation

    def frame_shape(self, samples: int) -> tuple[int, ...]:
        """See `Convolution`."""
        return samples, *self.size, self.in_channels

    def error_frame_shape(self, samples: int) -> tuple[int, ...]:
        """See `Convolution`."""
        return samples, *self.output, self.in_channels

    def pack(self, w: Floats, out: Floats | None = None) -> Floats:
        """Return weights (channels, 1, kh, kw) as FP, EB and PG use them."""
        expected = self.in_channels, 1, *self.kernel
        if w.shape != expected:
            raise ValueError(f"weights {w.shape} do not fit; {expected} are needed")
        packed = aligned(FLOAT_BYTES * self.packed_size).view(np.float32) if out is None else out
        packed.reshape(-1, self.in_channels)[...] = (
            of_float32(w, "w").reshape(self.in_channels, -1).T
        )
        return packed

    def unpack(self, packed: Floats, out: Floats | None = None) -> Floats:
        """Return packed weights as weights (channels, 1, kh, kw)."""
        weights = packed.reshape(*self.kernel, 1, self.in_channels).transpose(3, 2, 0, 1)
        if out is None:
            return weights.copy()
        out[...] = weights
        return out

    def turn(self, packed: Floats, out: Floats) -> None:
        """Write packed weights to `out` for EB."""
        out[...] = packed

    def frame(self, x: Floats, out: Floats) -> None:
        """See `Convolution`."""
        out[...] = x

    def error_frame(self, dy: Floats, out: Floats) -> None:
        """See `Convolution`."""
        out[...] = dy

    def forward(self, y: Floats, frame: Floats, packed: Floats, *, fresh: bool) -> None:
        """Run FP: add the outputs to `y` (n, ho, wo, channels) in place; where `fresh`, overwrite
        `y`.
        """
        _check(y, self.error_frame_shape(len(y)), "y")
        x = self._dense(frame, self.frame_shape(len(y)), "frame")
        if fresh:
            y[...] = 0
        kernels.forward(*target(y, "y"), x, self.size, self._weights(packed), self._window)

    def gradient(self, packed_gradient: Floats, frame: Floats, dy: Floats, *, fresh: bool) -> None:
        """Run PG: add the gradient of `dy` (n, ho, wo, channels) to packed gradients; where
        `fresh`, overwrite them.
        """
        _check(dy, self.error_frame_shape(len(dy)), "dy")
        x = self._dense(frame, self.frame_shape(len(dy)), "frame")
        if fresh:
            packed_gradient[...] = 0
        whole, extent = source(np.ascontiguousarray(dy), "dy")
        kernels.gradient(self._weights(packed_gradient), x, self.size, whole, extent, self._window)

    def error(self, dx: Floats, error_frame: Floats, turned: Floats, *, fresh: bool) -> None:
        """Run EB: add the input errors to `dx` (n, rows, columns, channels) in place; where
        `fresh`, overwrite `dx`.
        """
        _check(dx, self.frame_shape(len(dx)), "dx")
        dy = self._dense(error_frame, self.error_frame_shape(len(dx)), "error_frame")
        if fresh:
            dx[...] = 0
        kernels.error(*target(dx, "dx"), dy, self.output, self._weights(turned), self._window)

    def _weights(self, packed: Floats) -> Floats:
        return self._dense(packed, (self.packed_size,), "weights")

    def _dense(self, array: Floats, shape: tuple[int, ...], name: str) -> Floats:
        _check(array, shape, name)
        return in_place(array, name).reshape(-1)


def _check(array: Floats, shape: tuple[int, ...], name: str) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; {shape} is needed")


_Pair = tuple[int, int]


def convolution(
    in_channels: int,
    outputs: Sequence[int],
    size: _Pair,
    kernel: _Pair,
    stride: _Pair,
    pad: _Pair,
    dilation: _Pair = (1, 1),
    sums: Sums = Sums.FP32,
) -> Convolving:
    """Return a convolution of `in_channels` maps of `size`; `outputs` has the outputs of each
    group. See `Convolution`.

    Raises ValueError where the kernel does not fit, or the input channels do not divide among the
    groups.
    """
    if len(outputs) == 1:
        return Convolution(in_channels, outputs[0], size, kernel, stride, pad, dilation, sums)
    if in_channels == len(outputs) == sum(outputs) and sums is Sums.FP32:
        return Depthwise(in_channels, size, kernel, stride, pad, dilation)
    return Grouped(in_channels, tuple(outputs), size, kernel, stride, pad, dilation, sums)


class Part(NamedTuple):
    """A group: its convolution, and where its data lie in those of all."""

    convolution: Any
    ins: slice
    outs: slice
    frame: slice
    error_frame: slice
    packed: slice
    turned: slice


@dataclasses.dataclass(frozen=True)
class Grouped:
    """A convolution in groups, `outputs` channels each; the first and the last may have fewer than
    others.

    Weights are (output channels, input channels of a group, kh, kw).
    """

    in_channels: int
    outputs: tuple[int, ...]
    size: _Pair
    kernel: _Pair
    stride: _Pair
    pad: _Pair
    dilation: _Pair = (1, 1)
    sums: Sums = Sums.FP32
    _whole: Any = dataclasses.field(init=False, repr=False, compare=False)
    _parts: tuple[Part, ...] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        inputs, rest = divmod(self.in_channels, len(self.outputs))
        if rest:
            raise ValueError(
                f"{self.in_channels} input channels do not divide among {len(self.outputs)} groups"
            )
        whole = self._side_by_side(self.in_channels, sum(self.outputs))
        known = {count: self._side_by_side(inputs, count) for count in set(self.outputs)}
        groups = [known[count] for count in self.outputs]
        frames, packed, turned = [], [], []
        for group in groups:
            frames.append(group.frame_shape(1)[1])
            packed.append(group.packed_size)
            turned.append(group.turned_size)
        outs = _spans(self.outputs)
        # A frame of errors is reversed as a whole, so that the last group is its first part.
        flipped = [
            slice(whole.out_channels - span.stop, whole.out_channels - span.start) for span in outs
        ]
        parts = zip(
            groups,
            _spans([inputs] * len(groups)),
            outs,
            _spans(frames),
            flipped,
            _spans(packed),
            _spans(turned),
            strict=True,
        )
        object.__setattr__(self, "_whole", whole)
        object.__setattr__(self, "_parts", tuple(Part(*part) for part in parts))

    def _side_by_side(self, in_channels: int, out_channels: int) -> Any:
        """Return the convolution of a group, or of all channels, whose frames these have."""
        window = self.size, self.kernel, self.stride, self.pad, self.dilation
        return Convolution(in_channels, out_channels, *window, self.sums)

    @property
    def out_channels(self) -> int:
        """Number of output channels."""
        return int(self._whole.out_channels)

    @property
    def output(self) -> tuple[int, int]:
        """(rows, columns) of the output maps."""
        output: tuple[int, int] = self._whole.output
        return output

    @property
    def packed_size(self) -> int:
        """Floats of the packed weights."""
        return self._parts[-1].packed.stop

    @property
    def outputs_together(self) -> int:
        """See `Convolution`."""
        return 1

    @property
    def turned_size(self) -> int:
        """Floats of the weights as EB reads them."""
        return self._parts[-1].turned.stop

    def frame_shape(self, samples: int) -> tuple[int, ...]:
        """See `Convolution`."""
        shape: tuple[int, ...] = self._whole.frame_shape(samples)
        return shape

    def error_frame_shape(self, samples: int) -> tuple[int, ...]:
        """See `Convolution`."""
        shape: tuple[int, ...] = self._whole.error_frame_shape(samples)
        return shape

    def pack(self, w: Floats, out: Floats | None = None) -> Floats:
        """Return weights (oc, input channels of a group, kh, kw) as FP and PG use them."""
        expected = self.out_channels, self.in_channels // len(self.outputs), *self.kernel
        if w.shape != expected:
            raise ValueError(f"weights {w.shape} do not fit; {expected} are needed")
        packed = aligned(FLOAT_BYTES * self.packed_size).view(np.float32) if out is None else out
        for part in self._parts:
            part.convolution.pack(w[part.outs], packed[part.packed])
        return packed

    def unpack(self, packed: Floats, out: Floats | None = None) -> Floats:
        """Return packed weights as weights (oc, input channels of a group, kh, kw)."""
        return np.concatenate(
            [part.convolution.unpack(packed[part.packed]) for part in self._parts], out=out
        )

    def turn(self, packed: Floats, out: Floats) -> None:
        """Write packed weights to `out` in the order in which EB reads them."""
        for part in self._parts:
            part.convolution.turn(packed[part.packed], out[part.turned])

    def frame(self, x: Floats, out: Floats) -> None:
        """See `Convolution`."""
        self._whole.frame(x, out)

    def error_frame(self, dy: Floats, out: Floats) -> None:
        """See `Convolution`."""
        self._whole.error_frame(dy, out)

    def forward(self, y: Floats, frame: Floats, packed: Floats, *, fresh: bool) -> None:
        """See `Convolution`."""
        for part in self._parts:
            own = self._inputs_of(frame, part)
            part.convolution.forward(y[..., part.outs], own, packed[part.packed], fresh=fresh)

    def _inputs_of(self, frame: Floats, part: Part) -> Floats:
        """Return a group's frame of inputs, of that of all."""
        return np.ascontiguousarray(frame[:, part.frame])

    def _errors_of(self, error_frame: Floats, part: Part) -> Floats:
        """Return a group's frame of output errors, of that of all."""
        return np.ascontiguousarray(error_frame[:, part.error_frame])

    def gradient(self, packed_gradient: Floats, frame: Floats, dy: Floats, *, fresh: bool) -> None:
        """See `Convolution`."""
        for part in self._parts:
            own = self._inputs_of(frame, part)
            part.convolution.gradient(
                packed_gradient[part.packed], own, dy[..., part.outs], fresh=fresh
            )

    def error(self, dx: Floats, error_frame: Floats, turned: Floats, *, fresh: bool) -> None:
        """See `Convolution`."""
        for part in self._parts:
            own = self._errors_of(error_frame, part)
            part.convolution.error(dx[..., part.ins], own, turned[part.turned], fresh=fresh)


def _spans(sizes: Sequence[int]) -> list[slice]:
    return [slice(*ends) for ends in itertools.pairwise(itertools.accumulate(sizes, initial=0))]
