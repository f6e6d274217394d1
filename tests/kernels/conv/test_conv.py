"""Convolution: its order of accumulation bit for bit, its independence of any cut, its values
against PyTorch.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numba import njit

from emuchain.kernels import conv
from emuchain.kernels.llvm import fma

from .cases import Case, cases, same_bits

relaxed = settings(deadline=None, max_examples=40)


@njit(cache=True)
def reference_forward(y, x, w, stride, pad):
    n, oc, ho, wo = y.shape
    for s in range(n):
        for o in range(oc):
            for r in range(ho):
                for c in range(wo):
                    for i in range(w.shape[1]):
                        for u in range(w.shape[2]):
                            for v in range(w.shape[3]):
                                row, column = r * stride[0] + u - pad[0], c * stride[1] + v - pad[1]
                                inside = 0 <= row < x.shape[2] and 0 <= column < x.shape[3]
                                value = x[s, i, row, column] if inside else np.float32(0)
                                y[s, o, r, c] = fma(value, w[o, i, u, v], y[s, o, r, c])


@njit(cache=True)
def reference_error(dx, dy, w, stride, pad):
    """Where the kernel covers the whole map, as in a fully connected layer, EB has no frame."""
    n, ic, h, width = dx.shape
    framed = not (pad == (0, 0) and w.shape[2:] == (h, width))
    for s in range(n):
        for i in range(ic):
            for row in range(h):
                for column in range(width):
                    for o in range(w.shape[0] - 1, -1, -1):
                        for u in range(w.shape[2]):
                            for v in range(w.shape[3]):
                                r, down = divmod(row + pad[0] - u, stride[0])
                                c, across = divmod(column + pad[1] - v, stride[1])
                                inside = 0 <= r < dy.shape[2] and 0 <= c < dy.shape[3]
                                if down == across == 0 and (inside or framed):
                                    value = dy[s, o, r, c] if inside else np.float32(0)
                                    dx[s, i, row, column] = fma(
                                        value, w[o, i, u, v], dx[s, i, row, column]
                                    )


@njit(cache=True)
def reference_gradient(dw, x, dy, stride, pad):
    oc, ic, kh, kw = dw.shape
    for o in range(oc):
        for i in range(ic):
            for u in range(kh):
                for v in range(kw):
                    for s in range(dy.shape[0]):
                        for r in range(dy.shape[2]):
                            for c in range(dy.shape[3]):
                                row, column = r * stride[0] + u - pad[0], c * stride[1] + v - pad[1]
                                inside = 0 <= row < x.shape[2] and 0 <= column < x.shape[3]
                                value = x[s, i, row, column] if inside else np.float32(0)
                                dw[o, i, u, v] = fma(value, dy[s, o, r, c], dw[o, i, u, v])


connected = Case(3, (130, 70), (7, 5), (7, 5), (1, 1), (0, 0))
corner = Case(2, (3, 65), (1, 1), (11, 11), (4, 4), (10, 10))
sparse = Case(2, (17, 33), (9, 9), (1, 1), (3, 4), (0, 0))
deep = Case(2, (67, 129), (5, 5), (3, 3), (1, 1), (1, 1))
broad = Case(3, (3, 5), (40, 30), (3, 3), (1, 1), (1, 1))
negative_zero = Case(2, (100, 38), (6, 7), (6, 9), (1, 1), (0, 1), 165150)
"""A gradient's start is -0 by chance, and all its products are of padding."""


@relaxed
@given(cases())
@example(connected)
@example(corner)
@example(sparse)
@example(deep)
@example(broad)
@example(negative_zero)
def test_every_value_takes_its_products_in_the_stated_order(case: Case) -> None:
    x, w, dy = case.arrays()
    rng = np.random.default_rng(case.seed + 1)
    y, dx, dw = (rng.standard_normal(a.shape, np.float32) for a in (dy, x, w))
    found = (
        conv.forward(x, w, **case.window, partial=y),
        conv.error(dy, w, x.shape, **case.window, partial=dx),
        conv.gradient(x, dy, w.shape, **case.window, accumulate=dw),
    )
    reference_forward(y, x, w, case.stride, case.pad)
    reference_error(dx, dy, w, case.stride, case.pad)
    reference_gradient(dw, x, dy, case.stride, case.pad)
    assert same_bits(found[0], y)
    assert same_bits(found[1], dx)
    assert same_bits(found[2], dw)


@relaxed
@given(cases())
@example(connected)
@example(corner)
@example(sparse)
def test_zeros_of_padding_are_multiplied(case: Case) -> None:
    """A sum that is -0 stays so if all its products are -0: not where the frame's zeros, which are
    +0, take part.
    """
    x, w, dy = (np.zeros_like(a) for a in case.arrays())
    y, dx, dw = -dy, -x, -w
    found = (
        conv.forward(-x, w, **case.window, partial=y),
        conv.error(-dy, w, x.shape, **case.window, partial=dx),
        conv.gradient(-x, dy, w.shape, **case.window, accumulate=dw),
    )
    reference_forward(y, -x, w, case.stride, case.pad)
    reference_error(dx, -dy, w, case.stride, case.pad)
    reference_gradient(dw, -x, dy, case.stride, case.pad)
    assert all(map(same_bits, found, (y, dx, dw)))


@relaxed
@given(cases(), st.data())
def test_no_cut_changes_a_bit(case: Case, data: st.DataObject) -> None:
    x, w, dy = case.arrays()
    (n, ic, _, _), oc = x.shape, w.shape[0]
    i, o, s = (data.draw(st.integers(1, count - 1)) if count > 1 else 0 for count in (ic, oc, n))
    window = case.window
    y = conv.forward(x, w, **window)
    dx = conv.error(dy, w, x.shape, **window)
    dw = conv.gradient(x, dy, w.shape, **window)

    if i:
        low = conv.forward(x[:, :i], w[:, :i], **window)
        assert same_bits(conv.forward(x[:, i:], w[:, i:], **window, partial=low), y)
        parts = [
            conv.error(dy, w[:, a], (n, w[:, a].shape[1], *case.size), **window)
            for a in np.s_[:i, i:]
        ]
        assert same_bits(np.concatenate(parts, 1), dx)
        parts = [conv.gradient(x[:, a], dy, w[:, a].shape, **window) for a in np.s_[:i, i:]]
        assert same_bits(np.concatenate(parts, 1), dw)
    if o:
        high = conv.error(dy[:, o:], w[o:], x.shape, **window)
        assert same_bits(conv.error(dy[:, :o], w[:o], x.shape, **window, partial=high), dx)
        assert same_bits(
            np.concatenate([conv.forward(x, w[a], **window) for a in np.s_[:o, o:]], 1), y
        )
        parts = [conv.gradient(x, dy[:, a], w[a].shape, **window) for a in np.s_[:o, o:]]
        assert same_bits(np.concatenate(parts), dw)
    if s:
        first = conv.gradient(x[:s], dy[:s], w.shape, **window)
        assert same_bits(conv.gradient(x[s:], dy[s:], w.shape, **window, accumulate=first), dw)
        assert same_bits(
            np.concatenate([conv.forward(x[a], w, **window) for a in np.s_[:s, s:]]), y
        )
        assert same_bits(
            np.concatenate([conv.error(dy[a], w, x[a].shape, **window) for a in np.s_[:s, s:]]), dx
        )


def exact(x: np.ndarray, w: np.ndarray, dy: np.ndarray, window: dict[str, Any]) -> list[np.ndarray]:
    """y, dx, dw by PyTorch in float64, whose rounding is far below that of float32."""
    torch = pytest.importorskip("torch", reason="PyTorch is what the values are compared with")
    tx, tw, ty = (torch.tensor(a, dtype=torch.float64) for a in (x, w, dy))
    keys = {"stride": window["stride"], "padding": window["pad"]}
    results = (
        torch.nn.functional.conv2d(tx, tw, **keys),
        torch.nn.grad.conv2d_input(tx.shape, tw, ty, **keys),
        torch.nn.grad.conv2d_weight(tx, tw.shape, ty, **keys),
    )
    return [result.numpy() for result in results]


def ours(x: np.ndarray, w: np.ndarray, dy: np.ndarray, window: dict[str, Any]) -> list[np.ndarray]:
    return [
        conv.forward(x, w, **window),
        conv.error(dy, w, x.shape, **window),
        conv.gradient(x, dy, w.shape, **window),
    ]


@relaxed
@given(cases(work=10_000_000, whole=True))
def test_whole_numbers_give_what_pytorch_gives(case: Case) -> None:
    """Sums of products of small whole numbers are exact in float32, so nothing needs a
    tolerance.
    """
    arrays = case.arrays()
    for found, expected in zip(
        ours(*arrays, case.window), exact(*arrays, case.window), strict=True
    ):
        assert np.array_equal(found, expected)


@relaxed
@given(cases(work=10_000_000))
def test_real_numbers_are_within_rounding_of_pytorch(case: Case) -> None:
    """m roundings, each at most 2^-24 of a sum that never exceeds the sum of |products| (but for
    its rounding).
    """
    x, w, dy = case.arrays()
    products = w[0].size, w.shape[0] * w[0, 0].size, dy[:, 0].size
    bounds = exact(abs(x), abs(w), abs(dy), case.window)
    results = zip(
        ours(x, w, dy, case.window), exact(x, w, dy, case.window), bounds, products, strict=True
    )
    for found, expected, bound, m in results:
        assert found.dtype == np.float32
        assert np.all(abs(found - expected) <= 1.01 * m * 2.0**-24 * bound)


@pytest.mark.parametrize(
    "n, channels, size, kernel, stride, pad",
    [
        (1, (3, 96), (227, 227), 11, 4, 0),
        (1, (3, 64), (224, 224), 3, 1, 1),
        (64, (5, 21), (9, 11), 3, 2, 1),
        (16, (300, 200), (1, 1), 1, 1, 0),
        (5, (64, 600), (7, 7), 7, 1, 0),
    ],
)
def test_layers_of_real_size(
    n: int, channels: tuple[int, int], size: Any, kernel: int, stride: int, pad: int
) -> None:
    case = Case(n, channels, size, (kernel, kernel), (stride, stride), (pad, pad), whole=True)
    arrays = case.arrays()
    by_int = ours(*arrays, {"stride": stride, "pad": pad})
    for found, expected in zip(by_int, exact(*arrays, case.window), strict=True):
        assert np.array_equal(found, expected)


def test_arguments_stay_as_they_are_whatever_their_layout() -> None:
    case = Case(2, (6, 7), (5, 6), (3, 2), (1, 2), (1, 0), seed=1)
    plain = case.arrays()
    expected = ours(*plain, case.window)
    views = [np.repeat(np.repeat(a, 2, 1), 2, 3)[:, ::2, :, ::2] for a in plain]
    for view in views:
        view.flags.writeable = False
    copies = [view.copy() for view in views]
    for found, right in zip(ours(*views, case.window), expected, strict=True):
        assert same_bits(found, right)
        assert found.flags.c_contiguous
    for view, copy in zip(views, copies, strict=True):
        assert same_bits(view.copy(), copy)
    partial = np.ones_like(expected[0])
    conv.forward(plain[0], plain[1], **case.window, partial=partial)
    assert np.all(partial == 1)


@pytest.mark.parametrize("size, pad", [((5, 6), (1, 1)), ((3, 3), (0, 0))])
def test_slices_of_nothing_add_nothing(size: tuple[int, int], pad: tuple[int, int]) -> None:
    case = Case(2, (3, 4), size, (3, 3), (1, 1), pad)
    (x, w, dy), window = case.arrays(), case.window
    assert same_bits(conv.forward(x[:, :0], w[:, :0], **window, partial=dy), dy)
    assert same_bits(conv.error(dy[:, :0], w[:0], x.shape, **window, partial=x), x)
    assert same_bits(conv.gradient(x[:0], dy[:0], w.shape, **window, accumulate=w), w)
    assert conv.forward(x, w[:0], **window).shape == dy[:, :0].shape
    assert conv.forward(x[:0], w, **window).shape == dy[:0].shape


@relaxed
@given(cases(), st.integers(0, 3), st.integers(0, 3))
@example(connected, 1, 2)
@example(sparse, 0, 1)
def test_maps_may_be_slices_of_wider_ones(case: Case, before: int, after: int) -> None:
    """As training calls it: channels last, weights packed once, results written between other
    channels.
    """
    x, w, dy = case.arrays()
    of = conv.Convolution(*case.channels, case.size, case.kernel, case.stride, case.pad)

    def wide(maps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        whole = np.full(
            (*maps.shape[:1], *maps.shape[2:], before + maps.shape[1] + after), np.float32(7)
        )
        part = whole[..., before : before + maps.shape[1]]
        part[...] = maps.transpose(0, 2, 3, 1)
        return whole, part

    def narrow(whole: np.ndarray, part: np.ndarray) -> np.ndarray:
        assert np.all(whole[..., :before] == 7)
        assert np.all(whole[..., before + part.shape[-1] :] == 7)
        return part.transpose(0, 3, 1, 2)

    packed = of.pack(w)
    turned, gradient = (
        np.full(of.turned_size, np.nan, np.float32),
        np.full(of.packed_size, np.nan, np.float32),
    )
    frame = np.full(of.frame_shape(case.n), np.nan, np.float32)
    error_frame = np.full(of.error_frame_shape(case.n), np.nan, np.float32)
    y, dx = wide(np.full_like(dy, np.nan)), wide(np.full_like(x, np.nan))
    of.turn(packed, turned)
    of.frame(wide(x)[1], frame)
    of.error_frame(wide(dy)[1], error_frame)
    of.forward(y[1], frame, packed, fresh=True)
    of.error(dx[1], error_frame, turned, fresh=True)
    of.gradient(gradient, frame, wide(dy)[1], fresh=True)
    assert same_bits(of.unpack(packed), w)
    assert same_bits(of.pack(w, np.full_like(packed, np.nan)), packed)
    assert same_bits(of.unpack(packed, np.full_like(w, np.nan)), w)
    assert same_bits(narrow(*y), conv.forward(x, w, **case.window))
    assert same_bits(narrow(*dx), conv.error(dy, w, x.shape, **case.window))
    assert same_bits(of.unpack(gradient), conv.gradient(x, dy, w.shape, **case.window))
    together = of.outputs_together
    channels = of.pack(
        np.broadcast_to(np.arange(len(w), dtype=np.float32)[:, None, None, None], w.shape)
    )
    if together > 1:
        runs = channels.reshape(-1, together)
        assert same_bits(runs, runs[:, :1] + np.arange(together, dtype=np.float32))
        assert not np.any(runs[:, 0] % together)
    lanes = of.pack(np.ones_like(w))
    assert not np.any(
        gradient[lanes == 0]
    )  # spare lanes stay 0, so that an update does not change them
    of.gradient(gradient, frame, wide(dy)[1], fresh=False)
    twice = conv.gradient(
        x, dy, w.shape, **case.window, accumulate=conv.gradient(x, dy, w.shape, **case.window)
    )
    assert same_bits(of.unpack(gradient), twice)


def test_one_rounding_for_each_product() -> None:
    """(1 + 2^-12)^2 = 1 + 2^-11 + 2^-24; less 1 + 2^-11, only a fused multiply-add keeps the last
    part.
    """
    x = np.full((1, 1, 1, 1), 1 + 2.0**-12, np.float32)
    partial = np.full((1, 1, 1, 1), -(1 + 2.0**-11), np.float32)
    window: dict[str, Any] = {"stride": 1, "pad": 0}
    for found in (
        conv.forward(x, x, **window, partial=partial),
        conv.error(x, x, x.shape, **window, partial=partial),
        conv.gradient(x, x, x.shape, **window, accumulate=partial),
    ):
        assert found.item() == 2.0**-24
