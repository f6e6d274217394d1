"""Runs whose loss scale follows overflows: what is skipped, and the same bits on any boards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.device.memories import initial_weights
from emuchain.emulator.run import read_results, simulate
from emuchain.emulator.run.state.checkpoint_file import CheckpointReader

KEYS: dict[str, Any] = {
    "network": "quick-cifar",
    "batch": 8,
    "samples": 48,
    "test_samples": 4,
    "schedule": "sync",
}
OVER = "fp16 loss_scale=dynamic:every=1,first=262144"
"""Errors of the loss up to 1 overflow above 2^16; each update without doubles the scale again."""


@pytest.fixture
def weights_of(plan_of: Any, trained: Any, small_cifar: Path) -> Any:
    def train(**keys: Any) -> Any:
        return trained(plan_of(**{**KEYS, "data": str(small_cifar), **keys})).weights

    return train


def test_an_update_that_overflows_is_skipped(
    weights_of: Any, plan_of: Any, small_cifar: Path
) -> None:
    """With momentum and decay, which would change weights without any gradient."""
    precision = "errors=fp16 loss_scale=dynamic:every=9,first=16777216"
    keys = {"samples": 8, "devices": 2, "seed": 3, "momentum": 0.9, "weight_decay": 0.1}
    weights = weights_of(**keys, precision=precision)
    network = plan_of(**KEYS).network
    for layer in network.layers:
        outs, ins, *_ = layer.weight_shape
        drawn = initial_weights(layer, network.start, 3, range(ins), range(outs))
        assert np.array_equal(weights[layer.name]["weight"], drawn), layer.name


def test_powers_of_two_change_no_bits(weights_of: Any, bits: Any) -> None:
    plain = weights_of(devices=2, precision="activations=bf16")
    scaled = "activations=bf16 loss_scale=dynamic:every=1,first=1"
    assert bits(weights_of(devices=2, precision=scaled)) == bits(plain)


def test_bits_do_not_depend_on_boards_or_replicas(weights_of: Any, bits: Any) -> None:
    one = bits(weights_of(devices=1, precision=OVER))
    assert one == bits(weights_of(devices=4, micro_batch=3, precision=OVER))
    assert one != bits(weights_of(devices=1, precision=f"fp16 loss_scale={2**12}"))
    both = weights_of(devices=2, replicas=2, precision=OVER)
    assert bits(both) == bits(weights_of(devices=4, replicas=2, micro_batch=2, precision=OVER))


def test_training_takes_the_time_of_its_simulation(
    plan_of: Any, trained: Any, small_cifar: Path
) -> None:
    keys = {**KEYS, "data": str(small_cifar), "devices": 3}
    plan = plan_of(**keys, precision=OVER)
    [result] = trained(plan).history
    assert [result.virtual_time_ps] == [*simulate(plan, 48).epoch_ends_ps]
    clipped = plan_of(**keys, precision="fp16", clip_norm=1.0)
    assert [*simulate(clipped, 48).epoch_ends_ps] == [result.virtual_time_ps]


@pytest.mark.parametrize("devices", [2, 3])
def test_resumed_on_any_boards(tmp_path: Path, small_cifar: Path, bits: Any, devices: int) -> None:
    keys = {**KEYS, "data": str(small_cifar), "precision": OVER}
    whole = emuchain.train(**keys, devices=2, epochs=2)
    file = str(tmp_path / "run.ckpt")
    emuchain.train(**keys, devices=2, epochs=1, checkpoint=file)
    with CheckpointReader(file, "here") as reader:
        clocks = [
            of_one["counts"] for of_one in reader.text["clocks"].values() if "counts" in of_one
        ]
    scales = {counts["loss_scale_value"] for counts in clocks}
    assert len(clocks) == 2 and len(scales) == 1
    assert 2**12 < scales.pop() < 2**18, "it has halved, and not with each of six updates"
    rest = emuchain.train(**keys, devices=devices, epochs=2, resume=file)
    assert bits(rest.weights) == bits(whole.weights)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"schedule": "fpdeep"}, "should be a schedule that drains"),
        ({"precision": "mxfp8 loss_scale=dynamic"}, "errors overflow, and those in mxfp8 saturate"),
        ({"precision": "q2.6 loss_scale=dynamic"}, "errors in fp16 or bf16"),
        (
            {"precision": "bf16 gradients=fp8 loss_scale=dynamic", "replicas": 2, "devices": 4},
            "gradients overflow, and those in fp8 saturate",
        ),
        ({"replicas": 2, "devices": 4, "compress": "bf16"}, "which `compress` = 'bf16' may drop"),
    ],
    ids=lambda given: str(given)[:30],
)
def test_what_is_refused(plan_of: Any, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=r"`precision`.*the loss scale") as error:
        plan_of(**{**KEYS, "precision": "bf16 loss_scale=dynamic", **keys})
    assert said in str(error.value) and "\n" not in str(error.value)


def test_skipped_updates_are_counted(
    plan_of: Any, trained: Any, small_cifar: Path, tmp_path: Path, printed: Any
) -> None:
    """With each update the scale halves or doubles, so it tells how many there were of each."""
    keys = {**KEYS, "data": str(small_cifar), "epochs": 2}
    mappings = [{"devices": 1}, {"devices": 4, "micro_batch": 3}, {"devices": 2, "replicas": 2}]
    counts = [
        [epoch.rounded for epoch in trained(plan_of(**keys, **own, precision=OVER)).history]
        for own in mappings
    ]
    assert counts[0] == counts[1]
    for epochs in counts:
        skipped = [epoch["updates_skipped"] for epoch in epochs]
        assert [epoch["updates_scaled"] for epoch in epochs] == [6, 6]
        assert 0 < skipped[0] < 6
        ups = sum(6 - 2 * count for count in skipped)
        assert epochs[-1]["loss_scale"] == 2 ** (18 + ups)
    out, [first, last] = tmp_path / "run.h5", counts[0]
    flags = [
        f"--{key.replace('_', '-')}={value}" for key, value in keys.items() if key != "network"
    ]
    said = printed("train", "quick-cifar", *flags, "--precision", OVER, "--out", str(out))
    table = read_results(out).rounding
    assert table["updates_skipped"].tolist() == [
        one["updates_skipped"] / 6 for one in (first, last)
    ]
    assert table["loss_scale"].tolist() == [one["loss_scale"] for one in (first, last)]
    assert f"the loss scale is {last['loss_scale']:,}" in " ".join(said.split())
    plain = trained(plan_of(**keys, precision="fp16 loss_scale=1024")).history[0].rounded
    assert not {"updates_skipped", "loss_scale"} & {*plain}


def test_a_killed_run_counts_on(small_cifar: Path, tmp_path: Path) -> None:
    keys = {**KEYS, "data": str(small_cifar), "precision": OVER, "progress": "none"}
    whole = emuchain.train(**keys, devices=2, epochs=2)
    file = str(tmp_path / "run.ckpt")
    emuchain.train(**keys, devices=2, epochs=1, checkpoint=file)
    for devices in (2, 3):
        rest = emuchain.train(**keys, devices=devices, epochs=2, resume=file)
        for name in ("updates_skipped", "loss_scale"):
            assert np.array_equal(rest.rounding[name], whole.rounding[name])
