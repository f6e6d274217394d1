"""Convolutions of any shape, drawn, and how their results are compared."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from emuchain.kernels import conv


@dataclass(frozen=True)
class Case:
    n: int
    channels: tuple[int, int]
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    seed: int = 0
    whole: bool = False

    @property
    def window(self) -> dict[str, Any]:
        return {"stride": self.stride, "pad": self.pad}

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """x, w, dy: real numbers, or small whole numbers, whose sums are exact."""
        rng = np.random.default_rng(self.seed)
        x_shape, w_shape = (
            (self.n, self.channels[0], *self.size),
            (self.channels[1], self.channels[0], *self.kernel),
        )
        y_shape = conv.output_shape(x_shape, w_shape, **self.window)
        if self.whole:
            return tuple(
                rng.integers(-3, 4, shape).astype(np.float32)
                for shape in (x_shape, w_shape, y_shape)
            )
        return tuple(
            rng.standard_normal(shape, np.float32) for shape in (x_shape, w_shape, y_shape)
        )


@st.composite
def cases(draw: st.DrawFn, work: int = 3_000_000, whole: bool = False) -> Case:
    """Any convolution that a network may hold, but small: at most about `work` products."""
    kernel = draw(st.tuples(*[st.integers(1, 11)] * 2))
    stride = draw(st.tuples(*[st.integers(1, 4)] * 2))
    pad = tuple(draw(st.integers(0, k - 1)) for k in kernel)
    size = tuple(
        draw(st.integers(max(1, k - 2 * p), k + 10)) for k, p in zip(kernel, pad, strict=True)
    )
    ho, wo = (
        (s + 2 * p - k) // t + 1 for s, p, k, t in zip(size, pad, kernel, stride, strict=True)
    )
    each = ho * wo * kernel[0] * kernel[1]
    ic = draw(st.integers(1, max(1, min(130, work // each))))
    oc = draw(st.integers(1, max(1, min(130, work // each // ic))))
    n = draw(st.integers(1, max(1, min(7, work // each // ic // oc))))
    return Case(n, (ic, oc), size, kernel, stride, pad, draw(st.integers(0, 2**32)), whole)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and np.array_equal(a.view(np.uint32), b.view(np.uint32))
