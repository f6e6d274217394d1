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
from emuchain.emulator.config import settings_config
from emuchain.emulator.network import load_network
from emuchain.emulator.plan import PairPlan, make_pair_plan
from emuchain.emulator.run import Results, read_results
from emuchain.emulator.run import train as train_plan
from emuchain.emulator.run.pair_trainer import PairTrainer
from emuchain.emulator.timing.pair import Resource, pair_streams, workload_of
from emuchain.launch import SingleProcess

from .pairs import LAYERS, STEPS, data_of, description

Bits = Callable[..., dict[str, bytes]]
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
