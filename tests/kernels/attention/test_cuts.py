"""However rows are cut into blocks, heads into slices, and samples into micro-batches, every bit is
the same.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.kernels.attention import Attention, backward, forward

from ..every_form import printed_in_every_form
from .helpers import CASES, Case, F, same_bits


def by_blocks(case: Case, ends: list[int]) -> list[np.ndarray]:
    """What `Case.run` returns, by calls for the rows between these ends: ascending, and back
    again.
    """
    attention, x = case.attention, case.x
    y, statistics, dx = (
        np.full(shape, np.nan, F)
        for shape in (case.dy.shape, attention.statistics_shape(case.samples, case.rows), x.shape)
    )
    calls = list(itertools.pairwise([0, *ends, case.rows]))
    for rows in calls:
        known = x
        if case.causal:  # what comes is not there yet
            known = x.copy()
            known[:, rows[1] :] = np.nan
        attention.forward(known, y, statistics, rows=rows, **case.masks)
    for rows in reversed(calls):
        attention.backward(x, statistics, case.dy, dx, rows=rows, **case.masks)
    return [y, statistics, dx]


@settings(max_examples=40)
@given(st.sampled_from(CASES), st.data())
def test_any_blocks_of_rows_give_the_same_bits(case: Case, data: st.DataObject) -> None:
    ends = sorted(data.draw(st.lists(st.integers(0, case.rows), max_size=6)))
    assert same_bits(by_blocks(case, ends), case.run())


@pytest.mark.parametrize("block", [1, 16, 32, 64])
@pytest.mark.parametrize("causal", [True, False])
def test_equal_blocks_give_the_same_bits(causal: bool, block: int) -> None:
    case = Case(1, 130, 1, 24, causal)
    assert same_bits(by_blocks(case, list(range(block, 130, block))), case.run())


def test_tiny_numbers_give_the_same_bits_too() -> None:
    """Products below the smallest number become zeros of both signs, of which masked keys must
    change none.
    """
    case = Case(1, 90, 1, 8)
    attention, x, dy = case.attention, case.x, case.dy * F(1e-38)
    x.reshape(1, 90, 3, 8)[:, :, 2] *= F(1e-38)
    y, statistics = forward(x, attention)
    dx = backward(x, statistics, dy, attention)
    few, own, back = np.empty_like(y), np.empty_like(statistics), np.empty_like(dx)
    calls = list(itertools.pairwise(range(0, 91, 5)))
    for rows in calls:
        attention.forward(x, few, own, rows=rows)
    for rows in reversed(calls):
        attention.backward(x, own, dy, back, rows=rows)
    assert same_bits([few, own, back], [y, statistics, dx])
    assert not np.signbit(np.concatenate([y[y == 0], dx[dx == 0]])).any()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("heads", [slice(0, 1), slice(1, 3), slice(2, 5)])
def test_a_slice_of_heads_has_the_bits_of_all(heads: slice, causal: bool) -> None:
    case = Case(2, 70, 5, 20, causal)
    y, statistics, dx = case.run()
    own, wide = slice(20 * heads.start, 20 * heads.stop), slice(60 * heads.start, 60 * heads.stop)
    attention = Attention(heads.stop - heads.start, 20, causal)
    shape = attention.statistics_shape(2, 70)
    found, kept, back = np.full_like(y, 7), np.empty(shape, F), np.full_like(dx, 7)
    attention.forward(case.x[..., wide], found[..., own], kept)  # in place, within all channels
    attention.backward(case.x[..., wide], kept, case.dy[..., own], back[..., wide])
    assert (
        found[..., own].tobytes() == y[..., own].tobytes()
        and kept.tobytes() == statistics[:, heads].tobytes()
    )
    assert back[..., wide].tobytes() == dx[..., wide].tobytes()
    assert (np.delete(found, np.r_[own], 2) == 7).all() and (
        np.delete(back, np.r_[wide], 2) == 7
    ).all()


def test_no_bit_depends_on_the_number_of_samples() -> None:
    case = Case(3, 40, 2, 12, causal=False, ragged=True)
    whole, attention = case.run(), case.attention
    for n, length in enumerate(case.masks["lengths"]):
        one = slice(n, n + 1)
        y, statistics = forward(case.x[one], attention, lengths=np.array([length]))
        dx = backward(case.x[one], statistics, case.dy[one], attention, lengths=np.array([length]))
        assert same_bits([y, statistics, dx], [array[one] for array in whole])


_DIGEST = """
import hashlib
import numpy as np
from emuchain.kernels.attention import Attention, backward, forward
random, bits = np.random.default_rng(1), hashlib.sha256()
for n, rows, heads, size, causal, lengths in (
    (2, 5, 2, 7, True, None), (1, 150, 2, 24, True, None), (1, 100, 1, 80, True, None), (1, 1, 1, 1, True, None),
    (1, 100, 2, 20, False, None), (2, 70, 1, 16, False, [70, 33]), (1, 131, 1, 130, False, None),
):
    x = random.standard_normal((n, rows, 3 * heads * size), np.float32)
    dy = random.standard_normal((n, rows, heads * size), np.float32)
    attention, masks = Attention(heads, size, causal), {} if lengths is None else {"lengths": lengths}
    y, statistics = forward(x, attention, **masks)
    for array in y, statistics, backward(x, statistics, dy, attention, **masks):
        bits.update(array.tobytes())
print(bits.hexdigest())
"""


@pytest.mark.slow
def test_every_form_gives_the_same_bits() -> None:
    assert len({*printed_in_every_form(_DIGEST).values()}) == 1
