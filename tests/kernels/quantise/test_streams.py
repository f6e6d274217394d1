"""Words drawn where they are needed are those of `PhiloxStream.words`, under any cut of a
tensor.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.kernels.number import BF16, BlockGrid, FloatGrid, Rounding
from emuchain.kernels.number.fp8 import E4M3
from emuchain.kernels.number.mx import E2M1
from emuchain.kernels.quantise import Draws, PhiloxStream, on_blocks, on_grid

assert isinstance(BF16.grid, FloatGrid)
STREAM = PhiloxStream(seed=(7 << 40) + 5, tensor=3, purpose=9, number=(2 << 32) + 1)
CHANCE = Rounding.STOCHASTIC
GRIDS = {"bf16": BF16.grid, "e4m3": E4M3}
Draw = Callable[..., np.ndarray]
FUNCTIONS: dict[str, Draw] = {
    **{
        name: lambda values, grid=grid, **how: on_grid(values, grid, CHANCE, **how)
        for name, grid in GRIDS.items()
    },
    "lines": lambda values, **how: on_blocks(values, BlockGrid(E2M1), -1, CHANCE, **how),
    "columns": lambda values, **how: on_blocks(values, BlockGrid(E2M1, 4), 0, CHANCE, **how),
}


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(3, 5), (1, 1023), (4, 1031), (2, 3, 40)])
@pytest.mark.parametrize("first", [0, 1, 1027])
def test_words_are_the_streams(name: str, shape: tuple[int, ...], first: int) -> None:
    values = normal(*shape)
    by_words = FUNCTIONS[name](values, words=STREAM.words(first, values.size).reshape(shape))
    assert (FUNCTIONS[name](values, words=Draws(STREAM, first=first)) == by_words).all()
    assert (FUNCTIONS[name](values, words=Draws(STREAM, first=first + 1)) != by_words).any()


@given(st.lists(st.integers(1, 1500), min_size=1, max_size=5), st.integers(0, 9))
def test_a_tensor_in_pieces(sizes: list[int], first: int) -> None:
    values = normal(sum(sizes))
    whole = on_grid(values, E4M3, CHANCE, words=Draws(STREAM, first=first))
    begin = 0
    for size in sizes:
        piece = on_grid(
            values[begin : begin + size], E4M3, CHANCE, words=Draws(STREAM, first=first + begin)
        )
        assert (piece == whole[begin : begin + size]).all()
        begin += size


@pytest.mark.parametrize("name", ["bf16", "e4m3", "columns"])
@pytest.mark.parametrize(("begin", "end"), [(0, 2), (3, 4), (1, 7), (0, 7)])
def test_a_slice_by_input_channels(name: str, begin: int, end: int) -> None:
    weights = normal(9, 7, 3, 3)
    whole = FUNCTIONS[name](weights, words=Draws(STREAM))
    part = np.ascontiguousarray(weights[:, begin:end])
    rounded = FUNCTIONS[name](part, words=Draws(STREAM, first=9 * begin, stride=63))
    assert (rounded == whole[:, begin:end]).all()
    flat = FUNCTIONS[name](part.reshape(9, -1), words=Draws(STREAM, first=9 * begin, stride=63))
    assert (flat.reshape(part.shape) == rounded).all()


@pytest.mark.parametrize("shape", [(7,), (7, 1)])
def test_rows_of_one_element(shape: tuple[int, ...]) -> None:
    values, words = normal(*shape), STREAM.words(2, 64)[::9][:7].reshape(shape).copy()
    for draw in (FUNCTIONS["e4m3"], FUNCTIONS["columns"]):
        assert (
            draw(values, words=Draws(STREAM, first=2, stride=9)) == draw(values, words=words)
        ).all()


@pytest.mark.parametrize("name", ["bf16", "e4m3", "lines"])
def test_each_sample_has_its_number(name: str) -> None:
    maps, numbers = normal(3, 4, 5, 40), np.array([5, (3 << 32) + 1, 0])
    rounded = FUNCTIONS[name](maps, words=Draws(STREAM, numbers=numbers))
    for sample, number in enumerate(numbers):
        stream = PhiloxStream(STREAM.seed, STREAM.tensor, STREAM.purpose, int(number))
        assert (
            FUNCTIONS[name](maps[sample : sample + 1], words=Draws(stream)) == rounded[sample]
        ).all()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (None, "need `words`"),
        (np.zeros(5, np.uint32), "6 values need as many words, not 5"),
        (Draws(STREAM, stride=2), "`stride` = 2: rows of 3 elements"),
        (Draws(STREAM, stride=9, numbers=np.zeros(2, np.int64)), "`stride` = 9"),
        (Draws(STREAM, numbers=np.zeros(3, np.int64)), "2 samples need as many numbers"),
        (Draws(STREAM, first=(4 << 32) - 5), "at most 2\\^34"),
        (Draws(STREAM, first=-1), "at most 2\\^34"),
    ],
)
def test_what_does_not_suit(words: np.ndarray | Draws | None, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        on_grid(normal(2, 3), E4M3, CHANCE, words)
