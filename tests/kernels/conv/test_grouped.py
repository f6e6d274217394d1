"""Convolutions in groups: the bits of one convolution for each group, however they are cut, and
PyTorch's values.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.kernels import conv

relaxed = settings(deadline=None, max_examples=40)

Pair = tuple[int, int]


class Case(NamedTuple):
    n: int
    each: int
    outputs: tuple[int, ...]
    size: Pair
    kernel: Pair
    stride: Pair
    pad: Pair
    seed: int

    @property
    def of(self) -> conv.Convolving:
        channels = self.each * len(self.outputs)
        return conv.convolution(
            channels, self.outputs, self.size, self.kernel, self.stride, self.pad
        )

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """x and dy, channels last, and w."""
        random, of = np.random.default_rng(self.seed), self.of
        x = random.standard_normal((self.n, *self.size, of.in_channels), np.float32)
        w = random.standard_normal((of.out_channels, self.each, *self.kernel), np.float32)
        return x, w, random.standard_normal((self.n, *of.output, of.out_channels), np.float32)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kernel = draw(st.tuples(*[st.integers(1, 5)] * 2))
    stride = draw(st.tuples(*[st.integers(1, 3)] * 2))
    pad = tuple(draw(st.integers(0, k - 1)) for k in kernel)
    size = tuple(
        draw(st.integers(max(1, k - 2 * p), k + 7)) for k, p in zip(kernel, pad, strict=True)
    )
    n, seed = draw(st.integers(1, 4)), draw(st.integers(0, 2**32))
    if draw(st.booleans()):
        return Case(n, 1, (1,) * draw(st.integers(2, 40)), size, kernel, stride, pad, seed)
    inner = draw(st.integers(1, 20))
    outputs = (
        draw(st.integers(1, inner)),
        *[inner] * draw(st.integers(0, 3)),
        draw(st.integers(1, inner)),
    )
    return Case(n, draw(st.integers(1, 9)), outputs, size, kernel, stride, pad, seed)


def results(
    of: conv.Convolving, x: Any, w: Any, dy: Any, start: Any = None
) -> tuple[Any, Any, Any]:
    """y, dx and dw; with `start`, added to those."""
    n, packed, turned = len(x), of.pack(w), np.empty(of.turned_size, np.float32)
    of.turn(packed, turned)
    frame, error_frame = (
        np.empty(of.frame_shape(n), np.float32),
        np.empty(of.error_frame_shape(n), np.float32),
    )
    of.frame(x, frame)
    of.error_frame(dy, error_frame)
    fresh = start is None
    y, dx, dw = (
        (np.full_like(of_, np.nan) for of_ in (dy, x, w))
        if fresh
        else (each.copy() for each in start)
    )
    sums = of.pack(dw, np.full_like(packed, np.nan))
    of.forward(y, frame, packed, fresh=fresh)
    of.error(dx, error_frame, turned, fresh=fresh)
    of.gradient(sums, frame, dy, fresh=fresh)
    return y, dx, of.unpack(sums, np.full_like(dw, np.nan))


@relaxed
@given(cases())
def test_groups_are_convolutions_side_by_side(case: Case) -> None:
    """Depthwise, too: its own kernels have the bits of the micro-kernel."""
    x, w, dy = case.arrays
    y, dx, dw = results(case.of, x, w, dy)
    begin = 0
    for group, count in enumerate(case.outputs):
        ins, outs = slice(group * case.each, (group + 1) * case.each), slice(begin, begin + count)
        begin += count
        one = conv.Convolution(case.each, count, *case[3:7])
        found = results(
            one, np.ascontiguousarray(x[..., ins]), w[outs], np.ascontiguousarray(dy[..., outs])
        )
        for ours, expected in zip((y[..., outs], dx[..., ins], dw[outs]), found, strict=True):
            assert np.array_equal(ours, expected)


@relaxed
@given(cases())
def test_values_are_those_of_pytorch(case: Case) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    if len(set(case.outputs)) > 1:
        case = case._replace(outputs=case.outputs[:1] * len(case.outputs))
    x, w, dy = case.arrays
    tx, tw = (
        torch.tensor(each, dtype=torch.float64, requires_grad=True)
        for each in (x.transpose(0, 3, 1, 2), w)
    )
    y = torch.nn.functional.conv2d(tx, tw, None, case.stride, case.pad, groups=len(case.outputs))
    y.backward(torch.tensor(dy.transpose(0, 3, 1, 2), dtype=torch.float64))
    expected = y.detach().numpy(), tx.grad.numpy(), tw.grad.numpy()
    found = results(case.of, x, w, dy)
    for ours, theirs, axes in zip(
        found, expected, ((0, 3, 1, 2), (0, 3, 1, 2), (0, 1, 2, 3)), strict=True
    ):
        assert np.abs(ours.transpose(axes) - theirs).max() <= 1e-5 * max(1.0, np.abs(theirs).max())


@relaxed
@given(cases(), st.integers(0, 9))
def test_samples_and_sums_go_on(case: Case, cut: int) -> None:
    """Samples one by one, from given sums, and into slices of wider maps."""
    x, w, dy = case.arrays
    of, starts = (
        case.of,
        tuple(
            np.random.default_rng(cut).standard_normal(each.shape, np.float32)
            for each in (dy, x, w)
        ),
    )
    y, dx, dw = results(of, x, w, dy, starts)
    wide = np.zeros((*x.shape[:3], x.shape[3] + 3), np.float32)
    sums = starts[2]
    for sample in range(case.n):
        one = slice(sample, sample + 1)
        wide[one, ..., 2:-1] = x[one]
        some = results(of, wide[one, ..., 2:-1], w, dy[one], (starts[0][one], starts[1][one], sums))
        assert np.array_equal(some[0], y[one])
        assert np.array_equal(some[1], dx[one])
        sums = some[2]
    assert np.array_equal(sums, dw)


def test_depthwise_has_kernels_of_its_own() -> None:
    window = (6, 6), (3, 3), (1, 1), (1, 1)
    assert isinstance(conv.convolution(8, [1] * 8, *window), conv.Depthwise)
    assert isinstance(conv.convolution(8, [2] * 8, *window), conv.Grouped)
    assert isinstance(conv.convolution(8, [8], *window), conv.Convolution)


@pytest.mark.parametrize("outputs", [(1, 1, 1, 1), (2, 2)])
def test_shapes_that_do_not_fit_are_refused(outputs: tuple[int, ...]) -> None:
    of = conv.convolution(4, outputs, (5, 5), (3, 3), (1, 1), (1, 1))
    w = np.zeros((of.out_channels, 4 // len(outputs), 3, 3), np.float32)
    with pytest.raises(ValueError, match="do not fit"):
        of.pack(w[:-1])
    frame, y = (
        np.zeros(of.frame_shape(2), np.float32),
        np.zeros((2, *of.output, of.out_channels), np.float32),
    )
    packed = of.pack(w)
    with pytest.raises(ValueError, match="is needed"):
        of.forward(y[..., :-1], frame, packed, fresh=True)
    with pytest.raises(ValueError, match="is needed"):
        of.forward(y, frame[:1], packed, fresh=True)
    with pytest.raises(ValueError, match="is needed"):
        of.gradient(packed[:-1], frame, y, fresh=True)


def test_input_channels_must_divide() -> None:
    with pytest.raises(ValueError, match="5 input channels"):
        conv.convolution(5, (2, 2), (5, 5), (3, 3), (1, 1), (1, 1))
