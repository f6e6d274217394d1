"""Several seeds of one run: each is a run of its seed alone, to the bit, and means are those of
their histories.
"""

from __future__ import annotations

import re
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.run import SeedRuns, own_name

KEYS: dict[str, Any] = {"samples": 64, "test_samples": 32, "batch": 16, "epochs": 2, "devices": 2}
WORDS = [
    "quick-cifar",
    *(f"--{key.replace('_', '-')}={value}" for key, value in KEYS.items()),
    "--progress",
    "none",
]
SEEDS = (5, 6, 7)


@pytest.fixture(scope="module")
def alone() -> list[emuchain.Results]:
    """Three runs of one seed."""
    return [emuchain.train("quick-cifar", seed=seed, **KEYS) for seed in SEEDS]


def same_bits(one: emuchain.Results, other: emuchain.Results) -> bool:
    return one.virtual_time_ps == other.virtual_time_ps and all(
        np.array_equal(array, other.weights[layer][name])
        for layer, arrays in one.weights.items()
        for name, array in arrays.items()
    )


def test_seeds_are_runs_of_one_seed(alone: list[emuchain.Results], tmp_path: Path) -> None:
    runs = emuchain.train("quick-cifar", seeds=3, seed=5, out=str(tmp_path / "run.h5"), **KEYS)
    assert isinstance(runs, SeedRuns)
    assert runs.seeds == SEEDS
    assert all(map(same_bits, runs.results, alone))
    files = [tmp_path / f"run-seed{seed}.h5" for seed in SEEDS]
    assert sorted(tmp_path.glob("*.h5")) == files
    assert all(
        same_bits(emuchain.results(file), run) for file, run in zip(files, alone, strict=True)
    )


def test_means_and_standard_errors(alone: list[emuchain.Results]) -> None:
    runs = SeedRuns(tuple(alone))
    for column in ("train_loss", "test_accuracy"):
        for epoch, mean in enumerate(runs.curve(column)):
            values = [float(run.history[column][epoch]) for run in alone]
            assert mean.value == pytest.approx(statistics.mean(values))
            assert mean.error == pytest.approx(statistics.stdev(values) / 3**0.5)
    assert runs.test_accuracy is not None
    assert runs.test_accuracy.value == pytest.approx(
        statistics.mean(run.test_accuracy or 0 for run in alone)
    )
    assert runs.train_loss == runs.curve("train_loss")[-1]


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_command(
    mpiexec: Any, alone: list[emuchain.Results], tmp_path: Path, ranks: int
) -> None:
    out = tmp_path / "run.h5"
    said = mpiexec(
        ranks, ["-m", "emuchain", "train", *WORDS, "--seed=5", "--seeds=3", "--out", str(out)]
    ).stdout
    runs = SeedRuns(tuple(alone))
    assert runs.test_accuracy is not None
    accuracy, loss = runs.test_accuracy.times(100), runs.train_loss
    first, second, *_ = said.splitlines()
    assert (
        first == f"test accuracy {accuracy.shown(2)} %, train loss {loss.shown(4)} after 2 epochs"
    )
    assert second == "mean ± standard error of 3 seeds: 5, 6, 7"
    for seed, run in zip(SEEDS, alone, strict=True):
        assert same_bits(emuchain.results(own_name(str(out), f"seed{seed}")), run)
        assert re.search(rf"^ +{seed} +{100 * (run.test_accuracy or 0):.2f} %", said, re.MULTILINE)
    assert f"next: emuchain report {own_name(str(out), 'seed5')}" in " ".join(said.split())


class Killed(Exception):
    """What ends a run."""


def train_until(epochs: int, **keys: Any) -> SeedRuns:
    """Train the seeds, but for what comes after some epochs of all of them together."""
    left = iter(range(epochs))

    def count(*_: object) -> None:
        if next(left, None) is None:
            raise Killed

    return emuchain.train("quick-cifar", seeds=3, seed=5, on_epoch=count, **{**KEYS, **keys})


@pytest.mark.parametrize("done", range(1, 6))
def test_seeds_go_on_wherever_they_were(
    alone: list[emuchain.Results], tmp_path: Path, done: int
) -> None:
    """Two of each seed's epochs are done, and those only once."""
    files = {key: str(tmp_path / f"run.{key}") for key in ("checkpoint", "out")}
    with pytest.raises(Killed):
        train_until(done, **files)
    seen: list[int] = []
    runs = emuchain.train(
        "quick-cifar",
        seeds=3,
        seed=5,
        resume=files["checkpoint"],
        on_epoch=lambda result, _: seen.append(result.epoch),
    )
    assert runs.seeds == SEEDS
    assert all(map(same_bits, runs.results, alone))
    written = [emuchain.results(own_name(files["out"], f"seed{seed}")) for seed in SEEDS]
    assert all(map(same_bits, written, alone))
    begun = -(-done // 2)  # of which each trains its second epoch, or reports it again
    assert seen == [2] * begun + [1, 2] * (3 - begun)


def test_checkpoints_of_other_runs_are_replaced(tmp_path: Path) -> None:
    """A finished run on another cluster has left its own under the same names."""
    file = str(tmp_path / "run.ckpt")
    drained = {"schedule": "sync"}
    emuchain.train("quick-cifar", seeds=3, seed=5, checkpoint=file, **KEYS, **drained)
    slow = {**drained, "cluster": "vc709-10g"}
    with pytest.raises(Killed):
        train_until(1, checkpoint=file, **slow)
    runs = emuchain.train("quick-cifar", seeds=3, seed=5, resume=file)
    expected = emuchain.train("quick-cifar", seeds=3, seed=5, **KEYS, **slow)
    assert all(map(same_bits, runs.results, expected.results))


def test_more_seeds_and_epochs_of_finished_runs(tmp_path: Path) -> None:
    first, later = str(tmp_path / "run.ckpt"), str(tmp_path / "later.ckpt")
    emuchain.train("quick-cifar", seeds=1, seed=5, checkpoint=first, **{**KEYS, "epochs": 1})
    runs = emuchain.train("quick-cifar", seeds=2, seed=5, resume=first, epochs=2, checkpoint=later)
    expected = emuchain.train("quick-cifar", seeds=2, seed=5, **KEYS)
    assert all(map(same_bits, runs.results, expected.results))
    again = emuchain.train(
        "quick-cifar", seeds=2, seed=5, resume=later, checkpoint=str(tmp_path / "last.ckpt")
    )
    assert all(map(same_bits, again.results, expected.results))
    assert sorted(path.name for path in tmp_path.glob("last*")) == [
        "last-seed5.ckpt",
        "last-seed6.ckpt",
    ]


def test_a_control_of_each_seed(mpiexec: Any) -> None:
    keys = {**KEYS, "epochs": 1, "replicas": 2}
    words = [f"--{key.replace('_', '-')}={value}" for key, value in keys.items()]
    codec = ["--compress", "topk:0.05", "--seeds", "2", "--control", "--progress", "none"]
    said = mpiexec(1, ["-m", "emuchain", "train", "quick-cifar", *words, *codec]).stdout
    lossy = emuchain.train("quick-cifar", seeds=2, compress="topk:0.05", **keys)
    plain = emuchain.train("quick-cifar", seeds=2, **keys)
    changes = [
        100 * ((one.test_accuracy or 0) - (other.test_accuracy or 0))
        for one, other in zip(lossy.results, plain.results, strict=True)
    ]
    error = statistics.stdev(changes) / 2**0.5
    mean = statistics.mean(changes)
    assert said.startswith(
        f"codec changes test accuracy by {mean:+.2f} ± {error:.2f} points, seed by seed\n"
    )
    assert plain.test_accuracy is not None
    assert f"without codec: test accuracy {plain.test_accuracy.times(100).shown(2)} %" in said


BAD: dict[str, tuple[list[str], str]] = {
    "none": (["--seeds", "0"], "0 is not in the range"),
    "a list": (["--seeds", "0,1,2"], "`--seed 0 --seeds 3`"),
    "a range": (["--seeds", "5-8"], "`--seed 5 --seeds 4`"),
    "some": (
        ["--seeds", "2,5"],
        "--seed sets the first seed, and --seeds says how many: such as `--seed 5 --seeds 3`",
    ),
    "a thousand and one": (
        ["--seeds", "1001"],
        "`seeds` = 1001: should be from 1 to 1,000; the mean's standard error",
    ),
    "more than memory": (
        ["--seeds", "1000000000"],
        "`seeds` = 1000000000: should be from 1 to 1,000",
    ),
    "resume": (
        ["--seeds", "2", "--resume", "run.ckpt"],
        "`resume` = 'run-seed1.ckpt': no such file",
    ),
    "a timeline": (["--seeds", "2", "--trace", "t.json"], "`--trace`: is for one run"),
    "the last seeds": (
        ["--seeds", "2", "--seed", str((1 << 63) - 1)],
        "there are not as many below 2^63",
    ),
    "an input": (["--seeds", "2", "--out", "run.h5", "--init", "run-seed2.h5"], "run-seed2.h5"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(mpiexec: Any, one_line: Any, name: str) -> None:
    words, message = BAD[name]
    assert message in one_line(
        mpiexec(1, ["-m", "emuchain", "train", *WORDS, *words], status=2).stderr
    )


def test_python_refuses_a_plan() -> None:
    with pytest.raises(InputError, match="`seeds`: trains several times"):
        emuchain.train(emuchain.plan("quick-cifar"), seeds=2)  # type: ignore[call-overload]  # what the test is about
