"""Sums of blocks of products of integers: against sums of whole numbers and fractions, at the ends
of 8 bits, in every kind of products; and what is given to the other kernel.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.kernels.conv import DotConvolution
from emuchain.kernels.conv.dots import block_kernel
from emuchain.kernels.conv.integers import integer_kernel
from emuchain.kernels.form import (
    FORM,
    FORMS,
    PRODUCTS_SETTING,
    chosen_products,
    cpu_features,
    products_of,
)
from emuchain.kernels.number import number_formats
from emuchain.kernels.quantise import on_blocks

from . import exact
from .test_dots import _DIGEST, NARROW, convolutions, drawn, error, forward, last

ENDS = np.array([-128, -127, -1, 0, 1, 126, 127])


@pytest.fixture
def contractions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that run contractions, in order."""
    ran: list[str] = []
    for kernels, name in ((integer_kernel, "contract"), (block_kernel, "contract")):
        kind = "integers" if kernels is integer_kernel else "floats"
        _noted(monkeypatch, kernels, name, ran, kind)
    _noted(monkeypatch, block_kernel, "contract_rows", ran, "floats")
    return ran


def _noted(monkeypatch, kernels, name, ran, kind) -> None:  # type: ignore[no-untyped-def]
    run = getattr(kernels, name)

    def noting(*arguments: object) -> object:
        ran.append(kind)
        return run(*arguments)

    monkeypatch.setattr(kernels, name, noting)


def ends(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers at the ends of 8 bits."""
    return rng.choice(ENDS, shape).astype(np.float32)


def gradient(dots: DotConvolution, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    frame = np.empty(dots.frame_shape(len(x)), np.float32)
    dots.frame(last(x), frame)
    packed = np.full(dots.packed_size, 7, np.float32)
    dots.gradient(packed, frame, last(dy), fresh=True)
    return dots.unpack(packed)


def read(dots: DotConvolution, x: np.ndarray):  # type: ignore[no-untyped-def]
    """What outputs read of an input channel through a place, (n, pixels), by plain indices."""
    framed = np.pad(x, ((0, 0), (0, 0), (dots.pad[0],) * 2, (dots.pad[1],) * 2))
    (down, across), (rows, columns) = dots.stride, dots.output
    return lambda i, u, v: framed[
        :, i, u : u + down * (rows - 1) + 1 : down, v : v + across * (columns - 1) + 1 : across
    ].reshape(len(x), -1)


@settings(deadline=None, max_examples=12)
@given(convolutions(), st.integers(0, 2**32 - 1), st.integers(-40, 40))
def test_the_ends_of_8_bits(dots: DotConvolution, seed: int, exponent: int) -> None:
    rng, block, window = np.random.default_rng(seed), dots.block, (dots.stride, dots.pad)
    scale = np.float32(2.0**exponent)
    x = ends(rng, (2, dots.in_channels, *dots.size)) * scale
    w = ends(rng, (dots.out_channels, dots.in_channels, *dots.kernel))
    dy = ends(rng, (2, dots.out_channels, *dots.output))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("contract", "contract_rows"):
            patch.setattr(block_kernel, name, None)  # so all is in integers
        y, dx, dw = forward(dots, x, w), error(dots, dy, w), gradient(dots, x, dy)
    assert np.array_equal(y, exact.forward(x, w, *window, block))
    assert np.array_equal(dx, exact.error(dy, w, x.shape, *window, block))
    assert np.array_equal(dw, exact.gradient(read(dots, x), dy, w.shape, block))


@pytest.mark.parametrize(
    "value", [129, 1 / 3, 2.0**-149, -(2.0**-149), 2.0**-120, np.inf, np.nan], ids=str
)
def test_what_integers_do_not_hold(value: float, contractions: list[str]) -> None:
    """One such number beside 1: all of that phase is in floats, and phases without it are not."""
    dots = DotConvolution(40, 20, (3, 3), (3, 3), (1, 1), (1, 1), 32, NARROW)
    x, w = np.ones((2, 40, 3, 3), np.float32), np.ones((20, 40, 3, 3), np.float32)
    whole = forward(dots, x, w)
    assert contractions == ["integers"]
    x[1, 7, 1, 2] = value
    y = forward(dots, x, w)
    assert contractions[1:] == ["floats"]
    assert np.array_equal(y[0], whole[0])
    if value == 129:  # of the others, a sum with 1 has more bits than NARROW says
        assert np.array_equal(y, exact.forward(x, w, (1, 1), (1, 1), 32))
    error(dots, np.ones((2, 20, 3, 3), np.float32), w)
    assert contractions[2:] == ["integers"]


@pytest.mark.parametrize("arrays", [1, 9], ids=["one array", "more than are kept"])
def test_integers_of_weights_are_kept_until_these_change(arrays: int) -> None:
    rng, shape = np.random.default_rng(6), (40, 20, (3, 3), (3, 3), (1, 1), (1, 1), 32)
    dots = DotConvolution(*shape, NARROW)
    x = ends(rng, (2, 40, 3, 3))
    frame, y = np.empty(dots.frame_shape(2), np.float32), np.empty((2, 3, 3, 20), np.float32)
    dots.frame(last(x), frame)

    def outputs(packed: np.ndarray) -> np.ndarray:
        dots.forward(y, frame, packed, fresh=True)
        return y.transpose(0, 3, 1, 2).copy()

    weights = [ends(rng, (20, 40, 3, 3)) for _ in range(arrays)]
    expected = [exact.forward(x, w, (1, 1), (1, 1), 32) for w in weights]
    held = [dots.pack(w) for w in weights]
    for packed in held:
        dots.changed(packed)
    for _ in range(2):
        assert all(np.array_equal(outputs(w), y) for w, y in zip(held, expected, strict=True))
    held[-1] *= np.float32(2)
    assert np.array_equal(outputs(held[-1]), expected[-1])  # as before
    dots.changed(held[-1])
    assert np.array_equal(outputs(held[-1]), 2 * expected[-1])


def test_scales_whose_products_fp32_has_not(contractions: list[str]) -> None:
    dots = DotConvolution(8, 4, (1, 1), (1, 1), (1, 1), (0, 0), 8, NARROW)
    x, w = np.full((1, 8, 1, 1), 2.0**-100, np.float32), np.full((4, 8, 1, 1), 1, np.float32)
    assert np.array_equal(forward(dots, x, w), exact.forward(x, w, (1, 1), (0, 0), 8))
    assert np.array_equal(
        forward(dots, x, w * np.float32(2.0**-60)), np.zeros((1, 4, 1, 1), np.float32)
    )
    assert contractions == ["integers", "floats"]


@settings(deadline=None, max_examples=15)
@given(convolutions(), st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 127.5 / 128, np.nan]))
def test_rounding_while_packing(dots: DotConvolution, seed: int, special: float) -> None:
    """As to MXINT8 in blocks of that length, and then packed; NaN goes to the other kernel."""
    rng = np.random.default_rng(seed)
    grid = dataclasses.replace(number_formats()["mxint8"].grid, size=dots.block)
    x = rng.standard_normal((2, dots.in_channels, *dots.size)).astype(np.float32)
    x[rng.random(x.shape) < 0.3] = special
    frame = np.empty(dots.frame_shape(2), np.float32)
    dots.frame(last(x), frame)
    dy = last(ends(rng, (2, dots.out_channels, *dots.output)))
    results = np.full((2, dots.packed_size), 7, np.float32)
    for to_7_bits, packed in zip((False, True), results, strict=True):
        dots.gradients(
            packed,
            frame,
            dy,
            lambda _, values: on_blocks(values, grid, -1),
            fresh=True,
            to_7_bits=to_7_bits,
        )
    assert results[0].tobytes() == results[1].tobytes()
    if not np.isnan(special):
        assert np.isfinite(dots.unpack(results[0])).all()


@settings(deadline=None, max_examples=15)
@given(convolutions(), st.integers(0, 2**32 - 1))
def test_layouts(dots: DotConvolution, seed: int) -> None:
    """EB's weights of packed ones; blocks of both, each weight in one; what a place reads."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((dots.out_channels, dots.in_channels, *dots.kernel)).astype(np.float32)
    packed, (turned, expected) = dots.pack(w), np.full((2, dots.turned_size), 7, np.float32)
    dots.turn(packed, turned)
    dots.turn_weights(w, expected)
    assert np.array_equal(turned, expected)
    x = rng.standard_normal((2, dots.in_channels, *dots.size)).astype(np.float32)
    frame = np.empty(dots.frame_shape(2), np.float32)
    dots.frame(last(x), frame)
    for place, (u, v) in enumerate(np.ndindex(*dots.kernel)):
        taken = dots.inputs_at(frame, place)
        for channel in range(dots.in_channels):
            assert np.array_equal(taken[:, channel], read(dots, x)(channel, u, v))
    for part in dots.packed_blocks(packed):
        part *= np.float32(2)
    assert np.array_equal(dots.unpack(packed), 2 * w)
    for part in dots.turned_blocks(turned):
        part *= np.float32(2)
    assert np.array_equal(turned, 2 * expected)


@settings(deadline=None, max_examples=15)
@given(convolutions(), st.integers(0, 2**32 - 1))
def test_blocks_of_packed_weights(dots: DotConvolution, seed: int) -> None:
    """Their largest numbers are those of blocks of weights, as (outputs, inputs, kernel)."""
    rng = np.random.default_rng(seed)
    shape = dots.out_channels, dots.in_channels, *dots.kernel
    w = rng.integers(-99, 100, shape).astype(np.float32)
    packed, turned = dots.pack(w), np.empty(dots.turned_size, np.float32)
    dots.turn(packed, turned)
    for part in (*dots.packed_blocks(packed), *dots.turned_blocks(turned)):
        part[...] = np.abs(part).max(1, keepdims=True)
    expected = np.empty((2, *shape), np.float32)
    for axis, largest in zip((1, 0), expected, strict=True):
        for block in exact.cut(w.shape[axis], dots.block):
            own = (slice(None),) * axis + (slice(block.start, block.stop),)
            largest[own] = np.abs(w[own]).max(axis, keepdims=True)
    assert np.array_equal(dots.unpack(packed), expected[0])
    again = np.empty_like(turned)
    dots.turn_weights(expected[1], again)
    assert np.array_equal(turned, again)


@pytest.mark.slow
def test_every_kind_of_products_gives_the_same_bits() -> None:
    root = pathlib.Path(__file__).parents[3]

    def digest(kind: str) -> str:
        environment = {**os.environ, PRODUCTS_SETTING: kind}
        words = [sys.executable, "-c", _DIGEST]
        done = subprocess.run(
            words, env=environment, cwd=root, capture_output=True, text=True, check=True
        )
        return done.stdout.split()[-1]

    kinds = products_of(FORM, cpu_features())
    assert kinds[-1] == "portable"
    assert len({digest(kind) for kind in kinds}) == 1


@pytest.mark.parametrize(
    "form, features, kinds",
    [
        ("avx512", "+avx512f,+avx512bw,+avx512vnni", "vnni pairs portable"),
        ("avx512", "+avx512f,+avx512bw,-avx512vnni", "pairs portable"),
        ("avx512", "+avx512f", "portable"),
        ("avx2", "+avx2,+avxvnni", "vnni pairs portable"),
        ("avx2", "+avx2,+avx512vnni,+avx512vl", "vnni pairs portable"),
        ("avx2", "+avx2,-avxvnni", "pairs portable"),
        ("neon", "+neon", "portable"),
        ("portable", "+avx2,+avxvnni", "portable"),
    ],
)
def test_products_follow_from_form_and_processor(form: str, features: str, kinds: str) -> None:
    assert " ".join(products_of(FORMS[form], features)) == kinds


def test_unknown_products_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PRODUCTS_SETTING, "sse9")
    with pytest.raises(ValueError, match="'sse9': this processor has .*portable in the form"):
        chosen_products()


def test_other_formats_than_integers(contractions: list[str]) -> None:
    """Numbers of 9 bits, as those of E3M2, whose sums fp32 holds."""
    rng, shape = np.random.default_rng(5), (40, 30, (4, 4), (3, 3), (1, 1), (1, 1), 16)
    dots = DotConvolution(*shape, NARROW)
    x, w = drawn(rng, (1, 40, 4, 4), 1, 16, digits=9), drawn(rng, (30, 40, 3, 3), 1, 16)
    assert np.array_equal(forward(dots, x, w), exact.forward(x, w, (1, 1), (1, 1), 16))
    assert contractions == ["floats"]
