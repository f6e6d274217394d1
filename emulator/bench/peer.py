"""PyTorch, where it is installed: the peer that our kernels are compared with.

The layout is that of plain training: contiguous NCHW maps and (oc, ic, kh, kw) weights, float32. FP is `conv2d` without
a bias; EB and PG are the function that PyTorch's backward pass calls, asked for the errors or the gradients alone.
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

from .shapes import Shape

Floats = NDArray[np.float32]

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # parameters of mallopt(3); 32 MiB is the greatest value of the first


def is_installed() -> bool:
    """Return whether PyTorch is installed."""
    return importlib.util.find_spec("torch") is not None


def version() -> str:
    """Return PyTorch's version without importing it."""
    return importlib.metadata.version("torch")


def load() -> ModuleType:
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
        of = self._shape
        none, one = (0, 0), (1, 1)
        with self._torch.no_grad():
            return self._torch.ops.aten.convolution_backward(
                self._dy, self._x, self._w, None, of.stride, of.pad, one, False, none, 1, (errors, not errors, False)
            )
