"""Recurrent networks on the chain: cut, micro-batches and schedules that drain change no bit of
what is trained.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from emuchain.emulator.config import load_config
from emuchain.emulator.mapping import Mapping, Slice
from emuchain.emulator.network import load_network
from emuchain.emulator.plan import ChainPlan, make_plan, training_data
from emuchain.emulator.run import simulate
from emuchain.kernels.form import FORMS, SETTING

from .sequences import (
    BATCH,
    Table,
    bits_of,
    by_units,
    mapped,
    most_parts,
    network,
    plan_of,
    recurrent,
    sequences,
    trained,
)

KINDS = ["lstm", "gru"]
NETWORKS: dict[str, Table] = {
    "lstm": network(recurrent("lstm")),
    "gru": network(recurrent("gru"), end="last"),
    "two": network(recurrent("lstm", 20), recurrent("gru"), end="last"),
    "bidirectional": network(
        recurrent("lstm", 20, bidirectional=True), recurrent("gru", 7, bidirectional=True)
    ),
    "projection": network(recurrent("lstm", 20, projection=11), recurrent("lstm", 48)),
    "reset before": network(recurrent("gru", 20, reset="before"), recurrent("gru", 48), end="last"),
    "each step": network(recurrent("lstm"), end="each"),
}


def data_of(name: str) -> Any:
    return sequences(each_step=name == "each step")


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, bytes]]:
    """The bits of each network on one device under `sync`, in micro-batches of 4."""
    return {
        name: bits_of(plan_of(described, devices=1), data_of(name))
        for name, described in NETWORKS.items()
    }


@pytest.mark.parametrize("name", NETWORKS)
def test_every_weight_is_trained(alone: dict[str, dict[str, bytes]], name: str) -> None:
    other = bits_of(plan_of(NETWORKS[name], devices=1, learning_rate=0.11), data_of(name))
    assert other.keys() == alone[name].keys()
    assert not [array for array in other if other[array] == alone[name][array]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("micro_batch", [1, 16])
def test_micro_batches(alone: dict[str, dict[str, bytes]], kind: str, micro_batch: int) -> None:
    assert (
        bits_of(plan_of(NETWORKS[kind], devices=1, micro_batch=micro_batch), data_of(kind))
        == alone[kind]
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("devices", "micro_batch"), [(2, 4), (3, 1), (5, 16), (7, 4)])
def test_cut_by_units(
    alone: dict[str, dict[str, bytes]], kind: str, devices: int, micro_batch: int
) -> None:
    plan = by_units(plan_of(NETWORKS[kind], devices=devices, micro_batch=micro_batch))
    assert most_parts(plan) >= devices - 1
    assert bits_of(plan, data_of(kind)) == alone[kind]


def test_a_cut_into_single_units(alone: dict[str, dict[str, bytes]]) -> None:
    """Slices of one unit at both ends and one in the middle."""
    plan = plan_of(NETWORKS["lstm"], devices=3)
    recurs, other = plan.network.layers
    places = [0, 1, 47, 48]
    parts = [Slice(recurs, *ends) for ends in itertools.pairwise(places)]
    devices = (*((part,) for part in parts[:2]), (parts[2], Slice(other, 0, 48)))
    assert other.input[0] == 48
    assert bits_of(mapped(plan, Mapping(plan.network, devices)), data_of("lstm")) == alone["lstm"]


@pytest.mark.parametrize(
    "name", ["two", "bidirectional", "projection", "reset before", "each step"]
)
@pytest.mark.parametrize("devices", [2, 3])
def test_other_networks(alone: dict[str, dict[str, bytes]], name: str, devices: int) -> None:
    plan = plan_of(NETWORKS[name], devices=devices, micro_batch=3)
    assert bits_of(plan, data_of(name)) == alone[name]
    assert bits_of(by_units(plan), data_of(name)) == alone[name]


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("name", NETWORKS)
def test_recomputed_layers(alone: dict[str, dict[str, bytes]], name: str, devices: int) -> None:
    """States and gates of all steps come again, with the bits of a run that keeps them."""
    again = {"engines": "turns", "schedule": "zero-bubble", "recompute": "all"}
    assert bits_of(plan_of(NETWORKS[name], devices=devices, **again), data_of(name)) == alone[name]


DRAIN: dict[str, Table] = {
    "gpipe": {"schedule": "gpipe"},
    "1f1b-as": {"schedule": "1f1b-as"},
    "1f1b-so": {"schedule": "1f1b-so"},
    "1f1b-sno": {"schedule": "1f1b-sno"},
    "zero-bubble": {"schedule": "zero-bubble"},
    "fbp-as": {"schedule": "fbp-as"},
    "interleaved": {"schedule": "interleaved", "devices": 2, "chunks": 2},
    "turns": {"schedule": "1f1b-as", "engines": "turns"},
    "shared": {"schedule": "fbp-as", "engines": "shared"},
}


@pytest.mark.parametrize("name", DRAIN)
def test_schedules_that_drain(alone: dict[str, dict[str, bytes]], name: str) -> None:
    plan = plan_of(NETWORKS["two"], **{"devices": 3, **DRAIN[name]})
    assert bits_of(plan, data_of("two")) == alone["two"]
    if plan.times_rows and "chunks" not in DRAIN[name]:
        assert most_parts(by_units(plan)) > 1
        assert bits_of(by_units(plan), data_of("two")) == alone["two"]


SCHEDULES = [*DRAIN, "sync", "fpdeep", "pipedream", "2bw"]


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("samples", [40, 28])
def test_training_takes_the_time_that_simulation_says(name: str, samples: int) -> None:
    keys = {"devices": 3, "samples": samples, **DRAIN.get(name, {"schedule": name})}
    plan = plan_of(NETWORKS["two"], **keys)
    _, history = _trained(plan, samples)
    assert history[-1].virtual_time_ps == simulate(plan, plan.config.samples).virtual_time_ps


@pytest.mark.parametrize("schedule", ["sync", "1f1b-so", "pipedream"])
def test_training_of_cut_layers_takes_the_time_that_simulation_says(schedule: str) -> None:
    plan = by_units(plan_of(NETWORKS["two"], devices=5, schedule=schedule))
    assert most_parts(plan) > 1
    _, history = _trained(plan, 40)
    assert history[-1].virtual_time_ps == simulate(plan, plan.config.samples).virtual_time_ps


def _trained(plan: ChainPlan, samples: int) -> Any:
    return trained(plan, sequences(samples=samples))


REPLICAS: dict[str, Table] = {
    "ring": {"schedule": "data-parallel-ring", "devices": 2},
    "chains": {"schedule": "sync", "replicas": 2, "devices": 3},
    "cut chains": {"schedule": "sync", "replicas": 2, "devices": 5},
    "aggregator": {"schedule": "sync", "replicas": 2, "devices": 3, "exchange": "aggregator"},
}


@pytest.mark.parametrize("name", ["two", "bidirectional", "projection"])
def test_replicas(name: str) -> None:
    """Chains of any cut give the bits of replicas of one device; these differ from one chain's by
    rounding alone.
    """
    data, found = data_of(name), {}
    for kind, keys in REPLICAS.items():
        plan = plan_of(NETWORKS[name], **keys)
        weights, history = trained(plan, data)
        assert history[-1].virtual_time_ps == simulate(plan, plan.config.samples).virtual_time_ps
        found[kind] = {f"{layer}/{key}": of[key] for layer, of in weights.items() for key in of}
    single, _ = trained(plan_of(NETWORKS[name], devices=1), data)
    for layer, arrays in single.items():
        for key, array in arrays.items():
            of_ring = found["ring"][f"{layer}/{key}"]
            assert np.allclose(of_ring, array, rtol=1e-3, atol=1e-5), f"{layer}/{key}"
            for kind in ("chains", "cut chains"):
                assert found[kind][f"{layer}/{key}"].tobytes() == of_ring.tobytes(), (
                    kind,
                    layer,
                    key,
                )


# Texts with samples of different lengths.

LINES = "".join(f"{'ab cd' * (number % 4)}{'xyz'[number % 3]}{number}\n" for number in range(90))


def text_network(*layers: Table) -> Table:
    named = [{"name": f"r{number}", **layer} for number, layer in enumerate(layers)]
    ends = [{"type": "conv", "channels": "symbols", "kernel": 1}, {"type": "softmax"}]
    operations = [{"type": "embedding", "features": 6}, *named, *ends]
    return {"name": "lines", "symbols": 20, "input": ["symbols", 9, 1], "layers": operations}


TEXTS = {
    "lstm": text_network(recurrent("lstm", 12)),
    "gru": text_network(recurrent("gru", 12), recurrent("gru", 5)),
    "bidirectional": text_network(recurrent("lstm", 9, bidirectional=True), recurrent("gru", 8)),
    "projection": text_network(recurrent("lstm", 9, projection=4), recurrent("lstm", 8)),
}


@pytest.fixture
def lines(tmp_path: Path) -> str:
    path = tmp_path / "lines.txt"
    path.write_text(LINES)
    return str(path)


def text_plan(described: Table, path: str, **keys: Any) -> ChainPlan:
    run = {
        "batch": BATCH,
        "micro_batch": 5,
        "data": path,
        "epochs": 2,
        "learning_rate": 0.1,
        "schedule": "sync",
    }
    symbols = len(set(LINES))
    found = load_network(described, symbols=lambda: symbols)
    return make_plan(load_config(None, {**run, **keys}), network=found)


@pytest.mark.parametrize("name", TEXTS)
def test_lines_of_different_lengths(lines: str, name: str) -> None:
    one = text_plan(TEXTS[name], lines, devices=1, text_samples="lines")
    data = training_data(one)
    assert data.train_lengths is not None and len(set(data.train_lengths.tolist())) > 3
    expected = bits_of(one, data)
    assert expected != bits_of(
        text_plan(TEXTS[name], lines, devices=1), training_data(text_plan(TEXTS[name], lines))
    )
    assert (
        bits_of(text_plan(TEXTS[name], lines, devices=1, text_samples="lines", micro_batch=1), data)
        == expected
    )
    for devices in (2, 3):
        plan = text_plan(TEXTS[name], lines, devices=devices, text_samples="lines")
        assert bits_of(plan, data) == expected
        cut = by_units(plan)
        assert bits_of(cut, data) == expected
    again = {"engines": "turns", "schedule": "gpipe", "recompute": "all"}
    plan = text_plan(TEXTS[name], lines, devices=2, text_samples="lines", **again)
    assert bits_of(plan, data) == expected


def test_padding_changes_nothing(lines: str) -> None:
    """The same lines in longer rows of padding."""
    one = text_plan(TEXTS["bidirectional"], lines, devices=1, text_samples="lines")
    data = training_data(one)
    assert data.train_lengths is not None
    kept = data.train_images.copy()
    beyond = np.arange(kept.shape[2]) >= data.train_lengths[:, None]
    assert beyond.any()
    kept[:, 0, :, 0][beyond] = 1 - np.minimum(kept[:, 0, :, 0][beyond], 1)
    assert not np.array_equal(kept, data.train_images)
    assert bits_of(one, dataclasses.replace(data, train_images=kept)) == bits_of(one, data)


# Other processes.

FLAGS = [
    "--network",
    "lstm-rows",
    "--schedule",
    "sync",
    "--samples",
    "24",
    "--test-samples",
    "4",
    "--batch",
    "8",
]


def file_bits(path: Path) -> dict[str, bytes]:
    with h5py.File(path) as file:
        arrays = {
            f"{layer}/{name}": of[name][()].tobytes()
            for layer, of in file["weights"].items()
            for name in of
        }
    assert len(arrays) == 6
    return arrays


# In Python, which compiles the kernels that it uses; the command would compile all of them in each
# form.
TRAIN = """
import sys
import emuchain
for devices in (1, 3):
    out = f"{sys.argv[1]}{devices}.h5"
    emuchain.train("lstm-rows", schedule="sync", devices=devices, samples=24, test_samples=4, batch=8, out=out)
"""


@pytest.mark.exhaustive  # test_slices.py has the forms of the kernels
@pytest.mark.slow
def test_every_form_of_the_kernels(tmp_path: Path) -> None:
    found = {}
    for form in FORMS:
        command = [sys.executable, "-c", TRAIN, str(tmp_path / form)]
        subprocess.run(
            command, check=True, env={**os.environ, SETTING: form}, capture_output=True, timeout=300
        )
        found |= {
            (form, devices): file_bits(tmp_path / f"{form}{devices}.h5") for devices in (1, 3)
        }
    assert len(found) == 2 * len(FORMS)
    assert all(each == found["portable", 1] for each in found.values())


@pytest.mark.parametrize(
    ("mpiexec", "ranks", "devices"), [("mpich", 2, 3), ("openmpi", 3, 5)], indirect=["mpiexec"]
)
def test_ranks(mpiexec: Any, tmp_path: Path, ranks: int, devices: int) -> None:
    found = []
    for count in (1, ranks):
        out = tmp_path / f"{count}.h5"
        flags = [*FLAGS, "--devices", str(1 if count == 1 else devices), "--out", str(out)]
        mpiexec(count, ["-m", "emuchain", "train", *flags], timeout=300)
        found.append(file_bits(out))
    assert found[0] == found[1]
