"""Links whose data paths have fixed parts: the same bits, the same time in simulation and training,
fewer bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from emuchain.emulator.mapping import Cut, steps_before_sending
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.run import simulate

CLUSTER = """
name = "fixed"
[[boards]]
name = "b"
clock_mhz = 100
dsp = 300
on_chip_memory_kbit = {kbit}
off_chip_gbytes_per_s = 2
[links]
bandwidth_gbps = 10
latency_ns = 200
share = "{share}"
"""
SAMPLES = 24


@pytest.fixture(scope="module")
def small_plan(tmp_path_factory: pytest.TempPathFactory, plan_of: Any) -> Callable[..., ChainPlan]:
    folder = tmp_path_factory.mktemp("clusters")

    def make(share: str, kbit: int = 8000, **keys: Any) -> ChainPlan:
        path = folder / f"{share}{kbit}.toml"
        path.write_text(CLUSTER.format(share=share, kbit=kbit))
        settings = {
            "network": "quick-cifar",
            "cluster": str(path),
            "devices": 6,
            "batch": 8,
            "samples": SAMPLES,
        }
        return plan_of(**{**settings, "test_samples": 8, "epochs": 2, **keys})

    return make


def spans_pooled_outputs(plan: ChainPlan) -> bool:
    """Whether pooled outputs pass a link."""
    share = plan.cluster.link.share
    ends = [slices[-1] for slices in plan.mapping.devices[:-1]]
    pools = [
        part for part in ends if any(step.rows for step in steps_before_sending(part.layer, share))
    ]
    return any(part.cut is Cut.OCP and not part.is_last for part in pools)


@pytest.mark.parametrize("kbit", [1200, 8000])
@pytest.mark.parametrize("schedule", ["sync", "fpdeep"])
@pytest.mark.parametrize("network", ["quick-cifar", "alexnet-cifar"])
def test_simulation_and_training_take_the_same_time(
    small_plan: Callable[..., ChainPlan], trained: Any, network: str, schedule: str, kbit: int
) -> None:
    plan = small_plan("paths", kbit, network=network, schedule=schedule)
    assert simulate(plan, SAMPLES).usage == trained(plan).history[-1].usage


def test_weights_do_not_depend_on_what_travels(
    small_plan: Callable[..., ChainPlan], trained: Any, bits: Any
) -> None:
    by_bytes, by_paths = (
        small_plan(share, schedule="sync", devices=24) for share in ("bytes", "paths")
    )
    assert spans_pooled_outputs(by_paths)
    assert bits(trained(by_bytes).weights) == bits(trained(by_paths).weights)


def test_bytes_are_conserved(small_plan: Callable[..., ChainPlan]) -> None:
    """What crosses a link on each path are the mapping's streams, for all samples of both
    epochs.
    """
    by_paths = small_plan("paths", devices=24, schedule="sync")
    usage = simulate(by_paths, SAMPLES).usage
    for link in usage.links:
        carried = by_paths.timing.links[min(link.sender, link.receiver)]
        for path, count in link.path_bytes.items():
            assert count == 2 * SAMPLES * sum(s.sample_bytes for s in carried if s.path is path)
