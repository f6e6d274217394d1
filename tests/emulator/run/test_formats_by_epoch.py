"""Formats by epoch: the same bits on any boards, schedules and replicas and resumed in the middle
of each phase; each epoch takes the time that it takes in its formats, and boards hold the largest.
"""

from __future__ import annotations

import dataclasses
import operator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.number import precision_of
from emuchain.emulator.run import read_results, simulate, steady_rate
from emuchain.kernels.number import number_format
from emuchain.kernels.quantise import on_grid

from .gpt import Table, gpt, written
from .sequences import bits_of, network, recurrent, sequences
from .sequences import plan_of as plan_of_steps

KEYS: Table = {
    **{"network": "quick-cifar", "batch": 16, "samples": 32, "test_samples": 4},
    **{"schedule": "sync", "learning_rate": 0.01, "momentum": 0.9, "epochs": 4},
}
BY_EPOCH = {
    "wider and wider": "mxfp4 master=bf16 epoch.2=mxfp8 epoch.4=fp32 epoch.4.master=fp32",
    "by chance, by layer": (
        "mxfp8 rounding=stochastic states=bf16 layer.fc2=bf16 epoch.2=fp8"
        " epoch.3=bf16 epoch.3.states=q2.12 epoch.3.layer.conv2=mxfp6"
        " epoch.3.layer.conv2.master=fp16"
    ),
    "narrower": "fp32 epoch.3=bf16 epoch.3.weights=mxfp8 epoch.3.states=bf16",
    "sums of blocks": "mxint8 accumulate=dot:32 rounding=stochastic epoch.3=mxfp4",
    "histories": "fp8 scaling=delayed:history=2 epoch.2=int8 epoch.4.errors=fp8-e5m2",
    "a scale that follows overflows": (
        "fp16 loss_scale=dynamic:every=3,first=65536 epoch.2=bf16 epoch.4=fp32"
    ),
}


@pytest.fixture(scope="module")
def of_cnn(plan_of: Any, small_cifar: Path) -> Any:
    def make(**keys: Any) -> Any:
        return plan_of(**{**KEYS, "data": str(small_cifar), **keys})

    return make


@pytest.fixture(scope="module")
def references(of_cnn: Any, trained: Any) -> Any:
    plans = {name: of_cnn(precision=given, devices=1) for name, given in BY_EPOCH.items()}
    return {name: trained(plan).weights for name, plan in plans.items()}


@pytest.mark.parametrize("name", BY_EPOCH)
@pytest.mark.parametrize(
    "keys",
    [
        {"devices": 2, "micro_batch": 4, "schedule": "1f1b-as"},
        {"devices": 7, "micro_batch": 1},
        {"devices": 3, "schedule": "gpipe", "micro_batch": 4, "checkpoint_every": 1},
    ],
    ids=lambda keys: " ".join(map(str, keys.values())),
)
def test_bits_do_not_depend_on_the_mapping(
    of_cnn: Any, trained: Any, bits: Any, references: Any, name: str, keys: Table
) -> None:
    made = trained(of_cnn(precision=BY_EPOCH[name], **keys)).weights
    assert bits(made) == bits(references[name])


def test_the_last_formats_are_those_of_the_weights(references: Any) -> None:
    for name in ("narrower", "by chance, by layer", "wider and wider"):
        kept = references[name]["fc1"]["weight"]
        in_bf16 = np.array_equal(on_grid(kept, number_format("bf16").grid), kept)
        assert in_bf16 == (name != "wider and wider")


@pytest.mark.parametrize("engines", ["turns", "shared"])
def test_boards_that_take_actions_as_a_whole(
    of_cnn: Any, trained: Any, bits: Any, engines: str
) -> None:
    keys = {"precision": "mxfp8 epoch.3=bf16", "schedule": "gpipe", "micro_batch": 4}
    expected = bits(trained(of_cnn(**keys, devices=1)).weights)
    plan = of_cnn(**keys, devices=3, engines=engines)
    run = trained(plan)
    assert bits(run.weights) == expected
    ends_ps = [epoch.virtual_time_ps for epoch in run.history]
    assert ends_ps == [*simulate(plan, 32).epoch_ends_ps]


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_replicas(of_cnn: Any, trained: Any, bits: Any, zero: int) -> None:
    """Those that share updates out have all of what these keep where formats change."""
    keys = {"replicas": 2, "precision": "fp8 master=fp16 epoch.2=bf16 epoch.3=q2.8"}
    expected = bits(trained(of_cnn(**keys, devices=1)).weights)
    assert bits(trained(of_cnn(**keys, devices=3, zero=zero)).weights) == expected


def test_what_a_codec_drops_goes_on(of_cnn: Any, trained: Any, bits: Any) -> None:
    keys = {"replicas": 2, "compress": "topk:0.1", "error_feedback": True, "devices": 2}
    same = "bf16", "bf16 epoch.3.errors=bf16"
    runs = [bits(trained(of_cnn(**keys, precision=given)).weights) for given in same]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("given", ["fp32", "mxfp8 rounding=stochastic", "fp16 loss_scale=dynamic"])
@pytest.mark.parametrize("schedule", ["sync", "fpdeep"])
def test_the_same_formats_again_change_nothing(
    of_cnn: Any, trained: Any, bits: Any, given: str, schedule: str
) -> None:
    if "dynamic" in given and schedule == "fpdeep":
        schedule = "gpipe"
    runs = [
        trained(of_cnn(precision=words, devices=3, schedule=schedule))
        for words in (given, f"{given} epoch.2.scale=up epoch.4.scale=up")
    ]
    assert bits(runs[0].weights) == bits(runs[1].weights)
    once, again = ([row.virtual_time_ps for row in run.history] for run in runs)
    # All boards have updated before the next formats begin.
    assert once[0] == again[0] and all(map(operator.le, once, again))


@pytest.mark.parametrize("name", BY_EPOCH)
def test_resumed_within_each_phase(
    tmp_path: Path, small_cifar: Path, bits: Any, references: Any, name: str
) -> None:
    """On the same boards and on others, at the end of each epoch."""
    keys: Table = {**KEYS, "data": str(small_cifar), "progress": "none"}
    network = keys.pop("network")
    file, other = (str(tmp_path / name) for name in ("run.ckpt", "other.ckpt"))
    made = {**keys, "devices": 2, "precision": BY_EPOCH[name]}
    whole = emuchain.train(network, **made)
    assert bits(whole.weights) == bits(references[name])
    for epochs in (1, 2, 3):
        emuchain.train(network, **{**made, "epochs": epochs}, checkpoint=file)
        for devices in (2, 3):
            keys = {"resume": file, "checkpoint": other, "progress": "none"}
            rest = emuchain.train(**keys, epochs=4, devices=devices)
            assert bits(rest.weights) == bits(whole.weights)
            if devices == 2:
                assert [*rest.history] == [*whole.history]
                times = (run.history["virtual_time_ps"] for run in (rest, whole))
                assert np.array_equal(*times)


def test_resumed_amid_an_epoch(tmp_path: Path, small_cifar: Path, bits: Any) -> None:
    """A run that is stopped after a mini-batch of each phase goes on on any boards."""
    keys: Table = {**KEYS, "data": str(small_cifar), "progress": "none", "checkpoint_every": 1}
    keys |= {"precision": BY_EPOCH["by chance, by layer"], "throttle": "none"}
    network = keys.pop("network")
    file, other = (str(tmp_path / name) for name in ("run.ckpt", "other.ckpt"))
    whole = emuchain.train(network, **keys, devices=2)
    # A run of 32 samples has two mini-batches in an epoch.
    for steps in (3, 5):
        stopped = _Stopped(steps)
        with pytest.raises(_Stopped):
            emuchain.train(network, **keys, devices=2, checkpoint=file, on_step=stopped)
        for devices in (2, 3):
            resumed = {"resume": file, "checkpoint": other, "progress": "none"}
            rest = emuchain.train(**resumed, devices=devices)
            assert bits(rest.weights) == bits(whole.weights)


class _Stopped(Exception):
    def __init__(self, steps: int) -> None:
        super().__init__()
        self.left = steps

    def __call__(self, *_: object) -> None:
        self.left -= 1
        if not self.left:
            raise self


def test_attention_and_states(plan_of: Any, trained: Any, bits: Any, tmp_path: Path) -> None:
    described = written(tmp_path / "gpt.toml", gpt(40, 1, 5, 8))
    keys = {**KEYS, "network": described, "precision": "mxfp8 epoch.2=bf16 epoch.4.layer.head=fp32"}
    made = [bits(trained(plan_of(**keys, devices=devices)).weights) for devices in (1, 5)]
    assert made[0] == made[1]


def test_steps() -> None:
    data, described = sequences(), network(recurrent("lstm", 20), recurrent("gru", 24))
    keys = {"precision": "bf16 epoch.2=q3.9 epoch.3=mxfp8 epoch.3.rounding=stochastic", "epochs": 3}
    plans = [plan_of_steps(described, **keys, devices=devices) for devices in (1, 3)]
    assert bits_of(plans[0], data) == bits_of(plans[1], data)


@pytest.mark.parametrize("given", ["mxfp4 epoch.2=fp32 epoch.4=bf16", "fp32 epoch.3=mxfp8"])
def test_each_epoch_takes_the_time_of_its_formats(of_cnn: Any, trained: Any, given: str) -> None:
    """Those of a run in these alone, on the same engines, in the same cut."""
    plan = of_cnn(precision=given, devices=4, cluster="vc709-10g")
    run = trained(plan)
    ends_ps = [0, *(row.virtual_time_ps for row in run.history)]
    assert ends_ps[1:] == [*simulate(plan, 32).epoch_ends_ps]
    engines = plan.cluster.board(0).classes
    begins = [0, *(phase.epochs for phase in plan.phases), 4]
    expected_ps = [0]
    for own, begin, end in zip(plan.of_phases, begins, begins[1:], strict=False):
        assert own.mapping.devices == plan.mapping.devices
        assert own.cluster.board(0).classes == engines
        alone = simulate(own.with_epochs(end - begin), 32).epoch_ends_ps
        expected_ps += [expected_ps[-1] + end_ps for end_ps in alone]
    assert ends_ps == expected_ps
    rates = {steady_rate(own) for own in plan.of_phases}
    assert len(rates) == len(plan.of_phases)  # links carry other bytes


def test_engines_hold_the_formats_of_all_epochs(of_cnn: Any) -> None:
    classes = {
        given: of_cnn(precision=given, devices=2).cluster.board(0).classes
        for given in ("int8 epoch.2=fp8", "mxfp4 epoch.2=int8", "mxfp4 epoch.2.layer.fc2=bf16")
    }
    assert classes["int8 epoch.2=fp8"] == ("half",) * 3
    assert classes["mxfp4 epoch.2=int8"] == ("int8",) * 3
    assert classes["mxfp4 epoch.2.layer.fc2=bf16"] == ("int4",) * 3 + ("half",) * 3


def test_boards_hold_the_largest(of_cnn: Any) -> None:
    for given in ("fp32 epoch.2=mxfp8 epoch.3=bf16", "bf16 epoch.2=mxfp8 epoch.3=fp32"):
        plan = of_cnn(precision=given, devices=2)
        alone = [dataclasses.replace(own, phases=()).memory_bytes for own in plan.of_phases]
        assert plan.memory_bytes == tuple(map(max, *alone))
        assert len({*alone}) == 3


def test_a_cut_suits_all_phases(of_cnn: Any) -> None:
    """Blocks stay whole in all epochs, although only the last sum whole blocks of 64."""
    given = "int8@32 accumulate=dot:32 epoch.4=int8@64"
    plan = of_cnn(precision=given, devices=4)
    assert {own.cut.boards for own in plan.of_phases} == {plan.cut.boards}
    ends = {part.end for slices in plan.mapping.devices for part in slices if not part.is_last}
    assert all(end % 64 == 0 for end in ends)


def test_commands(printed: Any, tmp_path: Path) -> None:
    file, out = tmp_path / "run.toml", tmp_path / "run.h5"
    file.write_text(
        'network = "quick-cifar"\nsamples = 32\ntest_samples = 4\nbatch = 16\nepochs = 3\n'
        '[precision]\nformat = "mxfp8"\n'
        '[precision.epoch.2]\nformat = "bf16"\nrounding = { errors = "stochastic" }\n'
        '[precision.epoch.3.layer]\nfc1 = "fp16"\n',
        "utf-8",
    )
    flags = ["--progress", "none", "--out", str(out)]
    printed("train", str(file), *flags)
    said = "mxfp8 epoch.2=bf16 epoch.2.rounding.errors=stochastic epoch.3.accumulate=fp32"
    said = said.removesuffix(" epoch.3.accumulate=fp32") + " epoch.3.layer.fc1=fp16"
    assert read_results(out).config["precision"] == said
    printed("train", str(file), *flags, "--precision.epoch", "3=fp32,2.errors=fp8")
    assert read_results(out).config["precision"] == "mxfp8 epoch.2.errors=fp8 epoch.3=fp32"
    answer = printed("plan", "quick-cifar", "--precision", "mxfp8 epoch.3=bf16")
    assert "from epoch 3 on in bf16: " in answer
    assert printed("simulate", str(file))


def test_a_sweep_has_the_rate_of_the_slowest_phase(of_cnn: Any) -> None:
    given = "fp32", "mxfp4", "mxfp4 epoch.2=fp32", "fp32 epoch.2=mxfp4"
    table = emuchain.sweep(
        "quick-cifar", devices=4, precision=list(given), cluster="vc709-10g", schedule="sync"
    )
    narrow, wide, rates = 1, 0, [row["images_per_s"] for row in table.rows]
    plans = [of_cnn(precision=text, devices=4, cluster="vc709-10g", batch=64) for text in given]
    slowest = [min(map(steady_rate, plan.of_phases)) for plan in plans]
    assert rates == pytest.approx(slowest)
    assert rates[2] == pytest.approx(rates[3])
    assert rates[2] <= rates[wide] < rates[narrow]  # of fp32's engines
    assert all(row["range_low"] < row["images_per_s"] < row["range_high"] for row in table.rows)


@pytest.mark.parametrize(
    "text",
    [
        "mxfp8 epoch.3=bf16",
        "fp32 master=bf16 epoch.2=mxfp4 epoch.2.rounding.weights=stochastic epoch.5.errors=fp16",
        "mxfp8 layer.head=bf16 epoch.3=fp8 epoch.3.layer.head=fp32",
        "mxfp8 layer.head=mxfp8 epoch.3=mxfp4 epoch.3.layer.head=bf16 epoch.3.layer.x.errors=fp32",
    ],
)
def test_text_says_all(text: str) -> None:
    precision = precision_of(text)
    assert precision_of(str(precision)) == precision
    assert [epoch - 1 for epoch, _ in precision.epochs] == [n for n, _ in precision.phases[1:]]


def test_a_layer_goes_before_an_epoch() -> None:
    precision = precision_of("mxfp8 layer.head=bf16 epoch.3=fp8 epoch.4.layer.head=fp32")
    _, later, last = (own for _, own in precision.phases)
    assert dict(later.layers)["head"].weights == number_format("bf16")
    assert later.weights == number_format("fp8")
    assert dict(last.layers)["head"].weights == number_format("fp32")
    assert last.weights == number_format("mxfp8")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"precision": "mxfp8 epoch.1=bf16"}, "epoch 1: should be the number of an epoch from 2"),
        ({"precision": "mxfp8 epoch.two=bf16"}, "epoch two: should be the number of an epoch"),
        ({"precision": "mxfp8 epoch.3=bf61"}, "epoch 3: did you mean `bf16`?"),
        ({"precision": "bf16 epoch.3.loss_scale=2"}, "epoch 3: `loss_scale` is the run's"),
        (
            {"precision": "mxint8 accumulate=dot:32 epoch.3.accumulate=fp32"},
            "epoch 3: accumulate = 'fp32': engines are built once, and add in one way in all",
        ),
        (
            {"precision": "mxint8 accumulate=dot:32 epoch.3=bf16"},
            "epoch 3: accumulate = 'dot:32': an exact sum of 32 products",
        ),
        (
            {"precision": "bf16 epoch.3.layer.fc3=fp32"},
            "quick-cifar has no layer 'fc3'; did you mean `fc2`?",
        ),
        (
            {"precision": "bf16 loss_scale=dynamic epoch.2=fp8"},
            "from epoch 2 on: `precision` = 'fp8 loss_scale=dynamic': the loss scale halves where",
        ),
        ({"precision": "bf16 epoch.2=fp8", "rtl_device": 0}, "in one format in all epochs"),
    ],
    ids=lambda given: str(given)[:40],
)
def test_what_is_refused(plan_of: Any, keys: Table, said: str) -> None:
    with pytest.raises(InputError) as error:
        plan = plan_of(**{**KEYS, **keys})
        if "rtl_device" in keys:
            emuchain.train(**{**KEYS, **keys, "progress": "none"})
        assert plan
    assert said in str(error.value) and "\n" not in str(error.value)


def test_boards_that_die_are_refused(plan_of: Any, tmp_path: Path) -> None:
    faults = tmp_path / "faults.toml"
    faults.write_text("[[faults.deaths]]\nboard = 0\nat_us = 10\n", "utf-8")
    with pytest.raises(InputError, match="epochs end on other boards than they began"):
        plan_of(**KEYS, precision="bf16 epoch.2=fp8", devices=3, faults=str(faults))


def test_a_timeline_is_refused(plan_of: Any, one_line: Any) -> None:
    with pytest.raises(InputError) as error:
        plan_of(**KEYS, precision="bf16 epoch.2=fp8").needs_all_alive("a timeline")
    assert "a timeline shows the messages of one set of formats" in one_line(error)
