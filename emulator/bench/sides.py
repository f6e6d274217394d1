"""Both sides of a layer: ours as training calls it for a micro-batch, and PyTorch's, where that is installed.

The time of our phases includes copying the maps into their frame (FP: inputs; EB: output errors; PG takes the frame
that FP has kept), the memory of its result, and the convolution, onto zeros. It excludes packing the weights and
turning them for EB, which training does once for each update and not for each micro-batch. PyTorch's layout is that of
plain training: contiguous NCHW maps and (oc, ic, kh, kw) weights, float32. FP is `conv2d` without a bias; EB and PG are
the function that PyTorch's backward pass calls, asked for the errors or the gradients alone.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena
from ...kernels.conv import Convolution
from .shapes import Shape

Floats = NDArray[np.float32]

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # parameters of mallopt(3); 32 MiB is the greatest value of the first


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


def torch_is_installed() -> bool:
    """Return whether PyTorch is installed."""
    return importlib.util.find_spec("torch") is not None


def torch_version() -> str:
    """Return PyTorch's version without importing it."""
    return importlib.metadata.version("torch")


def load_torch() -> ModuleType:
    """Return PyTorch, set to one thread and to keep its memory from call to call."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    _keep_memory()
    return torch


def _keep_memory() -> None:
    """Let glibc's malloc keep freed memory, as our arena does.

    Otherwise large results would come from the system at each call, or not, depending on what was freed before; and
    their page faults can take three times as long as the layer.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    mallopt(_MMAP_THRESHOLD, 32 << 20)
    mallopt(_TRIM_THRESHOLD, 1 << 30)


class PeerLayer:
    """A layer with its weights, on the same arrays as `OurLayer`."""

    def __init__(self, torch: ModuleType, shape: Shape, x: Floats, w: Floats, dy: Floats) -> None:
        self._torch, self._shape = torch, shape
        self._x, self._w, self._dy = (torch.from_numpy(np.ascontiguousarray(array)) for array in (x, w, dy))

    def forward(self) -> Any:
        """Compute FP; return y."""
        with self._torch.no_grad():
            return self._torch.nn.functional.conv2d(
                self._x, self._w, stride=self._shape.stride, padding=self._shape.pad
            )

    def error(self) -> Any:
        """Compute EB; return dx."""
        return self._backward(True)[0]

    def gradient(self) -> Any:
        """Compute PG; return dw."""
        return self._backward(False)[1]

    def results(self, phase: str) -> Floats:
        """Return a phase's result."""
        return {"FP": self.forward, "EB": self.error, "PG": self.gradient}[phase]().numpy()

    def _backward(self, errors: bool) -> Any:
        stride, pad, none, one = self._shape.stride, self._shape.pad, (0, 0), (1, 1)
        with self._torch.no_grad():
            return self._torch.ops.aten.convolution_backward(
                self._dy, self._x, self._w, None, stride, pad, one, False, none, 1, (errors, not errors, False)
            )
