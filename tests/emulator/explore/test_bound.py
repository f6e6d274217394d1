"""The bound of a mini-batch: nothing that runs is below it, for every cut of small cases, and every
schedule.
"""

from __future__ import annotations

import pytest

from emuchain.emulator.explore import Demand, Pieces, all_cuts_ps, cuts_between_layers_ps
from emuchain.emulator.profile.stages import PIECES
from emuchain.emulator.schedule import Machine, Shape, Transport, pipeline_kind
from emuchain.emulator.timing import least_time_ps, time_shape

from .chains import random_case

SCHEDULES = ("gpipe", "1f1b-sno", "1f1b-so", "1f1b-as", "fbp-as")


@pytest.mark.parametrize("seed", range(0, 40, 2))
@pytest.mark.parametrize("stored", [False, True])
def test_no_cut_and_no_schedule_is_below_the_bound(seed: int, stored: bool) -> None:
    case, count = random_case(seed), 3 + seed % 5
    pieces = Pieces(case.pieces.stages, case.links, Demand((1,) * case.devices))
    between, anywhere = (
        bound(pieces, count, stored=stored) for bound in (cuts_between_layers_ps, all_cuts_ps)
    )
    best = None
    for number, ends in enumerate(case.cuts()):
        costs = pieces.costs([PIECES * end for end in ends])
        least = least_time_ps(Shape(case.devices, count, costs, Machine())) if stored else 0
        best = least if best is None else min(best, least)
        if number % 7:
            continue
        for name in SCHEDULES:
            kind = pipeline_kind(name)
            machine = Machine(
                kind.machine.engines, Transport.STORED if stored else Transport.HIDDEN
            )
            assert (
                time_shape(kind, Shape(case.devices, count, costs, machine)).makespan_ps >= between
            )
    assert 0 < anywhere <= between
    if stored:
        assert between == best, "no bound over all cuts is higher than that of the best one"


@pytest.mark.parametrize("seed", range(0, 60, 2))
def test_cuts_within_layers_are_not_below_the_bound_either(seed: int) -> None:
    case, count = random_case(seed), 4
    pieces = Pieces(case.pieces.stages, case.links, Demand((1,) * case.devices))
    bound, end = all_cuts_ps(pieces, count, stored=True), pieces.stages.end
    step = max(1, end // 23)
    for first in range(step, end - case.devices, step):
        ends = [first + device for device in range(case.devices - 1)] + [end]
        spread = [
            first * (device + 1) // (case.devices - 1) for device in range(case.devices - 1)
        ] + [end]
        for each in (ends, spread):
            costs = pieces.costs(each)
            assert least_time_ps(Shape(case.devices, count, costs, Machine())) >= bound


def test_with_many_micro_batches_the_bound_is_all_work_over_all_rates() -> None:
    case = random_case(0)
    pieces = Pieces(case.pieces.stages, case.links, Demand((1,) * case.devices))
    rates = sum(1 / pieces.least_ps(0, pieces.stages.end, device) for device in range(case.devices))
    assert 0.7 / rates <= all_cuts_ps(pieces, 10_000, stored=False) / 10_000 <= 1.01 / rates
