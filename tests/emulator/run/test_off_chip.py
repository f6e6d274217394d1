"""Off-chip memory in time: a case worked out by hand, bytes over memory ports, simulation and
training, and the bits.

By hand: an image 1x16x8 and a fully connected layer with 4 features, on one board with 2
multipliers, a clock of 100 MHz and no bank of on-chip memory; so FP and PG get a multiplier each.
Images need no errors, so there is no EB.

The 4 output channels have 128 weights each, 2048 bytes in all, a sample's activations 512. Off chip
are all of them. For a sample FP reads the weights and writes the activations, 2560 bytes; PG reads
and writes gradients and reads the activations, 4608; so 7168 move, 8000 ns at 896 MB/s, and a
sample enters every 8000 ns. FP and PG take 4·128 cycles.

    sample 1   FP's data 8000, FP 13120; PG's data 21120, PG 26240
    sample 2   FP's data 16000, FP 21120; PG's data 29120, PG 34240
    update     4 cycles: 26280 after one sample, 34280 after both

With Adam both moments of the weights are off chip, too, 4096 bytes; the update reads and writes
them, 8192 bytes or 9142858 ps more.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest

from emuchain.emulator.mapping import OffChip, port_bytes
from emuchain.emulator.plan import ChainPlan, missing_bytes, on_chip_banks
from emuchain.emulator.run import simulate, steady_state

FLAT = """
name = "flat"
input = [1, 16, 8]
layers = [{ type = "fc", features = 4 }, { type = "softmax" }]
"""
NO_BANKS = """
name = "small"
[[boards]]
name = "small"
clock_mhz = 100
dsp = 2
on_chip_memory_kbit = 8
off_chip_gbytes_per_s = 0.896
[links]
bandwidth_gbps = 1
latency_ns = 100
"""
FEW_BANKS = """
name = "few"
[[boards]]
name = "few"
clock_mhz = 100
dsp = 300
on_chip_memory_kbit = {kbit}
off_chip_gbytes_per_s = 2
[links]
bandwidth_gbps = 10
latency_ns = 200
"""
SAMPLES = 24


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory, plan_of: Any) -> Callable[..., ChainPlan]:
    folder = tmp_path_factory.mktemp("by_hand")
    (folder / "flat.toml").write_text(FLAT)
    (folder / "small.toml").write_text(NO_BANKS)

    def make(samples: int, **more: Any) -> ChainPlan:
        keys = {
            "network": str(folder / "flat.toml"),
            "cluster": str(folder / "small.toml"),
            "devices": 1,
        }
        return plan_of(**keys, batch=samples, schedule="sync", **more)

    return make


@pytest.mark.parametrize(("samples", "end_ns"), [(1, 26_280), (2, 34_280)])
def test_by_hand(by_hand: Callable[..., ChainPlan], samples: int, end_ns: int) -> None:
    plan = by_hand(samples)
    assert plan.timing.interval_ps == 8_000_000
    found = simulate(plan, samples)
    assert found.virtual_time_ps == 1000 * end_ns
    [device] = found.usage.devices
    assert device.port_bytes == 7168 * samples
    assert device.port_utilisation == pytest.approx(8000 * samples / end_ns)
    slowest = steady_state(plan).bottleneck.slowest
    assert (slowest.kind, slowest.sample_bytes, slowest.sample_ps) == ("memory", 7168, 8_000_000)


@pytest.mark.parametrize(
    ("optimizer", "more_ps"), [("sgd", 0), ("nesterov", 4_571_429), ("adam", 9_142_858)]
)
def test_states_of_optimisers_by_hand(
    by_hand: Callable[..., ChainPlan], optimizer: str, more_ps: int
) -> None:
    plan = by_hand(1, optimizer=optimizer)
    assert simulate(plan, 1).virtual_time_ps == 26_280_000 + more_ps
    more_bytes = {"sgd": 0, "nesterov": 2048, "adam": 4096}[optimizer]
    assert sum(plan.off_chip_bytes) == sum(by_hand(1).off_chip_bytes) + more_bytes


@pytest.fixture(scope="module")
def few_banks(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], str]:
    """Gives the file of a cluster whose boards have so much on-chip memory."""
    folder = tmp_path_factory.mktemp("clusters")

    def make(kbit: int) -> str:
        path = folder / f"{kbit}.toml"
        path.write_text(FEW_BANKS.format(kbit=kbit))
        return str(path)

    return make


@pytest.fixture(scope="module")
def small_plan(plan_of: Any, few_banks: Callable[[int], str]) -> Callable[..., ChainPlan]:
    def make(kbit: int = 1200, **keys: Any) -> ChainPlan:
        settings = {
            "network": "quick-cifar",
            "cluster": few_banks(kbit),
            "devices": 5,
            "batch": 8,
            "samples": SAMPLES,
        }
        return plan_of(**{**settings, "test_samples": 8, "epochs": 2, **keys})

    return make


@pytest.mark.parametrize("schedule", ["sync", "fpdeep"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("network", ["quick-cifar", "resnet8-cifar"])
def test_simulation_and_training_take_the_same_time(
    small_plan: Callable[..., ChainPlan], trained: Any, schedule: str, network: str, optimizer: str
) -> None:
    plan = small_plan(schedule=schedule, network=network, optimizer=optimizer, learning_rate=0.001)
    off_chip = [held for slices in plan.timing.off_chip for held in slices]
    assert any(held.activations for held in off_chip)
    assert simulate(plan, SAMPLES).usage == trained(plan).history[-1].usage


def test_weights_do_not_depend_on_where_data_lie(
    small_plan: Callable[..., ChainPlan], trained: Any, bits: Any
) -> None:
    keys = [{}, {"kbit": 500}, {"memory": "fpdeep"}]
    plans = [small_plan(schedule="sync", **more) for more in keys]
    assert len({plan.timing.off_chip for plan in plans}) == len(plans)
    first, *others = [bits(trained(plan).weights) for plan in plans]
    assert all(other == first for other in others)


@pytest.mark.parametrize("kbit", [300, 1200, 4000])
@pytest.mark.parametrize("network", ["quick-cifar", "inception-cifar", "vgg11-cifar"])
def test_bytes_over_memory_ports_are_conserved(
    small_plan: Callable[..., ChainPlan], network: str, kbit: int
) -> None:
    """Each device moves what its placement says for every sample, and nothing else; what is on chip
    fits.
    """
    plan = small_plan(kbit, network=network)
    usage, timing = simulate(plan, SAMPLES).usage, plan.timing
    assert any(device.port_bytes for device in usage.devices) == any(
        any(off_chip) for off_chip in timing.off_chip
    )
    assert kbit == 4000 or timing.off_chip
    for device, slices in zip(usage.devices, plan.mapping.devices, strict=True):
        off_chip = timing.off_chip[device.device] if timing.off_chip else [OffChip()] * len(slices)
        expected = sum(port_bytes(part, off) for part, off in zip(slices, off_chip, strict=True))
        assert device.port_bytes == expected * SAMPLES * plan.config.epochs
        assert device.port_utilisation <= 1
        banks = on_chip_banks(timing, device.device, plan.steady.in_flight[device.device])
        missing = missing_bytes(timing, plan.steady.in_flight)[device.device]
        assert missing == 2048 * max(0, banks - plan.cluster.board(device.device).banks)


def test_more_on_chip_memory_is_never_slower(small_plan: Callable[..., ChainPlan]) -> None:
    intervals = [
        small_plan(kbit, network="vgg11-cifar").timing.interval_ps
        for kbit in (500, 2000, 8000, 30_000, 120_000)
    ]
    assert intervals == sorted(intervals, reverse=True)
    assert intervals[0] > 2 * intervals[-1]


@pytest.mark.parametrize(
    ("mpiexec", "ranks"), [("mpich", 1), ("mpich", 3), ("openmpi", 2)], indirect=["mpiexec"]
)
def test_any_number_of_ranks(
    few_banks: Callable[[int], str], mpiexec: Any, tmp_path: Path, ranks: int
) -> None:
    out = tmp_path / "run.h5"
    flags = [
        "--network",
        "quick-cifar",
        "--cluster",
        few_banks(1200),
        "--devices",
        "5",
        "--samples",
        str(SAMPLES),
    ]
    flags += ["--batch", "8"]
    mpiexec(ranks, ["-m", "emuchain", "train", *flags, "--test-samples", "8", "--out", str(out)])
    simulated = subprocess.run(
        [sys.executable, "-m", "emuchain", "simulate", *flags, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(simulated.stdout)
    with h5py.File(out) as file:
        assert file["history/virtual_time_ps"][-1] == said["virtual_time_ps"]
        assert file["devices/port_bytes"][()].tolist() == [
            device["port_bytes"] for device in said["devices"]
        ]
