"""A convolution whose description says along which channels devices share it."""

from __future__ import annotations

from typing import Any

import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.mapping import Cut


def network(cut: str | None, groups: int = 1) -> dict[str, Any]:
    """A network whose second convolution has 16 inputs and 24 outputs."""
    conv = {"type": "conv", "kernel": 3, "pad": 1}
    second = {
        **conv,
        "channels": 24,
        "name": "second",
        "groups": groups,
        **({} if cut is None else {"cut": cut}),
    }
    layers = [
        {**conv, "channels": 16},
        {"type": "relu"},
        second,
        {"type": "fc", "features": 10},
        {"type": "softmax"},
    ]
    return {"name": "own", "input": [3, 32, 32], "layers": layers}


@pytest.mark.parametrize(("cut", "expected"), [(None, Cut.ICP), ("ICP", Cut.ICP), ("OCP", Cut.OCP)])
def test_a_cut_is_as_described_and_changes_no_bit(
    cut: str | None, expected: Cut, bits: Any
) -> None:
    settings: dict[str, Any] = {
        "devices": 5,
        "batch": 8,
        "samples": 24,
        "test_samples": 4,
        "schedule": "sync",
    }
    plan = emuchain.plan(network(cut), **settings)
    parts = [
        part for slices in plan.mapping.devices for part in slices if part.layer.name == "second"
    ]
    assert len(parts) > 1 and {part.cut for part in parts} == {expected}
    alone = emuchain.train(network(None), **{**settings, "devices": 1})
    assert bits(emuchain.train(plan).weights) == bits(alone.weights)
    run = emuchain.simulate(plan)
    assert run.virtual_time_ps == emuchain.train(plan).virtual_time_ps


def test_many_devices_share_outputs_where_inputs_are_few() -> None:
    """16 input channels take 16 devices, 24 output channels 24."""
    slow: dict[str, Any] = {
        "name": "slow",
        "boards": [{"name": "b", "clock_mhz": 1, "dsp": 60, "on_chip_memory_kbit": 10**5}],
    }
    cluster = {**slow, "links": {"bandwidth_gbps": 1000, "latency_ns": 0}}
    rates = [
        emuchain.steady_state(emuchain.plan(network(cut), cluster, devices=30)).images_per_s
        for cut in ("ICP", "OCP")
    ]
    assert rates[1] > rates[0]


@pytest.mark.parametrize(
    ("cut", "groups", "said"),
    [("ICP", 2, "in 2 groups it is cut by output channels"), ("icp", 1, "ICP")],
)
def test_what_cannot_be_is_reported(cut: str, groups: int, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        emuchain.plan(network(cut, groups))
    assert "\n" not in str(error.value)
