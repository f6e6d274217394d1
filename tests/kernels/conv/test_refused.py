"""What a convolution refuses: windows, shapes, types and layouts that do not fit."""

from typing import Any

import numpy as np
import pytest

from emuchain.kernels import conv


@pytest.mark.parametrize(
    "x_shape, w_shape, stride, pad, message",
    [
        ((1, 3, 8, 8), (4, 2, 3, 3), 1, 0, "3 channels.*take 2"),
        ((1, 3, 8), (4, 3, 3, 3), 1, 0, "are needed"),
        ((1, 3, 2, 8), (4, 3, 3, 3), 1, 0, "does not fit in 2 rows"),
        ((1, 3, 8, 2), (4, 3, 3, 3), 1, 0, "does not fit in 2 columns"),
        ((1, 3, 8, 8), (4, 3, 3, 3), 0, 0, "stride must be at least 1"),
        ((1, 3, 8, 8), (4, 3, 3, 3), 1, 3, "less than the kernel"),
        ((1, 3, 8, 8), (4, 3, 3, 3), 1, (0, -1), "at least 0"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    x_shape: Any, w_shape: Any, stride: Any, pad: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        conv.forward(
            np.zeros(x_shape, np.float32), np.zeros(w_shape, np.float32), stride=stride, pad=pad
        )


def test_outputs_that_do_not_fit_are_refused() -> None:
    x, w, dy = (np.zeros(s, np.float32) for s in ((2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 8, 8)))
    short = dy[:, :, :7].copy()
    with pytest.raises(ValueError, match="give outputs"):
        conv.error(short, w, x.shape, stride=1, pad=1)
    with pytest.raises(ValueError, match="give outputs"):
        conv.gradient(x, short, w.shape, stride=1, pad=1)
    with pytest.raises(ValueError, match="partial has shape"):
        conv.forward(x, w, stride=1, pad=1, partial=short)
    of = conv.Convolution(3, 4, (8, 8), (3, 3), (1, 1), (1, 1))
    frame, packed = np.zeros(of.frame_shape(2), np.float32), of.pack(w)
    with pytest.raises(ValueError, match="channels last"):
        of.forward(np.zeros((2, 8, 16, 4), np.float32)[:, :, :8], frame, packed, fresh=True)
    with pytest.raises(ValueError, match="channels last"):
        of.forward(
            np.zeros((2, 4, 8, 8), np.float32).transpose(0, 2, 3, 1), frame, packed, fresh=True
        )
    with pytest.raises(ValueError, match="contiguous float32"):
        of.forward(np.zeros((2, 8, 8, 4), np.float32), frame[:, :, ::2], packed, fresh=True)
    with pytest.raises(TypeError, match="x must be float32"):
        conv.forward(x.astype(np.float64), w, stride=1, pad=1)
    with pytest.raises(TypeError, match="w must be float32"):
        conv.forward(x, w.astype(np.float64), stride=1, pad=1)
