"""LSTM and GRU in narrow formats: the same bits on any mapping, schedule and cut, by replicas and
resumed; times, bytes, and what is counted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError, toml_value
from emuchain.emulator.mapping.memory import slice_memory
from emuchain.emulator.run import simulate

from .sequences import (
    bits_of,
    by_units,
    most_parts,
    network,
    plan_of,
    recurrent,
    sequences,
    trained,
)

DATA = sequences()
NETWORKS: dict[str, dict[str, Any]] = {
    "lstm": network(recurrent("lstm", 20), recurrent("lstm", 24)),
    "gru": network(recurrent("gru", 20), end="last"),
    "two directions": network(recurrent("lstm", 20, bidirectional=True), recurrent("gru", 8)),
    "projection": network(recurrent("lstm", 40, projection=35)),
    "reset before": network(recurrent("gru", 36, reset="before"), recurrent("lstm", 8)),
}
PRECISIONS = {
    "bf16": "bf16",
    "mxfp8": "mxfp8 loss_scale=64",
    "nvfp4": "nvfp4 rounding=stochastic loss_scale=64",
    "each its own by chance": (
        "activations=fp8 weights=mxfp8 errors=fp8-e5m2 gradients=bf16 master=bf16 states=q4.12"
        " rounding=stochastic loss_scale=64"
    ),
    "sums of blocks": "int8@8 accumulate=dot:8 rounding=stochastic loss_scale=64",
    "sums in bf16": "bf16 accumulate=bf16",
    "whole numbers": "q2.8 accumulate=int32 loss_scale=64",
}
FREE = "bf16", "each its own by chance", "sums in bf16", "whole numbers"
"""Formats without blocks along units."""


@pytest.fixture(scope="module")
def references() -> dict[tuple[str, str], dict[str, bytes]]:
    """The bits of runs on one device, in one micro-batch."""
    return {
        (name, form): bits_of(
            plan_of(described, precision=precision, devices=1, micro_batch=16), DATA
        )
        for name, described in NETWORKS.items()
        for form, precision in PRECISIONS.items()
    }


@pytest.mark.parametrize("form", PRECISIONS)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    "keys",
    [
        {"devices": 2, "micro_batch": 4},
        {"devices": 2, "micro_batch": 1},
        {"devices": 2, "schedule": "gpipe", "engines": "turns"},
        {"devices": 2, "schedule": "1f1b-as"},
    ],
    ids=lambda keys: " ".join(map(str, keys.values())),
)
def test_bits_do_not_depend_on_the_mapping(
    references: Any, name: str, form: str, keys: dict[str, Any]
) -> None:
    plan = plan_of(NETWORKS[name], **keys, precision=PRECISIONS[form])
    assert bits_of(plan, DATA) == references[name, form]


@pytest.mark.parametrize("form", [*FREE, "sums of blocks"])
@pytest.mark.parametrize("name", ["lstm", "gru"])
@pytest.mark.parametrize("devices", [3, 6])
def test_cuts_by_units(references: Any, name: str, form: str, devices: int) -> None:
    plan = by_units(plan_of(NETWORKS[name], devices=devices, precision=PRECISIONS[form]))
    assert most_parts(plan) > 1
    assert bits_of(plan, DATA) == references[name, form]


def test_formats_differ(references: Any) -> None:
    for name, described in NETWORKS.items():
        made = [bits_of(plan_of(described, devices=1, micro_batch=16), DATA)]
        made += [references[name, form] for form in PRECISIONS]
        assert len({str(bits) for bits in made}) == 1 + len(PRECISIONS)


@pytest.mark.parametrize("precision", ["int8@8", "bf16 errors=int6@4 rounding=stochastic"])
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_cuts_at_whole_blocks(bits: Any, name: str, precision: str) -> None:
    """Scales of states, and of errors of gates, are each of units of one board."""
    keys = {"precision": precision + " loss_scale=64", "epochs": 1}
    one = plan_of(NETWORKS[name], devices=1, micro_batch=16, **keys)
    five = by_units(plan_of(NETWORKS[name], devices=5, **keys))
    assert most_parts(five) > 1
    assert bits_of(five, DATA) == bits_of(one, DATA)


@pytest.mark.parametrize("kind", ["activations", "errors"])
def test_scales_of_all_units_keep_layers_whole(one_line: Any, kind: str) -> None:
    keys = {"precision": f"bf16 {kind}=nvfp4", "samples": 16}
    assert most_parts(plan_of(NETWORKS["lstm"], devices=3, **keys)) == 1
    for own, said in (
        ({"devices": 4}, f"has {kind} with a scale of all units.*3 layers.*at most 3 devices"),
        (
            {"devices": 2, "cut": "r0[:7] | r0[7:] r1 fc1"},
            f"cuts r0, which stays whole with {kind} that have a scale of all units",
        ),
    ):
        with pytest.raises(InputError, match=said) as refused:
            plan_of(NETWORKS["lstm"], **own, **keys)
        one_line(refused)


def test_a_cut_within_a_block(one_line: Any) -> None:
    for precision, size in (("bf16 errors=int6@4", 4), ("mxint8 accumulate=dot:8", 32)):
        said = f"r0 is cut at channel 7, within a block of {size} units whose states and errors"
        with pytest.raises(InputError, match=said) as refused:
            plan_of(
                NETWORKS["lstm"],
                devices=2,
                cut="r0[:7] | r0[7:] r1 fc1",
                precision=precision,
            )
        one_line(refused)


@pytest.mark.parametrize("form", [*FREE, "sums of blocks"])
@pytest.mark.parametrize("devices", [2, 5])
def test_training_takes_the_time_of_its_simulation(form: str, devices: int) -> None:
    keys = {"devices": devices, "cluster": "vc709-10g", "epochs": 1}
    plan = plan_of(NETWORKS["lstm"], **keys, precision=PRECISIONS[form])
    history = trained(plan, DATA)[1]
    assert [history[0].virtual_time_ps] == [*simulate(plan, 40).epoch_ends_ps]
    single = plan_of(NETWORKS["lstm"], **keys)
    assert history[0].virtual_time_ps < simulate(single, 40).virtual_time_ps


def test_what_is_counted() -> None:
    """States once, errors of gates, and of n times r, once; the same on any number of devices."""
    described = network(recurrent("gru", 20))
    one, four = (
        trained(by_units(plan_of(described, devices=devices, epochs=1, precision="fp8")), DATA)[1]
        for devices in (1, 4)
    )
    assert one[0].rounded == four[0].rounded
    layers = plan_of(described, devices=1, precision="fp8").network.layers
    images, states = np.prod(layers[0].reads.shape), np.prod(layers[0].makes.shape)
    assert one[0].rounded["activations_values"] == 40 * (images + states)
    outs = sum(np.prod(layer.makes.shape) for layer in layers)
    assert one[0].rounded["errors_values"] == 40 * (outs + states + 4 * states)
    weights = 20 * 3 * (13 + 20) + layers[1].weights
    assert one[0].rounded["weights_values"] == 3 * weights  # mini-batches


def test_bytes_by_hand(tmp_path: Path) -> None:
    """An LSTM of 20 units on 13 inputs, 6 steps, cut behind unit 7; weights of 13 units.

    Of each unit, four gates have lines of 13 and 20 weights, and two biases in fp32. Act-RAM has
    the inputs and the states as activations, gates and cells in fp32.
    """
    described = network(recurrent("lstm", 20), end="each")
    paths = {  # 1: inputs, 2 and 7: states, 3: errors of outputs, 4 and 8: errors of states, in fp32
        "fp32": [52, 28, 28, 52, 80, 52],
        "bf16": [26, 14, 14, 26, 80, 52],
        "activations=fp8 errors=bf16": [13, 7, 14, 13, 80, 52],
    }
    weights, kept = 13 * 4 * (13 + 20), 13 * 5 * 6
    memory = {
        "fp32": (4 * (weights + 13 * 8), 4 * (13 * 6 + 13 * 6 + kept)),
        "bf16": (2 * weights + 4 * 13 * 8, 2 * (13 * 6 + 13 * 6) + 4 * kept),
        "activations=fp8 errors=bf16": (4 * (weights + 13 * 8), 13 * 6 + 13 * 6 + 4 * kept),
        "weights=nvfp4": (  # a block of 16 or two in a line, and a scale of its tensor
            weights // 2 + 13 * 4 * (1 + 2) + 4 * 13 * 4 * 2 + 4 * 13 * 8,
            4 * (13 * 6 + 13 * 6 + kept),
        ),
        "weights=mxfp8": (weights + 13 * 4 * 2 + 4 * 13 * 8, 4 * (13 * 6 + 13 * 6 + kept)),
    }
    for precision, (lpram, act_ram) in memory.items():
        keys = {"precision": precision, "devices": 2, "cut": "r0[:7] | r0[7:] conv1"}
        plan = plan_of(described, **keys)
        if precision in paths:
            assert [stream.row_bytes for stream in plan.timing.links[0]] == paths[precision]
        part, storage = plan.mapping.devices[1][0], plan.timing.cluster.storage
        made = slice_memory(part, 1, storage=storage)
        biases = 4 * part.sfu_parameters
        assert (made.lpram.bytes, made.act_ram.bytes) == (lpram + biases, act_ram)


def test_memory_of_sums_in_blocks() -> None:
    """An LSTM of 40 units on 13 inputs, 6 steps, cut behind unit 32, in MXINT8 with dot:N.

    Of the 8 units, four gates have lines of 13 and 40 weights, one scale and two. EB has of 40
    states and four gates a line of 8 units; inputs are images, whose errors none needs. PG holds 6
    steps of 13 inputs, 40 states and 32 errors of gates, and a scale for each.
    """
    described = network(recurrent("lstm", 40), end="each")
    keys = {"devices": 2, "cut": "r0[:32] | r0[32:] conv1"}
    needs = []
    for precision in ("mxint8 accumulate=dot:8", "mxint8"):
        plan = plan_of(described, **keys, precision=precision)
        part, storage = plan.mapping.devices[1][0], plan.timing.cluster.storage
        needs.append(slice_memory(part, 1, storage=storage))
        paths = [stream.row_bytes for stream in plan.timing.links[0]]
        # Inputs; states of 32 and of 8 units; errors of outputs; of all states, and of 8, in fp32.
        assert paths == [13 + 1, 32 + 1, 32 + 1, 8 + 1, 4 * 40, 4 * 8]
    biases = 4 * (8 * 8 + part.sfu_parameters)
    forth, back = 32 * (13 + 1 + 40 + 2), 4 * 40 * (8 + 1)
    assert [own.lpram.bytes for own in needs] == [forth + back + biases, forth + biases]
    pixels = (13 + 40 + 32) * (6 + 1)
    assert needs[0].line_buffers.bytes - needs[1].line_buffers.bytes == pixels


def test_bytes_of_narrow_sums() -> None:
    """Errors of states are sums, in bf16 on links, too."""
    described = network(recurrent("lstm", 20), end="each")
    keys = {"devices": 2, "cut": "r0[:7] | r0[7:] conv1", "precision": "bf16 accumulate=bf16"}
    plan = plan_of(described, **keys)
    assert [stream.row_bytes for stream in plan.timing.links[0]] == [26, 14, 14, 26, 40, 26]


@pytest.mark.parametrize("form", PRECISIONS)
def test_resume(tmp_path: Path, bits: Any, form: str) -> None:
    saved = str(tmp_path / "run.ckpt")
    keys = {"network": "char-lstm", "schedule": "sync", "samples": 32, "test_samples": 4}
    keys |= {"progress": "none", "precision": PRECISIONS[form], "time_steps": 8}
    emuchain.train(**keys, devices=2, epochs=1, checkpoint=saved)
    others = {key: value for key, value in keys.items() if key != "network"}
    resumed = emuchain.train(**others, devices=3, epochs=2, resume=saved)
    assert bits(resumed.weights) == bits(emuchain.train(**keys, devices=1, epochs=2).weights)


def test_what_whole_numbers_refuse(one_line: Any) -> None:
    for precision, said in (
        ("q2.14 accumulate=int32", "FP of r0 sums 33 products of .* int32 cannot hold"),
        (
            "q2.6 accumulate=int32 layer.r1.activations=q1.7",
            "r1 adds products of inputs and of states, and .* one point for both",
        ),
    ):
        with pytest.raises(InputError, match=said) as refused:
            plan_of(NETWORKS["lstm"], devices=2, precision=precision)
        one_line(refused)


@pytest.mark.sampled(1)
def test_ranks(mpiexec: Any, tmp_path: Path, bits: Any) -> None:
    """Three ranks with a layer that two of them share, as one process."""
    keys = {"network": "char-lstm", "schedule": "sync", "samples": 32, "test_samples": 4}
    keys |= {"time_steps": 8, "precision": PRECISIONS["each its own by chance"]}
    plan = emuchain.plan(**keys, devices=1)
    names = [layer.name for layer in plan.network.layers]
    recurrent_name = next(layer.name for layer in plan.network.layers if layer.operation.recurs)
    place = names.index(recurrent_name)
    cut = f"{' '.join(names[:place])} {recurrent_name}[:37] | {recurrent_name}[37:80]"
    cut += f" | {recurrent_name}[80:] {' '.join(names[place + 1 :])}"
    config, out = tmp_path / "run.toml", tmp_path / "run.h5"
    words = {**keys, "cut": cut.strip(), "devices": 3}
    config.write_text("\n".join(f"{key} = {toml_value(value)}" for key, value in words.items()))
    mpiexec(3, ["-m", "emuchain", "train", str(config), "--out", str(out)], timeout=300)
    one = emuchain.train(**keys, devices=1, progress="none")
    assert bits(emuchain.results(out).weights) == bits(one.weights)
