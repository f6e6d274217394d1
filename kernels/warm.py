"""Fill the store of compiled kernels once, so that the processes of a run only load machine code."""

from __future__ import annotations

import numpy as np

from . import inceptionn, layers, recurrent
from .conv import Convolving, convolution
from .extensions import modules
from .fifo import serve
from .jit import Floats


def compile_all() -> None:
    """Call every kernel once on tiny arrays, as training calls it. This takes about a second if the store is full."""
    x = np.ones((1, 3, 3, 2), np.float32)
    window = (3, 3), (3, 3), (1, 1)
    padded, whole_map = convolution(2, [2], *window, (1, 1)), convolution(2, [2], *window, (0, 0))
    _convolve(padded, x)
    _convolve(padded, np.ones((1, 3, 3, 4), np.float32)[..., :2])
    _convolve(whole_map, x)  # as in a fully connected layer
    _convolve(convolution(2, [1, 1], *window, (1, 1)), x)
    for layer in modules(layers.__name__):
        layer.warm()
    recurrent.warm()
    serve(np.zeros((1, 1), np.int64), 1, 0)
    buffer = inceptionn.compress(np.ones(2, np.float32), -10)
    inceptionn.decompress(buffer, 2)
    inceptionn.width_counts(buffer, 2)


def _convolve(of: Convolving, x: Floats) -> None:
    packed, frame = np.ones(of.packed_size, np.float32), np.empty(of.frame_shape(1), np.float32)
    turned, y, dx = np.empty(of.turned_size, np.float32), np.empty((1, *of.output, 2), np.float32), np.empty_like(x)
    of.turn(packed, turned)
    of.frame(x, frame)
    of.forward(y, frame, packed, fresh=True)
    of.error_frame(y, np.empty(of.error_frame_shape(1), np.float32))
    of.error(dx, np.empty(of.error_frame_shape(1), np.float32), turned, fresh=True)
    of.gradient(packed, frame, y, fresh=True)
    of.pack(of.unpack(packed))


if __name__ == "__main__":
    compile_all()
