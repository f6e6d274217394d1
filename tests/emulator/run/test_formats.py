"""Runs in narrow formats: the same bits on any mapping, schedule and checkpoint, and the formats'
own values.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.run import Weights, read_results, rounding_table, simulate
from emuchain.kernels.number import BlockGrid, FloatGrid, number_format
from emuchain.kernels.quantise import on_blocks, on_grid

KEYS: dict[str, Any] = {
    "network": "quick-cifar",
    "batch": 16,
    "samples": 48,
    "test_samples": 4,
    "learning_rate": 0.01,
}
NARROW: dict[str, Any] = {
    "bf16": "bf16",
    "mxfp8": "mxfp8",
    "mxint8 with all else in bf16": {
        **{"format": "mxint8", "master": "bf16", "states": "bf16", "gradients": "bf16"},
        "loss_scale": 256,
    },
    "mxfp4 by chance": {"format": "mxfp4", "master": "q2.10", "rounding": "stochastic"},
    "nvfp4 by chance": {"format": "nvfp4", "gradients": "nvfp4", "rounding": "stochastic"},
    "e4m3 by chance": {
        "format": "fp8",
        "gradients": "mxfp8",
        "states": "q4.12",
        "rounding": "stochastic",
    },
    "shifts by chance": {"format": "shift5", "master": "q2.14", "rounding": "stochastic"},
    "sums in bf16": {"format": "bf16", "accumulate": "bf16"},
    "e4m3 with sums in fp16": {"format": "fp8", "accumulate": "fp16", "loss_scale": 64},
    "int8 with sums in int32": {"format": "q2.6", "accumulate": "int32", "loss_scale": 256},
}


@pytest.fixture(scope="module")
def train_keys(plan_of: Any, trained: Any, small_cifar: Path) -> Any:
    def train(**keys: Any) -> Weights:
        return trained(
            plan_of(**{**KEYS, "data": str(small_cifar), "schedule": "sync", **keys})
        ).weights

    return train


@pytest.fixture(scope="module")
def references(train_keys: Any) -> dict[str, Weights]:
    """On one device, in micro-batches of 16."""
    return {
        name: train_keys(devices=1, micro_batch=16, precision=given)
        for name, given in NARROW.items()
    }


def test_formats_change_numbers(references: dict[str, Weights], train_keys: Any, bits: Any) -> None:
    single = train_keys(devices=1)
    assert len({str(bits(weights)) for weights in (single, *references.values())}) == 1 + len(
        NARROW
    )


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize(
    "keys",
    [
        {"devices": 3, "micro_batch": 4},
        {"devices": 11, "micro_batch": 1},
        {"devices": 5, "schedule": "gpipe", "engines": "turns"},
        {"devices": 2, "schedule": "1f1b-as"},
    ],
    ids=lambda keys: " ".join(map(str, keys.values())),
)
def test_bits_do_not_depend_on_the_mapping(
    references: dict[str, Weights], train_keys: Any, bits: Any, name: str, keys: dict[str, Any]
) -> None:
    assert bits(train_keys(**keys, precision=NARROW[name])) == bits(references[name])


@pytest.mark.parametrize("network", ["quick-cifar", "resnet8-cifar", "inception-cifar"])
def test_graphs_and_where_weights_are_stored(
    plan_of: Any,
    trained: Any,
    bits: Any,
    small_cifar: Path,
    many_blocks: Any,
    with_blocks: Any,
    network: str,
) -> None:
    keys = {
        **KEYS,
        "network": network,
        "data": str(small_cifar),
        "schedule": "sync",
        "balancing": "none",
    }
    keys["precision"] = NARROW["e4m3 by chance"]
    plan = plan_of(**keys, devices=5)
    blocks = many_blocks(plan)
    assert len(blocks) > 8
    expected = bits(trained(plan_of(**keys, devices=1)).weights)
    assert (
        bits(trained(plan).weights) == bits(trained(with_blocks(plan, blocks)).weights) == expected
    )


@pytest.mark.parametrize("name", ["mxfp8", "mxint8 with all else in bf16", "mxfp4 by chance"])
def test_weights_have_the_values_of_their_format(references: dict[str, Weights], name: str) -> None:
    given = NARROW[name]
    grid = number_format(given if isinstance(given, str) else given["format"]).grid
    assert isinstance(grid, BlockGrid)
    for layer, arrays in references[name].items():
        weight = arrays["weight"]
        by_inputs = on_blocks(
            np.ascontiguousarray(weight.reshape(len(weight), -1)), grid, -1
        ).reshape(weight.shape)
        by_outputs = on_blocks(weight, grid, 0)
        assert np.array_equal(by_inputs, weight) or np.array_equal(by_outputs, weight), layer


def test_integers_sum_as_fp32_does_below_its_last_whole_number(train_keys: Any, bits: Any) -> None:
    """No sum of this network's products reaches 2^24."""
    keys = {"devices": 5, "micro_batch": 4}
    narrow = {"format": "q1.5", "weights": "q2.4", "errors": "q1.4", "loss_scale": 64}
    assert bits(train_keys(**keys, precision={**narrow, "accumulate": "int32"})) == bits(
        train_keys(**keys, precision=narrow)
    )


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"precision": {"format": "bf16", "accumulate": "int32"}}, "activations are in bf16"),
        (
            {"precision": {"format": "int8", "errors": "mxint8", "accumulate": "int32"}},
            "errors are in mxint8",
        ),
        (
            {"network": "resnet8-cifar", "precision": "int8 accumulate=int32"},
            "other layers read the inputs of",
        ),
        (
            {"batch": 1024, "precision": "int8 accumulate=int32"},
            "PG of conv1 sums 1,048,576 products of up to 16,129",
        ),
        ({"precision": "q1.13 accumulate=int32"}, "should be at most 0 products"),
    ],
    ids=lambda given: str(given)[:40],
)
def test_what_integers_cannot_sum(plan_of: Any, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match="accumulate") as error:
        plan_of(**{**KEYS, "samples": 1024, **keys}, devices=1)
    assert said in str(error.value)


def test_weights_alone(train_keys: Any) -> None:
    weights = train_keys(devices=3, precision={"weights": "q2.6"})
    grid = number_format("q2.6").grid
    assert isinstance(grid, FloatGrid)
    assert all(
        np.array_equal(on_grid(arrays["weight"], grid), arrays["weight"])
        for arrays in weights.values()
    )


def test_a_loss_scale_changes_nothing_in_single_precision(train_keys: Any, bits: Any) -> None:
    assert bits(train_keys(devices=2, precision={"loss_scale": 1024})) == bits(
        train_keys(devices=2)
    )


def test_replicas_exchange_narrow_gradients(train_keys: Any, bits: Any) -> None:
    keys = {"replicas": 2, "precision": {"format": "bf16", "gradients": "bf16", "loss_scale": 16}}
    assert bits(train_keys(devices=4, **keys)) == bits(train_keys(devices=2, micro_batch=2, **keys))


@pytest.mark.parametrize("name", NARROW)
def test_training_takes_the_time_of_its_simulation(
    plan_of: Any, trained: Any, small_cifar: Path, name: str
) -> None:
    keys = {**KEYS, "data": str(small_cifar), "devices": 4, "cluster": "vc709-10g"}
    times = {}
    for precision in ("fp32", NARROW[name]):
        plan = plan_of(**keys, precision=precision)
        [result] = trained(plan).history
        assert [result.virtual_time_ps] == [*simulate(plan, 48).epoch_ends_ps]
        times[str(precision)] = result.virtual_time_ps
    single, narrow = times.values()
    assert narrow < single


@pytest.mark.sampled(1)
def test_ranks(
    mpiexec: Any, small_cifar: Path, tmp_path: Path, references: dict[str, Weights], bits: Any
) -> None:
    out, name = tmp_path / "run.h5", "mxfp4 by chance"
    flags = [
        "quick-cifar",
        "--batch",
        "16",
        "--samples",
        "48",
        "--test-samples",
        "4",
        "--schedule",
        "sync",
    ]
    flags += [
        "--precision",
        "mxfp4",
        "--precision.master",
        "q2.10",
        "--precision.rounding",
        "stochastic",
    ]
    flags += ["--devices", "5", "--data", str(small_cifar), "--out", str(out)]
    mpiexec(3, ["-m", "emuchain", "train", *flags], timeout=300)
    with h5py.File(out) as file:
        weights = {
            layer: {kind: array[()] for kind, array in own.items()}
            for layer, own in file["weights"].items()
        }
    assert bits(weights) == bits(references[name])


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"network": "char-lstm", "devices": 12, "precision": "nvfp4"},
            "activations with a scale of all units",
        ),
    ],
)
def test_what_is_refused(plan_of: Any, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match="`precision`.*" + said):
        plan_of(**{"precision": "bf16", "schedule": "gpipe", **keys})


def test_what_was_rounded_is_counted(plan_of: Any, trained: Any, small_cifar: Path) -> None:
    """By epoch, the same on any mapping; a master of 8 bits leaves most weights unmoved where it is
    rounded to even.
    """
    keys = {
        **KEYS,
        "data": str(small_cifar),
        "schedule": "sync",
        "epochs": 2,
        "precision": "fp8 master=q1.7",
    }
    one, three = (trained(plan_of(**keys, devices=devices)).history for devices in (1, 3))
    assert [result.rounded for result in one] == [result.rounded for result in three]
    first, second = (result.rounded for result in one)
    assert first["activations_values"] == second["activations_values"] > 0
    assert 0 < first["errors_flushed"] < first["errors_values"]
    assert first["gradients_values"] == first["states_values"] == 0
    weights = sum(layer.weights for layer in plan_of(**keys).network.layers)
    assert (
        first["weights_values"] == first["master_values"] == first["weights_updated"] == 3 * weights
    )
    assert 0.8 < first["weights_unmoved"] / first["weights_updated"] < 1
    by_chance = trained(
        plan_of(**{**keys, "precision": "fp8 master=q1.7 rounding.master=stochastic"})
    ).history[0]
    assert by_chance.rounded["weights_unmoved"] < first["weights_unmoved"]
    single = trained(plan_of(**{**keys, "precision": "fp32"})).history[0]
    assert single.rounded == {}
    assert not rounding_table([single])
    table = rounding_table(one)
    assert table["weights_unmoved"][0] == first["weights_unmoved"] / first["weights_updated"]
    assert np.isnan(table["states_flushed"]).all()


def test_results_have_what_was_rounded(printed: Any, tmp_path: Path) -> None:
    out = tmp_path / "run.h5"
    keys = [
        "--devices",
        "2",
        "--samples",
        "64",
        "--test-samples",
        "10",
        "--batch",
        "16",
        "--progress",
        "none",
    ]
    said = printed("train", "quick-cifar", *keys, "--precision", "mxfp8", "--out", str(out))
    assert (
        "weights that an update left unmoved" in said
        and "weights that an update left unmoved" in printed("show", str(out))
    )
    results = read_results(out)
    assert (
        results.config["precision"] == "mxfp8"
        and 0 <= results.rounding["activations_flushed"][0] < 1
    )
