"""Fill Numba's cache on disk, once, so that the processes of a run only load compiled code."""

import numpy as np

from . import bias, conv, dropout, loss, lrn, pool, relu, sgd
from .serve import serve


def compile_all() -> None:
    """Call every kernel once on tiny arrays, as training calls it. Takes about a second where the cache is full."""
    x = np.ones((1, 2, 3, 3), np.float32)
    w = np.ones((2, 2, 3, 3), np.float32)
    b = np.ones(2, np.float32)
    y = conv.forward(x, w, stride=1, pad=1)
    bias.add_bias(y, b)
    relu.error(relu.forward(y), y)
    normal, scale = lrn.forward(y, size=3, alpha=1e-4, beta=0.75, k=2.0)
    lrn.error(y, normal, scale, y, size=3, alpha=1e-4, beta=0.75, k=2.0)
    top, argmax = pool.max_forward(y, kernel=2, stride=1, pad=0)
    pool.max_error(top, argmax, y.shape, kernel=2, stride=1, pad=0)
    mean = pool.average_forward(y, kernel=2, stride=1, pad=0)
    pool.average_error(mean, y.shape, kernel=2, stride=1, pad=0)
    dropout.mask((1, 2, 3, 3), rate=0.5, seed=0, layer=0, samples=np.zeros(1, np.int64))
    _, errors, _ = loss.softmax_cross_entropy(np.ones((1, 2), np.float32), np.zeros(1, np.int64))
    bias.add_bias_gradient(b, errors.reshape(1, 2, 1, 1))
    dw = conv.gradient(x, y, w.shape, stride=1, pad=1)
    serve(np.zeros((1, 1), np.int64), 1, 0)
    sgd.update(w, dw, np.zeros_like(w), count=1, learning_rate=0.1, momentum=0.9, weight_decay=1e-4)


if __name__ == "__main__":
    compile_all()
