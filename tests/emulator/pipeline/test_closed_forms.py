"""The timeline engine beside closed forms, which know nothing of it; and numbers worked out by hand."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest

from emuchain.emulator.pipeline import Engines, Machine, StageCosts, least_time_ps

from .shapes import SPLIT, shape_of, timed

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


@pytest.mark.parametrize(("name", "machine", "stages", "count", "costs", "warm_up", "time", "bubble", "kept"), BY_HAND)
def test_by_hand(name, machine, stages, count, costs, warm_up, time, bubble, kept) -> None:
    forward, backward, transfer = costs
    shape = shape_of(name, stages, count, StageCosts(forward, backward, transfer_ps=transfer), machine, warm_up)
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


# Nine (F, B, SR) each, within the range in which the form is exact: F < B, F = B and F > B, SR from 0 to the limit.
UP_TO_LEAST = [
    (1, 1, 0),
    (1, 1, 1),
    (1, 2, 0),
    (10, 20, 5),
    (10, 20, 10),
    (3, 7, 2),
    (5, 5, 3),
    (7, 3, 3),
    (9, 4, 1),
]
"""SR <= min(F, B)."""
UP_TO_SUM = [(1, 1, 0), (1, 1, 2), (1, 2, 3), (10, 20, 5), (10, 20, 30), (3, 7, 8), (5, 5, 7), (7, 3, 10), (9, 4, 11)]
"""SR <= F + B."""
UP_TO_MEAN = [(1, 1, 0), (1, 1, 1), (1, 2, 1), (10, 20, 5), (10, 20, 15), (3, 7, 5), (5, 5, 3), (7, 3, 5), (9, 4, 6)]
"""SR <= (F + B) / 2."""
FORMS = {
    "1f1b-as": ("1f1b-as", None, None, UP_TO_LEAST),
    "1f1b-as with more warm-up": ("1f1b-as", None, "2(N-i+1)", UP_TO_LEAST),
    "fbp-as": ("fbp-as", None, None, UP_TO_LEAST),
    "fbp-as, split": ("fbp-as", SPLIT, None, UP_TO_SUM),
    "1f1b-sno": ("1f1b-sno", None, None, UP_TO_SUM),
    "1f1b-so": ("1f1b-so", None, None, UP_TO_LEAST),
    "1f1b-so with one less": ("1f1b-so", None, "2(N-i)+1", UP_TO_MEAN),
    "1f1b-min": ("1f1b-min", None, None, UP_TO_MEAN),
    "gpipe": ("gpipe", None, None, UP_TO_LEAST),
}


def expected_ps(case: str, stages: int, count: int, forward: int, backward: int, transfer: int) -> int:
    """Return BaPipe's Tables I and II, written out once more."""
    drained = (count + stages - 1) * (forward + backward)
    if case.startswith("1f1b-as") or case == "fbp-as":
        return drained
    if case == "fbp-as, split":
        return (count + 2 * stages - 1) * (forward + backward)
    if case == "1f1b-sno":
        return drained + (stages + count - 2 - -(-(count - 1) // stages)) * 2 * transfer
    return drained + (stages - 1) * 2 * transfer


def check(case: str, stages: range, counts: range) -> None:
    name, machine, warm_up, all_costs = FORMS[case]
    wrong = []
    for number, count, (forward, backward, transfer) in itertools.product(stages, counts, all_costs):
        costs = StageCosts(forward, backward, transfer_ps=transfer)
        result, form = timed(name, shape_of(name, number, count, costs, machine, warm_up))
        assert form is not None and form.exact
        expected = expected_ps(case, number, count, forward, backward, transfer)
        if not result.makespan_ps == form.time_ps == expected:
            wrong.append((number, count, (forward, backward, transfer), result.makespan_ps, form.time_ps, expected))
    assert wrong == []


@pytest.mark.parametrize("case", FORMS)
def test_few_stages(case: str) -> None:
    check(case, range(1, 4), range(1, 8))


@pytest.mark.slow
@pytest.mark.parametrize("case", FORMS)
def test_up_to_8_stages_and_32_micro_batches(case: str) -> None:
    check(case, range(1, 9), range(1, 33))


def test_gpipe_needs_its_errors_hidden_too() -> None:
    """With B < SR <= F, the table's form for GPipe is too short: errors leave no faster than one in SR."""
    result, form = timed("gpipe", shape_of("gpipe", 2, 2, StageCosts(7, 3, transfer_ps=7)))
    assert form is not None and (form.time_ps, form.exact) == (44, False)
    assert result.makespan_ps == 48


@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_interleaved(chunks: int) -> None:
    for stages, rounds, (forward, backward) in itertools.product(range(1, 6), range(1, 5), [(1, 1), (1, 2), (7, 3)]):
        count = stages * rounds
        shape = shape_of("interleaved", stages, count, StageCosts(forward, backward), chunks=chunks)
        result, form = timed("interleaved", shape)
        assert form is not None and form.exact
        assert result.makespan_ps == form.time_ps == (count * chunks + stages - 1) * (forward + backward)


def test_zero_bubble() -> None:
    """F, EB and PG from 1 to 4; exact where PG is the shortest, and there are as many micro-batches as stages."""
    for stages, extra in itertools.product(range(1, 6), range(4)):
        for forward, errors, gradients in itertools.product(range(1, 5), repeat=3):
            costs = StageCosts(forward, errors + gradients, gradients)
            result, form = timed("zero-bubble", shape_of("zero-bubble", stages, stages + extra, costs))
            assert form is not None and form.exact == (gradients <= min(forward, errors) or stages == 1)
            if form.exact:
                expected = (stages + extra) * (forward + errors + gradients)
                expected += (stages - 1) * (forward + errors - gradients)
                assert result.makespan_ps == form.time_ps == expected, (stages, extra, forward, errors, gradients)


def test_the_smallest_warm_up_is_no_larger_than_needed() -> None:
    """SR = 15 needs one feature less than `1f1b-so`, smaller SR less still, none as many as `1f1b-sno`."""
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
