"""Fill the store of compiled kernels once, so that the processes of a run only load machine code."""

from __future__ import annotations

import numpy as np

from . import inceptionn, layers, recurrent
from .conv import Convolution
from .extensions import modules
from .fifo import serve
from .jit import Floats


def compile_all() -> None:
    """Call every kernel once on tiny arrays, as training calls it. This takes about a second if the store is full."""
    x = np.ones((1, 3, 3, 2), np.float32)
    _convolve(x, padding=1)
    _convolve(np.ones((1, 3, 3, 4), np.float32)[..., :2], padding=1)
    _convolve(x, padding=0)  # the whole map, as in a fully connected layer
    for layer in modules(layers.__name__):
        layer.warm()
    recurrent.warm()
    serve(np.zeros((1, 1), np.int64), 1, 0)
    buffer = inceptionn.compress(np.ones(2, np.float32), -10)
    inceptionn.decompress(buffer, 2)
    inceptionn.width_counts(buffer, 2)


def _convolve(x: Floats, padding: int) -> None:
    of = Convolution(2, 2, (3, 3), (3, 3), (1, 1), (padding, padding))
    packed, frame = of.pack(np.ones((2, 2, 3, 3), np.float32)), np.empty(of.frame_shape(1), np.float32)
    turned, y, dx = np.empty(of.turned_size, np.float32), np.empty((1, *of.output, 2), np.float32), np.empty_like(x)
    of.turn(packed, turned)
    of.frame(x, frame)
    of.forward(y, frame, packed, fresh=True)
    of.error_frame(y, np.empty(of.error_frame_shape(1), np.float32))
    of.error(dx, np.empty(of.error_frame_shape(1), np.float32), turned, fresh=True)
    of.gradient(packed, frame, y, fresh=True)
    of.unpack(packed)


if __name__ == "__main__":
    compile_all()
