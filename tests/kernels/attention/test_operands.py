"""Rounded operands: every bit against the reference, whatever calls, heads and samples go together,
and what is counted.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from emuchain.kernels.attention import Attention, Operand, Scale
from emuchain.kernels.number import BlockGrid, FloatGrid, Rounding, number_format
from emuchain.kernels.quantise import Draws, PhiloxStream, on_blocks, on_grid

from . import reference
from .helpers import CASES, Case, F, same_bits

SEED, FIRST = 7, 1003
NUMBERS = np.array([3, 2**40, 7])
FORMS = {
    "bf16": ("bf16", Rounding.EVEN),
    "fp8": ("fp8-e5m2", Rounding.ZERO),
    "mxfp8": ("mxfp8", Rounding.EVEN),
    "blocks of 5": ("int4@5", Rounding.EVEN),
    "bf16 by chance": ("bf16", Rounding.STOCHASTIC),
    "int8 by chance": ("q2.6", Rounding.STOCHASTIC),
    "mxfp4 by chance": ("mxfp4", Rounding.STOCHASTIC),
    "nvfp4": ("nvfp4", Rounding.EVEN),
    "nvfp4 by chance": ("nvfp4", Rounding.STOCHASTIC),
    "fp8 under a scale": ("fp8", Rounding.EVEN),
    "int8 by chance under a scale": ("int8", Rounding.STOCHASTIC),
}
SCALES = {"fp8 under a scale": (-11, -13), "int8 by chance under a scale": (-2, 3)}
"""Exponents of the scales of shares, and of errors of scores."""
To = Callable[[np.ndarray, int], np.ndarray]


def grid_of(name: str) -> FloatGrid | BlockGrid:
    grid = number_format(FORMS[name][0]).grid
    assert grid is not None
    return grid


def operand(name: str, purpose: int, numbers: np.ndarray, first: int = FIRST) -> Operand:
    words = Draws(PhiloxStream(SEED, 5, purpose, 0), first, numbers=numbers)
    scale = Scale(SCALES[name][purpose // 2], np.zeros(1, F)) if name in SCALES else None
    return Operand(grid_of(name), FORMS[name][1], words, np.zeros(2, np.int64), scale)


def rounding(name: str, purpose: int, number: int, head: int, rows: int, largest: np.ndarray) -> To:
    """How the reference rounds what a query has of its keys, a word each from the stated place; the
    largest number is noted.
    """
    exponent = SCALES.get(name, (0, 0))[purpose // 2]
    stream, grid = PhiloxStream(SEED, 5, purpose, number), grid_of(name)

    def to(values: np.ndarray, query: int) -> np.ndarray:
        places = (FIRST + (head * rows + key) * rows + query for key in range(len(values)))
        words = np.array([stream.words(place, 1)[0] for place in places], np.uint32)
        own = np.ascontiguousarray(values, F)
        largest[purpose // 2] = max(largest[purpose // 2], np.abs(own).max(initial=0))
        if isinstance(grid, BlockGrid):
            return on_blocks(own, grid, 0, FORMS[name][1], words)
        down, up = (F(2.0 ** (sign * exponent)) for sign in (-1, 1))
        return on_grid(own * down, grid, FORMS[name][1], words) * up

    return to


def expected(case: Case, name: str) -> tuple[list[np.ndarray], np.ndarray]:
    """What `Case.run` returns with rounded operands, and the largest ones before."""
    largest = np.zeros(2, F)
    x = case.x.reshape(case.samples, case.rows, case.heads, 3, case.size)
    dy = case.dy.reshape(case.samples, case.rows, case.heads, case.size)
    lengths = case.masks.get("lengths", [case.rows] * case.samples)
    kept = case.masks.get("kept", np.ones((case.samples, case.heads, case.rows, case.rows), F))
    shape = case.samples, case.heads, 2, case.rows
    y, dx, statistics = np.empty_like(dy), np.empty_like(x), np.empty(shape, F)
    for n, h in np.ndindex(case.samples, case.heads):
        q, k, v = (np.ascontiguousarray(x[n, :, h, place]) for place in range(3))
        own = np.ascontiguousarray(dy[n, :, h])
        place = int(NUMBERS[n]), h, case.rows, largest
        both = (rounding(name, purpose, *place) for purpose in (0, 2))
        y[n, :, h], statistics[n, h], *errors = reference.attention(
            *(q, k, v, own, F(case.of_scores), case.causal, lengths[n], kept[n, h], *both)
        )
        dx[n, :, h] = np.stack(errors, 1)
    made = [y.reshape(case.dy.shape) + F(0), statistics, dx.reshape(case.x.shape) + F(0)]
    return made, largest


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("case", [*CASES[:9], *CASES[13:]], ids=str)
def test_every_number_is_the_reference_s(case: Case, name: str) -> None:
    operands = [operand(name, purpose, NUMBERS[: case.samples]) for purpose in (0, 2)]
    y, statistics, dx = case.run(*operands)
    bits, largest = expected(case, name)
    assert same_bits([y, statistics + F(0), dx], bits)
    if name in SCALES:
        assert [own.scale.largest[0] for own in operands if own.scale] == [*largest]
    assert not same_bits([y], case.run()[:1]) or case.rows == 1


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("case", [Case(2, 90, 2, 8, drops=True), CASES[13]], ids=str)
def test_any_calls_and_heads_and_samples_give_the_same_bits_and_counts(
    case: Case, name: str
) -> None:
    whole = operand(name, 0, NUMBERS[: case.samples]), operand(name, 2, NUMBERS[: case.samples])
    expected_bits, attention = case.run(*whole), Attention(1, case.size, case.causal)
    made = [np.full_like(array, np.nan) for array in expected_bits]
    calls = [*itertools.pairwise([0, 1, 6, 64, 70, case.rows])]
    counts = np.zeros((2, 2), np.int64)
    for n, head in np.ndindex(case.samples, case.heads):
        place = FIRST + head * case.rows**2
        numbers, one = NUMBERS[n : n + 1], slice(n, n + 1)
        parts = [operand(name, purpose, numbers, place) for purpose in (0, 2)]
        masks: dict[str, Any] = {key: array[one] for key, array in case.masks.items()}
        if "kept" in masks:
            masks["kept"] = np.ascontiguousarray(masks["kept"][:, head : head + 1])
        ins, outs = (
            slice(width * head, width * (head + 1)) for width in (3 * case.size, case.size)
        )
        x, y, dx = case.x[one, :, ins], made[0][one, :, outs], made[2][one, :, ins]
        statistics = np.full((1, 1, 2, case.rows), np.nan, F)
        for rows in calls:
            attention.forward(x, y, statistics, rows=rows, shares=parts[0], **masks)
        again = dataclasses.replace(parts[0], counts=None)  # of both sweeps, one is counted
        for rows in reversed(calls):
            dy = case.dy[one, :, outs]
            both = {"shares": again, "score_errors": parts[1]}
            attention.backward(x, statistics, dy, dx, rows=rows, **both, **masks)
        made[1][n, head] = statistics[0, 0]
        counts += [part.counts for part in parts]
    assert same_bits(made, expected_bits)
    once = operand(name, 0, NUMBERS[: case.samples])
    case.run(once, None)
    assert counts[0].tolist() == (once.counts // 2).tolist()
    assert counts[1].tolist() == whole[1].counts.tolist()


def test_what_is_counted_is_what_queries_see() -> None:
    """Of equal keys, each has a share of 1 / n: beyond the largest number for one, and 0 for
    many.
    """
    attention, rows = Attention(2, 1, causal=True), 100
    counts = np.zeros(2, np.int64)
    grid = number_format("q1.5").grid
    assert isinstance(grid, FloatGrid)
    x = np.zeros((3, rows, 6), F)
    y, statistics = np.empty((3, rows, 2), F), np.empty((3, 2, 2, rows), F)
    attention.forward(x, y, statistics, shares=Operand(grid, counts=counts))
    # 1 / t is 1 for t = 1, and rounds to 0 at 1/64 and below.
    assert counts.tolist() == [6, 6 * sum(range(64, rows + 1))]


def test_one_kind_alone() -> None:
    """Rounded shares change no errors of q; rounded errors of scores neither outputs nor those of
    v.
    """
    case = CASES[5]
    single, numbers = case.run(), NUMBERS[:2]
    y, statistics, dx = case.run(operand("mxfp8", 0, numbers))
    parts = (2, 64, 2, 3, 24)
    own, other = dx.reshape(parts), single[2].reshape(parts)
    assert same_bits([statistics], single[1:2]) and (y != single[0]).any()
    assert same_bits([own[..., :2, :]], [other[..., :2, :]])
    assert (own[..., 2, :] != other[..., 2, :]).any()
    y, statistics, dx = case.run(None, operand("mxfp8", 2, numbers))
    own = dx.reshape(parts)
    assert same_bits([y, statistics, own[..., 2, :]], [*single[:2], other[..., 2, :]])
    assert (own[..., 0, :] != other[..., 0, :]).any()


@pytest.mark.parametrize("words", [None, Draws(PhiloxStream(0, 0, 0, 0))])
def test_draws_that_are_missing(words: Draws | None) -> None:
    with pytest.raises(ValueError, match="need draws with the samples' numbers"):
        Operand(grid_of("bf16"), Rounding.STOCHASTIC, words)


def test_blocks_have_scales_of_their_own() -> None:
    with pytest.raises(ValueError, match="blocks have scales of their own"):
        Operand(grid_of("mxfp8"), scale=Scale(0, np.zeros(1, F)))


def test_draws_that_do_not_fit() -> None:
    case = CASES[2]
    with pytest.raises(ValueError, match="2 samples need as many numbers"):
        case.run(operand("bf16 by chance", 0, NUMBERS))
    with pytest.raises(ValueError, match="a tensor has at most"):
        case.run(operand("bf16 by chance", 0, NUMBERS[:2], 2**34 - 1))
