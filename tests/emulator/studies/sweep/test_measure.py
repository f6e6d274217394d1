"""The figures of a point, against the plan and steady state that they come from."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.run import limiting_kind, steady_state
from emuchain.emulator.studies.sweep import Measured, Space, measure, points_of

from ...counted import counted

IMAGES = 36_000_000


def measured(**values: Any) -> Measured:
    """The figures of one point."""
    [point] = points_of(Space.of(values))
    return measure((point, IMAGES, False))


@pytest.mark.parametrize(
    "keys",
    [
        {"network": "vgg16-cifar", "devices": 9},
        {"network": "quick-cifar", "devices": 3, "schedule": "sync", "batch": 32},
        {"network": "quick-cifar", "devices": 2, "replicas": 4},
        {"network": "quick-cifar", "devices": 4, "schedule": "data-parallel-ring"},
    ],
)
def test_figures_are_those_of_the_plan(plan_of: Any, keys: dict[str, Any]) -> None:
    plan: ChainPlan = plan_of(**keys)
    state, found = steady_state(plan), measured(**keys)
    assert found.error is None
    assert found.boards == plan.nodes == keys["devices"] * keys.get("replicas", 1)
    assert found.images_per_s == state.images_per_s
    assert found.epoch_hours == pytest.approx(IMAGES / 3600 / state.images_per_s)
    assert (found.fits, found.missing_mib) == (plan.fits, plan.missing_bytes / 2**20)
    off_chip = sum(device.off_chip_bytes for device in plan.layout().devices)
    assert found.off_chip_mib == pytest.approx(off_chip / 2**20)
    assert found.bottleneck == state.bottleneck.slowest.name
    assert found.second == state.bottleneck.behind.name
    assert found.cause == limiting_kind(plan, state)
    moved = sum(device.port_bytes for device in plan.layout().devices)
    off_chip_j = 8e-12 * moved * (plan.cluster.board(0).off_chip_pj_per_bit or 0)
    assert found.images_per_j == pytest.approx(
        1 / (plan.nodes * 31.6 / state.images_per_s + off_chip_j)
    )
    macs = sum(load.macs for device in state.devices for load in device.engines)
    board = plan.cluster.board(0)
    balanced = 1e12 * plan.nodes * board.multipliers / board.period_ps / macs
    assert found.efficiency == pytest.approx(state.images_per_s / balanced)


def test_perfect_balance_is_out_of_reach() -> None:
    for devices in (1, 5, 12):
        efficiency = measured(
            network="vgg16-cifar", devices=devices, memory="ignored", cluster=counted()
        ).efficiency
        assert efficiency is not None and 0.5 < efficiency < 1


def test_a_pair_has_the_figures_of_its_mini_batch() -> None:
    keys: dict[str, Any] = {
        "network": "lstm-5x1024",
        "batch": 2,
        "time_steps": 400,
        "schedule": "farnn",
    }
    found, plan = measured(cluster="farnn-9p", **keys), emuchain.plan(cluster="farnn-9p", **keys)
    ps = plan.times.mini_batch_ps
    assert found.error is None and found.boards == 2
    assert found.images_per_s == pytest.approx(2e12 / ps)
    assert found.epoch_hours == pytest.approx(IMAGES / 2 * ps / 3600e12)
    assert found.efficiency == plan.times.peak_ps / ps
    assert (found.bottleneck, found.bottleneck_kind) == ("FPGA", "engine")
    assert (found.second, found.second_kind) == ("PCIe to FPGA", "link")
    assert (found.fits, found.off_chip_mib, found.images_per_j) == (True, 0, None)
    slow = measured(cluster="farnn-9p", **keys, **{"link.bandwidth_gbps": 10})
    assert (slow.bottleneck, slow.bottleneck_kind, slow.second) == ("PCIe to FPGA", "link", "FPGA")


def test_a_gpu_alone_has_no_efficiency_but_known_power() -> None:
    found = measured(
        network="lstm-5x1024", cluster="p100", batch=1, time_steps=100, schedule="gpu-standard"
    )
    board = emuchain.load_cluster("p100").board(0)
    assert found.images_per_s is not None and found.boards == 1
    assert found.images_per_j == pytest.approx(found.images_per_s / (board.power_w or 0))
    assert (found.bottleneck, found.second, found.efficiency) == ("GPU", None, None)


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({"devices": 1}, "engine"),
        ({"devices": 4, "link.bandwidth_gbps": 0.001, "cluster": counted()}, "link"),
        (
            {"devices": 1, "board.on_chip_memory_kbit": 500, "board.off_chip_gbytes_per_s": 0.01},
            "memory",
        ),
        ({"devices": 1, "replicas": 2, "network.bandwidth_gbps": 0.01}, "exchange"),
    ],
)
def test_kinds_of_bottlenecks(keys: dict[str, Any], kind: str) -> None:
    assert measured(network="quick-cifar", **keys).bottleneck_kind == kind


def test_unknown_power() -> None:
    assert measured(network="quick-cifar", cluster="u280").images_per_j is None


def test_a_point_that_fails_says_why() -> None:
    found = measured(network="quick-cifar", devices=385)
    assert found.error is not None
    assert found.error.startswith("`devices` = 385: must be 1 to 384")
    assert dataclasses.replace(found, error=None) == Measured()


@pytest.mark.parametrize(
    ("error", "message"),
    [(InputError("so\nit goes"), "so it goes"), (ValueError("x"), "internal error: ValueError: x")],
)
def test_whatever_goes_wrong_is_a_row(
    monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    def fail(*_: Any, **__: Any) -> ChainPlan:
        raise error

    monkeypatch.setattr(sys.modules[measure.__module__], "make_plan", fail)
    assert measured(network="quick-cifar").error == message
