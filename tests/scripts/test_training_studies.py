"""`scripts/convergence`, `scripts/gradients` and `scripts/evidence`: small runs, and what they
print of them.
"""

import argparse
import dataclasses
import itertools
import json
import statistics
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import emuchain
from emuchain.emulator.run import results_of, write_results
from emuchain.papers.fpdeep.runs import read_runs
from emuchain.papers.inceptionn.runs import FILE, Runs


def test_which_runs_a_seed_makes(load: Any) -> None:
    gradients = load("gradients")
    every = gradients.variants(False)
    assert len(every) == len(set(every)) == 1 + 6 + 9
    widths = gradients.variants(True)
    assert {variant.gradients for variant in widths} == {"none", *gradients.INCEPTIONN}
    assert {variant.weights for variant in widths} == {"none"}


def test_a_run_with_the_codec_goes_on(load: Any) -> None:
    gradients = load("gradients")
    args = argparse.Namespace(epochs=5, widths=False)
    epochs = [
        gradients.epochs_of(gradients.Variant(*pair), args)
        for pair in (("none",), ("inceptionn:-8",), ("truncate:16",))
    ]
    assert epochs == [5, 7, 5]
    args.widths = True
    assert gradients.epochs_of(gradients.Variant("inceptionn:-8"), args) == 5


@pytest.mark.slow
def test_gradients_in_pytorch(run_script: Any, small_cifar: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    words = [small_cifar, "--network", "resnet8-cifar", "--batch", 4, "--steps", 2]
    head, first, second, *means = run_script(
        "torch-gradients", *words, cwd=tmp_path
    ).stdout.splitlines()
    assert head.split()[:2] == ["step", "loss"]
    for number, line in enumerate((first, second), start=1):
        step, loss, *shares = line.replace("%", "").split()
        assert int(step) == number and 0 < float(loss) < 50
        assert list(map(float, shares)) == sorted(map(float, shares))
    assert [line.partition(":")[0] for line in means] == ["2^-10", "2^-8", "2^-6"]
    for wrong, message in (
        (["--network", "vgg11"], "resnet50, resnet8-cifar are"),
        (["--network", "resnet51"], "did you mean `resnet50`"),
    ):
        assert (
            message
            in run_script("torch-gradients", small_cifar, *wrong, cwd=tmp_path, status=2).stderr
        )


@pytest.mark.sampled(3)
@pytest.mark.slow
def test_gradients_and_evidence(run_script: Any, small_cifar: Path, tmp_path: Path) -> None:
    words = [
        "--network",
        "quick-cifar",
        "--data",
        small_cifar,
        "--samples",
        40,
        "--test-samples",
        20,
        "--epochs",
        3,
    ]
    words += [
        "--batch",
        20,
        "--learning-rate",
        0.01,
        "--seeds",
        "1,2",
        "--widths",
        "--runs",
        tmp_path / "runs",
    ]
    printed = run_script("gradients", *words, cwd=tmp_path).stdout
    files = sorted((tmp_path / "runs").glob("*.h5"))
    assert len(files) == 7 + 7
    rows = printed[printed.index("quick-cifar, 4 workers, 3 epochs\n") :].splitlines()[2:]
    assert len(rows) == len(files)
    with h5py.File(tmp_path / "runs" / "quick-cifar-g-inceptionn-10-w-none-40x3-seed2.h5") as file:
        accuracy = file["history/test_accuracy"][()] * 100
    [row] = (row for row in rows if row.split()[:2] == ["2", "inceptionn:-10"])
    assert row.endswith(" ".join(f"{value:6.2f}" for value in accuracy[2:]))
    assert len(accuracy) == 3 + 2

    before = {path: path.stat().st_mtime_ns for path in files}
    run_script("gradients", *words, cwd=tmp_path)
    assert {path: path.stat().st_mtime_ns for path in files} == before, (
        "complete runs are not repeated"
    )

    made = run_script("evidence", tmp_path / "runs", cwd=tmp_path).stdout
    runs = Runs.model_validate_json(made).runs
    assert len(runs) == len(files)
    assert [run.seed for run in runs if run.gradients == "none"] == [1, 2]
    assert all(abs(sum(shares) - 1) < 1e-4 for run in runs for shares in run.widths)
    assert all(run.epochs == 3 for run in runs)
    assert len(json.loads(made)["runs"][0]["histograms"]) == 3
    other = json.dumps({**json.loads(made)["runs"][0], "network": "hdc"})
    (tmp_path / "known.json").write_text(f'{{"runs": [{other}]}}')
    more = run_script(
        "evidence", tmp_path / "runs", "--add-to", tmp_path / "known.json", cwd=tmp_path
    ).stdout
    assert json.loads(more)["runs"] == [json.loads(other), *json.loads(made)["runs"]]

    tables = run_script("evidence", "--tables", cwd=tmp_path, text=made).stdout
    [none] = (
        line for line in tables.splitlines() if line.startswith("| quick-cifar | none | none |")
    )
    first, second = (100 * run.test_accuracy[2] for run in runs if run.gradients == "none")
    assert none.split(" | ")[4] == "2"
    assert none.split(" | ")[5].startswith(f"{(first + second) / 2:.2f}")


def test_means_have_standard_errors(load: Any) -> None:
    evidence = load("evidence")
    assert evidence.mean([50.0]) == "50.00"
    assert evidence.mean([10.0, 20.0, 30.0]) == f"20.00 ± {10 / 3**0.5:.2f}"
    run = {"epochs": 2, "test_accuracy": [0.1, 0.6, 0.7]}
    assert [evidence.at(run, later) for later in (0, 1, 2)] == [0.6, 0.7, evidence.CHANCE]


def test_runs_are_added_to_those_that_are_known(load: Any) -> None:
    evidence = load("evidence")
    base = {"network": "hdc", "gradients": "none", "weights": "none", "epochs": 1}
    known = [{**base, "seed": seed, "test_accuracy": [0.5]} for seed in (1, 2)]
    found = [{**base, "seed": seed, "test_accuracy": [0.6]} for seed in (3, 2)]
    assert [
        (run["seed"], run["test_accuracy"][0])
        for run in evidence.merged(known, found, evidence.order)
    ] == [
        (1, 0.5),
        (2, 0.6),
        (3, 0.6),
    ]


def test_the_documents_tables_are_of_the_runs_that_come_with_emuchain(
    load: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    evidence, found = load("evidence"), json.loads(FILE.read_text(encoding="utf-8"))["runs"]
    evidence.accuracies(found)
    evidence.stages(found)
    document = Path(__file__).resolve().parents[2] / "docs" / "validation-inceptionn.md"
    lines = document.read_text(encoding="utf-8").splitlines()
    assert [row for row in capsys.readouterr().out.splitlines() if row not in lines] == []


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("mpiexec", ["mpich"], indirect=True)
def test_convergence(mpiexec: Any, run_script: Any, small_cifar: Path, tmp_path: Path) -> None:
    words = [
        small_cifar,
        "--epochs",
        2,
        "--samples",
        60,
        "--test-samples",
        20,
        "--batch",
        20,
        "--devices",
        3,
    ]
    words += ["--ranks", 2, "--runs", tmp_path / "runs", "--out", tmp_path / "curves.png"]
    printed = run_script("convergence", *words, cwd=tmp_path).stdout
    found = {}
    for schedule in ("sync", "fpdeep"):
        [path] = (tmp_path / "runs").glob(f"quick-cifar-{schedule}-*.h5")
        with h5py.File(path) as file:
            found[schedule] = {name: column[()] for name, column in file["history"].items()}
    table = printed[printed.rindex("quick-cifar\nepoch ") :].splitlines()
    for row in range(2):
        line = table[2 + row].split()
        assert line[0] == str(row + 1)
        for schedule, cells in (("sync", line[1:5]), ("fpdeep", line[5:9])):
            of = found[schedule]
            assert cells[0] == f"{of['train_loss'][row]:.4f}"
            assert cells[1] == f"{100 * of['test_accuracy'][row]:.2f}"
            assert cells[3] == f"{of['virtual_time_ps'][row] / 1e9:.1f}"
    difference = 100 * (found["fpdeep"]["test_accuracy"][-1] - found["sync"]["test_accuracy"][-1])
    assert f"difference at the end, fpdeep less sync: {difference:+.2f} points" in printed
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("mpiexec", ["mpich"], indirect=True)
def test_convergence_over_seeds(
    mpiexec: Any, run_script: Any, small_cifar: Path, tmp_path: Path
) -> None:
    words = [
        small_cifar,
        "--epochs",
        1,
        "--samples",
        40,
        "--test-samples",
        20,
        "--batch",
        20,
        "--devices",
        2,
    ]
    words += [
        "--ranks",
        1,
        "--seeds",
        3,
        "--runs",
        tmp_path / "runs",
        "--out",
        tmp_path / "curves.png",
    ]
    printed = run_script("convergence", *words, cwd=tmp_path).stdout
    by_schedule: dict[str, list[float]] = {"sync": [], "fpdeep": []}
    for schedule, seed in itertools.product(by_schedule, (1, 2, 3)):
        [path] = (tmp_path / "runs").glob(f"quick-cifar-{schedule}-*-seed{seed}.h5")
        with h5py.File(path) as file:
            by_schedule[schedule].append(100 * file["history/test_accuracy"][0])
    accuracies = by_schedule["sync"]
    shown = f"{statistics.mean(accuracies):.2f} ± {statistics.stdev(accuracies) / 3**0.5:4.2f} %"
    assert "quick-cifar, mean of 3 seeds ± standard error" in printed
    assert shown in printed
    apart = [late - aligned for aligned, late in zip(*by_schedule.values(), strict=True)]
    error = statistics.stdev(apart) / 3**0.5
    counts = "more than" if abs(statistics.mean(apart)) > error else "within"
    assert (
        f"fpdeep less sync: {statistics.mean(apart):+.2f} ± {error:.2f} points, {counts} the"
        " standard error" in printed
    )

    made = run_script("evidence", "--fpdeep", tmp_path / "runs", cwd=tmp_path).stdout
    (tmp_path / "runs.json").write_text(made, encoding="utf-8")
    runs = read_runs(tmp_path / "runs.json")
    assert [(run.schedule, run.seed) for run in runs] == [
        (s, n) for s in ("sync", "fpdeep") for n in (1, 2, 3)
    ]
    assert [100 * run.test_accuracy[0] for run in runs[:3]] == pytest.approx(accuracies)
    assert all(run.old_weights == 0 for run in runs[:3])
    assert all(run.old_weights > 0 for run in runs[3:])
    table = run_script("evidence", "--tables", cwd=tmp_path, text=made).stdout
    assert f"| {shown} |".replace("±  ", "± ") in table
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def write_mnist(folder: Path, count: int) -> None:
    """Write MNIST's t10k files with `count` images of noise."""
    random = np.random.default_rng(1)
    for name, shape in (("images-idx3", (count, 28, 28)), ("labels-idx1", (count,))):
        header = np.array([0x800 + len(shape), *shape], ">i4").tobytes()
        values = random.integers(0, 256 if len(shape) > 1 else 10, shape, np.uint8)
        (folder / f"t10k-{name}-ubyte").write_bytes(header + values.tobytes())


def test_recurrent(run_script: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_mnist(tmp_path, 30)
    words = [
        tmp_path,
        "--epochs",
        1,
        "--samples",
        20,
        "--test-samples",
        5,
        "--batch",
        4,
        "--seeds",
        2,
    ]
    words += ["--runs", tmp_path / "runs", "--out", tmp_path / "curves.png"]
    printed = run_script("recurrent", *words, cwd=tmp_path).stdout
    head, *rows, drawn = printed.splitlines()
    assert head == "lstm-rows, batch 4, 1 epoch" and drawn.startswith("drawn in ")
    accuracies = []
    for schedule, row in zip(
        ("gpu-standard", "gpu-persistent", "farnn", "fpdeep"), rows, strict=True
    ):
        runs = [
            emuchain.results(path)
            for path in sorted((tmp_path / "runs").glob(f"lstm-rows-{schedule}-*.h5"))
        ]
        assert [run.config["seed"] for run in runs] == [1, 2]
        mean = 100 * statistics.mean(run.test_accuracy for run in runs)
        assert f" {runs[0].virtual_time_ps / 1e12:.3f} s  test accuracy {mean:.2f} ± " in row
        accuracies.append(mean)
    assert len(set(accuracies[:3])) == 1, "numbers of mini-batch SGD, whatever computes them"
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def write_run(path: Path, seed: int, epochs: int, schedule: str = "fpdeep") -> None:
    """Write the results of a run of two epochs, of which `epochs` are finished."""
    planned = emuchain.plan(devices=3, batch=20, schedule=schedule, seed=seed, epochs=2)
    empty = results_of(planned, samples=60, history=[], weights={}, versions={"emuchain": "0"})
    history: dict[str, Any] = {name: np.full(epochs, 0.25 + seed / 100) for name in empty.history}
    history |= {"epoch": np.arange(1, epochs + 1), "virtual_time_ps": np.full(epochs, 250)}
    write_results(path, dataclasses.replace(empty, history=history))


def test_evidence_of_convergence(run_script: Any, tmp_path: Path) -> None:
    for seed, epochs in ((1, 2), (2, 2), (3, 1)):
        write_run(tmp_path / f"run{seed}.h5", seed, epochs)
    made = run_script("evidence", "--fpdeep", tmp_path, cwd=tmp_path).stdout
    (tmp_path / "runs.json").write_text(made, encoding="utf-8")
    runs = read_runs(tmp_path / "runs.json")
    assert [run.seed for run in runs] == [1, 2], "the third is not finished"
    assert runs[1].test_accuracy == [0.27, 0.27]
    stale = max(of.stale_samples for of in emuchain.plan(devices=3, batch=20).steady.staleness)
    assert [run.old_weights for run in runs] == [stale, stale]
    rows = run_script("evidence", "--tables", cwd=tmp_path, text=made).stdout.splitlines()
    assert (
        rows[2]
        == f"| quick-cifar | 0/2 | {stale} of 20 | 1 |  |  | 0.2650 ± 0.0050 | 26.50 ± 0.50 % |  |"
    )
    write_run(tmp_path / "run3.h5", 3, 2)
    more = run_script(
        "evidence", "--fpdeep", tmp_path, "--add-to", tmp_path / "runs.json", cwd=tmp_path
    ).stdout
    assert [run["seed"] for run in json.loads(more)["runs"]] == [1, 2, 3], "each once"


def test_convergence_is_compared_seed_by_seed(run_script: Any, tmp_path: Path) -> None:
    for schedule in ("sync", "fpdeep"):
        for seed in (1, 2):
            write_run(tmp_path / f"{schedule}{seed}.h5", seed, 2, schedule)
    made = run_script("evidence", "--fpdeep", tmp_path, cwd=tmp_path).stdout
    row = run_script("evidence", "--tables", cwd=tmp_path, text=made).stdout.splitlines()[3]
    assert row.endswith(
        "| 26.50 ± 0.50 % | 0.2650 ± 0.0050 | 26.50 ± 0.50 % | 0.00 ± 0.00 points |"
    )
