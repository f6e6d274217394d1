"""Terms of scores by distance: values of float64, and bits however rows and heads are cut."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from emuchain.kernels.attention import (
    Attention,
    SummedAttention,
    add_by_bucket,
    alibi_slopes,
    backward,
    bucket_numbers,
    by_distance,
    forward,
    sloped,
    table_places,
    table_rows,
)
from emuchain.kernels.attention.attention import distances

from .helpers import Case, F, same_bits

CASES = [
    Case(1, 1, 1, 1),
    Case(2, 5, 2, 7),
    Case(1, 65, 1, 33),
    Case(2, 100, 3, 20, causal=False),
    Case(1, 131, 2, 24),
    Case(3, 90, 2, 12, causal=False, ragged=True),
    Case(2, 70, 2, 8, drops=True),
]


def drawn(case: Case) -> Any:
    """Terms of each sample, head and distance."""
    shape = case.samples, case.heads, distances(case.rows, case.rows)
    terms = np.random.default_rng(4).standard_normal(shape, F)
    terms[..., 2 * case.rows - 1 :] = 0
    return terms


def run(case: Case, attention: Any = None) -> list[np.ndarray]:
    """Outputs, statistics, errors of the inputs, and of the terms."""
    attention, terms = attention or case.attention, drawn(case)
    y, statistics = forward(case.x, attention, terms=terms, **case.masks)
    sums = np.zeros_like(terms)
    both = {**case.masks, "terms": terms, "term_errors": sums}
    return [y, statistics, backward(case.x, statistics, case.dy, attention, **both), sums]


def far(rows: int) -> np.ndarray:
    return np.arange(rows)[:, None] - np.arange(rows)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dot", [0, 16])
def test_values_are_those_of_pytorch(case: Case, dot: int) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what the values are compared with")
    attention = SummedAttention(case.heads, case.size, case.causal, dot=dot) if dot else None
    y, _, dx, sums = run(case, attention)
    given = case.x, drawn(case)
    leaves = [torch.tensor(own, dtype=torch.float64, requires_grad=True) for own in given]
    q, k, v = leaves[0].reshape(case.samples, case.rows, case.heads, 3, -1).permute(3, 0, 2, 1, 4)
    lengths = torch.tensor(case.masks.get("lengths", [case.rows] * case.samples))
    hidden = torch.arange(case.rows) >= lengths[:, None, None, None]
    if case.causal:
        hidden = torch.ones(case.rows, case.rows, dtype=torch.bool).triu(1)
    terms = leaves[1][:, :, far(case.rows) + case.rows - 1]
    scores = (q @ k.transpose(2, 3) * case.size**-0.5 + terms).masked_fill(hidden, -torch.inf)
    shares = torch.softmax(scores, dim=3) * torch.tensor(case.masks.get("kept", 1.0))
    expected = (shares @ v).transpose(1, 2).reshape(y.shape)
    expected.backward(torch.tensor(case.dy, dtype=torch.float64))
    pairs = (y, expected.detach()), (dx, leaves[0].grad), (sums, leaves[1].grad)
    for ours, theirs in pairs:
        largest = max(float(theirs.abs().max()), 1e-9)
        assert np.abs(ours - theirs.numpy()).max() <= 3e-6 * max(largest, case.rows == 1)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("block", [1, 16, 60])
def test_no_cut_of_rows_changes_a_bit(case: Case, block: int) -> None:
    attention, terms, whole = case.attention, drawn(case), run(case)
    y, statistics, dx = (np.full_like(own, np.nan) for own in whole[:3])
    sums = np.zeros_like(terms)
    calls = list(itertools.pairwise([*range(0, case.rows, block), case.rows]))
    for rows in calls:
        attention.forward(case.x, y, statistics, rows=rows, terms=terms, **case.masks)
    masks = {**case.masks, "terms": terms, "term_errors": sums}
    for rows in reversed(calls):
        attention.backward(case.x, statistics, case.dy, dx, rows=rows, **masks)
    assert same_bits([y, statistics, dx, sums], whole)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_terms_of_zero_change_no_bit(case: Case) -> None:
    terms = np.zeros((1, case.heads, distances(case.rows, case.rows)), F)
    y, statistics = forward(case.x, case.attention, terms=terms, **case.masks)
    masks = {**case.masks, "terms": terms}
    dx = backward(case.x, statistics, case.dy, case.attention, **masks)
    assert same_bits([y, statistics, dx], case.run())


def test_samples_and_heads_are_each_by_itself() -> None:
    case = Case(2, 70, 3, 8)
    y, statistics, dx, sums = run(case)
    one, wide = Attention(1, 8, causal=True), slice(24, 48)
    terms = np.ascontiguousarray(drawn(case)[1:, 1:2])
    x, dy = (np.ascontiguousarray(own[1:]) for own in (case.x[..., wide], case.dy[..., 8:16]))
    own, kept = forward(x, one, terms=terms)
    of_terms = np.zeros_like(terms)
    back = backward(x, kept, dy, one, terms=terms, term_errors=of_terms)
    expected = y[1:, :, 8:16], statistics[1:, 1:2], dx[1:, :, wide], sums[1:, 1:2]
    assert same_bits([own, kept, back, of_terms], [np.ascontiguousarray(a) for a in expected])


def test_slopes_by_hand() -> None:
    """Of the paper, and of its authors' code, where heads are no power of two."""
    assert alibi_slopes(1) == (2**-8,)
    assert alibi_slopes(8) == tuple(2.0**-n for n in range(1, 9))
    assert alibi_slopes(3) == (2**-4, 2**-8, 2**-2)
    assert alibi_slopes(12) == (*alibi_slopes(8), *(2**-n for n in (0.5, 1.5, 2.5, 3.5)))
    [[of_head]] = sloped([0.5], 3, 3)
    assert of_head[:5].tolist() == [-1, -0.5, 0, -0.5, -1]  # a key two rows behind, .., two before


def test_buckets_by_hand() -> None:
    """Of 8, causal: four of a distance each, then two octaves of 4 to 16 in two each. Of both
    sides: two, two more up to 16, and the same behind the query.
    """
    causal = bucket_numbers(20, 20, 8, 16, causal=True)
    assert causal[19:39].tolist() == [0, 1, 2, 3, 4, 4, 5, 5, *[6] * 4, *[7] * 8]
    assert (causal[:19] == 0).all()  # keys behind the query, which none of these sees
    both = bucket_numbers(9, 9, 8, 16, causal=False)
    assert both[8:17].tolist() == [0, 1, 2, 2, 2, 2, 3, 3, 3]
    assert both[:8][::-1].tolist() == [5, 6, 6, 6, 6, 7, 7, 7]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("buckets", "most"), [(32, 128), (8, 20), (12, 1000)])
def test_buckets_are_those_of_t5(causal: bool, buckets: int, most: int) -> None:
    """As its code computes them in PyTorch, in single precision."""
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    import math

    far = torch.arange(300)[None] - torch.arange(300)[:, None]  # of a key from a query
    count, first = buckets, torch.zeros_like(far)
    if causal:
        far = -torch.min(far, torch.zeros_like(far))
    else:
        count //= 2
        first, far = (far > 0).long() * count, far.abs()
    exact = count // 2
    log = torch.log(far.float() / exact) / math.log(most / exact) * (count - exact)
    large = torch.min(exact + log.long(), torch.full_like(far, count - 1))
    expected = (first + torch.where(far < exact, far, large)).numpy()
    own = bucket_numbers(300, 300, buckets, most, causal=causal)
    own = own[np.arange(300)[:, None] - np.arange(300) + 299]
    seen = np.tri(300, dtype=bool) | (not causal)
    assert (own == expected)[seen].all()


def test_rows_of_a_table_by_hand() -> None:
    """Two groups of two heads with three terms each, in four channels: two rows."""
    assert table_rows(2, 3, 4) == 2
    places = table_places(2, 2, 3, 4)
    assert places.tolist() == [[0, 1, 2], [3, 8, 9], [4, 5, 6], [7, 12, 13]]
    rows = np.arange(32, dtype=F).reshape(2, 2, 8)
    numbers = np.array([2, 0, 0, 1])
    terms = by_distance(rows, places, numbers)
    assert terms[1].tolist() == [
        [18, 16, 16, 17],
        [25, 19, 19, 24],
        [22, 20, 20, 21],
        [29, 23, 23, 28],
    ]
    back = np.full_like(rows, 7)
    add_by_bucket(terms, places, numbers, back)
    assert back[1, 0].tolist() == [32, 17, 18, 38, 40, 21, 22, 46]
    assert back[1, 1].tolist() == [24, 25, 0, 0, 28, 29, 0, 0]


@pytest.mark.parametrize("shape", [(2, 2, 80), (3, 2, 134), (1, 1, 134)])
def test_terms_of_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    case = Case(2, 70, 2, 8)
    with pytest.raises(ValueError, match="terms ha"):
        forward(case.x, case.attention, terms=np.zeros(shape, F))
