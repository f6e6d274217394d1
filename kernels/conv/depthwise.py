"""Depthwise convolution: each channel has a kernel of its own. It has the interface and the bits of `Convolution`."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from ..jit import FLOAT_BYTES, Floats, Kernels, in_place, of_float32, source, target
from ..pages import aligned
from ..window import output_size

kernels = Kernels("conv.depthwise_kernel")


@dataclasses.dataclass(frozen=True)
class Depthwise:
    """A convolution of `in_channels` maps of `size` (rows, columns), each by itself; see `Convolution`.

    Frames are the maps themselves, dense and channels last. Weights are packed as (taps, channels).
    """

    in_channels: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    output: tuple[int, int] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        output = output_size(self.size, self.kernel, stride=self.stride, pad=self.pad)
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
    def turned_size(self) -> int:
        """Floats of the weights as EB reads them."""
        return self.packed_size

    @property
    def _window(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        return self.kernel, self.stride, self.pad

    def frame_shape(self, samples: int) -> tuple[int, ...]:
        """See `Convolution`."""
        return samples, *self.size, self.in_channels

    def error_frame_shape(self, samples: int) -> tuple[int, ...]:
        """See `Convolution`."""
        return samples, *self.output, self.in_channels

    def pack(self, w: Floats) -> Floats:
        """Return weights (channels, 1, kh, kw) as FP, EB and PG use them."""
        expected = self.in_channels, 1, *self.kernel
        if w.shape != expected:
            raise ValueError(f"weights {w.shape} do not fit; {expected} are needed")
        packed = aligned(FLOAT_BYTES * self.packed_size).view(np.float32)
        packed.reshape(-1, self.in_channels)[...] = of_float32(w, "w").reshape(self.in_channels, -1).T
        return packed

    def unpack(self, packed: Floats) -> Floats:
        """Return packed weights as weights (channels, 1, kh, kw)."""
        return packed.reshape(*self.kernel, 1, self.in_channels).transpose(3, 2, 0, 1).copy()

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
        """Run FP: add the outputs to `y` (n, ho, wo, channels) in place; where `fresh`, overwrite `y`."""
        _check(y, self.error_frame_shape(len(y)), "y")
        x = self._dense(frame, self.frame_shape(len(y)), "frame")
        if fresh:
            y[...] = 0
        kernels.forward(*target(y, "y"), x, self.size, self._weights(packed), self._window)

    def gradient(self, packed_gradient: Floats, frame: Floats, dy: Floats, *, fresh: bool) -> None:
        """Run PG: add the gradient of `dy` (n, ho, wo, channels) to packed gradients; where `fresh`, overwrite them."""
        _check(dy, self.error_frame_shape(len(dy)), "dy")
        x = self._dense(frame, self.frame_shape(len(dy)), "frame")
        if fresh:
            packed_gradient[...] = 0
        whole, extent = source(np.ascontiguousarray(dy), "dy")
        kernels.gradient(self._weights(packed_gradient), x, self.size, whole, extent, self._window)

    def error(self, dx: Floats, error_frame: Floats, turned: Floats, *, fresh: bool) -> None:
        """Run EB: add the input errors to `dx` (n, rows, columns, channels) in place; where `fresh`, overwrite `dx`."""
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
