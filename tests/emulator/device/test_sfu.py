"""The special function unit: what its units give on the way there and back."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.device.sfu import Sfu
from emuchain.emulator.network import Layer, SfuStep, Tensor, Training
from emuchain.emulator.network.operations.activations import Relu
from emuchain.emulator.network.operations.conv import Conv
from emuchain.emulator.network.operations.pool import MaxPool
from emuchain.emulator.schedule import MicroBatch, SampleSpan
from emuchain.kernels import Arena
from emuchain.kernels.layers import pool
from emuchain.kernels.layers.activations import rectified_error, rectify


@given(
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(2, 6),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 1),
    st.integers(0, 2**32 - 1),
)
def test_the_way_back_through_relu_and_max_pool(
    samples: int, channels: int, size: int, kernel: int, stride: int, pad: int, seed: int
) -> None:
    """It is the pool's, then ReLU's, with equal maxima and not-a-numbers too."""
    kernel, pad = min(kernel, size), min(pad, min(kernel, size) - 1)
    out = (size + 2 * pad - kernel) // stride + 1
    small, large = (channels, out, out), (channels, size, size)
    operation = MaxPool(kernel=(kernel, kernel), stride=(stride, stride), pad=(pad, pad))
    x, convolved, rectified_map, pooled = (
        Tensor(n, shape) for n, shape in enumerate((large, large, large, small))
    )
    steps = (
        SfuStep(Relu(), (convolved,), rectified_map),
        SfuStep(operation, (rectified_map,), pooled),
    )
    layer = Layer(
        0, "a", x, convolved, (), (pooled,), Conv(channels=channels, kernel=(1, 1)), steps
    )
    sfu = Sfu(layer, 0, Arena())
    assert sfu.bias is not None
    random = np.random.default_rng(seed)
    sfu.bias.newest[...] = random.integers(-1, 2, channels)
    y = random.choice(
        np.array([-2, -1, -0.0, 0, 1, 2, np.nan], np.float32), (samples, size, size, channels)
    )
    dz = random.standard_normal((samples, out, out, channels)).astype(np.float32)

    rectified = y + sfu.bias.newest
    rectify(rectified)
    z, places, dx = np.empty_like(dz), np.empty(dz.shape, np.uint8), np.empty_like(y)
    pool.max_forward(rectified, z, places, kernel=kernel, stride=stride, pad=pad)
    pool.max_error(dz, places, dx, kernel=kernel, stride=stride, pad=pad)
    rectified_error(rectified, dx)

    whole = MicroBatch(7, 0, 0, samples).whole

    def forward(span: SampleSpan) -> Any:
        held = {1: y[span.slice].copy()}
        sfu.forward(span, held, 0, Training(0, np.arange(samples)[span.slice]))
        return held[3]

    def backward(span: SampleSpan) -> Any:
        errors = {3: dz[span.slice].copy()}
        sfu.backward(span, errors, 0)
        return errors[1]

    assert np.array_equal(forward(whole), z, equal_nan=True)
    assert backward(whole).tobytes() == dx.tobytes()

    there, back = samples // 2, samples // 3
    for span in spans(whole.micro_batch, there):
        assert np.array_equal(forward(span), z[span.slice], equal_nan=True)
    for span in spans(whole.micro_batch, back):
        assert backward(span).tobytes() == dx[span.slice].tobytes()


def spans(of: MicroBatch, *cuts: int) -> list[SampleSpan]:
    """The spans of a micro-batch that end at these samples and at its end."""
    return [
        SampleSpan(of, begin, end)
        for begin, end in itertools.pairwise([0, *cuts, of.samples])
        if begin < end
    ]
