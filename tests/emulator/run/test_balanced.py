"""Balanced parameters: stored on one device, used on another; times, bytes and numbers, in one
process and on ranks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.device import Bpram, Rule
from emuchain.emulator.mapping import DataPath
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.run import LinkUsage, simulate
from emuchain.emulator.schedule import EpochShape, dry_run
from emuchain.emulator.schedule.sync import SYNC

SAMPLES, BATCH = 48, 16

BalancedPlan = Callable[..., ChainPlan]


@pytest.fixture(scope="module")
def balanced_plan(
    plan_of: Callable[..., ChainPlan], small_cluster: str, small_cifar: Path
) -> BalancedPlan:
    """Makes a plan on small boards, where quick-cifar needs balanced parameters, unless other keys
    say otherwise.
    """

    def make(**keys: Any) -> ChainPlan:
        settings = {
            "cluster": small_cluster,
            "devices": 5,
            "batch": BATCH,
            "micro_batch": 5,
            "epochs": 2,
        }
        settings |= {
            "memory": "fpdeep",
            "data": str(small_cifar),
            "samples": SAMPLES,
            "test_samples": 7,
        }
        return plan_of(**{**settings, **keys})

    return make


def test_what_does_not_fit_is_found_a_place(balanced_plan: BalancedPlan) -> None:
    blocks = balanced_plan().timing.blocks
    assert {block.user_device - block.store_device for block in blocks} == {
        1,
        2,
    }  # so one passes through a device
    assert balanced_plan(balancing="none").timing.blocks == ()


@pytest.mark.parametrize("network", ["quick-cifar", "resnet8-cifar"])
def test_weights_do_not_depend_on_where_they_are_stored(
    balanced_plan: BalancedPlan,
    many_blocks: Any,
    with_blocks: Any,
    trained: Any,
    bits: Any,
    network: str,
) -> None:
    plan = balanced_plan(network=network, schedule="sync", balancing="none")
    blocks = many_blocks(plan)
    assert len(blocks) > 8
    assert bits(trained(with_blocks(plan, blocks)).weights) == bits(trained(plan).weights)


def test_values_really_come_from_where_they_are_stored(
    balanced_plan: BalancedPlan, trained: Any, bits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = balanced_plan(schedule="sync")
    right = bits(trained(plan).weights)
    update = Bpram.update

    def wrong(self: Bpram, gradient: np.ndarray, samples: int, rule: Rule) -> np.ndarray:
        return update(self, gradient + 1, samples, rule)

    monkeypatch.setattr(Bpram, "update", wrong)
    assert bits(trained(plan).weights) != right


@pytest.mark.parametrize("schedule", ["sync", "fpdeep"])
def test_simulation_and_training_take_the_same_time(
    balanced_plan: BalancedPlan, trained: Any, schedule: str
) -> None:
    plan = balanced_plan(schedule=schedule)
    assert simulate(plan, SAMPLES).usage == trained(plan).history[-1].usage


def test_bytes_on_paths_5_and_6(balanced_plan: BalancedPlan) -> None:
    """Each block's bytes for every sample, once on every link between store and user, either
    way.
    """
    plan = balanced_plan()
    links = simulate(plan, SAMPLES).usage.links
    crossed = {(link.sender, link.receiver): link for link in links}
    samples = SAMPLES * plan.config.epochs
    for link in range(plan.devices - 1):
        expected = samples * sum(
            block.parameter_bytes
            for block in plan.timing.blocks
            if block.store_device <= link < block.user_device
        )
        forward, backward = crossed[link, link + 1], crossed[link + 1, link]
        assert (
            carried(forward, DataPath.PARAMETERS)
            == carried(backward, DataPath.PARAMETER_GRADIENTS)
            == expected
        )
    assert any(carried(link, DataPath.PARAMETERS) for link in links)


def carried(link: LinkUsage, path: DataPath) -> int:
    return link.path_bytes.get(path, 0)


def test_users_see_weights_as_old_as_those_in_store(balanced_plan: BalancedPlan) -> None:
    plan = balanced_plan()
    assert plan.timing.blocks
    for block in plan.timing.blocks:
        user, store = (
            plan.steady.staleness[block.user_device],
            plan.steady.staleness[block.store_device],
        )
        assert all(ours >= theirs for ours, theirs in zip(user.forward, store.forward, strict=True))
        assert all(
            ours >= theirs for ours, theirs in zip(user.backward, store.backward, strict=True)
        )


def test_the_dry_run_finds_an_update_that_would_wait_for_ever() -> None:
    """Updates of device 1 would wait for those of device 0, and these for those of device 1."""
    schedule = SYNC.generate(EpochShape(devices=2, samples=8, batch=4, micro_batch=2))
    dry_run(schedule, [(1, 0)])
    with pytest.raises(
        InputError, match=r"deadlock.*device 0 waits at U1 for weights from device 1"
    ):
        dry_run(schedule, [(1, 0), (0, 1)])


def test_simulate_shows_what_is_stored_for_others(small_cluster: str) -> None:
    arguments = [
        "simulate",
        "--network",
        "quick-cifar",
        "--cluster",
        small_cluster,
        "--devices",
        "5",
    ]
    arguments += ["--memory", "fpdeep", "--samples", "32", "--json"]
    finished = subprocess.run(
        [sys.executable, "-m", "emuchain", *arguments], capture_output=True, text=True, check=True
    )
    devices = json.loads(finished.stdout)["devices"]
    assert [device["memory"]["bpram"] > 0 for device in devices] == [
        False,
        True,
        False,
        False,
        False,
    ]
    assert all(device["memory"]["bpram"] == device["memory"]["bgb"] for device in devices)


@pytest.mark.parametrize("mpiexec", ["mpich"], indirect=True)
def test_under_fpdeep_ranks_do_not_matter(
    balanced_plan: BalancedPlan,
    trained: Any,
    bits: Any,
    small_cluster: str,
    small_cifar: Path,
    tmp_path: Path,
    mpiexec: Any,
) -> None:
    """Three ranks: of the block that passes through device 2, store, relay and user live on
    different ones.
    """
    flags = [
        "--network",
        "quick-cifar",
        "--cluster",
        small_cluster,
        "--devices",
        "5",
        "--batch",
        str(BATCH),
    ]
    flags += [
        "--samples",
        str(SAMPLES),
        "--test-samples",
        "7",
        "--epochs",
        "2",
        "--micro-batch",
        "5",
        "--memory",
        "fpdeep",
    ]
    out = tmp_path / "ranks.h5"
    mpiexec(3, ["-m", "emuchain", "train", *flags, "--data", str(small_cifar), "--out", str(out)])
    weights, history = trained(balanced_plan())
    with h5py.File(out) as file:
        found = {
            f"{layer}/{name}": data[()].tobytes()
            for layer, held in file["weights"].items()
            for name, data in held.items()
        }
        assert found == bits(weights)
        assert file["history/virtual_time_ps"][-1] == history[-1].virtual_time_ps
        assert file["devices/bpram_bytes"][1] > 0
