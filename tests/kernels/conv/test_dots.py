"""Sums of blocks of products: against sums of fractions, in fp32 and in fp64, whatever the cut, and
in every form.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.kernels.conv import DotConvolution
from emuchain.kernels.form import FORMS

from ..every_form import printed_in_every_form
from . import exact

NARROW, WIDE = (True,) * 3, (False,) * 3


def drawn(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    axis: int,
    block: int,
    digits: int = 7,
    exponents: tuple[int, int] = (-4, 4),
) -> np.ndarray:
    """Whole numbers of some digits, times a power of two for each block along an axis."""
    lines = np.moveaxis(rng.integers(-(2**digits) + 1, 2**digits, shape).astype(float), axis, -1)
    scales = rng.integers(*exponents, (*lines.shape[:-1], -(-lines.shape[-1] // block)))
    scaled = lines * np.repeat(2.0**scales, block, -1)[..., : lines.shape[-1]]
    return np.ascontiguousarray(np.moveaxis(scaled, -1, axis)).astype(np.float32)


def last(maps: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(maps.transpose(0, 2, 3, 1))


def forward(dots: DotConvolution, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    frame = np.empty(dots.frame_shape(len(x)), np.float32)
    dots.frame(last(x), frame)
    y = np.empty((len(x), *dots.output, dots.out_channels), np.float32)
    dots.forward(y, frame, dots.pack(w), fresh=True)
    return y.transpose(0, 3, 1, 2)


def error(dots: DotConvolution, dy: np.ndarray, w: np.ndarray) -> np.ndarray:
    frame = np.empty(dots.error_frame_shape(len(dy)), np.float32)
    dots.error_frame(last(dy), frame)
    turned = np.empty(dots.turned_size, np.float32)
    dots.turn_weights(w, turned)
    dx = np.empty((len(dy), *dots.size, dots.in_channels), np.float32)
    dots.error(dx, frame, turned, fresh=True)
    return dx.transpose(0, 3, 1, 2)


@st.composite
def convolutions(draw: st.DrawFn) -> DotConvolution:
    kernel = draw(st.tuples(*[st.integers(1, 3)] * 2))
    stride = draw(st.tuples(*[st.integers(1, 3)] * 2))
    pad = tuple(draw(st.integers(0, k - 1)) for k in kernel)
    size = tuple(
        draw(st.integers(max(1, k - 2 * p), k + 3)) for k, p in zip(kernel, pad, strict=True)
    )
    channels = draw(st.tuples(*[st.integers(1, 12)] * 2))
    return DotConvolution(*channels, size, kernel, stride, pad, draw(st.integers(1, 5)), NARROW)


@settings(deadline=None, max_examples=15)
@given(convolutions(), st.integers(0, 2**32 - 1), st.sampled_from(["narrow", "tiny", "wide"]))
def test_each_block_is_exact(dots: DotConvolution, seed: int, kind: str) -> None:
    """Tiny operands and long ones are summed in fp64, whatever their blocks would allow."""
    rng, block, window = np.random.default_rng(seed), dots.block, (dots.stride, dots.pad)
    how = {
        "narrow": {},
        "tiny": {"exponents": (-80, -60)},
        "wide": {"digits": 23, "exponents": (-30, 3)},
    }[kind]
    if kind == "wide":
        dots = dataclasses.replace(dots, narrow=WIDE)
    ins, outs, places = dots.in_channels, dots.out_channels, dots.kernel
    x = drawn(rng, (2, ins, *dots.size), 1, block, **how)
    w, back = (drawn(rng, (outs, ins, *places), axis, block, **how) for axis in (1, 0))
    dy = drawn(rng, (2, outs, *dots.output), 1, block, **how)
    assert np.array_equal(forward(dots, x, w), exact.forward(x, w, *window, block))
    assert np.array_equal(error(dots, dy, back), exact.error(dy, back, x.shape, *window, block))
    read = [drawn(rng, (2, ins, dots.pixels), 2, block, **how) for _ in range(dots.places)]
    errors = drawn(rng, (2, outs, dots.pixels), 2, block, **how)
    packed = np.full(dots.packed_size, 7, np.float32)
    maps = np.ascontiguousarray(errors.swapaxes(1, 2)).reshape(2, *dots.output, outs)
    for place, own in enumerate(read):
        dots.gradient_at(packed, place, own, maps, fresh=True)
    expected = exact.gradient(
        lambda i, u, v: read[u * places[1] + v][:, i],
        errors.reshape(2, outs, *dots.output),
        w.shape,
        block,
    )
    assert np.array_equal(dots.unpack(packed), expected)


def test_a_cut_between_blocks_and_micro_batches_change_nothing() -> None:
    rng, window = np.random.default_rng(3), ((5, 4), (3, 2), (2, 1), (1, 0))
    x, w = drawn(rng, (3, 70, 5, 4), 1, 16), drawn(rng, (90, 70, 3, 2), 1, 16)
    whole = DotConvolution(70, 90, *window, 16, NARROW)
    y = np.ascontiguousarray(last(np.zeros((3, 90, *whole.output), np.float32)))
    for begin, end in ((0, 32), (32, 48), (48, 70)):
        part = DotConvolution(end - begin, 90, *window, 16, NARROW)
        frame = np.empty(part.frame_shape(3), np.float32)
        part.frame(last(x)[..., begin:end], frame)
        part.forward(y, frame, part.pack(w[:, begin:end]), fresh=False)
    assert np.array_equal(y.transpose(0, 3, 1, 2), forward(whole, x, w))
    back = drawn(rng, w.shape, 0, 16)
    dy = last(drawn(rng, (3, 90, *whole.output), 1, 16))
    dx = np.zeros((3, 5, 4, 70), np.float32)
    for begin, end in ((64, 90), (16, 64), (0, 16)):
        part = DotConvolution(70, end - begin, *window, 16, NARROW)
        frame = np.empty(part.error_frame_shape(3), np.float32)
        part.error_frame(dy[..., begin:end], frame)
        turned = np.empty(part.turned_size, np.float32)
        part.turn_weights(back[begin:end], turned)
        part.error(dx, frame, turned, fresh=False)
    assert np.array_equal(dx.transpose(0, 3, 1, 2), error(whole, dy.transpose(0, 3, 1, 2), back))
    frame, gradients = np.empty(whole.frame_shape(3), np.float32), []
    whole.frame(last(x), frame)
    for cuts in ((0, 3), (0, 1, 3)):
        packed = np.empty(whole.packed_size, np.float32)
        for begin, end in itertools.pairwise(cuts):
            part = frame[begin:end]
            whole.gradient(packed, part, dy[begin:end], fresh=begin == 0)
        gradients.append(whole.unpack(packed))
    assert np.array_equal(*gradients)


def test_fp32_and_fp64_agree_where_both_are_exact() -> None:
    rng, shape = np.random.default_rng(4), (90, 70, (6, 6), (3, 3), (1, 1), (1, 1), 32)
    x, w = drawn(rng, (2, 90, 6, 6), 1, 32), drawn(rng, (70, 90, 3, 3), 1, 32)
    narrow, wide = (DotConvolution(*shape, kind) for kind in (NARROW, WIDE))
    assert np.array_equal(forward(narrow, x, w), forward(wide, x, w))


_DIGEST = """
import hashlib
import numpy as np
from emuchain.kernels.conv import DotConvolution
from emuchain.kernels.form import FORM
rng, digest = np.random.default_rng(1), hashlib.sha256()
def whole(*shape):
    return rng.integers(-127, 128, shape).astype(np.float32)
for n, ic, oc, size, kernel, stride, pad, narrow in (
    (1, 3, 21, 19, 5, 4, 2, True), (2, 40, 100, 6, 3, 1, 1, True), (2, 40, 70, 3, 3, 1, 0, False),
):
    dots = DotConvolution(ic, oc, (size,) * 2, (kernel,) * 2, (stride,) * 2, (pad,) * 2, 32, (narrow,) * 3)
    frame, turned = np.empty(dots.frame_shape(n), np.float32), np.empty(dots.turned_size, np.float32)
    packed, y = dots.pack(whole(oc, ic, kernel, kernel)), np.empty((n, *dots.output, oc), np.float32)
    dots.frame(whole(n, size, size, ic), frame)
    dots.forward(y, frame, packed, fresh=True)
    dots.turn(packed, turned)
    back, dx = np.empty(dots.error_frame_shape(n), np.float32), np.empty((n, size, size, ic), np.float32)
    dy = whole(*y.shape)
    dots.error_frame(dy, back)
    dots.error(dx, back, turned, fresh=True)
    dots.gradient(packed, frame, dy, fresh=True)
    for result in (y, dx, dots.unpack(packed)):
        digest.update(result.tobytes())
print(FORM.name, digest.hexdigest())
"""


@pytest.mark.slow
def test_every_form_gives_the_same_bits() -> None:
    found = dict(words.split() for words in printed_in_every_form(_DIGEST).values())
    assert list(found) == list(FORMS)
    assert len(set(found.values())) == 1
