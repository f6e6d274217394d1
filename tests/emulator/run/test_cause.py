"""What holds a chain back, against plans of clusters on which it does not: with other links, memory
or engines.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from emuchain.emulator.plan import ChainPlan, make_plan
from emuchain.emulator.run import cause_of, limiting_kind, steady_state

from ..counted import COUNTED

PlanOf = Callable[..., ChainPlan]

FREE = {"link.bandwidth_gbps": 1_000_000}
FASTER = {"board.clock_mhz": 400}
"""Twice theirs."""
ON_CHIP = {"board.on_chip_memory_kbit": 8_000_000, "board.bram": 200_000}


@pytest.fixture
def plan_of(plan_of: PlanOf) -> PlanOf:
    """Makes a plan on boards that count multipliers, fast enough for links and memory to limit."""
    return functools.partial(plan_of, changes=COUNTED)


def gain(plan: ChainPlan, changes: dict[str, Any]) -> float:
    """How many times as fast the same run is with other values of its cluster, cut anew."""
    return (
        steady_state(make_plan(plan.config, 1, changes)).images_per_s
        / steady_state(plan).images_per_s
    )


def kind_of(plan: ChainPlan) -> str:
    return limiting_kind(plan, steady_state(plan))


@pytest.mark.parametrize(
    ("network", "cluster", "devices"),
    [
        ("resnet8-cifar", "vc709-10g", 8),  # an engine is the slowest
        ("quick-cifar", "vc709-10g", 15),  # a link is
        ("alexnet-cifar", "vc709-10g", 40),  # and memory would limit then
    ],
)
def test_links_hold_a_chain_back_where_wider_ones_bring_more(
    plan_of: PlanOf, network: str, cluster: str, devices: int
) -> None:
    plan = plan_of(network=network, cluster=cluster, devices=devices)
    cause = cause_of(plan, steady_state(plan))
    assert cause.kind == kind_of(plan) == "link"
    assert cause.wider is not None
    wider = {"link.bandwidth_gbps": cause.wider.gbps}
    assert cause.wider.images_per_s / steady_state(plan).images_per_s == gain(plan, wider) > 1.1
    assert gain(plan, wider) >= 0.99 * gain(plan, FREE)


@pytest.mark.parametrize("devices", [1, 4])
def test_engines_hold_a_chain_back_where_neither_links_nor_memory_do(
    plan_of: PlanOf, devices: int
) -> None:
    plan = plan_of(network="quick-cifar", devices=devices)
    cause = cause_of(plan, steady_state(plan))
    assert (cause.kind, cause.wider) == ("engine", None)
    assert gain(plan, FREE) == gain(plan, ON_CHIP) == 1
    assert gain(plan, FASTER) > 1.9


@pytest.mark.parametrize(("network", "devices"), [("alexnet-cifar", 4), ("vgg16-cifar", 15)])
def test_memory_holds_a_chain_back_where_all_on_chip_is_faster(
    plan_of: PlanOf, network: str, devices: int
) -> None:
    plan = plan_of(network=network, devices=devices)
    assert kind_of(plan) == "memory"
    assert gain(plan, ON_CHIP) == pytest.approx(plan.timing.interval_ps / plan.bound_ps)
    assert gain(plan, ON_CHIP) > 1.5 > gain(plan, FREE)


def test_updates_that_drain_and_exchanges_come_first(plan_of: PlanOf) -> None:
    drained = plan_of(network="quick-cifar", devices=8, schedule="sync", batch=2)
    assert kind_of(drained) == "draining"
    endless = plan_of(network="quick-cifar", devices=8, batch=2)
    assert steady_state(endless).images_per_s > 2 * steady_state(drained).images_per_s
    plan = plan_of(network="quick-cifar", devices=4, schedule="data-parallel-ring", batch=4)
    assert kind_of(plan) == "exchange"


@pytest.mark.parametrize(
    "settings", [{"stages": "layers"}, {"memory": "ignored"}, {"schedule": "interleaved"}]
)
def test_other_cuts_have_a_cause_too(plan_of: PlanOf, settings: dict[str, Any]) -> None:
    plan = plan_of(network="quick-cifar", devices=2, batch=64, **settings)
    cause = cause_of(plan, steady_state(plan))
    assert cause.kind in ("engine", "link", "draining")
    if cause.wider is not None:
        wider = make_plan(plan.config, 1, {"link.bandwidth_gbps": cause.wider.gbps})
        assert steady_state(wider).images_per_s == cause.wider.images_per_s


def test_wider_links_of_devices_with_several_stages(plan_of: PlanOf) -> None:
    """Stages of a device share its links, and the bandwidth that is named is that of the cluster's
    file.
    """
    plan = plan_of(
        network="quick-cifar", devices=4, batch=64, schedule="interleaved", cluster="vc709-10g"
    )
    cause = cause_of(plan, steady_state(plan))
    assert cause.wider is not None
    assert cause.wider.images_per_s / steady_state(plan).images_per_s == gain(
        plan, {"link.bandwidth_gbps": cause.wider.gbps}
    )
