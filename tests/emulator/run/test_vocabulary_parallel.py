"""A vocabulary-parallel loss: the same bits wherever the classifier is cut, and the loss of
PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.data import Dataset
from emuchain.emulator.network import load_network
from emuchain.emulator.run import Weights

from ..counted import COUNTED
from .gpt import Table, Twin, conv, gpt

CLOSING: Table = {"type": "softmax", "vocabulary_parallel": True}


def tokens(steps: int = 9, closing: Table = CLOSING, width: int = 12, **head: Any) -> Table:
    """A text's network, most of which is the classifier."""
    layers = [
        {"type": "embedding", "features": width, "name": "table"},
        *([conv(12, "qkv")] if width < 12 else []),
        {"type": "attention", "heads": 2, "causal": True},
        conv("symbols", "head", **head),
        closing,
    ]
    return {"name": "tokens", "symbols": 28, "input": ["symbols", steps, 1], "layers": layers}


def images(closing: Table = CLOSING, **head: Any) -> Table:
    layers = [{"type": "conv", "channels": 6, "kernel": 5, "stride": 4}, {"type": "relu"}]
    layers += [
        {"type": "global-average-pool"},
        {"type": "fc", "features": 10, "name": "head", **head},
        closing,
    ]
    return {"name": "images", "input": [3, 32, 32], "layers": layers}


TEXT: Table = {
    "batch": 16,
    "samples": 40,
    "test_samples": 8,
    "schedule": "sync",
    "learning_rate": 0.1,
    "data": "text",
}
IMAGES: Table = {**TEXT, "data": "shapes", "learning_rate": 0.05}
CASES: dict[str, Table] = {
    "tokens": {**TEXT, "network": tokens()},
    "tokens without bias": {**TEXT, "network": tokens(bias=False), "optimizer": "adamw"},
    "tied tokens": {**TEXT, "network": tokens(width=4, tied="table")},
    "images": {**IMAGES, "network": images()},
}
KEYS: list[Table] = [
    {"devices": 2, "micro_batch": 4},
    {"devices": 3, "micro_batch": 1},
    {"devices": 5},
    {"devices": 8, "micro_batch": 4},
    {"devices": 6, "schedule": "gpipe", "micro_batch": 4, "engines": "turns"},
    {"devices": 7, "schedule": "1f1b-as", "micro_batch": 3, "engines": "turns"},
    {"devices": 3, "schedule": "gpipe", "micro_batch": 4, "engines": "turns", "recompute": "all"},
    {"devices": 3, "schedule": "interleaved", "micro_batch": 4, "engines": "turns"},
    {"devices": 5, "schedule": "zero-bubble", "micro_batch": 4, "engines": "shared"},
]
MADE = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")


def head_cuts(plan: Any) -> list[tuple[int, int]]:
    return [
        (s.begin, s.end)
        for slices in plan.mapping.devices
        for s in slices
        if s.layer.name == "head"
    ]


@pytest.fixture(scope="module")
def references() -> dict[str, Any]:
    return {name: emuchain.train(**keys, devices=1, micro_batch=16) for name, keys in CASES.items()}


@pytest.mark.parametrize("keys", KEYS, ids=lambda keys: " ".join(map(str, keys.values())))
@pytest.mark.parametrize("name", CASES)
def test_bits_do_not_depend_on_the_cut(
    references: dict[str, Any], bits: Any, name: str, keys: Table
) -> None:
    """Neither do losses and accuracies, in training and in tests, nor times on whether there are
    numbers.
    """
    found, expected = emuchain.train(**{**CASES[name], **keys}), references[name]
    assert bits(found.weights) == bits(expected.weights)
    for column in MADE:
        assert found.history[column].tolist() == expected.history[column].tolist(), column
    simulated = emuchain.simulate(emuchain.plan(**{**CASES[name], **keys}))
    assert found.virtual_time_ps == simulated.virtual_time_ps


def test_the_classifier_is_cut_unevenly() -> None:
    """The cuts that the test of bits has."""
    cuts = {tuple(head_cuts(emuchain.plan(**{**CASES["tokens"], **keys}))) for keys in KEYS}
    sizes = [{end - begin for begin, end in cut} for cut in cuts]
    assert max(map(len, cuts)) >= 6 and sum(len(size) > 1 for size in sizes) >= 3


@pytest.mark.parametrize(
    ("name", "schedule"), [("tokens", "sync"), ("images", "sync"), ("images", "fpdeep")]
)
def test_it_learns_as_with_the_whole_softmax(name: str, schedule: str) -> None:
    """Weights differ by roundings alone: under `fpdeep`, too, as layers are cut alike, so their
    staleness is the same.

    Without biases, which slices have of the version of their own weights.
    """
    of = {"tokens": tokens, "images": images}[name]
    keys: Table = {**CASES[name], "devices": 3, "schedule": schedule, "micro_batch": 4}
    keys["changes"] = COUNTED
    closings: list[Table] = [CLOSING, {"type": "softmax"}]
    plans = [
        emuchain.plan(**{**keys, "network": of(closing=closing, bias=False)})
        for closing in closings
    ]
    if schedule == "fpdeep":
        assert str(plans[0].mapping) == str(plans[1].mapping)
        assert plans[0].steady.staleness == plans[1].steady.staleness
    assert len(head_cuts(plans[0])) > 1
    found, expected = (emuchain.train(plan) for plan in plans)
    for column in ("train_loss", "test_loss"):
        assert found.history[column].tolist() == pytest.approx(
            expected.history[column].tolist(), rel=1e-6
        )
    for column in ("train_accuracy", "test_accuracy"):
        assert found.history[column].tolist() == expected.history[column].tolist()
    for layer, arrays in expected.weights.items():
        for key, array in arrays.items():
            assert np.abs(found.weights[layer][key] - array).max() <= 2e-6, (layer, key)


@pytest.mark.parametrize("name", ["tokens", "images"])
@pytest.mark.parametrize("devices", [1, 5])
def test_fpdeep_cuts_a_classifier(bits: Any, name: str, devices: int) -> None:
    """Versions of weights change within micro-batches: their size changes nothing."""
    keys = {**CASES[name], "schedule": "fpdeep", "devices": devices}
    assert len(head_cuts(emuchain.plan(**keys))) == 1 or devices == 5
    found = [emuchain.train(**keys, micro_batch=size) for size in (16, 5, 1)]
    assert len({str(bits(run.weights)) for run in found}) == 1
    assert len({run.history["train_loss"][0] for run in found}) == 1
    assert {run.virtual_time_ps for run in found} == {
        emuchain.simulate(emuchain.plan(**keys)).virtual_time_ps
    }


def test_replicas(bits: Any) -> None:
    runs = [
        emuchain.train(**CASES["tokens"], devices=devices, replicas=2, micro_batch=4)
        for devices in (1, 4, 6)
    ]
    assert len({str(bits(run.weights)) for run in runs}) == 1


@pytest.fixture
def lines(tmp_path: Path) -> str:
    path = tmp_path / "lines.txt"
    path.write_text(
        "".join(f"{'ab cd' * (number % 4)}{'xyz'[number % 3]}{number}\n" for number in range(90))
    )
    return str(path)


@pytest.mark.parametrize("kind", ["attention", "lstm"])
def test_lines_of_different_lengths(lines: str, bits: Any, kind: str) -> None:
    """Steps behind a line's end have no label: they do not count, and their errors are 0."""
    described = tokens(steps=20)
    if kind == "lstm":
        described["layers"][1] = {"type": "lstm", "units": 5}
    keys: Table = {
        **TEXT,
        "network": described,
        "data": lines,
        "text_samples": "lines",
        "test_samples": 8,
    }
    plans = [emuchain.plan(**keys, devices=devices, micro_batch=4) for devices in (1, 3, 6)]
    runs = [emuchain.train(plan) for plan in plans]
    assert len(head_cuts(plans[-1])) > 1
    assert len({str(bits(run.weights)) for run in runs}) == 1
    described["layers"][-1] = {"type": "softmax"}
    whole = emuchain.train(**keys, devices=1)
    for column in MADE:
        expected = whole.history[column].tolist()
        assert {tuple(run.history[column].tolist()) for run in runs} == {
            tuple(runs[0].history[column].tolist())
        }
        assert runs[0].history[column].tolist() == pytest.approx(expected, rel=1e-6)
    assert runs[0].bits[0] == pytest.approx(whole.bits[0], rel=1e-6)


class Step:
    """One step of SGD without momentum at rate 1, from the same first weights: so it is the
    gradient.
    """

    def __init__(self, network: Table, **keys: Any) -> None:
        sizes: Table = {"batch": 16, "samples": 16, "momentum": 0.0, "weight_decay": 0.0}
        own: Table = {**TEXT, **sizes, "network": network, "seed": 5, **keys}
        self.first = emuchain.train(**{**own, "learning_rate": 1e-30})
        self.last = emuchain.train(**{**own, "learning_rate": 1.0})

    @property
    def gradient(self) -> Weights:
        first, last = self.first.weights, self.last.weights
        return {
            layer: {key: first[layer][key] - last[layer][key] for key in first[layer]}
            for layer in first
        }


def test_loss_and_gradients_of_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    described = gpt(24, 1, 3, 12)
    described["layers"][-1] = CLOSING
    step = Step(described, devices=3)
    network = load_network(described, symbols=lambda: 28)
    plan = emuchain.plan(**{**TEXT, "batch": 16, "samples": 16, "network": described, "seed": 5})
    data = _data(plan)
    twin = Twin(network, 5, step.first.weights["wte"]["positions"])
    loss = twin.loss(data.train_images.reshape(16, -1), data.train_labels) / (16 * 12)
    loss.backward()
    assert step.first.history["train_loss"][0] == pytest.approx(loss.item(), rel=1e-6)
    found = step.gradient["head"]["weight"]
    expected = twin.arrays["head/weight"].grad.numpy()
    # A step of rate 1 rounds weights, of at most 1, to 6e-8.
    assert (
        np.abs(found - expected.reshape(found.shape)).max() <= 3e-6 * np.abs(expected).max() + 1e-7
    )
    assert torch.isfinite(loss)


def _data(plan: Any) -> Dataset:
    from emuchain.emulator.plan import training_data

    return training_data(plan)


def test_resume_with_other_cuts(tmp_path: Path, bits: Any) -> None:
    saved = str(tmp_path / "run.ckpt")
    emuchain.train(**CASES["tokens without bias"], devices=5, epochs=1, checkpoint=saved)
    emuchain.train(**CASES["tokens"], devices=8, epochs=1, checkpoint=saved, micro_batch=4)
    others = {key: value for key, value in CASES["tokens"].items() if key != "network"}
    resumed = emuchain.train(**others, devices=3, epochs=2, resume=saved)
    assert bits(resumed.weights) == bits(
        emuchain.train(**CASES["tokens"], devices=1, epochs=2).weights
    )


def test_a_board_dies(tmp_path: Path, bits: Any) -> None:
    keys = {**CASES["tokens"], "devices": 5, "micro_batch": 4, "checkpoint_every": 1}
    whole_us = emuchain.simulate(emuchain.plan(**keys)).virtual_time_ps / 1e6
    file = tmp_path / "faults.toml"
    file.write_text(
        f"[faults]\n[[faults.deaths]]\nboard = 2\nat_us = {0.6 * whole_us}\ndetect_us ="
        " 10\nreload_us = 20\n"
    )
    hurt = emuchain.train(**keys, faults=str(file))
    assert bits(hurt.weights) == bits(emuchain.train(**CASES["tokens"], devices=1).weights)
    assert (
        hurt.virtual_time_ps
        == emuchain.simulate(emuchain.plan(**keys, faults=str(file))).virtual_time_ps
    )


def test_bits_flip_on_links(tmp_path: Path) -> None:
    """In the two numbers of a row that boards send; what the report has beside them stays."""
    keys = {**CASES["tokens"], "devices": 6}
    file = tmp_path / "faults.toml"
    flips = [
        f"[[faults.flips]]\nof = 'messages'\nlink = {link}\nrate = 1e-3\nhighest_bit = 12\n"
        for link in (3, 4)
    ]
    file.write_text("[faults]\n" + "".join(flips))
    hurt, well = emuchain.train(**keys, faults=str(file)), emuchain.train(**keys)
    assert hurt.history["train_loss"].tolist() != well.history["train_loss"].tolist()
    assert hurt.history["train_loss"].tolist() == pytest.approx(
        well.history["train_loss"].tolist(), rel=1e-3
    )


def test_it_sends_two_numbers_a_row() -> None:
    """By hand: 28 symbols in 9 rows; each link within the classifier has 8 bytes a row on paths 2
    and 3.
    """
    plan = emuchain.plan(**CASES["tokens"], devices=8)
    within = [
        {stream.path.value: stream.row_bytes for stream in plan.timing.links[device]}
        for device, slices in enumerate(plan.mapping.devices[:-1])
        if slices[-1].layer.name == "head" and not slices[-1].is_last
    ]
    assert len(within) >= 3
    assert within == [{1: 4 * 4, 2: 8, 3: 8, 4: 4 * 4}] * len(within)
    [cut] = {
        sum(
            part.kept_values
            for slices in plan.mapping.devices
            for part in slices
            if part.layer.name == "head"
        )
    }
    assert cut == 28 * 9


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda layers: layers.insert(-1, {"type": "relu"}),
            "softmax should directly follow a conv",
        ),
        (lambda layers: layers[-2].update(kernel=[3, 1], pad=[1, 0]), "a conv with `kernel` = 1"),
        (lambda layers: layers[-2].update(groups=2), "without groups, or an fc"),
        (lambda layers: layers[-1].update(vocabulary_parallel=1), "vocabulary_parallel"),
        (lambda layers: layers.pop(-2), "softmax should directly follow"),
    ],
)
def test_what_the_classifier_should_be(change: Callable[[Any], None], said: str) -> None:
    described = tokens()
    described["layers"] = [{**layer} for layer in described["layers"]]
    change(described["layers"])
    with pytest.raises(InputError) as error:
        load_network(described, symbols=lambda: 28)
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"label_smoothing": 0.1}, "`label_smoothing` = 0.1: needs the sum of all logits"),
        ({"precision": "nvfp4"}, "nvfp4"),
        ({"rtl_device": 1}, "has no RTL"),
    ],
)
def test_what_it_does_not_go_with(keys: Table, said: str) -> None:
    with pytest.raises(InputError) as error:
        emuchain.train(**{**CASES["images"], "samples": 32, "devices": 2, **keys})
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_pair_is_refused() -> None:
    layers = [{"type": "lstm", "units": 5}, conv(7, "head"), CLOSING]
    described = {"name": "pair", "input": [7, 5, 1], "layers": layers}
    with pytest.raises(InputError, match="`schedule` = 'farnn': a GPU has all logits"):
        emuchain.plan(described, "farnn-9p", schedule="farnn", batch=4)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks(
    references: dict[str, Any], mpiexec: Any, tmp_path: Path, bits: Any, ranks: int
) -> None:
    """Devices of the classifier on several ranks: each has the labels, and the last one makes the
    report.
    """
    out, program = tmp_path / "run.h5", tmp_path / "train.py"
    keys = {**CASES["tokens"], "devices": 7, "micro_batch": 4, "out": str(out)}
    program.write_text(
        "import emuchain\nfrom mpi4py import MPI\nemuchain.train(comm=MPI.COMM_WORLD,"
        f" **{keys!r})\n"
    )
    mpiexec(ranks, [str(program)], timeout=300)
    found, expected = emuchain.results(out), references["tokens"]
    assert bits(found.weights) == bits(expected.weights)
    for column in MADE:
        assert found.history[column].tolist() == expected.history[column].tolist(), column
