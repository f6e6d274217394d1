"""Scales of whole maps and weights by the mini-batches before: the same bits on any mapping and
after a resume, and what they save from saturating.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.device.memories import initial_weights
from emuchain.emulator.device.scales import TensorScales, needed_exponent
from emuchain.emulator.device.slices import conv
from emuchain.emulator.faults import Flipper
from emuchain.emulator.run import simulate
from emuchain.kernels.attention import largest_finite

from .gpt import MAPPINGS, Table, gpt, written
from .gpt import conv as convolution

KEYS: Table = {
    **{"batch": 16, "samples": 72, "test_samples": 4, "schedule": "sync"},
    **{"learning_rate": 0.01, "momentum": 0.9},
}
FORMS = {
    "fp8": "fp8 scaling=delayed:history=2",
    "int8 by chance": "int8 scaling=delayed rounding=stochastic gradients=bf16",
    "blocks": "fp8 accumulate=dot:8 scaling=delayed:history=2",
    "whole numbers": "int8 activations=q2.8 accumulate=int32 scaling=delayed:history=2",
    "by layer": "fp8 layer.conv2:fc1=int8 layer.conv2:fc1.scaling=delayed:history=3 layer.fc2=bf16",
}


def sequence(*layers: Table) -> Table:
    """A network of such layers between an embedding and a head."""
    begin = {"type": "embedding", "features": 8, "name": "wte"}
    end = convolution("symbols", "head"), {"type": "softmax"}
    network: Table = {"name": "s", "symbols": 28, "input": ["symbols", 6, 1]}
    return {**network, "layers": [begin, *layers, *end]}


@pytest.fixture(scope="module")
def of_cnn(plan_of: Any, small_cifar: Path) -> Any:
    def make(**keys: Any) -> Any:
        return plan_of(**{"network": "quick-cifar", **KEYS, "data": str(small_cifar), **keys})

    return make


@pytest.fixture(scope="module")
def references(of_cnn: Any, trained: Any, bits: Any) -> Any:
    return {
        name: bits(trained(of_cnn(precision=given, devices=1, micro_batch=16)).weights)
        for name, given in FORMS.items()
    }


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    "keys",
    [
        {"devices": 3, "micro_batch": 4},
        {"devices": 12, "micro_batch": 1},
        {"devices": 5, "schedule": "gpipe", "engines": "turns"},
        {"devices": 2, "schedule": "1f1b-as"},
        {"devices": 2, "schedule": "interleaved", "chunks": 2},
    ],
    ids=lambda keys: " ".join(map(str, keys.values())),
)
def test_bits_do_not_depend_on_the_mapping(
    of_cnn: Any, trained: Any, bits: Any, references: Any, name: str, keys: Table
) -> None:
    assert bits(trained(of_cnn(precision=FORMS[name], **keys)).weights) == references[name]


@pytest.fixture
def uneven(monkeypatch: pytest.MonkeyPatch) -> None:
    """First weights of which those of a layer's first channel are eight times as large."""

    def made(layer: Any, start: Any, seed: int, ins: Any, outs: Any) -> Any:
        weights = initial_weights(layer, start, seed, ins, outs)
        weights[:, [channel for channel in ins if channel == 0]] *= 8
        return weights

    monkeypatch.setattr(conv, "initial_weights", made)


@pytest.mark.usefixtures("uneven")
def test_boards_hear_of_each_others_largest_weights(of_cnn: Any, trained: Any, bits: Any) -> None:
    keys: Table = {"precision": FORMS["fp8"], "learning_rate": 1e-3}
    runs = (trained(of_cnn(**{**keys, "devices": devices})) for devices in (1, 8, 12))
    one, eight, twelve = (bits(run.weights) for run in runs)
    assert one == eight == twelve


@pytest.mark.usefixtures("uneven")
@pytest.mark.parametrize(
    "keys",
    [
        {"replicas": 2, "devices": 8, "exchange": "halving-doubling"},
        {"replicas": 4, "devices": 3, "engines": "turns", "stages": "layers"},
    ],
    ids=lambda keys: " ".join(map(str, keys.values())),
)
@pytest.mark.parametrize("zero", [1, 2, 3])
def test_replicas_hear_of_each_others_shares(
    of_cnn: Any, trained: Any, bits: Any, keys: Table, zero: int
) -> None:
    """Of which one has the largest weights: all have the bits of replicas that each update all."""
    if zero == 3:
        keys = {**keys, "engines": "turns", "stages": "layers", "devices": 3}
    keys = {**keys, "precision": "fp8 weights=int8 scaling=delayed:history=1"}
    whole, shared = (trained(of_cnn(**{**keys, "zero": own})).weights for own in (0, zero))
    assert bits(shared) == bits(whole)


WITHIN: dict[str, tuple[Table, str, list[str]]] = {
    "attention": (
        gpt(12, 1, 3, 9, dropout=0.2),
        FORMS["fp8"],
        [
            "wte qkv0 attention0[:1] | attention0[1:2] | attention0[2:] project0 expand0 contract0"
            " | head",
            "wte | qkv0 attention0[:2] | attention0[2:] project0 | expand0 contract0 head",
        ],
    ),
    "shared heads, sums of blocks": (
        gpt(16, 1, 4, 9, "rms-norm", kv_heads=2),
        FORMS["blocks"],
        ["wte qkv0 attention0[:1] | attention0[1:] project0 expand0 | contract0 head"],
    ),
    "lstm": (
        sequence({"type": "lstm", "units": 20, "name": "r"}),
        FORMS["int8 by chance"],
        ["wte | r[:3] | r[3:11] | r[11:] head", "wte r[:10] | r[10:] head"],
    ),
    "gru, sums of blocks": (
        sequence({"type": "gru", "units": 20, "name": "r"}),
        FORMS["blocks"],
        ["wte r[:8] | r[8:] head"],
    ),
}
"""Networks, formats, and cuts within layers that round operands."""


@pytest.fixture(scope="module")
def within(plan_of: Any, trained: Any, bits: Any, tmp_path_factory: Any) -> Any:
    folder, made = tmp_path_factory.mktemp("within"), {}
    for place, (name, (network, form, _)) in enumerate(WITHIN.items()):
        file = written(folder / f"{place}.toml", network)
        keys: Table = {**KEYS, "data": "text", "network": file, "precision": form}
        made[name] = keys, bits(trained(plan_of(**keys, devices=1, micro_batch=16)).weights)
    return made


@pytest.mark.parametrize("keys", MAPPINGS, ids=lambda keys: " ".join(map(str, keys.values())))
@pytest.mark.parametrize("name", WITHIN)
def test_operands_on_any_mapping(
    plan_of: Any, trained: Any, bits: Any, within: Any, name: str, keys: Table
) -> None:
    own, reference = within[name]
    assert bits(trained(plan_of(**{**own, **keys})).weights) == reference


@pytest.mark.parametrize("micro_batch", [1, 4])
@pytest.mark.parametrize("name", WITHIN)
def test_boards_hear_of_each_others_largest_operands(
    plan_of: Any, trained: Any, bits: Any, within: Any, name: str, micro_batch: int
) -> None:
    own, reference = within[name]
    for cut in WITHIN[name][2]:
        keys = {**own, "devices": 1 + cut.count("|"), "cut": cut, "micro_batch": micro_batch}
        assert bits(trained(plan_of(**keys)).weights) == reference


@pytest.mark.parametrize("name", ["attention", "lstm"])
def test_operands_after_a_resume(tmp_path: Path, bits: Any, within: Any, name: str) -> None:
    """On other boards, of which some share a layer."""
    own = {**within[name][0], "progress": "none"}
    whole = emuchain.train(**own, epochs=2, devices=1)
    file, cut = str(tmp_path / "run.ckpt"), WITHIN[name][2][0]
    emuchain.train(**own, epochs=1, cut=cut, checkpoint=file)
    keys = {key: value for key, value in own.items() if key != "network"}
    for cut in WITHIN[name][2]:
        devices = 1 + cut.count("|")
        rest = emuchain.train(**keys, epochs=2, resume=file, cut=cut, devices=devices)
        assert bits(rest.weights) == bits(whole.weights)


@pytest.mark.parametrize("schedule", ["fpdeep", "pipedream", "2bw"])
def test_operands_where_nothing_drains(
    tmp_path: Path, bits: Any, within: Any, schedule: str
) -> None:
    """Scales that boards tell each other go on after a resume, and they do tell each other."""
    own, drained = within["attention"]
    cut = WITHIN["attention"][2][0]
    keys: Table = {**own, "cut": cut, "schedule": schedule, "progress": "none"}
    whole = bits(emuchain.train(**keys, epochs=2).weights)
    file = str(tmp_path / "run.ckpt")
    emuchain.train(**keys, epochs=1, checkpoint=file)
    keys = {key: value for key, value in keys.items() if key != "network"}
    assert bits(emuchain.train(**keys, epochs=2, resume=file).weights) == whole != drained
    plain = {**within["attention"][0], **keys, "precision": "fp8"}
    assert bits(emuchain.train(**plain, epochs=2).weights) != whole


def test_errors_of_gates_keep_their_bits(plan_of: Any, trained: Any, tmp_path: Path) -> None:
    """Of an LSTM, most are below the least number of int8 without a scale, as in the first
    mini-batch of five.
    """
    network = sequence({"type": "lstm", "units": 20, "name": "r"})
    file, flushed = written(tmp_path / "n.toml", network), []
    for given in ("none", "delayed"):
        form = f"layer.r.errors=int8 layer.r.scaling={given}"
        keys: Table = {**KEYS, "data": "text", "network": file, "precision": form}
        rounded = trained(plan_of(**keys, devices=2)).history[0].rounded
        flushed.append(rounded["errors_flushed"] / rounded["errors_values"])
    assert 0.5 < flushed[0] > 2 * flushed[1]


def test_whole_numbers_are_those_of_fp32_where_it_is_exact(
    plan_of: Any, trained: Any, bits: Any, tmp_path: Path
) -> None:
    """Of int8, sums of up to 1,040 products: of attention, and of logits that boards share."""
    network = gpt(12, 1, 3, 9)
    network["layers"][-1]["vocabulary_parallel"] = True
    keys: Table = {**KEYS, "data": "text", "network": written(tmp_path / "n.toml", network)}
    keys |= {"devices": 4, "batch": 4, "samples": 24}
    form = "int8 scaling=delayed:history=2 accumulate="
    whole, single = (
        bits(trained(plan_of(**keys, precision=form + sums)).weights) for sums in ("int32", "fp32")
    )
    assert whole == single


@pytest.mark.parametrize(
    "runs",
    [
        [
            {"schedule": "2bw", "engines": "turns", "stages": "layers", "recompute": again}
            for again in ("none", "all")
        ],
        [{"schedule": "fpdeep", "batch": 48, "samples": 96, "micro_batch": n} for n in (1, 3)],
    ],
    ids=["versions that actions keep", "versions within micro-batches"],
)
def test_whole_numbers_of_any_version(
    of_cnn: Any, trained: Any, bits: Any, tmp_path: Path, runs: list[Table]
) -> None:
    """PG multiplies activations, which have the point of FP's weights, by errors."""
    down: Table = {"type": "conv", "channels": 8, "kernel": 3, "stride": 2}
    layers = [down, {"type": "relu"}] * 3 + [{"type": "fc", "features": 10}, {"type": "softmax"}]
    network = {"name": "small", "input": [3, 32, 32], "layers": layers}
    keys: Table = {"devices": 3, "network": written(tmp_path / "small.toml", network)}
    keys |= {"precision": "int8 accumulate=int32 scaling=delayed:history=2"}
    one, other = (bits(trained(of_cnn(**{**keys, **own})).weights) for own in runs)
    assert one == other


def test_graphs_and_attention(
    plan_of: Any, trained: Any, bits: Any, small_cifar: Path, tmp_path: Path
) -> None:
    gpt_file = written(tmp_path / "gpt.toml", gpt(40, 1, 5, 8))
    for own in ({"network": "resnet8-cifar", "data": str(small_cifar)}, {"network": gpt_file}):
        keys = {**KEYS, **own, "precision": FORMS["fp8"]}
        one, five = (trained(plan_of(**keys, devices=devices)).weights for devices in (1, 5))
        assert bits(one) == bits(five)
        assert bits(one) != bits(trained(plan_of(**{**keys, "precision": "fp8"})).weights)


def test_weights_of_recurrent_layers_cut_by_units(
    plan_of: Any, trained: Any, bits: Any, tmp_path: Path
) -> None:
    """W, R and P of each direction have a scale each, which boards with units of all share."""
    network = sequence(
        {"type": "lstm", "units": 20, "projection": 9, "bidirectional": True, "name": "r"},
        {"type": "gru", "units": 12, "name": "g"},
    )
    keys: Table = {**KEYS, "network": written(tmp_path / "s.toml", network), "data": "text"}
    runs = (
        trained(plan_of(**{**keys, "precision": FORMS["fp8"], "devices": 4, "cut": cut}))
        for cut in ("wte | r | g | head", "wte r | g[:3] | g[3:7] | g[7:] head")
    )
    one, other = (bits(run.weights) for run in runs)
    plain = trained(plan_of(**{**keys, "precision": f"{FORMS['fp8']} master=fp8", "devices": 2}))
    assert one == other != bits(plain.weights)


def test_tests_change_nothing(of_cnn: Any, trained: Any, bits: Any, references: Any) -> None:
    assert (
        bits(trained(of_cnn(precision=FORMS["fp8"], test_samples=40)).weights)
        == (references["fp8"])
    )


def test_less_saturates(of_cnn: Any, trained: Any) -> None:
    """Activations beyond 1 are cut off in int8 without a scale; with one, those of the first
    mini-batch are, and of others what is larger than any before.
    """
    shares = []
    for given in ("int8", "int8 scaling=delayed"):
        rounded = trained(of_cnn(precision=given, devices=2)).history[0].rounded
        shares.append(rounded["activations_saturated"] / rounded["activations_values"])
    assert shares[0] > 0.2 > 3 * shares[1]


def test_weights_have_the_bits_of_the_format_and_more_range(of_cnn: Any, trained: Any) -> None:
    """Weights below 2^-7 are multiples of 2^-9 in E4M3 without a scale; with one, the largest use
    the format's largest exponents, and the small ones have four bits.
    """
    steps = []
    for given in ("fp8", FORMS["fp8"], f"{FORMS['fp8']} master=fp8"):
        weights = trained(of_cnn(precision=given, devices=2)).weights["conv2"]["weight"]
        small = weights[(np.abs(weights) < 2**-7) & (weights != 0)]
        assert small.size > 1000
        fractions, _ = np.frexp(weights)
        assert np.array_equal(fractions * 16, np.round(fractions * 16))
        steps.append(np.array_equal(small * 512, np.round(small * 512)))
    assert steps == [True, False, True]


def test_bits_that_flip_are_those_of_scaled_weights(
    of_cnn: Any, trained: Any, tmp_path: Path
) -> None:
    """int8 goes to 1; the scale of weights of at most 0.5 ends it there."""
    file = tmp_path / "faults.toml"
    flips = "[[faults.flips]]\nof = 'weights'\nrate = 1e-3"
    file.write_text(flips, "utf-8")
    keys: Table = {"devices": 3, "faults": str(file), "learning_rate": 1e-9, "samples": 32}
    largest = []
    for given in ("int8", "int8 scaling=delayed"):
        weights = trained(of_cnn(precision=given, **keys)).weights["conv2"]["weight"]
        largest.append(np.abs(weights).max())
    assert largest[0] > 0.6 > 0.5 >= largest[1] > 0.4


@pytest.mark.parametrize("of", ["activations", "messages"])
def test_bits_that_flip_are_those_of_scaled_maps(
    of_cnn: Any, trained: Any, bits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """Before and after, maps over their scale are numbers of the format: on boards that have
    rounded none of them, too.
    """
    flipped, scales = Flipper.samples, set[int]()

    def checked(own: Flipper, maps: Any, part: int, first: int, form: Any = None) -> Any:
        made = flipped(own, maps, part, first, form)
        if form.number.grid is not None:
            scales.add(form.scale)
            for numbers in (maps, made):
                codes = numbers * 2.0 ** (7 - form.scale)
                assert np.array_equal(codes, np.rint(codes)) and np.abs(codes).max() <= 128
        return made

    monkeypatch.setattr(Flipper, "samples", checked)
    file = tmp_path / "faults.toml"
    file.write_text(f"[[faults.flips]]\nof = '{of}'\nrate = 1e-3\nhighest_bit = 7\n", "utf-8")
    keys: Table = {"precision": "int8 scaling=delayed", "faults": str(file), "samples": 32}
    runs = [trained(of_cnn(**keys, devices=8, micro_batch=size)) for size in (1, 3)]
    assert bits(runs[0].weights) == bits(runs[1].weights)
    assert len(scales) > 2


@pytest.mark.usefixtures("uneven")
@pytest.mark.parametrize(
    ("devices", "keys"),
    [
        ((12, 12, 12), {}),
        ((2, 8, 3), {}),
        ((8, 3, 2), {"replicas": 2}),
        ((8, 8, 2), {"replicas": 2, "zero": 1}),
    ],
)
def test_resumed_on_any_boards(
    tmp_path: Path, small_cifar: Path, bits: Any, devices: tuple[int, ...], keys: Table
) -> None:
    """Twice: a board that has the scales of others' maps from a checkpoint hands on none that are
    older than theirs.
    """
    plain: Table = {**KEYS, "data": str(small_cifar), "samples": 32, "progress": "none"}
    plain |= {"precision": "fp8 weights=int8 scaling=delayed:history=1"}
    own = {key: value for key, value in keys.items() if key != "zero"}
    whole = emuchain.train("quick-cifar", **plain, **own, epochs=3, devices=2)
    files = [str(tmp_path / f"{epoch}.ckpt") for epoch in range(3)]
    begun: Table = {**plain, **keys, "epochs": 1, "devices": devices[0]}
    emuchain.train("quick-cifar", **begun, checkpoint=files[0])
    for epoch in (1, 2):
        rest: Table = {"devices": devices[epoch], "epochs": epoch + 1, "progress": "none"}
        last = emuchain.train(**rest, resume=files[epoch - 1], checkpoint=files[epoch])
    assert bits(last.weights) == bits(whole.weights)


@pytest.mark.usefixtures("uneven")
@pytest.mark.parametrize("dead", [0, 5])
def test_scales_outlive_the_boards_that_keep_them(
    tmp_path: Path, small_cifar: Path, bits: Any, dead: int
) -> None:
    """Checkpoints have them: a run in which a board dies has the bits of one in which none does,
    also when it is stopped behind the death.
    """
    file, faults = str(tmp_path / "run.ckpt"), tmp_path / "faults.toml"
    keys: Table = {**KEYS, "data": str(small_cifar), "samples": 32, "progress": "none"}
    keys |= {"precision": "fp8 weights=int8 scaling=delayed:history=1", "checkpoint_every": 1}
    keys |= {"devices": 12, "memory": "ignored"}
    whole = emuchain.train("quick-cifar", **keys, epochs=3)
    at_us = whole.steps["virtual_time_ps"][2] * 1.2e-6  # in the last mini-batch of epoch 2
    faults.write_text(f"[[faults.deaths]]\nboard = {dead}\nat_us = {at_us}\n", "utf-8")
    keys |= {"faults": str(faults)}
    dying = emuchain.train("quick-cifar", **keys, epochs=3)
    emuchain.train("quick-cifar", **keys, epochs=2, checkpoint=file)
    rest = emuchain.train(resume=file, epochs=3, progress="none")
    assert dying.virtual_time_ps > whole.virtual_time_ps
    assert bits(rest.weights) == bits(dying.weights) == bits(whole.weights)


@pytest.mark.sampled(1)
def test_ranks(mpiexec: Any, small_cifar: Path, tmp_path: Path, references: Any, bits: Any) -> None:
    out = tmp_path / "run.h5"
    words = [f"--{key.replace('_', '-')}={value}" for key, value in KEYS.items()]
    flags = [*words, "--precision", FORMS["fp8"], "--data", str(small_cifar), "--out", str(out)]
    mpiexec(3, ["-m", "emuchain", "train", "quick-cifar", "--devices", "5", *flags], timeout=300)
    with h5py.File(out) as file:
        weights = {
            layer: {kind: array[()] for kind, array in own.items()}
            for layer, own in file["weights"].items()
        }
    assert bits(weights) == references["fp8"]


@pytest.mark.sampled(1)
def test_ranks_that_share_layers(mpiexec: Any, tmp_path: Path, within: Any, bits: Any) -> None:
    own, reference = within["lstm"]
    keys: Table = {**own, "cut": WITHIN["lstm"][2][0], "devices": 4, "out": tmp_path / "run.h5"}
    network = keys.pop("network")
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in keys.items()]
    mpiexec(3, ["-m", "emuchain", "train", network, *flags], timeout=300)
    assert bits(emuchain.results(keys["out"]).weights) == reference


@pytest.mark.parametrize("name", ["attention", "lstm"])
def test_replicas_of_shared_layers(
    plan_of: Any, trained: Any, bits: Any, within: Any, name: str
) -> None:
    """Each has histories of its own, on any boards."""
    keys, made = {**within[name][0], "replicas": 2}, []
    for own in ({"devices": 1}, *({"cut": cut} for cut in WITHIN[name][2])):
        devices = 1 + str(own.get("cut", "")).count("|")
        made.append(bits(trained(plan_of(**{**keys, **own, "devices": devices})).weights))
    assert made[0] == made[1] == made[2] != within[name][1]


def test_training_takes_the_time_of_its_simulation(of_cnn: Any, trained: Any) -> None:
    plan = of_cnn(precision=FORMS["fp8"], devices=4, cluster="vc709-10g")
    [result] = trained(plan).history
    assert [result.virtual_time_ps] == [*simulate(plan, 72).epoch_ends_ps]


@pytest.mark.parametrize(
    ("values", "exponent"),
    [
        ([0.0, 0.0], None),
        ([1.0, -448.0], 0),
        ([448.1], 1),
        ([224.0, np.inf, np.nan], -1),
        ([224.01], 0),
        ([1e-40], -100),
    ],
)
def test_the_least_scale_that_holds_all(values: list[float], exponent: int | None) -> None:
    most = float(largest_finite(np.array(values, np.float32)))
    assert needed_exponent(most, 448.0) == exponent


def test_histories() -> None:
    """Of 3 mini-batches of 4 in an epoch of 10, the last of 2; a history of two."""
    scales, largest = TensorScales(10, 4), [1.0, 8.0, 2.0, 1.0, 1.0]
    firsts = [0, 4, 8, 10, 14]
    made = []
    for first, value in zip(firsts, largest, strict=True):
        for sample in (first, first + 1):
            made.append(scales.exponent("t", 2, np.array([sample])))
            scales.note("t", value, 1.0, np.array([sample]))
    assert made == [0, 0, 0, 0, 3, 3, 3, 3, 1, 1]
    later = TensorScales(10, 4)
    later.restore(scales.state())
    for both in (scales, later):
        assert both.exponent("t", 2, None) == 0
        assert both.exponent("t", 2, np.array([18])) == 0
    assert scales.state() == later.state()


@pytest.mark.parametrize(("late", "expected"), [(1, [0, 3, 5, 5, 5, 4]), (3, [0, 0, 0, 3, 5, 5])])
def test_what_slices_tell_each_other(late: int, expected: list[int]) -> None:
    """A history of two mini-batches, in which another slice may need more, or all is 0."""
    scales, made = TensorScales(12, 2, late), []
    for step, (own, told) in enumerate([(1, 3), (5, 5), (2, 4), (None, None), (1, 1), (9, 0)]):
        samples = np.array([2 * step, 2 * step + 1])
        made.append(scales.exponent("t", 2, samples, shared=True))
        most = 0.0 if own is None else 2.0**own
        scales.note("t", most / 2, 1.0, samples)
        scales.note("t", most, 1.0, samples[1:])
        assert scales.ended("t") == (step, own)
        scales.tell("t", step, told)
    assert made == expected
    assert scales.ended("t") is None is scales.ended("other")
    later = TensorScales(12, 2, late)
    later.restore(scales.state())
    scales.begin_epoch()
    for both in (scales, later):
        assert both.exponent("t", 2, np.array([12]), shared=True) == 1


def test_what_is_computed_again_has_its_scale() -> None:
    scales = TensorScales(8, 2)
    for first, value in ((0, 4.0), (2, 1.0), (4, 1.0)):
        scales.exponent("t", 1, np.array([first]))
        scales.note("t", value, 1.0, np.array([first]))
    again = np.array([2])
    assert scales.exponent("t", 1, again) == 2
    scales.note("t", 64.0, 1.0, again)
    assert scales.exponent("t", 1, np.array([6])) == 0


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"precision": "mxfp8 scaling=delayed"}, "blocks of activations in mxfp8 have scales of"),
        ({"precision": "fp8 scaling=late"}, "should be 'none' or 'delayed'"),
        ({"precision": "fp8 scaling=delayed:history=0"}, "of 1 to 1024 mini-batches"),
        (
            {"precision": "fp8 scaling=delayed", "schedule": "fpdeep", "batch": 2, "devices": 9},
            "are on the way, and `batch` = 2 are fewer",
        ),
    ],
    ids=lambda given: str(given)[:50],
)
def test_what_is_refused(of_cnn: Any, keys: Table, said: str) -> None:
    with pytest.raises(InputError) as error:
        of_cnn(**{"devices": 3, **keys})
    assert said in str(error.value) and "\n" not in str(error.value)
