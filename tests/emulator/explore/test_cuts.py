"""Cuts against all there are: none is better, with memory limits, waits and links; and those within
layers.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from emuchain.emulator.cluster import Link
from emuchain.emulator.common import InputError
from emuchain.emulator.explore import Cut, Demand, Pieces, filled_cut, ideal, least_cut, partition
from emuchain.emulator.profile import DoesNotFit, LayerProfile, LayerTimes, Profile, ProfileStages
from emuchain.emulator.profile.stages import PIECES

from .chains import Case, random_case

CASES = 200


def test_equation_1() -> None:
    time, shares = ideal((10, 10, 20, 20))
    assert time == Fraction(10, 3)
    assert shares == (Fraction(1, 3), Fraction(1, 3), Fraction(1, 6), Fraction(1, 6))


def best(case: Case, *, links_count: bool = False) -> int | None:
    periods = [case.period(ends, links_count=links_count) for ends in case.cuts()]
    return min((period for period in periods if period is not None), default=None)


@pytest.mark.parametrize("links_count", [False, True])
def test_no_cut_between_layers_is_better(links_count: bool) -> None:
    fitting = 0
    for seed in range(CASES):
        case = random_case(seed)
        found = least_cut(case.pieces, case.pieces.stages.starts, links_count=links_count)
        expected = best(case, links_count=links_count)
        assert (None if found is None else found.period_ps) == expected, seed
        if found is not None:
            ends = tuple(end // PIECES for end in found.ends)
            assert case.period(ends, links_count=links_count) == expected, seed
            fitting += 1
    assert CASES // 2 < fitting < CASES, "some do not fit at all"


def test_no_cut_with_short_messages_is_better() -> None:
    for seed in range(CASES):
        case = random_case(seed)
        longest = 300
        found = least_cut(case.pieces, case.pieces.stages.starts, longest_message_ps=longest)
        periods = [
            case.period(ends)
            for ends in case.cuts()
            if all(case.message(device, end) <= longest for device, end in enumerate(ends))
        ]
        expected = min((period for period in periods if period is not None), default=None)
        assert (None if found is None else found.period_ps) == expected, seed


def test_cuts_within_layers_are_no_slower_and_can_be_had() -> None:
    faster = 0
    for seed in range(0, CASES, 4):
        case = random_case(seed)
        pieces = Pieces(case.pieces.stages, case.links, Demand(case.demand.kept))
        enough = least_cut(pieces, pieces.stages.starts, links_count=True)
        assert enough is not None
        found = filled_cut(pieces, pieces.stages.places, enough)
        assert found.period_ps == pieces.period_ps(found.ends)
        assert found.ends[-1] == pieces.stages.end and list(found.ends) == sorted(set(found.ends))
        assert max(found.period_ps, pieces.slowest_link_ps(found.ends)[0]) <= enough.period_ps
        faster += found.period_ps < enough.period_ps
    assert faster > CASES // 8


def uniform(
    layers: int, output_bytes: int, memory: int | None = None, kinds: int = 2
) -> ProfileStages:
    """Layers of 30 ps each, with 10 bytes of parameters and of features."""
    times = {("k", 1): LayerTimes(10_000_000, 20_000_000)}
    row = tuple(LayerProfile(f"l{n}", times, output_bytes, 10, 10) for n in range(layers))
    return ProfileStages(Profile("uniform", row, {"k": memory}), ["k"] * kinds, 1)


def test_an_uneven_cut_is_evened_within_a_layer() -> None:
    stages = uniform(3, 1)
    found = partition(stages, (Link(10**6, 0),), Demand((2, 1)))
    assert found.cut.period_ps == pytest.approx(45_000_000, rel=1e-3)
    assert [step.name for step in found.steps] == [
        *("profile", "ideal", "inter-layer", "communication", "intra-layer", "memory")
    ]
    whole = partition(stages, (Link(10**6, 0),), Demand((2, 1)), whole_layers=True)
    assert whole.cut == Cut((PIECES, 3 * PIECES), 60_000_000) and whole.between_layers


def test_a_link_that_limits_stops_at_the_coarse_cut() -> None:
    layers = list(uniform(4, 10**6)._profile.layers)
    layers[0] = LayerProfile("l0", layers[0].times, 10, 10, 10)
    stages = ProfileStages(Profile("n", tuple(layers), {"k": None}), ["k", "k"], 1)
    found = partition(stages, (Link(1000, 0),), Demand((2, 1)))
    assert found.cut == Cut((PIECES, 4 * PIECES), 90_000_000)
    assert [step.name for step in found.steps] == [
        "profile",
        "ideal",
        "inter-layer",
        "communication",
        "coarse",
        "memory",
    ]
    assert "2 groups" in found.steps[4].reason and found.between_layers


def test_layers_move_to_where_they_fit() -> None:
    times = {("small", 1): LayerTimes(10, 20), ("large", 1): LayerTimes(10, 20)}
    row = tuple(LayerProfile(f"l{n}", times, 1, 10, 10) for n in range(4))
    stages = ProfileStages(Profile("n", row, {"small": 50, "large": None}), ["small", "large"], 1)
    found = partition(stages, (Link(10**6, 0),), Demand((2, 1)), whole_layers=True)
    assert found.cut == Cut((PIECES, 4 * PIECES), 90)
    assert found.steps[-1].reason.startswith("stage 0: needs 80 bytes of memory; small has 50")


def test_memory_that_nothing_fits_is_refused_with_stage_bytes_and_capacity() -> None:
    with pytest.raises(DoesNotFit, match=r"^stage 0: needs 80 bytes of memory; k has 30$"):
        partition(uniform(4, 1, memory=30), (Link(10**6, 0),), Demand((2, 1)), whole_layers=True)


def test_more_devices_than_layers_are_refused() -> None:
    with pytest.raises(
        InputError, match=r"^`devices` = 5: uniform has 4 layers; a stage needs one at least$"
    ):
        partition(uniform(4, 1, kinds=5), (Link(10**6, 0),) * 4, Demand((1,) * 5))
