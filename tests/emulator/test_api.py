"""`import emuchain`: the same numbers as the command line's, from names, files, mappings and
plans.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain

TINY = {
    "name": "tiny",
    "input": [3, 32, 32],
    "layers": [
        {"type": "conv", "channels": 4, "kernel": 3, "stride": 2},
        {"type": "relu"},
        {"type": "fc", "features": 10},
        {"type": "softmax"},
    ],
}
PAIR = {
    "name": "pair",
    "boards": [{"name": "a", "clock_mhz": 100, "dsp": 500, "on_chip_memory_kbit": 8000}],
    "links": {"bandwidth_gbps": 3.2, "latency_ns": 100},
}
TOML = """name = "tiny"
input = [3, 32, 32]
layers = [
  { type = "conv", channels = 4, kernel = 3, stride = 2 },
  { type = "relu" },
  { type = "fc", features = 10 },
  { type = "softmax" },
]
"""


def command(*words: str) -> str:
    """What a command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "emuchain", *words], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_simulate_is_the_commands() -> None:
    found = emuchain.simulate("vgg16-cifar", "vc709-10g", devices=15, samples=256, epochs=2)
    words = (
        "simulate --network vgg16-cifar --cluster vc709-10g --devices 15 --samples 256 --epochs 2"
        " --json"
    )
    said = json.loads(command(*words.split()))
    assert list(found.epoch_ends_ps) == said["epoch_ends_ps"]
    assert found.virtual_time_ps == said["virtual_time_ps"]
    assert found.images_per_s == said["images_per_s"]
    state = emuchain.steady_state(found.plan)
    assert state.images_per_s == said["steady"]["images_per_s"]
    assert state.bottleneck.slowest.name == said["steady"]["bottleneck"]["slowest"]["name"]


def test_train_is_the_commands_and_simulate_has_its_times(
    small_cifar: Path, tmp_path: Path
) -> None:
    keys: dict[str, Any] = {"devices": 3, "samples": 64, "test_samples": 16, "batch": 16, "seed": 5}
    here = emuchain.train("quick-cifar", data=small_cifar, out=str(tmp_path / "here.h5"), **keys)
    words = [
        word for key, value in keys.items() for word in (f"--{key.replace('_', '-')}", str(value))
    ]
    command("train", *words, "--data", str(small_cifar), "--out", str(tmp_path / "there.h5"))
    there = emuchain.results(tmp_path / "there.h5")
    for other in (there, emuchain.results(tmp_path / "here.h5")):
        assert other.virtual_time_ps == here.virtual_time_ps
        assert other.test_accuracy == here.test_accuracy
        assert other.history["train_loss"].tolist() == here.history["train_loss"].tolist()
        for layer, arrays in here.weights.items():
            assert all(
                np.array_equal(other.weights[layer][name], array) for name, array in arrays.items()
            )
    assert emuchain.simulate("quick-cifar", **keys).virtual_time_ps == here.virtual_time_ps


def test_names_files_mappings_and_objects_are_alike(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TOML)
    sources = [TINY, str(tmp_path / "tiny.toml"), emuchain.load_network(TINY)]
    times = {
        emuchain.simulate(source, PAIR, devices=2, samples=64).virtual_time_ps for source in sources
    }
    assert len(times) == 1
    plan = emuchain.plan(TINY, emuchain.load_cluster(PAIR), devices=2, samples=64)
    assert {emuchain.simulate(plan).virtual_time_ps} == times


def test_changes_of_a_cluster() -> None:
    slow = emuchain.load_cluster("vc709", {"link.bandwidth_gbps": 1})
    assert slow.link.bandwidth_gbps == 1
    by_name = emuchain.plan("vgg16-cifar", "vc709", devices=15, changes={"link.bandwidth_gbps": 1})
    assert (
        by_name.timing.interval_ps
        == emuchain.plan("vgg16-cifar", slow, devices=15).timing.interval_ps
    )
    assert by_name.timing.interval_ps > emuchain.plan("vgg16-cifar", devices=15).timing.interval_ps


def test_a_sweep_has_the_rates_of_its_plans() -> None:
    gbps = [1, 10]
    sweep = emuchain.sweep(
        TINY, PAIR, devices=range(1, 4), changes={"link.bandwidth_gbps": gbps}, batch=32, jobs=2
    )
    assert [(row["link.bandwidth_gbps"], row["devices"]) for row in sweep.rows] == [
        (g, n) for g in gbps for n in (1, 2, 3)
    ]
    for row in sweep.rows:
        changes = {"link.bandwidth_gbps": row["link.bandwidth_gbps"]}
        plan = emuchain.plan(TINY, PAIR, devices=row["devices"], changes=changes, batch=32)
        assert row["images_per_s"] == emuchain.steady_state(plan).images_per_s
    assert sweep.best == max(sweep.rows, key=lambda row: (row["images_per_s"], -row["boards"]))


def test_pandas_takes_the_rows_of_a_sweep_as_they_are() -> None:
    pandas = pytest.importorskip("pandas")
    sweep = emuchain.sweep(TINY, PAIR, devices=[1, 2, 3], jobs=1)
    frame = pandas.DataFrame(sweep.rows)
    assert [*frame.columns] == [*sweep.rows[0]]
    assert frame["images_per_s"].dtype == np.float64
    assert frame.loc[frame["images_per_s"].idxmax(), "devices"] == sweep.best["devices"]  # type: ignore[index]


def test_train_with_a_data_set_and_a_callback() -> None:
    data = dataclasses.replace(emuchain.load_data("shapes").first(32).test_first(8), name="mine")
    seen = []
    plan = emuchain.plan(TINY, devices=2, batch=8, epochs=2)
    found = emuchain.train(
        plan, data=data, on_epoch=lambda result, weights: seen.append((result.epoch, set(weights)))
    )
    assert seen == [(1, {"conv1", "fc1"}), (2, {"conv1", "fc1"})]
    assert found.epochs == 2
    assert found.config["samples"] == 32
    with pytest.raises(emuchain.InputError, match=r"32x32|28x28|shape"):
        emuchain.train("lenet-mnist", data=data)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: emuchain.plan("vgg99"), "did you mean `vgg"),
        (lambda: emuchain.plan("quick-cifar", "vc708"), "did you mean `vc709`"),
        (lambda: emuchain.plan(batches=3), "unknown key `batches`"),
        (lambda: emuchain.plan(batch=0), "`batch` = 0"),
        (lambda: emuchain.plan(schedule="gpip"), "did you mean `gpipe`"),
        (
            lambda: emuchain.plan(TINY, PAIR, changes={"link.speed": 3}),
            "changes: unknown key `link.speed`",
        ),
        (
            lambda: emuchain.plan(TINY, PAIR, changes={"link.bandwidth_gbps": 0}),
            "changes: `links.bandwidth_gbps` = 0",
        ),
        (
            lambda: emuchain.plan(
                TINY, emuchain.load_cluster(PAIR), changes={"link.latency_ns": 3}
            ),
            "`changes`",
        ),
        (
            lambda: emuchain.simulate(emuchain.plan(TINY, PAIR, devices=2), batch=3),
            "`batch`: a plan has its settings",
        ),
        (lambda: emuchain.load_network({**TINY, "layers": []}), "layers"),
        (lambda: emuchain.load_network({**TINY, "inputs": 3}), "unknown key `inputs`"),
        (
            lambda: emuchain.load_cluster(
                {**PAIR, "links": {"bandwidth_gbps": -1, "latency_ns": 0}}
            ),
            "bandwidth_gbps",
        ),
        (lambda: emuchain.sweep(TINY, PAIR, devices=[0, 1]), "sweep: `devices` = 0"),
        (lambda: emuchain.sweep(TINY, PAIR, seed=[1, 2]), "`seed`: is of type list"),
        (lambda: emuchain.sweep(TINY, PAIR, seed=3), "`seed` = 3: draws points of a front"),
        (
            lambda: emuchain.sweep(TINY, PAIR, learning_rate=[1, 2]),
            "sweep: `learning_rate` cannot be swept",
        ),
        (lambda: emuchain.results("nowhere.h5"), "nowhere.h5"),
        (
            lambda: emuchain.train(TINY, samples=8, batch=8, out="/proc/nowhere/run.h5"),
            "/proc/nowhere",
        ),
    ],
)
def test_what_cannot_be_used_is_reported_in_a_line(one_line: Any, call: Any, message: str) -> None:
    with pytest.raises(emuchain.InputError) as error:
        call()
    assert message in one_line(error)


def test_values_are_frozen_and_say_what_they_are() -> None:
    plan = emuchain.plan("vgg16-cifar", devices=15)
    simulation = emuchain.simulate("quick-cifar", devices=2, samples=64)
    state = emuchain.steady_state(plan)
    assert (
        repr(plan)
        == f"<Plan vgg16-cifar on 15 x VC709, {1e12 / plan.timing.interval_ps:.1f} images/s,"
        f" limited by {state.bottleneck.slowest.name}>"
    )
    assert repr(plan.network) == "<Network vgg16-cifar: 16 layers, 313.7 MMAC, 15.25 M parameters>"
    assert repr(plan.cluster) == "<Cluster vc709: VC709, links of 150 Gb/s and 1.00 us>"
    assert (
        repr(state) == f"<SteadyState: {state.images_per_s:.1f} images/s, limited by"
        f" {state.bottleneck.slowest.name}>"
    )
    assert state.images_per_s == 1e12 / plan.timing.interval_ps
    assert repr(simulation).startswith("<Simulation of 1 x 64 images in ")
    for value in (plan, plan.cluster, simulation, state):
        name = dataclasses.fields(value)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, name, None)


def test_everything_exported_is_documented() -> None:
    assert set(emuchain.__all__) <= set(dir(emuchain))
    for name in emuchain.__all__:
        if name != "__version__":
            assert getattr(emuchain, name).__doc__, name
