"""Formats by layer: the same bits on any mapping, by replicas and resumed, each layer's weights in
its own; what a name may be, and what is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.run import read_results, simulate
from emuchain.emulator.schedule import Kind
from emuchain.kernels.number import number_format
from emuchain.kernels.quantise import on_grid

from .gpt import Table, gpt, written
from .sequences import bits_of, by_units, most_parts, network, recurrent, sequences
from .sequences import plan_of as plan_of_steps

KEYS: Table = {
    **{"batch": 16, "samples": 32, "test_samples": 4, "schedule": "sync"},
    **{"learning_rate": 0.01, "momentum": 0.9, "epochs": 1},
}
OF_CNN = {
    "one layer": "mxfp8 layer.fc2=bf16",
    "a range": "bf16 layer.conv2:fc1=mxfp4 layer.conv3=fp8",
    "each its own by chance": (
        "mxfp8 master=q2.12 rounding=stochastic layer.conv2.errors=fp8-e5m2 layer.conv2.states=bf16"
        " layer.fc1=nvfp4 layer.fc1.master=fp32 layer.fc2=fp32 layer.fc2.rounding.states=even"
    ),
    "sums": (
        "mxint8 accumulate=dot:32 layer.fc1=bf16 layer.fc1.activations=mxint8"
        " layer.fc1.accumulate=fp32 layer.conv1.accumulate=fp32 layer.fc2.accumulate=dot:8"
    ),
    "whole numbers": "q2.5 accumulate=int32 loss_scale=64 layer.conv3=q2.4 layer.fc2:fc2=q1.6",
}
OF_TOKENS = "mxfp8 master=bf16 layer.attention0=fp8 layer.expand0.weights=mxfp4 layer.head=bf16"
OF_STEPS = "bf16 layer.r0=q3.9 layer.fc1=mxfp8"


@pytest.fixture(scope="module")
def of_cnn(plan_of: Any, small_cifar: Path) -> Any:
    def make(**keys: Any) -> Any:
        return plan_of(**{"network": "quick-cifar", **KEYS, "data": str(small_cifar), **keys})

    return make


@pytest.fixture(scope="module")
def references(of_cnn: Any, trained: Any) -> Any:
    return {
        name: trained(of_cnn(precision=given, devices=1, micro_batch=16)).weights
        for name, given in OF_CNN.items()
    }


@pytest.mark.parametrize("name", OF_CNN)
@pytest.mark.parametrize(
    "keys",
    [
        {"devices": 2, "micro_batch": 4},
        {"devices": 5, "micro_batch": 1, "schedule": "1f1b-as"},
        {"devices": 12, "micro_batch": 16},
    ],
    ids=lambda keys: " ".join(map(str, keys.values())),
)
def test_bits_do_not_depend_on_the_mapping(
    of_cnn: Any, trained: Any, bits: Any, references: Any, name: str, keys: Table
) -> None:
    if name == "sums":
        keys = {**keys, "devices": min(7, keys["devices"])}  # there are as many blocks
    made = trained(of_cnn(precision=OF_CNN[name], **keys)).weights
    assert bits(made) == bits(references[name])


@pytest.mark.parametrize("name", ["a range", "each its own by chance", "sums"])
@pytest.mark.parametrize("devices", [1, 3, 5])
def test_bits_of_boards_that_take_actions_as_a_whole(
    of_cnn: Any, trained: Any, bits: Any, references: Any, name: str, devices: int
) -> None:
    keys: Table = {"schedule": "gpipe", "engines": "turns", "micro_batch": 4}
    plan = of_cnn(precision=OF_CNN[name], devices=devices, **keys)
    made = trained(plan)
    assert bits(made.weights) == bits(references[name])
    assert [made.history[0].virtual_time_ps] == [*simulate(plan, 32).epoch_ends_ps]


def test_what_boards_that_take_actions_as_a_whole_store_and_send() -> None:
    """By hand: fc1 of 2048 inputs in MXFP8, with a bf16 master, and fc2 of 128 in fp16.

    Weights, gradients and masters, biases of 4 bytes; what a sample keeps; and what one sends:
    maps of conv3 after its pool, in the format of conv3, and errors in that of fc1, fixed point.
    """
    forms = "bf16 layer.fc1=mxfp8 layer.fc1.errors=q2.5 layer.fc1.master=bf16 layer.fc2=fp16"
    keys: Table = {"engines": "turns", "schedule": "gpipe", "batch": 8, "micro_batch": 2}
    cut = "conv1 conv2 conv3 | fc1 fc2"
    plan = emuchain.plan("quick-cifar", devices=2, cut=cut, precision=forms, **keys)
    assert plan.stages is not None
    stage, (fc1, fc2) = plan.stages.stage(1, 2), plan.stages.stage(1, 2).layers
    wide, few = 2048 * 128, 128 * 10
    assert fc1.stored_bytes[:2] == (wide + wide // 32 + 4 * 128, (4 + 2) * wide + 4 * 128)
    assert fc2.stored_bytes[:2] == (2 * few + 4 * 10, (4 + 4) * few + 4 * 10)
    assert stage.costs.feature_bytes == 2 * (2 * 2048 + 128 + 4)
    assert plan.timing.loads.message(Kind.FORWARD, 0, 3).size_bytes == 3 * 2 * 2048
    assert plan.timing.loads.message(Kind.BACKWARD, 1, 3).size_bytes == 3 * 7 * 2048 // 8


def test_one_set_of_engines_for_all_layers_of_a_board() -> None:
    """Of two boards one has convolutions in int8, four products to a DSP; the other has a layer in
    bf16, whose engines multiply int8, too, two to a DSP; with two stages each, both do.
    """
    board = {"name": "b", "clock_mhz": 200, "dsp": 100, "on_chip_memory_kbit": 200_000}
    board["multipliers"] = {"half": {"per_dsp": 2, "lut": 9}, "int8": {"per_dsp": 4, "lut": 9}}
    cluster = {"name": "c", "boards": [board], "links": {"bandwidth_gbps": 10, "latency_ns": 50}}
    keys: Table = {"engines": "turns", "schedule": "gpipe", "batch": 8, "micro_batch": 2}
    cut, forms = "conv1 conv2 conv3 | fc1 fc2", "int8 layer.fc2=bf16"
    keys |= {"cluster": cluster, "devices": 2, "precision": forms}
    plan = emuchain.plan("quick-cifar", cut=cut, **keys)
    assert [plan.cluster.board(device).multipliers for device in range(2)] == [400, 200]
    assert plan.stages is not None
    [conv1, *_], [fc1, _] = (plan.stages.stage(device, 2).layers for device in range(2))
    assert conv1.times_ps.fp == 2 * 9 * 3 * 32 * 32**2 * 5000 // 400
    assert fc1.times_ps.fp == fc1.times_ps.eb == fc1.times_ps.pg == 2 * 2048 * 128 * 5000 // 200
    folded = emuchain.plan("quick-cifar", **{**keys, "schedule": "interleaved", "chunks": 2})
    assert {held.multipliers for held in folded.cluster.boards} == {200}
    del board["multipliers"]["half"]
    with pytest.raises(InputError, match="none as wide as half"):
        emuchain.plan("quick-cifar", **keys)


def test_formats_differ(references: Any, of_cnn: Any, trained: Any, bits: Any) -> None:
    runs = [trained(of_cnn(precision=given)).weights for given in ("mxfp8", "bf16", "fp32")]
    runs += references.values()
    assert len({str(bits(weights)) for weights in runs}) == len(runs)


def test_weights_are_in_the_format_of_their_layer(references: Any) -> None:
    in_bf16 = {
        layer: np.array_equal(on_grid(own["weight"], number_format("bf16").grid), own["weight"])
        for layer, own in references["a range"].items()
    }
    assert in_bf16 == {
        **{"conv1": True, "fc2": True},
        **{"conv2": True, "conv3": True, "fc1": True},  # narrower ones, whose values bf16 holds
    }
    of_conv3 = references["a range"]["conv3"]["weight"]
    assert np.array_equal(on_grid(of_conv3, number_format("fp8").grid), of_conv3)
    of_conv1 = references["a range"]["conv1"]["weight"]
    assert not np.array_equal(on_grid(of_conv1, number_format("fp8").grid), of_conv1)


@pytest.mark.parametrize("network", ["resnet8-cifar", "inception-cifar"])
def test_graphs_and_where_weights_are_stored(
    plan_of: Any,
    trained: Any,
    bits: Any,
    small_cifar: Path,
    many_blocks: Any,
    with_blocks: Any,
    network: str,
) -> None:
    layers = emuchain.load_network(network).layers
    second, fourth, last = layers[1].name, layers[3].name, layers[-1].name
    keys = {**KEYS, "network": network, "data": str(small_cifar), "balancing": "none"}
    keys["precision"] = f"fp8 layer.{second}:{fourth}=bf16 layer.{last}=mxfp6 rounding=stochastic"
    plan = plan_of(**keys, devices=5)
    blocks = many_blocks(plan)
    assert len(blocks) > 8
    expected = bits(trained(plan_of(**keys, devices=1)).weights)
    assert bits(trained(plan).weights) == expected
    assert bits(trained(with_blocks(plan, blocks)).weights) == expected


def test_attention(plan_of: Any, trained: Any, bits: Any, tmp_path: Path) -> None:
    """Tables, attention and shortcuts."""
    keys = {**KEYS, "network": written(tmp_path / "gpt.toml", gpt(40, 1, 5, 8))}
    made = [
        bits(trained(plan_of(**keys, precision=OF_TOKENS, devices=devices)).weights)
        for devices in (1, 3, 8)
    ]
    assert made[0] == made[1] == made[2]
    assert made[0] != bits(trained(plan_of(**keys, precision="mxfp8 master=bf16")).weights)


def test_steps_of_a_layer_without_blocks_are_cut() -> None:
    """What another layer has in blocks does not lie along its units."""
    data, described = sequences(), network(recurrent("lstm", 20), recurrent("lstm", 24))
    plans = [plan_of_steps(described, precision=OF_STEPS, devices=devices) for devices in (1, 5)]
    cut = by_units(plans[1])
    assert most_parts(cut) > 1
    assert bits_of(plans[0], data) == bits_of(cut, data)


@pytest.mark.parametrize("compress", ["none", "truncate:16"])
def test_replicas(of_cnn: Any, trained: Any, bits: Any, compress: str) -> None:
    keys = {"replicas": 2, "compress": compress, "precision": OF_CNN["each its own by chance"]}
    one = trained(of_cnn(**keys, devices=4)).weights
    assert bits(one) == bits(trained(of_cnn(**keys, devices=4, micro_batch=2)).weights)


@pytest.mark.parametrize("name", ["each its own by chance", "sums"])
def test_resumed_on_any_boards(tmp_path: Path, small_cifar: Path, bits: Any, name: str) -> None:
    """Masters and copies are kept of the layers that have them."""
    keys: Table = {**KEYS, "data": str(small_cifar), "progress": "none"}
    keys["precision"] = OF_CNN[name]
    whole = emuchain.train("quick-cifar", **{**keys, "epochs": 2}, devices=2)
    file = str(tmp_path / "run.ckpt")
    emuchain.train("quick-cifar", **keys, devices=2, checkpoint=file)
    for devices in (2, 3):
        rest = emuchain.train(**{**keys, "epochs": 2}, devices=devices, resume=file)
        assert bits(rest.weights) == bits(whole.weights)
    begun = emuchain.train("quick-cifar", **{**keys, "precision": "fp32"}, init=file)
    assert {*begun.weights} == {*whole.weights}


@pytest.mark.parametrize("name", OF_CNN)
def test_training_takes_the_time_of_its_simulation(of_cnn: Any, trained: Any, name: str) -> None:
    plan = of_cnn(precision=OF_CNN[name], devices=4, cluster="vc709-10g")
    [result] = trained(plan).history
    assert [result.virtual_time_ps] == [*simulate(plan, 32).epoch_ends_ps]
    wide = of_cnn(precision="fp32", devices=4, cluster="vc709-10g")
    assert result.virtual_time_ps < simulate(wide, 32).virtual_time_ps


def test_a_wider_layer_costs_no_more_than_all_of_them(of_cnn: Any) -> None:
    """Only its own engines are of the wider class."""
    forms = ("int4@32", "int4@32 layer.fc2=bf16", "int4@32 layer.conv1:conv3=bf16", "bf16")
    plans = [of_cnn(precision=given, devices=3) for given in forms]
    narrow, one, convolutions, wide = (plan.timing.interval_ps for plan in plans)
    assert narrow <= one < convolutions <= wide
    classes = [plan.cluster.board(0).classes for plan in plans]
    assert classes[0] == ("int4",) * 3
    assert classes[1] == (*("int4",) * 3, *("half",) * 3)


def test_as_a_table_in_a_file_and_as_flags(printed: Any, tmp_path: Path) -> None:
    file, out = tmp_path / "run.toml", tmp_path / "run.h5"
    file.write_text(
        'network = "quick-cifar"\nsamples = 32\ntest_samples = 4\nbatch = 16\n'
        '[precision]\nformat = "mxfp8"\n'
        '[precision.layer."fc2"]\nformat = "bf16"\nrounding = { errors = "stochastic" }\n'
        '[precision.layer]\nfc1 = "fp16"\n'.replace(
            "[precision.layer]\nfc1", "[precision.layer.fc1]\nformat"
        ),
        "utf-8",
    )
    flags = ["--progress", "none", "--out", str(out)]
    printed("train", str(file), *flags)
    said = "mxfp8 layer.fc2=bf16 layer.fc2.rounding.errors=stochastic layer.fc1=fp16"
    assert read_results(out).config["precision"] == said
    printed("train", str(file), *flags, "--precision.layer", "fc1=fp32,conv1.errors=bf16")
    assert read_results(out).config["precision"] == (
        "mxfp8 layer.fc2=bf16 layer.fc2.rounding.errors=stochastic layer.fc1=fp32"
        " layer.conv1.errors=bf16"
    )
    printed("train", str(file), *flags, "--precision", "bf16", "--precision.layer", "fc2=fp32")
    assert read_results(out).config["precision"] == "bf16 layer.fc2=fp32"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"precision": "bf16 layer.fc3=fp32"},
            "quick-cifar has no layer 'fc3'; did you mean `fc2`?",
        ),
        ({"precision": "bf16 layer.fc2:conv1=fp32"}, "conv1 comes before fc2"),
        ({"precision": "bf16 layer.fc2=bf61"}, "layer 'fc2': did you mean `bf16`?"),
        ({"precision": "bf16 layer.fc2.loss_scale=2"}, "layer 'fc2': `loss_scale` is the run's"),
        ({"precision": "bf16 layr.fc2=bf16"}, "known: format, activations"),
        (
            {"precision": "mxint8 accumulate=dot:32 layer.conv1=bf16 layer.conv1.accumulate=fp32"},
            "conv2: accumulate = 'dot:32': an exact sum of 32 products of activations in bf16",
        ),
        (
            {"precision": "bf16 loss_scale=dynamic layer.fc2=fp8"},
            "errors overflow, and those in fp8 saturate",
        ),
        (
            {"precision": "bf16 layer.head.states=fp16", "network": "tied"},
            "head has the weights of wte, which are one table with one format of states",
        ),
    ],
    ids=lambda given: str(given)[:40],
)
def test_what_is_refused(plan_of: Any, tmp_path: Path, keys: Table, said: str) -> None:
    if keys.get("network") == "tied":
        described = gpt(8, 1, 2, 8, tied=True)
        keys = {**keys, "network": written(tmp_path / "gpt.toml", described)}
    with pytest.raises(InputError) as error:
        plan_of(**{**KEYS, "network": "quick-cifar", **keys})
    assert said in str(error.value) and "\n" not in str(error.value)
