"""What optimisers keep beside gradients: its place in layouts, usage and stages, and what moving it
takes.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import emuchain
from emuchain.emulator.commands.cli import main
from emuchain.emulator.mapping import (
    OffChip,
    Slice,
    WeightBanks,
    slice_needs,
    stored_bytes,
    update_bytes,
)
from emuchain.emulator.network import load_network
from emuchain.emulator.number import Storage
from emuchain.kernels.number import FP32

FOUR = Storage.all_in(FP32, 4)
COPIES = {"sgd": 2, "nesterov": 3, "adam": 4, "adamw": 4}
FC = next(layer for layer in load_network("vgg16").layers if layer.name == "fc7")
CONV = next(layer for layer in load_network("vgg16").layers if layer.name == "conv4_1")


@pytest.mark.parametrize("part", [Slice(FC, 0, 100), Slice(CONV, 3, 60)], ids=str)
def test_each_array_takes_the_banks_of_the_weights(part: Slice) -> None:
    two, four = WeightBanks.of(part), WeightBanks.of(part, FOUR)
    for channels in (0, 1, part.channels):
        assert four.of_channels(channels) == 2 * two.of_channels(channels)
        assert four.most_channels(
            part.channels, 2 * two.of_channels(channels)
        ) == two.most_channels(part.channels, two.of_channels(channels))
    assert slice_needs(part, 3, FOUR).act_ram_banks == slice_needs(part, 3).act_ram_banks
    off = OffChip(channels=5)
    weights = stored_bytes(part, off, 3) // 2
    assert stored_bytes(part, off, 3, FOUR) == 4 * weights
    assert update_bytes(part, off) == 0
    assert update_bytes(part, off, FOUR) == 2 * 2 * weights


@pytest.mark.parametrize("optimizer", COPIES)
def test_layout_and_usage_count_them(optimizer: str) -> None:
    plan = emuchain.plan("quick-cifar", devices=3, optimizer=optimizer)
    more = COPIES[optimizer] - 1
    for device in plan.layout().devices:
        lpram, lgb = (
            sum(getattr(of.memory, name).bytes for of in device.slices) for name in ("lpram", "lgb")
        )
        assert lgb == more * lpram > 0
    usage = emuchain.simulate("quick-cifar", devices=3, optimizer=optimizer, samples=64).usage
    assert [device.memory.lgb for device in usage.devices] == [
        more * device.memory.lpram for device in usage.devices
    ]


@pytest.mark.parametrize("optimizer", ["sgd", "nesterov"])
def test_balanced_parameters_take_them_along(optimizer: str) -> None:
    keys: dict[str, Any] = {"devices": 32, "memory": "fpdeep", "optimizer": optimizer}
    more = COPIES[optimizer] - 1
    stored = [
        device
        for device in emuchain.plan("vgg16-cifar", **keys).layout().devices
        if device.bpram.bytes
    ]
    assert stored
    assert all(device.bgb == device.bpram * more for device in stored)
    usage = emuchain.simulate("vgg16-cifar", samples=64, **keys).usage
    assert [device.memory.bpram for device in usage.devices if device.memory.bpram]
    assert all(device.memory.bgb == more * device.memory.bpram for device in usage.devices)


def test_what_fits_with_sgd_may_not_with_adam() -> None:
    plans = {name: emuchain.plan("vgg16-cifar", devices=4, optimizer=name) for name in COPIES}
    off_chip = {name: sum(plan.off_chip_bytes) for name, plan in plans.items()}
    assert off_chip["sgd"] < off_chip["nesterov"] < off_chip["adam"] == off_chip["adamw"]
    assert all(plan.fits for plan in plans.values())
    assert plans["sgd"].timing == emuchain.plan("vgg16-cifar", devices=4).timing


@pytest.mark.parametrize("engines", ["turns", "shared"])
def test_stages_count_them(engines: str) -> None:
    keys: dict[str, Any] = {
        "devices": 2,
        "engines": engines,
        "schedule": "1f1b-so",
        "memory": "fpdeep",
    }
    for optimizer, copies in COPIES.items():
        stages = emuchain.plan("quick-cifar", optimizer=optimizer, **keys).stages
        assert stages is not None
        for stage in range(2):
            (weights, gradients, _), _ = stages.memory_bytes(stage)
            assert gradients == (copies - 1) * weights > 0


def test_a_gpu_keeps_and_moves_them() -> None:
    keys = {"cluster": "farnn-9p", "schedule": "gpu-standard", "samples": 64}
    found = {}
    for optimizer in ("sgd", "nesterov", "adam"):
        run = emuchain.train(
            "lstm-rows", data=None, test_samples=4, epochs=1, optimizer=optimizer, **keys
        )
        found[optimizer] = run.virtual_time_ps
    assert found["sgd"] == found["nesterov"] < found["adam"]


@pytest.mark.parametrize("optimizer", COPIES)
def test_the_command_takes_it(capsys: pytest.CaptureFixture[str], optimizer: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "quick-cifar", "--devices", "2", "--json", "--optimizer", optimizer])
    assert not ended.value.code
    slices = [
        part
        for device in json.loads(capsys.readouterr().out)["devices"]
        for part in device["slices"]
    ]
    assert slices
    assert all(
        part["lgb_bytes"] == (COPIES[optimizer] - 1) * part["lpram_bytes"] for part in slices
    )
