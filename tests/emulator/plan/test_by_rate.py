"""The cut and the placement by rate: more boards are never slower, and nothing is faster than the
bound.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import pytest

import emuchain
from emuchain.emulator.mapping import partition_with_memory
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.plan.limits import OverLimits
from emuchain.emulator.timing import Timing, memory_loads

from ..counted import COUNTED, counted

PlanOf = Callable[..., ChainPlan]


@pytest.fixture
def plan_of(plan_of: PlanOf) -> PlanOf:
    """Makes a plan on boards that count multipliers, whose memory and links limit."""
    return functools.partial(plan_of, changes=COUNTED)


def bound_ps(plan: ChainPlan) -> int:
    """The least time of a sample on the slowest engine or link: no cut and no placement takes
    less.
    """
    balance = partition_with_memory(plan.network, plan.cluster, plan.devices, None).balance
    assert balance is not None
    return balance.server_ps


@pytest.mark.parametrize("devices", [20, 21, 22])
def test_twenty_one_boards_are_faster_than_twenty(plan_of: PlanOf, devices: int) -> None:
    """At 21 all parameters would find room on chip, were they balanced, and links would then limit
    at 683 images/s.
    """
    plan = plan_of(network="vgg16-cifar", devices=devices)
    fewer = plan_of(network="vgg16-cifar", devices=devices - 1)
    assert 6000 < 1e12 / fewer.timing.interval_ps <= 1e12 / plan.timing.interval_ps
    assert plan.fits
    assert fewer.fits


SERIES = {
    "vgg16-cifar": [1, 2, 4, 8, 15, 20, 21, 24, 40, 64],
    "vgg16": [1, 2, 3, 4, 8, 16, 32, 64, 128],
    "alexnet": [1, 2, 3, 4, 6, 8, 16, 32, 64, 128],
    "resnet50": [1, 2, 4, 8, 12, 24, 48, 96],
}
SHORT_SERIES = {
    "vgg16-cifar": [1, 4, 15, 20, 21, 24, 40],
    "vgg16": [1, 3, 8, 32, 128],
    "alexnet": [1, 3, 8, 16],
    "resnet50": [1, 4, 12, 24],
}
"""Numbers of boards that show the same in a third of the time: most of it goes into the largest
ones.
"""


CLUSTERS = {"vc709": counted(), "u280": "u280"}
"""Boards that count multipliers, of which memory limits, and boards of built ones."""


def check_series(network: str, cluster: str, gbps: float, series: list[int]) -> None:
    """Fewer boards than have room for the buffers of all layers are refused, on built
    multipliers.
    """
    intervals: list[int] = []
    for devices in series:
        changes = {"link.bandwidth_gbps": gbps}
        try:
            plan = emuchain.plan(network, CLUSTERS[cluster], devices=devices, changes=changes)
        except OverLimits:
            assert cluster == "u280" and not intervals
            continue
        assert plan.fits
        assert plan.timing.interval_ps >= bound_ps(plan)
        intervals.append(plan.timing.interval_ps)
    assert len(intervals) >= len(series) - 2
    assert all(after <= before for before, after in itertools.pairwise(intervals)), intervals


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("gbps", [10, 150])
@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("network", SHORT_SERIES)
def test_more_boards_are_never_slower(network: str, cluster: str, gbps: float) -> None:
    check_series(network, cluster, gbps, SHORT_SERIES[network])


@pytest.mark.exhaustive
@pytest.mark.parametrize("gbps", [10, 150])
@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("network", SERIES)
def test_more_boards_are_never_slower_up_to_many(network: str, cluster: str, gbps: float) -> None:
    check_series(network, cluster, gbps, SERIES[network])


@pytest.mark.parametrize(
    ("network", "devices", "schedule"),
    [
        ("vgg16-cifar", 21, "fpdeep"),
        ("vgg16-cifar", 24, "sync"),
        ("vgg11-cifar", 12, "fpdeep"),
        ("alexnet", 9, "fpdeep"),
    ],
)
def test_balancing_is_never_slower_than_without(
    plan_of: PlanOf, network: str, devices: int, schedule: str
) -> None:
    with_it, without = (
        plan_of(network=network, devices=devices, schedule=schedule, balancing=balancing)
        for balancing in ("auto", "none")
    )
    assert not without.timing.blocks

    def mini_batch_ps(plan: ChainPlan) -> int:
        return (
            plan.batch * plan.timing.interval_ps + plan.steady.fill_ps * plan.config.schedule.drains
        )

    assert mini_batch_ps(with_it) <= mini_batch_ps(without)


def test_balanced_parameters_where_they_are_faster(plan_of: PlanOf) -> None:
    with_it, without = (
        plan_of(network="vgg16-cifar", devices=25, schedule="sync", balancing=balancing)
        for balancing in ("auto", "none")
    )
    assert with_it.timing.blocks
    assert with_it.timing.interval_ps < without.timing.interval_ps


def test_where_all_fits_on_chip_memory_changes_nothing(plan_of: PlanOf) -> None:
    plan = plan_of(network="quick-cifar", devices=4)
    assert not memory_loads(plan.timing)
    assert plan.timing == Timing.of(plan.mapping, plan.cluster)
    assert plan.timing.interval_ps == bound_ps(plan)
