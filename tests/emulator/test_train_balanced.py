"""Balanced parameters: stored on one device, used on another; times, bytes and numbers, in one process and on ranks."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from emuchain.comm.ranks import Alone
from emuchain.emulator.common.errors import InputError
from emuchain.emulator.config.config import load_config
from emuchain.emulator.data.load import load
from emuchain.emulator.device.balanced import Bpram
from emuchain.emulator.device.parameter import Sgd
from emuchain.emulator.mapping.balancing import Loan, channel_bytes
from emuchain.emulator.mapping.traffic import DataPath
from emuchain.emulator.plan.plan import Plan, make_plan
from emuchain.emulator.plan.steady import find_steady
from emuchain.emulator.run.simulate import simulate
from emuchain.emulator.run.train import EpochResult, Weights, train
from emuchain.emulator.run.usage import LinkFigures
from emuchain.emulator.schedule.dry_run import dry_run
from emuchain.emulator.schedule.pipeline import sync
from emuchain.emulator.timing.timing import Timing

# With 300 kB a board, quick-cifar fits on five of them, but not each slice where it is used.
CLUSTER = """
name = "small"
[[boards]]
name = "small"
clock_mhz = 100
dsp = 300
on_chip_memory_kbit = 2400
[links]
bandwidth_gbps = 40
latency_ns = 200
"""
SAMPLES, BATCH = 48, 16


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("balanced") / "small.toml"
    path.write_text(CLUSTER)
    return str(path)


def plan_of(cluster: str, **flags: object) -> Plan:
    settings = {"cluster": cluster, "devices": 5, "batch": BATCH, "micro_batch": 5, "samples": SAMPLES, "epochs": 2}
    return make_plan(load_config(None, {**settings, **flags}), 1)


def trained(plan: Plan, data: Path) -> tuple[Weights, EpochResult]:
    """Weights and result of the last epoch, in this process."""
    found: Weights = {}
    results = train(
        plan,
        load(str(data)).first(SAMPLES).test_first(7),
        Alone(),
        lambda _: None,
        lambda _, weights: found.update(weights),
        gather_weights=True,
    )
    return found, results[-1]


def bits(weights: Weights) -> dict[str, bytes]:
    return {f"{layer}/{name}": array.tobytes() for layer, arrays in weights.items() for name, array in arrays.items()}


def with_loans(plan: Plan, *loans: Loan) -> Plan:
    """The plan with loans of our choice."""
    timing = Timing.of(plan.mapping, plan.cluster, loans)
    return dataclasses.replace(plan, timing=timing, steady=find_steady(timing, plan.config.batch))


def many_loans(plan: Plan) -> list[Loan]:
    """From every slice that has enough channels, some to each of the two devices to its left."""
    return [
        Loan(part.layer, begin, end, device, store, (end - begin) * channel_bytes(part))
        for device, slices in enumerate(plan.mapping.devices)
        for part in slices
        for store, begin, end in ((device - 1, part.begin, part.begin + 1), (device - 2, part.end - 2, part.end))
        if store >= 0 and part.end - part.begin > 3
    ]


def test_what_does_not_fit_is_found_a_place(cluster: str) -> None:
    loans = plan_of(cluster).timing.loans
    assert {loan.user_device - loan.store_device for loan in loans} == {1, 2}  # so one passes through a device
    assert plan_of(cluster, balancing="none").timing.loans == ()


@pytest.mark.parametrize("network", ["quick-cifar", "resnet8-cifar"])
def test_weights_do_not_depend_on_where_they_are_stored(cluster: str, small_cifar: Path, network: str) -> None:
    plan = plan_of(cluster, network=network, schedule="sync", balancing="none")
    loans = many_loans(plan)
    assert len(loans) > 8
    assert bits(trained(with_loans(plan, *loans), small_cifar)[0]) == bits(trained(plan, small_cifar)[0])


def test_values_really_come_from_where_they_are_stored(
    cluster: str, small_cifar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(cluster, schedule="sync")
    right = bits(trained(plan, small_cifar)[0])
    update = Bpram.update

    def wrong(self: Bpram, gradient: np.ndarray, samples: int, rule: Sgd) -> np.ndarray:
        return update(self, gradient + 1, samples, rule)

    monkeypatch.setattr(Bpram, "update", wrong)
    assert bits(trained(plan, small_cifar)[0]) != right


@pytest.mark.parametrize("schedule", ["sync", "fpdeep"])
def test_simulation_and_training_take_the_same_time(cluster: str, small_cifar: Path, schedule: str) -> None:
    plan = plan_of(cluster, schedule=schedule)
    simulation = simulate(plan, SAMPLES)
    _, result = trained(plan, small_cifar)
    assert simulation.figures == result.figures


def test_bytes_on_paths_5_and_6(cluster: str) -> None:
    """Each loan's bytes for every sample, once on every link between store and user, either way."""
    plan = plan_of(cluster)
    links = simulate(plan, SAMPLES).figures.links
    crossed = {(link.sender, link.receiver): link for link in links}
    samples = SAMPLES * plan.config.epochs
    for link in range(plan.devices - 1):
        expected = samples * sum(
            loan.parameter_bytes for loan in plan.timing.loans if loan.store_device <= link < loan.user_device
        )
        forward, backward = crossed[link, link + 1], crossed[link + 1, link]
        assert carried(forward, DataPath.PARAMETERS) == carried(backward, DataPath.PARAMETER_GRADIENTS) == expected
    assert any(carried(link, DataPath.PARAMETERS) for link in links)


def carried(link: LinkFigures, path: DataPath) -> int:
    return link.path_bytes.get(path, 0)


def test_users_see_weights_as_old_as_those_in_store(cluster: str) -> None:
    steady, loans = plan_of(cluster).steady, plan_of(cluster).timing.loans
    for loan in loans:
        user, store = steady.lags[loan.user_device], steady.lags[loan.store_device]
        assert all(ours >= theirs for ours, theirs in zip(user.forward, store.forward, strict=True))
        assert all(ours >= theirs for ours, theirs in zip(user.backward, store.backward, strict=True))


def test_under_fpdeep_ranks_do_not_matter(cluster: str, small_cifar: Path, tmp_path: Path, mpiexec) -> None:  # type: ignore[no-untyped-def]  # a fixture
    """Three ranks: of the loan that passes through device 2, store, relay and user live on different ones."""
    flags = ["--network", "quick-cifar", "--cluster", cluster, "--devices", "5", "--batch", str(BATCH)]
    flags += ["--samples", str(SAMPLES), "--test-samples", "7", "--epochs", "2", "--micro-batch", "5"]
    out = tmp_path / "ranks.h5"
    mpiexec(3, ["-m", "emuchain", "train", *flags, "--data", str(small_cifar), "--out", str(out)])
    weights, result = trained(plan_of(cluster), small_cifar)
    with h5py.File(out) as file:
        found = {
            f"{layer}/{name}": data[()].tobytes()
            for layer, held in file["weights"].items()
            for name, data in held.items()
        }
        assert found == bits(weights)
        assert file["history/virtual_time_ps"][-1] == result.virtual_time_ps
        assert file["devices/bpram_bytes"][1] > 0


def test_the_dry_run_finds_an_update_that_would_wait_for_ever() -> None:
    """Updates of device 1 would wait for those of device 0, and these for those of device 1."""
    schedule = sync(2, 8, 4, 2)
    dry_run(schedule, [(1, 0)])
    with pytest.raises(InputError, match=r"deadlock.*device 0 waits at U1 for weights from device 1"):
        dry_run(schedule, [(1, 0), (0, 1)])


def test_simulate_shows_what_is_stored_for_others(cluster: str) -> None:
    import subprocess

    arguments = [
        "simulate",
        "--network",
        "quick-cifar",
        "--cluster",
        cluster,
        "--devices",
        "5",
        "--samples",
        "32",
        "--json",
    ]
    done = subprocess.run([sys.executable, "-m", "emuchain", *arguments], capture_output=True, text=True, check=True)
    devices = json.loads(done.stdout)["devices"]
    assert [device["memory"]["bpram"] > 0 for device in devices] == [False, True, False, False, False]
    assert all(device["memory"]["bpram"] == device["memory"]["bgb"] for device in devices)
