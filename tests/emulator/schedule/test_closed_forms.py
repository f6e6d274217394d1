"""The timeline engine beside closed forms, which know nothing of it; and numbers worked out by
hand.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

import pytest

from emuchain.emulator.schedule import Engines, Machine, StageCosts, Transport
from emuchain.emulator.timing import least_time_ps

from ..timing.shapes import SPLIT, shape_of, timed

BY_HAND = [
    # schedule, machine, N, M, (F, B, SR), warm-up, time, bubble, features
    ("1f1b-as", None, 3, 8, (1, 2, 0), None, 30, Fraction(1, 5), [3, 2, 1]),
    ("fbp-as", None, 3, 8, (1, 2, 0), None, 30, Fraction(1, 5), [6, 4, 2]),
    ("fbp-as", SPLIT, 3, 8, (1, 2, 0), None, 39, Fraction(5, 13), [6, 4, 2]),
    ("1f1b-sno", None, 3, 8, (10, 20, 5), None, 360, Fraction(1, 3), [3, 2, 1]),
    ("1f1b-so", None, 3, 8, (10, 20, 5), None, 320, Fraction(1, 4), [6, 4, 2]),
    ("gpipe", None, 3, 8, (10, 20, 5), None, 320, Fraction(1, 4), [8, 8, 8]),
    ("1f1b-sno", None, 4, 32, (10, 20, 5), None, 1310, Fraction(35, 131), [4, 3, 2, 1]),
    ("1f1b-so", None, 4, 32, (10, 20, 5), None, 1080, Fraction(1, 9), [8, 6, 4, 2]),
    ("1f1b-so", None, 4, 32, (10, 20, 12), None, 1124, Fraction(41, 281), [8, 6, 4, 2]),
    ("1f1b-so", None, 4, 32, (10, 20, 16), None, 1176, Fraction(9, 49), [8, 6, 4, 2]),
    ("1f1b-so", None, 4, 32, (10, 20, 15), "2(N-i)+1", 1140, Fraction(3, 19), [7, 5, 3, 1]),
    ("1f1b-min", None, 4, 32, (10, 20, 15), None, 1140, Fraction(3, 19), [7, 5, 3, 1]),
    ("1f1b-as", None, 4, 8, (1, 2, 0), None, 33, Fraction(3, 11), [4, 3, 2, 1]),
]


@pytest.mark.parametrize(
    ("name", "machine", "stages", "count", "costs", "warm_up", "time", "bubble", "kept"), BY_HAND
)
def test_by_hand(name, machine, stages, count, costs, warm_up, time, bubble, kept) -> None:
    forward, backward, transfer = costs
    shape = shape_of(
        name, stages, count, StageCosts(forward, backward, transfer_ps=transfer), machine, warm_up
    )
    result, _ = timed(name, shape)
    assert (result.makespan_ps, result.bubble, list(result.features)) == (time, bubble, kept)
    assert result.weight_copies == (1,) * stages


def test_interleaved_by_hand() -> None:
    """F = 2 and B = 4 on a device are 1 and 2 on each of its two chunks."""
    result, form = timed("interleaved", shape_of("interleaved", 4, 8, StageCosts(1, 2), chunks=2))
    assert result.makespan_ps == 57
    assert form is not None and form.time_ps == 57


def test_zero_bubble_by_hand() -> None:
    """F = EB = PG = 1, with no more features on any device than 1F1B keeps on the first."""
    result, form = timed("zero-bubble", shape_of("zero-bubble", 4, 8, StageCosts(1, 2, 1)))
    assert result.makespan_ps == 27
    assert form is not None and form.time_ps == 27
    assert max(result.features) == 4


# Timeline = closed form for all N <= 8, M <= 32 and nine (F, B, SR) within validity: zero
# mismatches.

STAGES, MICRO_BATCHES = range(1, 9), range(1, 33)
SOME_MICRO_BATCHES = (1, 2, 8, 9, 32)
"""Fewer than stages, as many, and many."""

# F < B, F = B and F > B, SR from 0 to the limit.
UP_TO_LEAST = "SR <= min(F, B)"
UP_TO_SUM = "SR <= F + B"
UP_TO_MEAN = "SR <= (F + B) / 2"
RANGES = {
    UP_TO_LEAST: [
        *((1, 1, 0), (1, 1, 1), (1, 2, 0), (10, 20, 5), (10, 20, 10)),
        *((3, 7, 2), (5, 5, 3), (7, 3, 3), (9, 4, 1)),
    ],
    UP_TO_SUM: [
        *((1, 1, 0), (1, 1, 2), (1, 2, 3), (10, 20, 5), (10, 20, 30)),
        *((3, 7, 8), (5, 5, 7), (7, 3, 10), (9, 4, 11)),
    ],
    UP_TO_MEAN: [
        *((1, 1, 0), (1, 1, 1), (1, 2, 1), (10, 20, 5), (10, 20, 15)),
        *((3, 7, 5), (5, 5, 3), (7, 3, 5), (9, 4, 6)),
    ],
}
LIMITS = {
    UP_TO_LEAST: lambda forward, backward: min(forward, backward),
    UP_TO_SUM: lambda forward, backward: forward + backward,
    UP_TO_MEAN: lambda forward, backward: (forward + backward) / 2,
}
ROWS = 5
FORMS = {
    "1f1b-as": ("1f1b-as", None, None, UP_TO_LEAST),
    "1f1b-as with more warm-up": ("1f1b-as", None, "2(N-i+1)", UP_TO_LEAST),
    "fbp-as": ("fbp-as", None, None, UP_TO_LEAST),
    "fbp-as, split": ("fbp-as", SPLIT, None, UP_TO_SUM),
    "fbp-as, streamed": ("fbp-as", Machine(Engines.SPLIT, Transport.STREAMED), None, UP_TO_SUM),
    "1f1b-sno": ("1f1b-sno", None, None, UP_TO_SUM),
    "1f1b-so": ("1f1b-so", None, None, UP_TO_LEAST),
    "1f1b-so with one less": ("1f1b-so", None, "2(N-i)+1", UP_TO_MEAN),
    "1f1b-min": ("1f1b-min", None, None, UP_TO_MEAN),
    "gpipe": ("gpipe", None, None, UP_TO_LEAST),
}


@pytest.mark.parametrize("limit", RANGES)
def test_nine_costs_within_each_limit(limit: str) -> None:
    assert len(set(RANGES[limit])) == 9
    assert all(
        0 <= transfer <= LIMITS[limit](forward, backward)
        for forward, backward, transfer in RANGES[limit]
    )
    assert any(
        transfer == LIMITS[limit](forward, backward)
        for forward, backward, transfer in RANGES[limit]
    )


def expected_ps(
    case: str, stages: int, count: int, forward: int, backward: int, transfer: int
) -> int:
    """Return BaPipe's Tables I and II, written out once more; of streamed rows, each takes a fifth,
    rounded up.
    """
    drained = (count + stages - 1) * (forward + backward)
    if case.startswith("1f1b-as") or case == "fbp-as":
        return drained
    if case == "fbp-as, split":
        return (count + 2 * stages - 1) * (forward + backward)
    if case == "fbp-as, streamed":
        row, sent = -(-(forward + backward) // ROWS), -(-transfer // ROWS)
        return (count + 1) * ROWS * row + 2 * (stages - 1) * (row + sent)
    if case == "1f1b-sno":
        return drained + (stages + count - 2 - -(-(count - 1) // stages)) * 2 * transfer
    return drained + (stages - 1) * 2 * transfer


def check(case: str, stages: range, counts: Sequence[int]) -> None:
    name, machine, warm_up, limit = FORMS[case]
    wrong = []
    for number, count, (forward, backward, transfer) in itertools.product(
        stages, counts, RANGES[limit]
    ):
        costs = StageCosts(forward, backward, transfer_ps=transfer, rows=ROWS)
        result, form = timed(name, shape_of(name, number, count, costs, machine, warm_up))
        assert form is not None and form.exact and (form.valid == limit or number == 1)
        expected = expected_ps(case, number, count, forward, backward, transfer)
        if not result.makespan_ps == form.time_ps == expected:
            wrong.append(
                (
                    number,
                    count,
                    (forward, backward, transfer),
                    result.makespan_ps,
                    form.time_ps,
                    expected,
                )
            )
    assert wrong == []


@pytest.mark.parametrize("case", FORMS)
def test_few_stages(case: str) -> None:
    check(case, STAGES[:3], MICRO_BATCHES[:7])


@pytest.mark.slow
@pytest.mark.parametrize("case", FORMS)
def test_up_to_8_stages(case: str) -> None:
    check(case, STAGES, SOME_MICRO_BATCHES)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", FORMS)
def test_up_to_8_stages_and_32_micro_batches(case: str) -> None:
    check(case, STAGES, MICRO_BATCHES)


def test_gpipe_needs_its_errors_hidden_too() -> None:
    """With B < SR <= F, the table's form for GPipe is too short: errors leave no faster than one in
    SR.
    """
    result, form = timed("gpipe", shape_of("gpipe", 2, 2, StageCosts(7, 3, transfer_ps=7)))
    assert form is not None and (form.time_ps, form.exact) == (44, False)
    assert result.makespan_ps == 48


OF_CHUNKS = [(1, 1), (1, 2), (2, 1), (3, 7), (7, 3), (5, 5), (9, 4), (4, 9), (10, 20)]
"""Nine (F, B) of a chunk."""
OF_PARTS = [
    (1, 1, 1),
    (2, 1, 1),
    (1, 2, 1),
    (2, 2, 1),
    (3, 3, 2),
    (4, 3, 3),
    (3, 4, 3),
    (7, 5, 0),
    (5, 9, 4),
]
"""Nine (F, EB, PG), PG <= min(F, EB)."""


def check_interleaved(chunks: int, stages: range, counts: Sequence[int]) -> None:
    for number, count, (forward, backward) in itertools.product(stages, counts, OF_CHUNKS):
        if count < number:
            continue
        shape = shape_of("interleaved", number, count, StageCosts(forward, backward), chunks=chunks)
        result, form = timed("interleaved", shape)
        assert form is not None and form.exact
        expected = (count * chunks + number - 1) * (forward + backward)
        assert result.makespan_ps == form.time_ps == expected, (number, count, forward, backward)


def check_zero_bubble(stages: range, counts: Sequence[int]) -> None:
    for number, count, (forward, errors, gradients) in itertools.product(stages, counts, OF_PARTS):
        if count < number:
            continue
        costs = StageCosts(forward, errors + gradients, gradients)
        result, form = timed("zero-bubble", shape_of("zero-bubble", number, count, costs))
        assert form is not None and form.exact
        expected = count * (forward + errors + gradients) + (number - 1) * (
            forward + errors - gradients
        )
        assert result.makespan_ps == form.time_ps == expected, (
            number,
            count,
            forward,
            errors,
            gradients,
        )


@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_interleaved(chunks: int) -> None:
    check_interleaved(chunks, STAGES[:4], MICRO_BATCHES[:8])
    check_interleaved(chunks, STAGES[-1:], SOME_MICRO_BATCHES)


@pytest.mark.exhaustive
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_interleaved_up_to_8_stages_and_32_micro_batches(chunks: int) -> None:
    check_interleaved(chunks, STAGES, MICRO_BATCHES)


def test_zero_bubble() -> None:
    check_zero_bubble(STAGES[:5], MICRO_BATCHES[:8])
    check_zero_bubble(STAGES[-1:], SOME_MICRO_BATCHES)


@pytest.mark.exhaustive
def test_zero_bubble_up_to_8_stages_and_32_micro_batches() -> None:
    check_zero_bubble(STAGES, MICRO_BATCHES)


def test_where_the_form_of_zero_bubble_is_exact() -> None:
    """Where PG is the shortest, and there are as many micro-batches as stages."""
    for forward, errors, gradients in itertools.product(range(1, 5), repeat=3):
        for stages, count in ((1, 1), (3, 2), (3, 3), (4, 7)):
            shape = shape_of(
                "zero-bubble", stages, count, StageCosts(forward, errors + gradients, gradients)
            )
            _, form = timed("zero-bubble", shape)
            assert form is not None
            assert form.exact == (
                stages == 1 or (gradients <= min(forward, errors) and count >= stages)
            )


def test_the_smallest_warm_up_is_no_larger_than_needed() -> None:
    """SR = 15 needs one feature less than `1f1b-so`, smaller SR less still, none as many as
    `1f1b-sno`.
    """
    kept = {}
    for transfer in (0, 3, 5, 15):
        shape = shape_of("1f1b-min", 4, 32, StageCosts(10, 20, transfer_ps=transfer))
        result, _ = timed("1f1b-min", shape)
        assert result.makespan_ps == least_time_ps(shape)
        kept[transfer] = list(result.features)
    assert kept[0] == [4, 3, 2, 1] and kept[15] == [7, 5, 3, 1]
    for few, many in itertools.pairwise(kept.values()):
        assert all(low <= high for low, high in zip(few, many, strict=True))


@pytest.mark.parametrize("machine", [Machine(Engines.SPLIT), Machine(latency_ps=3)])
def test_no_form_for_other_machines(machine: Machine) -> None:
    _, form = timed("1f1b-so", shape_of("1f1b-so", 3, 4, StageCosts(1, 2, transfer_ps=1), machine))
    assert form is None


def test_send_peak() -> None:
    """a / F where F hides its message, 2a / (F + B) where F and B hide both."""
    costs = StageCosts(10, 20, transfer_ps=5)
    assert timed("1f1b-so", shape_of("1f1b-so", 3, 8, costs))[0].send_peak == Fraction(1, 10)
    assert timed("fbp-as", shape_of("fbp-as", 3, 8, costs))[0].send_peak == Fraction(2, 30)
    assert timed("fbp-as", shape_of("fbp-as", 1, 8, costs))[0].send_peak == 0
