"""Fill Numba's cache on disk, once, so that the processes of a run only load compiled code."""

from typing import Any

import numpy as np

from .conv import convolution as conv
from .fifo import serve
from .inceptionn import inceptionn
from .layers import bias, dropout, loss, lrn, pool, relu, sgd


def compile_all() -> None:
    """Call every kernel once on tiny arrays, as training calls it. Takes about a second where the cache is full."""
    x = np.ones((1, 3, 3, 2), np.float32)
    _convolve(x, padding=1)
    _convolve(np.ones((1, 3, 3, 4), np.float32)[..., :2], padding=1)
    _convolve(x, padding=0)  # the whole map, as in a fully connected layer
    y, b, window = np.ones_like(x), np.ones(2, np.float32), {"kernel": 2, "stride": 1, "pad": 0}
    bias.add_bias(y, b)
    relu.forward(y)
    relu.forward_with_bias(y, b)
    relu.error(y, np.ones_like(y))
    bias.add_bias_gradient(b, y, fresh=True)
    normal: dict[str, Any] = {"size": 3, "alpha": 1e-4, "beta": 0.75, "k": 2.0}
    scaled, scale, errors = np.empty_like(y), np.empty_like(y), np.empty_like(y)
    lrn.forward(y, scaled, scale, **normal)
    lrn.error(y, scaled, scale, scaled, errors, **normal)
    top = np.empty((1, 2, 2, 2), np.float32)
    places = np.empty(top.shape, np.uint8)
    pool.max_forward(y, top, places, **window)
    pool.max_error(top, places, errors, **window)
    pool.average_forward(y, top, **window)
    pool.average_error(top, errors, **window)
    dropout.mask(y, rate=0.5, seed=0, layer=0, samples=np.zeros(1, np.int64))
    loss.softmax_cross_entropy(np.ones((1, 2), np.float32), np.zeros(1, np.int64))
    serve(np.zeros((1, 1), np.int64), 1, 0)
    sgd.update(b, b, b, count=1, learning_rate=0.1, momentum=0.9, weight_decay=1e-4)
    buffer = inceptionn.compress(b, -10)
    inceptionn.decompress(buffer, b.size)
    inceptionn.width_counts(buffer, b.size)


def _convolve(x: conv.Floats, padding: int) -> None:
    of = conv.Convolution(2, 2, (3, 3), (3, 3), (1, 1), (padding, padding))
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
