"""Studies of trained runs: each row is what its run reaches alone, whatever the number of
processes; means, failures, and files from which a study goes on.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click.testing
import numpy as np
import pytest

import emuchain
from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.commands.frame.session import Session
from emuchain.emulator.common import InputError
from emuchain.emulator.studies import Study, run_study, study_keys

OneLine = Callable[..., str]
RANDOM = np.random.default_rng(5)
INPUTS, CLASSES = RANDOM.normal(size=(30, 6)).astype(np.float32), np.arange(30) % 3
DATA = emuchain.as_data((INPUTS, CLASSES), (INPUTS[:9], CLASSES[:9]))
MLP = {
    "name": "mlp",
    "input": [6, 1, 1],
    "layers": [
        *({"type": "fc", "features": 8}, {"type": "relu"}),
        *({"type": "fc", "features": 3}, {"type": "softmax"}),
    ],
}
KEYS: dict[str, Any] = {"batch": 10, "epochs": 2}


def study(**keys: Any) -> Study:
    """Two schedules and two rates, of which one makes training diverge."""
    varied = {"schedule": ["sync", "fpdeep"], "learning_rate": [0.1, 1e30]}
    return emuchain.study(MLP, data=DATA, **{**KEYS, "seeds": 2, "jobs": 1, **varied, **keys})


@pytest.fixture(scope="module")
def whole() -> Study:
    """The study in one process."""
    return study()


def test_a_row_is_what_its_run_reaches_alone(whole: Study) -> None:
    assert len(whole.rows) == 8
    for row in whole.rows:
        own = {key: row[key] for key in ("schedule", "learning_rate", "seed")}
        if row["error"] is not None:
            assert row["learning_rate"] == 1e30
            assert "training diverged" in row["error"]
            continue
        run = emuchain.train(MLP, data=DATA, progress="none", **KEYS, **own)
        for name in ("train_loss", "test_loss", "test_accuracy", "virtual_time_ps"):
            assert row[name] == run.history[name][-1]
        assert row["samples_per_s"] == pytest.approx(run.images_per_s)
    assert {row["error"] is None for row in whole.rows} == {True, False}


def test_means_and_standard_errors(whole: Study) -> None:
    counts = {(row["learning_rate"], row["seeds"], row["failed"]) for row in whole.means}
    assert counts == {(0.1, 2, 0), (1e30, 0, 2)}
    for mean in whole.means:
        own = [
            row["test_loss"]
            for row in whole.rows
            if all(row[key] == mean[key] for key in whole.varied) and row["error"] is None
        ]
        if not own:
            assert mean["test_loss"] is None
            assert "training diverged" in mean["error"]
            continue
        assert mean["test_loss"] == statistics.mean(own)
        assert mean["test_loss_error"] == pytest.approx(statistics.stdev(own) / 2**0.5)
    best = whole.best
    assert best is not None
    assert best["test_accuracy"] == max(row["test_accuracy"] or 0 for row in whole.means)
    assert sum(int(line.partition(" run")[0]) for line in whole.failures) == 4


def test_processes_change_nothing(whole: Study) -> None:
    assert study(jobs=2).rows == whole.rows


def test_a_study_goes_on_from_its_file(
    whole: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_line: OneLine
) -> None:
    path = tmp_path / "study.csv"
    assert study(csv=path).rows == whole.rows
    finished = path.read_text()
    lines = finished.splitlines(keepends=True)
    path.write_text("".join(lines[:4]) + lines[4][:20])
    trained = []

    def counted(task: Any) -> Any:
        trained.append(task[0].keys)
        return from_task(task)

    from emuchain.emulator.studies import trained as module

    from_task = module.train_point
    monkeypatch.setattr(module, "train_point", counted)
    assert study(csv=path).rows == whole.rows
    assert len(trained) == 5
    assert path.read_text() == finished
    assert study(csv=path).rows == whole.rows
    assert len(trained) == 5
    with pytest.raises(InputError, match="are not of this sweep") as error:
        study(csv=path, epochs=3)
    assert one_line(error)


def test_numbers_are_compared_by_their_loss() -> None:
    network = {**MLP, "layers": [*MLP["layers"][:-1], {"type": "mse"}]}
    data = INPUTS, INPUTS[:, :3]
    made = emuchain.study(network, data=data, **KEYS, seeds=1, jobs=1, learning_rate=[0.1, 1e-6])
    assert made.measure == "test_loss"
    best = made.best
    assert best is not None and best["test_loss"] == min(row["test_loss"] for row in made.means)
    assert best["test_loss_error"] is None
    assert "one seed" in repr(made)


def test_weights_of_a_model_are_where_runs_begin() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, whose model this is, is missing")
    pytest.importorskip("onnxscript", reason="PyTorch's exporter needs it")
    network = emuchain.from_torch(torch.nn.Linear(6, 3), torch.zeros(2, 6))
    keys: dict[str, Any] = {**KEYS, "learning_rate": 1e-30, "weight_decay": 0, "epochs": 1}
    made = emuchain.study(network, data=DATA, seeds=2, jobs=1, **keys)
    assert made.rows[0]["test_loss"] == pytest.approx(made.rows[1]["test_loss"], rel=1e-6)


def test_what_is_refused(one_line: OneLine) -> None:
    for keys, said in (
        ({"out": "run.h5"}, "`out` cannot be swept"),
        ({"seeds": 0}, "`seeds` = 0: should be from 1"),
        ({"schedule": ["sync", "nothing"]}, "schedule"),
        ({"mean": [[0.5], [0.6]]}, "`mean`: has several values"),
    ):
        with pytest.raises(InputError) as error:
            study(**keys)
        assert said in one_line(error)
    assert not {"out", "seed", "resume"} & {*study_keys()}
    with pytest.raises(InputError, match="should be from 1 to 1,000"):
        run_study({"network": "quick-cifar"}, 2000)


def test_the_command_says_what_python_has(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", inputs=INPUTS, targets=CLASSES)
    network = tmp_path / "mlp.toml"
    network.write_text(emuchain.load_network(MLP).text)
    words = ["study", "train", str(network), "--data", str(tmp_path / "own.npz"), "--batch", "10"]
    words += ["--learning-rate", "0.1,1e30", "--seeds", "2", "--jobs", "1"]
    run = click.testing.CliRunner().invoke(commands, [*words, "--json"], obj=Session())
    assert run.exit_code == 0, run.output
    said = json.loads(run.stdout)
    made = emuchain.study(
        network, data=tmp_path / "own.npz", batch=10, learning_rate=[0.1, 1e30], seeds=2, jobs=1
    )
    assert said == json.loads(json.dumps(made.to_dict()))
    picture = tmp_path / "study.png"
    shown = click.testing.CliRunner().invoke(
        commands, [*words, "--plot", str(picture)], obj=Session()
    )
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("best: learning_rate = 0.1: test accuracy")
    assert "training diverged" in " ".join(shown.stdout.split())
    assert picture.read_bytes().startswith(b"\x89PNG")
