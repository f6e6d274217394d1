"""Sums in bf16 and fp16, rounded after each product, and in integers: against own sums, and
whatever the cut.
"""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.kernels import conv
from emuchain.kernels.conv import Sums

from .cases import Case, cases, same_bits

NARROW = {Sums.BF16: ml_dtypes.bfloat16, Sums.FP16: np.float16}
relaxed = settings(deadline=None, max_examples=20)


def on(values: np.ndarray, dtype: Any) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float32).astype(dtype).astype(np.float32)


def fused(a: np.ndarray, b: np.ndarray, total: np.ndarray) -> np.ndarray:
    """a * b + total, rounded to fp32 once: of factors of 8 bits, float64 holds product and sum
    without rounding.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return (a.astype(np.float64) * b.astype(np.float64) + total).astype(np.float32)


@pytest.mark.parametrize("sums", NARROW)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 300.0])
def test_each_product_is_added_and_rounded(sums: Sums, scale: float) -> None:
    rng, dtype = np.random.default_rng(3), NARROW[sums]
    x = on(rng.standard_normal((5, 300)), ml_dtypes.bfloat16)
    w = on(rng.standard_normal((50, 300)) * scale, ml_dtypes.bfloat16)
    start = on(rng.standard_normal((5, 50)) * scale, dtype)
    expected = start
    for k in range(300):
        expected = on(fused(x[:, None, k], w[None, :, k], expected), dtype)
    y = conv.forward(
        x[..., None, None],
        w[..., None, None],
        stride=1,
        pad=0,
        partial=start[..., None, None],
        sums=sums,
    )
    assert same_bits(y[..., 0, 0], expected)


@pytest.mark.parametrize("sums", NARROW)
def test_infinity_nan_least_and_largest_values(sums: Sums) -> None:
    dtype = NARROW[sums]
    largest = np.float32(ml_dtypes.finfo(dtype).max)
    least = np.float32(ml_dtypes.finfo(dtype).smallest_subnormal)
    starts = np.float32(
        [largest, -largest, least, -least, 0.75 * least, np.inf, -np.inf, np.nan, 0, -0.0, largest]
    )
    a = np.float32([2**-9, -(2**-8), 0.5, -0.5, 0, 1, -1, 1, 0.25, 0, 1])
    b = np.float32([largest, largest, least, least, 0, 1, 1, 1, least, 0, 0])
    y = conv.forward(
        a[:, None, None, None],
        np.ones((1, 1, 1, 1), np.float32),
        stride=1,
        pad=0,
        partial=starts[:, None, None, None],
        sums=sums,
    )
    assert np.array_equal(y.reshape(-1), on(a + starts, dtype), equal_nan=True)
    for factor, other, start in zip(a, b, starts, strict=True):
        one = (np.full((1, 1, 1, 1), value, np.float32) for value in (factor, other))
        y = conv.forward(*one, stride=1, pad=0, partial=np.full((1, 1, 1, 1), start), sums=sums)
        assert np.array_equal(y.reshape(()), on(fused(factor, other, start), dtype), equal_nan=True)


def whole_numbers(case: Case) -> list[np.ndarray]:
    rng = np.random.default_rng(case.seed)
    return [rng.integers(-127, 128, array.shape).astype(np.float32) for array in case.arrays()]


@relaxed
@given(cases(300_000, whole=True))
def test_integers_are_added(case: Case) -> None:
    x, w, dy = whole_numbers(case)
    in_double = [array.astype(np.float64) for array in (x, w, dy)]
    results = (
        conv.forward(x, w, **case.window, sums=Sums.INT32),
        conv.error(dy, w, x.shape, **case.window, sums=Sums.INT32),
        conv.gradient(x, dy, w.shape, **case.window, sums=Sums.INT32),
    )
    for result, expected in zip(results, _exact(*in_double, case.window), strict=True):
        assert np.array_equal(result.view(np.int32), expected)


def _exact(
    x: np.ndarray, w: np.ndarray, dy: np.ndarray, window: dict[str, Any]
) -> list[np.ndarray]:
    """y, dx and dw in float64, tap by tap."""
    (h, width), (kh, kw), (ho, wo) = x.shape[2:], w.shape[2:], dy.shape[2:]
    (sh, sw), (ph, pw) = window["stride"], window["pad"]
    padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    y, dx, dw = np.zeros(dy.shape), np.zeros(padded.shape), np.zeros(w.shape)
    for u in range(kh):
        for v in range(kw):
            place = np.s_[:, :, u : u + sh * (ho - 1) + 1 : sh, v : v + sw * (wo - 1) + 1 : sw]
            y += np.einsum("nihw,oi->nohw", padded[place], w[:, :, u, v])
            dx[place] += np.einsum("nohw,oi->nihw", dy, w[:, :, u, v])
            dw[:, :, u, v] = np.einsum("nihw,nohw->oi", padded[place], dy)
    return [y, dx[:, :, ph : ph + h, pw : pw + width], dw]


def test_int8_in_fp32_equals_int32_up_to_1040_products() -> None:
    """2^24 is the last whole number before fp32 leaves some out: 1,040 * 127 * 127 is below it."""
    for count, equal in ((1040, True), (1041, False)):
        x, w = (
            np.full((1, count, 1, 1), 127, np.float32),
            np.full((1, count, 1, 1), 127, np.float32),
        )
        in_integers = conv.forward(x, w, stride=1, pad=0, sums=Sums.INT32).view(np.int32).item()
        assert in_integers == count * 127 * 127
        assert (conv.forward(x, w, stride=1, pad=0).item() == in_integers) is equal


@pytest.mark.parametrize("sums", [*NARROW, Sums.INT32])
@relaxed
@given(cases(300_000), st.data())
def test_no_cut_changes_a_bit(sums: Sums, case: Case, data: st.DataObject) -> None:
    x, w, dy = (
        whole_numbers(case) if sums is Sums.INT32 else (on(a, NARROW[sums]) for a in case.arrays())
    )
    window: dict[str, Any] = {**case.window, "sums": sums}
    (n, ic, _, _), oc = x.shape, w.shape[0]
    i, o, s = (data.draw(st.integers(0, count - 1)) for count in (ic, oc, n))
    if i:
        low = conv.forward(x[:, :i], w[:, :i], **window)
        assert same_bits(
            conv.forward(x[:, i:], w[:, i:], **window, partial=low), conv.forward(x, w, **window)
        )
    if o:
        high, whole = (
            conv.error(dy[:, o:], w[o:], x.shape, **window),
            conv.error(dy, w, x.shape, **window),
        )
        assert same_bits(conv.error(dy[:, :o], w[:o], x.shape, **window, partial=high), whole)
    if s:
        first = conv.gradient(x[:s], dy[:s], w.shape, **window)
        later = conv.gradient(x[s:], dy[s:], w.shape, **window, accumulate=first)
        assert same_bits(later, conv.gradient(x, dy, w.shape, **window))
