"""A layer's FP, EB and PG as training calls them for a micro-batch.

A phase's time includes copying the maps into their frame (FP: inputs; EB: output errors; PG takes the frame that FP
has kept), the memory of its result, and the convolution, onto zeros. It excludes packing the weights and turning them
for EB, which training does once for each update and not for each micro-batch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena
from ...kernels.conv import Convolution
from .shapes import Shape

Floats = NDArray[np.float32]


class OurLayer:
    """A layer with its weights, inputs and output errors: taken in NCHW order, kept with the channels last."""

    def __init__(self, shape: Shape, x: Floats, w: Floats, dy: Floats) -> None:
        """Take `x` (n, ic, rows, columns), `w` (oc, ic, kh, kw) and `dy` (n, oc, output rows, output columns)."""
        self._conv = Convolution(
            shape.in_channels, shape.out_channels, shape.size, shape.kernel, shape.stride, shape.pad
        )
        self._arena = Arena()
        self._x, self._dy = self._channels_last(x), self._channels_last(dy)
        self._packed = self._conv.pack(w)
        self._turned = self._take(self._conv.turned_size)
        self._conv.turn(self._packed, self._turned)
        self._packed_gradient = self._take(self._conv.packed_size)
        self._frame = self._framed()

    def forward(self) -> Floats:
        """Compute FP; return y (n, output rows, output columns, oc)."""
        y = self._take(*self._dy.shape)
        self._conv.forward(y, self._framed(), self._packed, fresh=True)
        return y

    def error(self) -> Floats:
        """Compute EB; return dx (n, rows, columns, ic)."""
        framed = self._take(*self._conv.error_frame_shape(len(self._dy)))
        self._conv.error_frame(self._dy, framed)
        dx = self._take(*self._x.shape)
        self._conv.error(dx, framed, self._turned, fresh=True)
        return dx

    def gradient(self) -> Floats:
        """Compute PG; return packed gradients."""
        self._conv.gradient(self._packed_gradient, self._frame, self._dy, fresh=True)
        return self._packed_gradient

    def results(self, phase: str) -> Floats:
        """Return a phase's result in PyTorch's order: y or dx (n, channels, rows, columns), or dw (oc, ic, kh, kw)."""
        if phase == "PG":
            return self._conv.unpack(self.gradient())
        return (self.forward() if phase == "FP" else self.error()).transpose(0, 3, 1, 2)

    def _framed(self) -> Floats:
        framed = self._take(*self._conv.frame_shape(len(self._x)))
        self._conv.frame(self._x, framed)
        return framed

    def _channels_last(self, maps: Floats) -> Floats:
        n, channels, rows, columns = maps.shape
        kept = self._take(n, rows, columns, channels)
        kept[...] = maps.transpose(0, 2, 3, 1)
        return kept

    def _take(self, *shape: int) -> Floats:
        return self._arena.take(shape)
