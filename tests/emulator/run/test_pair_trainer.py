"""Training on pairs, and on a GPU alone: numbers of `sync`, times of `simulate`, bytes that
travel.
"""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.commands.cli import main
from emuchain.emulator.common import InputError
from emuchain.emulator.config import settings_config
from emuchain.emulator.network import load_network
from emuchain.emulator.plan import PairPlan, make_pair_plan, make_plan
from emuchain.emulator.run import Results, read_results
from emuchain.emulator.run import train as train_plan
from emuchain.emulator.run.pair_trainer import PairTrainer
from emuchain.emulator.timing.pair import (
    Content,
    Part,
    RecurrentWork,
    Resource,
    gpu_bytes,
    pair_streams,
    work_of,
    workload_of,
)
from emuchain.launch import SingleProcess

from .pairs import LAYERS, STEPS, data_of, description

Bits = Callable[..., dict[str, bytes]]
Table = dict[str, Any]
PAIRS = ("farnn", "farnn-no-overlap", "farnn-all-fpga")
ALONE = ("gpu-standard", "gpu-persistent")
KEYS: dict[str, Any] = {"batch": 4, "epochs": 2, "learning_rate": 0.1}
"""Two mini-batches of 4 samples and one of 2 in an epoch."""


def train(name: str, schedule: str, *, ragged: bool = False, **keys: Any) -> Results:
    cluster = "vc709" if schedule == "sync" else "p100" if schedule in ALONE else "farnn-9p"
    data = data_of(ragged=ragged)
    return emuchain.train(
        description(name), cluster, data=data, schedule=schedule, **{**KEYS, **keys}
    )


def plan_of(name: str, schedule: str, **keys: Any) -> PairPlan:
    cluster = "p100" if schedule in ALONE else "farnn-9p"
    config = settings_config({"cluster": cluster, "schedule": schedule, **KEYS, **keys})
    return make_pair_plan(config, network=load_network(description(name)))


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("schedule", PAIRS + ALONE)
@pytest.mark.parametrize("name", LAYERS)
def test_numbers_are_those_of_sync(bits: Bits, name: str, schedule: str, ragged: bool) -> None:
    if schedule == "gpu-persistent" and any("projection" in layer for layer in LAYERS[name]):
        pytest.skip("cuDNN's persistent form takes no projection")
    expected, found = (train(name, each, ragged=ragged) for each in ("sync", schedule))
    assert bits(found.weights) == bits(expected.weights)
    for column in ("train_loss", "train_accuracy", "test_loss", "test_accuracy"):
        assert found.history[column].tolist() == expected.history[column].tolist(), column
    assert found.history["train_loss"][0] != found.history["train_loss"][1]


@pytest.mark.parametrize("micro_batch", [1, 3])
@pytest.mark.parametrize("schedule", ["farnn", "farnn-all-fpga"])
def test_micro_batches_change_neither_numbers_nor_times(
    bits: Bits, schedule: str, micro_batch: int
) -> None:
    name = "inputs that are read again"
    whole, cut = (train(name, schedule, ragged=True, micro_batch=size) for size in (4, micro_batch))
    assert bits(cut.weights) == bits(whole.weights)
    assert cut.virtual_time_ps == whole.virtual_time_ps
    assert cut.resources["carried_bytes"].tolist() == whole.resources["carried_bytes"].tolist()


@pytest.mark.parametrize("schedule", PAIRS + ALONE)
def test_times_are_those_of_the_timeline(schedule: str) -> None:
    plan, steps = plan_of("both ways" if schedule in PAIRS else "gru", schedule), list[int]()
    history = train_plan(
        plan,
        data_of(),
        SingleProcess(),
        lambda step: steps.append(step.virtual_time_ps),
        gather_weights=False,
    )
    of_four, of_two = (plan.times_of(size).mini_batch_ps for size in (4, 2))
    assert of_two < of_four
    assert steps == np.cumsum(2 * [of_four, of_four, of_two]).tolist()
    assert [row.virtual_time_ps for row in history] == [steps[2], steps[5]]
    found = {use.name: use.busy_ps for use in history[-1].resources}
    for resource, use in plan.times.busy.items():
        assert found[resource.value] == 2 * (
            2 * use.busy_ps + plan.times_of(2).busy[resource].busy_ps
        )


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("schedule", PAIRS)
def test_what_travels_is_what_the_timeline_counts(name: str, schedule: str) -> None:
    """Of each stream, and, on a link that takes 1 ns for a byte and has no latency, of all in
    either way.
    """
    plan = plan_of(name, schedule, epochs=1, micro_batch=3)
    trainer = PairTrainer(plan, data_of(), SingleProcess())
    trainer.train(0, trainer.legs[0])
    sent = trainer._carried
    streams = pair_streams(plan.network, inputs_too=plan.inputs_too)
    batches, samples = 3, 10
    assert sent == {
        key: 4 * stream.values * (batches if stream.holds_weights else samples * STEPS)
        for key, stream in streams.items()
    }
    byte_a_ns = dataclasses.replace(plan.pair.link, bandwidth_mbps=8000, latency_ps=0)
    slow = dataclasses.replace(plan, pair=dataclasses.replace(plan.pair, link=byte_a_ns))
    carried = collections.Counter[Resource]()
    for key, count in sent.items():
        carried[Resource.TO_FPGA if streams[key].to_fpga else Resource.TO_GPU] += count
    for link in (Resource.TO_FPGA, Resource.TO_GPU):
        busy_ps = sum(slow.times_of(size).busy[link].busy_ps for size in (4, 4, 2))
        assert busy_ps == 1000 * carried[link]


def trained_by(plan: Any) -> tuple[Any, list[Any]]:
    """Return the weights, and what each epoch has rounded."""
    weights: Table = {}
    more: Table = {"on_epoch": lambda _, given: weights.update(given), "gather_weights": True}
    history = train_plan(plan, data_of(), SingleProcess(), **more)
    return weights, [epoch.rounded for epoch in history]


FORMS = (
    *("bf16", "mxfp8", "mxfp4 rounding=stochastic loss_scale=64", "int8 accumulate=int32"),
    *("bf16 accumulate=bf16", "nvfp4 master=bf16", "mxint8 accumulate=dot:8 rounding=stochastic"),
    "bf16 layer.second=fp8 layer.second.errors=q2.10",
    "int8 scaling=delayed:history=1 rounding=stochastic",
)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("schedule", [*PAIRS, "gpu-standard"])
def test_formats_are_those_of_a_chain(bits: Bits, schedule: str, form: str) -> None:
    """What is rounded, and what is counted of it, on either device."""
    for name in LAYERS:
        if "layer." in form and name != "inputs that are read again":
            continue
        keys: Table = {**KEYS, "precision": form}
        network = load_network(description(name))
        try:
            chain = make_plan(settings_config({**keys, "schedule": "sync"}), network=network)
        except InputError as error:
            with pytest.raises(InputError) as refused:
                plan_of(name, schedule, precision=form)
            assert str(refused.value) == str(error)
            continue
        pair = plan_of(name, schedule, precision=form, micro_batch=3)
        (one, counts), (other, others) = map(trained_by, (chain, pair))
        assert bits(other) == bits(one), name
        assert others == counts and counts[1]["activations_values"] > 0, name


def in_form(form: str, lines: int, length: int) -> int:
    """Bytes of lines of values: in bf16, or in blocks of 32 of a byte with their scales."""
    return 2 * lines * length if form == "bf16" else lines * (length + -(-length // 32))


def of_content(work: RecurrentWork, form: str, content: Content) -> int:
    """Bytes of a time step of a sample, or of weights, by hand; sums are in fp32."""
    gates, cells, state, inputs = work.gates, work.cells, work.state, work.inputs
    recurrent = in_form(form, gates * cells, state)
    recurrent += in_form(form, work.projection, cells) if work.projection else 0
    of_inputs = in_form(form, gates * cells, inputs)
    return {
        Content.INPUT_WEIGHTS: of_inputs,
        Content.TURNED_INPUT_WEIGHTS: of_inputs,
        Content.WEIGHTS: recurrent + 4 * 2 * gates * cells,
        Content.TURNED_WEIGHTS: recurrent,
        Content.INPUTS: in_form(form, 1, inputs),
        Content.SUMS: 4 * gates * cells,
        Content.OUTPUTS: in_form(form, 1, state),
        Content.OUTPUT_ERRORS: in_form(form, 1, state),
        Content.DELTAS: in_form(form, gates, cells),
        Content.RESET: in_form(form, 1, cells),
        Content.CELLS: in_form(form, 1, cells),
        Content.PROJECTED_ERRORS: in_form(form, 1, state),
        Content.OTHER_INPUT_ERRORS: 4 * inputs,
        Content.INPUT_ERRORS: 4 * inputs,
    }[content]


@pytest.mark.parametrize("form", ["bf16", "mxfp8"])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("schedule", PAIRS)
def test_what_travels_in_formats(name: str, schedule: str, form: str) -> None:
    """By hand, of each stream; and links are busy as long as these bytes take."""
    plan = plan_of(name, schedule, epochs=1, micro_batch=3, precision=form)
    trainer = PairTrainer(plan, data_of(), SingleProcess())
    trainer.train(0, trainer.legs[0])
    streams = pair_streams(plan.network, inputs_too=plan.inputs_too)
    works = {layer.index: work_of(layer) for layer in plan.network.layers if layer.operation.recurs}
    assert trainer._carried == {
        key: of_content(works[key.layer], form, key.content)
        * (3 if stream.holds_weights else 10 * STEPS)
        for key, stream in streams.items()
    }
    byte_a_ns = dataclasses.replace(plan.pair.link, bandwidth_mbps=8000, latency_ps=0)
    slow = dataclasses.replace(plan, pair=dataclasses.replace(plan.pair, link=byte_a_ns))
    for link in (Resource.TO_FPGA, Resource.TO_GPU):
        busy_ps = sum(slow.times_of(size).busy[link].busy_ps for size in (4, 4, 2))
        carried = sum(
            count
            for key, count in trainer._carried.items()
            if streams[key].to_fpga == (link is Resource.TO_FPGA)
        )
        assert busy_ps == 1000 * carried


def test_what_a_format_takes_on_either_device() -> None:
    """By hand, an LSTM of 64 units on 32 inputs in MXFP8, and a classifier of 5 classes, with Adam:
    the GPU keeps copies of a byte and a scale of 32, masters, gradients and two moments, and reads
    and writes them; of a PE's words, four hold as many weights, and a 32nd of scales.
    """
    layers = [
        {"type": "lstm", "units": 64, "name": "r"},
        {"type": "conv", "channels": 5, "kernel": 1},
    ]
    layers[1]["bias"] = False
    described = {"name": "n", "input": [32, 7, 1], "layers": [*layers, {"type": "softmax"}]}
    network = load_network(described)
    keys: Table = {"cluster": "farnn-9p", "schedule": "farnn", "batch": 3, "optimizer": "adam"}
    plans = []
    for form in ("fp32", "mxfp8"):
        plans.append(make_pair_plan(settings_config({**keys, "precision": form}), network=network))
    wide, narrow = plans
    weights, biases = 4 * 64 * (32 + 64), 2 * 4 * 64
    copies = weights + weights // 32 + 4 * biases + 64 * (5 + 1)
    arrays = 4 * (weights + biases + 5 * 64)
    values = 7 * ((32 + 1) + (64 + 2) + 4 * (64 + 2) + 4 * 4 * 64)
    assert gpu_bytes(narrow.workload, narrow.pair) == copies + 4 * arrays + 3 * values
    updates = [
        sum(task.task.duration_ps for task in plan.times.timed if task.task.part is Part.UPDATE)
        for plan in plans
    ]
    extra_ps = 1000 * copies / narrow.pair.gpu.memory_gbytes_per_s
    assert 0 <= updates[1] - updates[0] - extra_ps <= 2
    [need], [before] = narrow.needs, wide.needs
    assert need.weight_bytes == 4 * 64 * (64 + 2) and before.weight_bytes == 4 * 4 * 64 * 64
    pes = narrow.pair.array.pes
    assert need.words_of_a_pe == -(-64 * (64 + 2) // (4 * pes))
    assert need.kept_bytes == 3 * 7 * (4 * 5 * 64 + 64 + 2)


def test_a_loss_scale_that_follows_overflows_is_of_a_chain() -> None:
    with pytest.raises(InputError, match="follows the norm of a chain's gradients"):
        plan_of("lstm", "farnn", precision="bf16 loss_scale=dynamic")


@pytest.mark.parametrize("schedule", ["farnn-all-fpga", "gpu-standard"])
def test_scales_go_on_after_a_resume(tmp_path: Path, bits: Bits, schedule: str) -> None:
    """With a history of one mini-batch."""
    keys: Table = {"precision": "int8 scaling=delayed:history=1", "checkpoint_every": 1}
    whole = train("lstm", schedule, **keys, epochs=3)
    for epochs in (1, 2):
        file = str(tmp_path / f"{epochs}.ckpt")
        train("lstm", schedule, **keys, epochs=epochs, checkpoint=file)
        rest = emuchain.train(resume=file, epochs=3, data=data_of(), progress="none")
        assert bits(rest.weights) == bits(whole.weights)
    plain = train("lstm", schedule, precision="int8", epochs=3)
    assert bits(plain.weights) != bits(whole.weights)


def test_weights_travel_once_a_mini_batch() -> None:
    """Two layers of LSTM with 8 and 4 cells: R with two biases of each gate for FW, R for BW, of
    each direction.
    """
    layers = [{"type": "lstm", "units": 8}, {"type": "lstm", "units": 4, "bidirectional": True}]
    network = load_network(
        {**description("lstm"), "layers": [*layers, *description("lstm")["layers"][1:]]}
    )
    plan = dataclasses.replace(
        plan_of("lstm", "farnn"), network=network, workload=workload_of(network, 4)
    )
    trainer = PairTrainer(plan, data_of(8), SingleProcess())
    trainer.train(0, trainer.legs[0])
    sent = trainer._carried
    weights = {(key.layer, key.direction, key.content.name): count for key, count in sent.items()}
    for layer, cells, directions in ((0, 8, 1), (1, 4, 2)):
        for direction in range(directions):
            assert weights[layer, direction, "WEIGHTS"] == 2 * 4 * (4 * cells * cells + 8 * cells)
            assert weights[layer, direction, "TURNED_WEIGHTS"] == 2 * 4 * 4 * cells * cells


def test_simulate_gives_the_time_of_train(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the command line, with texts: `--out`, `show`, and `simulate --json` beside them."""
    out = tmp_path / "pair.h5"
    keys = [
        "char-lstm",
        "--time-steps",
        "6",
        "--schedule",
        "farnn",
        "--cluster",
        "farnn-9p",
        "--devices",
        "2",
    ]
    keys += ["--samples", "70", "--batch", "32", "--epochs", "2"]
    answers = {}
    for command, more in (
        ("train", ["--test-samples", "20", "--out", str(out)]),
        ("simulate", ["--json"]),
    ):
        with pytest.raises(SystemExit) as ended:
            main([command, *keys, *more])
        assert ended.value.code == 0
        answers[command] = capsys.readouterr().out
    results, simulated = read_results(out), json.loads(answers["simulate"])
    assert results.history["virtual_time_ps"].tolist() == simulated["epoch_ends_ps"]
    assert results.config["devices"] == 2 and results.usage is None
    assert "device 1, FARNN-9P LSTM: steps of lstm2" in results.descriptions["mapping"]
    assert (
        dict(zip(results.resources["resource"], results.resources["carried_bytes"], strict=True))[
            "GPU"
        ]
        == 0
    )
    lines = answers["train"].splitlines()
    assert any(line.startswith("char-lstm on P100 + FARNN-9P LSTM: ") for line in lines)
    assert any(line.startswith("limit: FPGA, busy ") for line in lines)
    assert lines[-1] == f"next: emuchain show {out}"
    with pytest.raises(SystemExit):
        main(["show", str(out)])
    shown = capsys.readouterr().out
    assert "busiest: FPGA, " in shown and "PCIe to FPGA" in shown and "lstm2 weight_hh_l0" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--trace", "x.json"], "`--trace`: of a pair, `emuchain simulate --trace` writes it"),
        (["--chunks", "2"], "`chunks` has no effect with `schedule` = 'farnn'"),
        (["--replicas", "2"], "`replicas` has no effect"),
        (["--compress", "inceptionn:-10"], "`compress` has no effect"),
        (["--balancing", "none"], "`balancing` has no effect"),
        (["--throttle", "wall"], "`throttle` has no effect"),
        (["--devices", "3"], "`devices` = 3: "),
        (["--cluster", "p100"], "device 1, P100, is a GPU, too"),
        (["--learning-rate", "1e30"], "training diverged"),
        (["quick-cifar"], "`network` = 'quick-cifar': has no recurrent layer"),
    ],
)
def test_refusals(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    network = [] if "quick-cifar" in words else ["char-lstm", "--time-steps", "6"]
    keys = ["--samples", "640", "--schedule", "farnn", "--cluster", "farnn-9p"]
    with pytest.raises(SystemExit) as ended:
        main(["train", *network, *keys, *words])
    assert ended.value.code == 2
    [line] = [each for each in capsys.readouterr().err.splitlines() if each]
    assert message in line
