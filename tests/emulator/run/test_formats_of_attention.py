"""Transformers in narrow formats: the same bits on any mapping, schedule and cut, by ranks,
replicas and resumed; times, and what is counted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.mapping.memory import OffChip, memory_streams, slice_memory
from emuchain.emulator.number import precision_of
from emuchain.emulator.run import Weights, simulate

from .gpt import MAPPINGS, Table, conv, gpt, vit, written

KEYS: Table = {
    "schedule": "sync",
    "batch": 16,
    "samples": 32,
    "test_samples": 4,
    "learning_rate": 0.01,
}
NETWORKS: dict[str, tuple[Table, Table]] = {
    "gpt": (gpt(24, 2, 3, 40), {"data": "text"}),
    "gpt like Llama": (
        gpt(24, 1, 6, 9, "rms-norm", kv_heads=3, dropout=0.2),
        {"data": "text", "optimizer": "adamw"},
    ),
    "vit": (vit(36, 1, 3, dropout=0.3), {}),
}
PRECISIONS = {
    "bf16": "bf16",
    "mxfp8": "mxfp8 loss_scale=64",
    "by chance": "mxfp4 rounding=stochastic loss_scale=64",
    "each its own": (
        "activations=fp8 weights=bf16 errors=mxfp8-e5m2 gradients=bf16 master=bf16 states=q4.12"
        " rounding=stochastic"
    ),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    folder = tmp_path_factory.mktemp("networks")
    return {
        name: {**KEYS, **keys, "network": written(folder / f"{name}.toml", network)}
        for name, (network, keys) in NETWORKS.items()
    }


@pytest.fixture(scope="module")
def references(files: dict[str, Table], plan_of: Any, trained: Any) -> dict[Any, Weights]:
    return {
        (name, form): trained(
            plan_of(**keys, precision=precision, devices=1, micro_batch=16)
        ).weights
        for name, keys in files.items()
        for form, precision in PRECISIONS.items()
    }


@pytest.mark.parametrize("form", PRECISIONS)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    "keys",
    [*MAPPINGS, {"devices": 3, "micro_batch": 1}],
    ids=lambda keys: " ".join(map(str, keys.values())),
)
def test_bits_do_not_depend_on_the_mapping(
    files: dict[str, Table],
    references: dict[Any, Weights],
    plan_of: Any,
    trained: Any,
    bits: Any,
    name: str,
    form: str,
    keys: Table,
) -> None:
    plan = plan_of(**{**files[name], **keys, "precision": PRECISIONS[form]})
    assert bits(trained(plan).weights) == bits(references[name, form])


def test_formats_differ(
    references: dict[Any, Weights], files: dict[str, Table], plan_of: Any, trained: Any, bits: Any
) -> None:
    for name, keys in files.items():
        made = [trained(plan_of(**keys, devices=1)).weights]
        made += [references[name, form] for form in PRECISIONS]
        assert len({str(bits(weights)) for weights in made}) == 1 + len(PRECISIONS)


def test_a_cut_within_heads(
    files: dict[str, Table], references: dict[Any, Weights], bits: Any
) -> None:
    keys = {key: value for key, value in files["gpt"].items() if key != "network"}
    cut = (
        "wte qkv0 attention0[:1] | attention0[1:2] | attention0[2:] project0 expand0 contract0 qkv1"
        " | attention1[:2] | attention1[2:] project1 expand1 contract1 head"
    )
    for form in ("mxfp8", "by chance"):
        made = emuchain.train(
            files["gpt"]["network"], cut=cut, precision=PRECISIONS[form], progress="none", **keys
        )
        assert bits(made.weights) == bits(references["gpt", form])


@pytest.mark.parametrize(("compress", "devices"), [("none", 1), ("truncate:16", 4)])
def test_replicas(
    files: dict[str, Table], plan_of: Any, trained: Any, bits: Any, compress: str, devices: int
) -> None:
    """What a codec drops depends on the cut, but on nothing else."""
    keys = {**files["gpt"], "replicas": 2, "precision": PRECISIONS["by chance"]}
    keys["compress"] = compress
    two = bits(trained(plan_of(**keys, devices=devices)).weights)
    assert two == bits(trained(plan_of(**keys, devices=4, micro_batch=2)).weights)


@pytest.mark.parametrize("schedule", ["sync", "fpdeep", "gpipe"])
@pytest.mark.parametrize("form", PRECISIONS)
def test_training_takes_the_time_of_its_simulation(
    files: dict[str, Table], plan_of: Any, trained: Any, schedule: str, form: str
) -> None:
    keys = {**files["gpt"], "devices": 4, "schedule": schedule, "cluster": "vc709-10g"}
    plan = plan_of(**keys, precision=PRECISIONS[form])
    [result] = trained(plan).history
    assert [result.virtual_time_ps] == [*simulate(plan, 32).epoch_ends_ps]
    assert result.virtual_time_ps < simulate(plan_of(**keys), 32).virtual_time_ps


@pytest.mark.parametrize("form", ["mxfp8", "by chance"])
def test_resume(files: dict[str, Table], tmp_path: Path, bits: Any, form: str) -> None:
    saved, keys = str(tmp_path / "run.ckpt"), {**files["gpt like Llama"], "progress": "none"}
    keys["precision"] = PRECISIONS[form]
    emuchain.train(**keys, devices=2, epochs=1, checkpoint=saved)
    others = {key: value for key, value in keys.items() if key != "network"}
    resumed = emuchain.train(**others, devices=3, epochs=2, resume=saved)
    assert bits(resumed.weights) == bits(emuchain.train(**keys, devices=1, epochs=2).weights)


@pytest.mark.sampled(1)
def test_ranks(
    files: dict[str, Table],
    references: dict[Any, Weights],
    mpiexec: Any,
    tmp_path: Path,
    bits: Any,
) -> None:
    own = {key: value for key, value in files["vit"].items() if key != "network"}
    flags = [
        word for key, value in own.items() for word in (f"--{key.replace('_', '-')}", str(value))
    ]
    out = tmp_path / "run.h5"
    flags += ["--precision", "mxfp4", "--precision.rounding", "stochastic"]
    flags += ["--precision.loss-scale", "64", "--devices", "5", "--out", str(out)]
    mpiexec(4, ["-m", "emuchain", "train", files["vit"]["network"], *flags], timeout=300)
    assert bits(emuchain.results(out).weights) == bits(references["vit", "by chance"])


def test_what_is_counted(files: dict[str, Table], plan_of: Any, trained: Any) -> None:
    """Of each head, what a row has of those that it sees, once, and the errors of these scores."""
    keys = {**files["gpt"], "precision": "fp8"}
    one, five = (trained(plan_of(**keys, devices=devices)).history for devices in (1, 5))
    assert [result.rounded for result in one] == [result.rounded for result in five]
    plan, tokens = plan_of(**keys, devices=1), 40
    pairs = 2 * 3 * (tokens * (tokens + 1) // 2)  # two layers with three heads
    handed = {tensor for layer in plan.network.layers[:-1] for tensor in layer.hands_on}
    made = {step.makes for layer in plan.network.layers for step in layer.sfu}
    made |= {layer.makes for layer in plan.network.layers}
    maps = sum(int(np.prod(tensor.shape)) for tensor in handed & made)
    rounded = one[0].rounded
    assert rounded["activations_values"] == 32 * (pairs + maps)
    outs = sum(int(np.prod(layer.makes.shape)) for layer in plan.network.layers)
    ins = sum(
        int(np.prod(layer.reads.shape))
        for layer in plan.network.layers
        if layer.needs_errors and layer.reads.number in layer.read_once
    )
    assert rounded["errors_values"] == 32 * (pairs + outs + ins)
    assert 0 < rounded["activations_flushed"] < rounded["activations_values"]


def test_symbols_are_no_activations(plan_of: Any, trained: Any, files: dict[str, Table]) -> None:
    """fp8 has no 17, but there is a symbol with this number; its row takes 4 bytes."""
    plan = plan_of(
        **files["gpt"],
        devices=2,
        precision="fp8",
        cut="wte[:8] | wte[8:] qkv0 attention0"
        " project0 expand0 contract0 qkv1 attention1 project1 expand1 contract1 head",
    )
    [symbols] = [stream for stream in plan.timing.links[0] if stream.number == 0]
    assert symbols.row_bytes == 4
    assert np.isfinite(trained(plan).history[0].train.mean_loss)


def test_bytes_by_hand(plan_of: Any, tmp_path: Path) -> None:
    """Heads 1 to 3 of four of 8 channels, 16 tokens, behind a link: 72 channels of q, k and v, in
    MXFP8 in three blocks.

    Act-RAM has them of all tokens, and two numbers in fp32 of each token and head. Off chip, causal
    tokens see 136 keys in all, with 64 at once 3 times a k and a v of 24 values; EB reads these,
    and reads and writes as many sums of errors of both in fp32.
    """
    layers = [
        conv(96, "qkv"),
        {"type": "attention", "heads": 4, "causal": True, "name": "a"},
        conv(32, "p"),
        {"type": "softmax"},
    ]
    network = written(tmp_path / "n.toml", {"name": "n", "input": [32, 16, 1], "layers": layers})
    kept, sums = 4 * 2 * 3 * 16, 4 * 4 * 24 * 3
    expected = {  # path 1, 2, 3 and 4; what lies in Act-RAM; keys and values that are read again
        "fp32": ([288, 32, 32, 288], 288 * 16 + kept, 4 * 2 * 24 * 3),
        "bf16": ([144, 32, 16, 288], 144 * 16 + kept, 2 * 2 * 24 * 3),
        "mxfp8": ([72 + 3, 32, 8 + 1, 288], 75 * 16 + kept, 2 * 24 * 3 + 5),
        "activations=mxfp8 errors=bf16": ([75, 32, 16, 288], 75 * 16 + kept, 144 + 5),
    }
    for precision, (paths, act_ram, again) in expected.items():
        keys = {"network": network, "cluster": "vc709", "schedule": "sync", "precision": precision}
        plan = plan_of(**keys, cut="qkv a[:1] | a[1:] p", devices=2, batch=1, samples=1)
        assert [stream.row_bytes for stream in plan.timing.links[0]] == paths
        part, storage = plan.mapping.devices[1][0], plan.timing.cluster.storage
        assert str(part) == "a[1:4] OCP"
        assert slice_memory(part, 1, storage=storage).act_ram.bytes == act_ram
        moved = memory_streams(part, OffChip(activations=True), storage)
        expected_bytes = [act_ram + again, act_ram + again + sums]
        assert [stream.sample_bytes for stream in moved] == expected_bytes


def test_multipliers_of_eb_hold_activations(plan_of: Any, tmp_path: Path) -> None:
    """Where there is attention, EB multiplies activations, too: by each other and by errors."""
    precision = precision_of("activations=bf16 weights=fp8 errors=fp8")
    assert precision.multipliers_of(attends=False) == precision.multipliers
    assert precision.multipliers == ("half", "fp8", "half")
    assert precision.multipliers_of(attends=True) == ("half", "half", "half")
    classes = []
    for name, heads in (("without", []), ("with", [{"type": "attention", "heads": 2}])):
        end = {"type": "fc", "features": 3}, {"type": "softmax"}
        network = {"name": "n", "input": [3, 5, 1], "layers": [conv(6, "qkv"), *heads, *end]}
        plan = plan_of(
            network=written(tmp_path / f"{name}.toml", network),
            **{"cluster": "vc709", "devices": 1, "precision": str(precision)},
        )
        classes.append(plan.timing.cluster.board(0).classes)
    assert classes == [("half", "fp8", "half"), ("half", "half", "half")]
