"""`emuchain train`: bad input, runs that die, interrupts, results on disk. Errors are one line; no
rank hangs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import psutil
import pytest

from emuchain.emulator.commands.cli import main
from emuchain.emulator.commands.train import hosts
from emuchain.emulator.network import load_network
from emuchain.emulator.run import read_results

CONFIG = """
network = "quick-cifar"
epochs = 1
batch = 32
"""

COLUMNS = """
name = "columns"
input = [3, 32, 32]
layers = [{ type = "lstm", units = 4 }, { type = "last-step" }, { type = "fc", features = 10 }, { type = "softmax" }]
"""


OneLine = Callable[[str], str]

BAD_INPUT = [
    (["--devices", "0"], ["`devices`", "0"]),
    (["--devices", "385"], ["`devices`", "385", "384", "quick-cifar"]),
    (["--epochs", "two"], ["--epochs", "two"]),
    (["--network", "vgg61-cifar"], ["`network`", "vgg61-cifar", "vgg16-cifar"]),
    (["--data", "nowhere"], ["`data`", "nowhere"]),
    (["--out", "nowhere/run.h5"], ["`out`", "nowhere/run.h5", "does not exist"]),
    (["--out", "."], ["`out`", "folder"]),
    (["--netwrok", "x"], ["--netwrok", "--network"]),
    (["--samples", "10001"], ["`samples`", "10001", "10000"]),
    (["--cluster", "vc700"], ["`cluster`", "vc700", "vc709"]),
    (["--learning-rate", "nan"], ["`learning_rate`", "nan"]),
    (["unknown.toml"], ["unknown.toml", "batches", "batch"]),
    (["wrong.toml"], ["wrong.toml", "`epochs`", "'two'", "integer"]),
    (["many.toml"], ["many.toml", "`devices`", "999", "384"]),
    (["cut.toml"], ["cut.toml", "not a TOML file"]),
    (["missing.toml"], ["missing.toml", "cannot be read"]),
    (["--data", "cut"], ["`data`", "data_batch_3.bin", "3073"]),
    (["char-lstm", "--data", "empty.txt"], ["`data`", "empty.txt", "empty"]),
    (
        ["char-lstm", "--data", "latin.txt"],
        ["`data`", "latin.txt", "not UTF-8", "0xe4 at offset 1", "as UTF-8"],
    ),
    (["char-lstm", "--data", "short.txt"], ["`data`", "short.txt", "9 characters", "at least 650"]),
    (["char-lstm", "--data", "none.txt"], ["`data`", "none.txt", "no such file"]),
    (["char-lstm", "--time-steps", "0"], ["`time_steps`", "0", "1"]),
    (["lenet-mnist", "--time-steps", "9"], ["`time_steps`", "9", "lenet-mnist", "1x28x28"]),
    (["columns.toml"], ["columns.toml", "layers[0] (lstm)", "3x32x32", '{type = "sequence"}']),
    (["--data", "text"], ["`data`", "is a text", "quick-cifar", "3x32x32"]),
]


@pytest.fixture
def bad_files(tmp_path: Path, small_cifar: Path) -> Path:
    """A folder with the files that `BAD_INPUT` names."""
    (tmp_path / "unknown.toml").write_text(CONFIG + "batches = 3\n")
    (tmp_path / "wrong.toml").write_text('epochs = "two"\n')
    (tmp_path / "many.toml").write_text(CONFIG + "devices = 999\n")
    (tmp_path / "cut.toml").write_text("epochs = \n")
    (tmp_path / "columns.toml").write_text(COLUMNS)
    for name, content in (("empty", b""), ("latin", b"M\xe4rz"), ("short", b"too short")):
        (tmp_path / f"{name}.txt").write_bytes(content)
    (tmp_path / "cut").mkdir()
    for file in (small_cifar / "cifar-10-batches-bin").iterdir():
        content = file.read_bytes()
        (tmp_path / "cut" / file.name).write_bytes(
            content[:-100] if file.name == "data_batch_3.bin" else content
        )
    return tmp_path


@pytest.mark.parametrize(("arguments", "words"), BAD_INPUT)
def test_bad_input(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    one_line: OneLine,
    bad_files: Path,
    arguments: list[str],
    words: list[str],
) -> None:
    monkeypatch.chdir(bad_files)
    with pytest.raises(SystemExit) as ended:
        main(["train", *arguments])
    assert ended.value.code == 2
    said = capsys.readouterr()
    line = one_line(said.err)
    for word in words:
        assert word in line
    assert said.out == ""


@pytest.mark.parametrize("case", [0, 11])
def test_bad_input_on_ranks(mpiexec, one_line: OneLine, bad_files: Path, case: int) -> None:  # type: ignore[no-untyped-def]  # a fixture
    """Rank 0 prints the error, and every rank ends."""
    arguments, words = BAD_INPUT[case]
    finished = mpiexec(3, ["-m", "emuchain", "train", *arguments], status=2, cwd=bad_files)
    line = one_line(finished.stderr)
    for word in words:
        assert word in line
    assert finished.stdout == ""


@pytest.mark.parametrize(
    ("mpiexec", "network"),
    [("mpich", "quick-cifar"), ("openmpi", "resnet8-cifar")],
    indirect=["mpiexec"],
)
def test_loss_that_is_not_a_number(
    mpiexec, one_line: OneLine, small_cifar: Path, network: str
) -> None:  # type: ignore[no-untyped-def]  # a fixture
    flags = {"network": network, "data": small_cifar, "learning-rate": 100, "batch": 8, "epochs": 3}
    arguments = [word for flag, value in flags.items() for word in (f"--{flag}", str(value))]
    finished = mpiexec(4, ["-m", "emuchain", "train", *arguments], status=2)
    line = one_line(finished.stderr)
    for word in ("`learning_rate` = 100", "nan", "epoch", "step"):
        assert word in line


@pytest.mark.alone
@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_that_dies_ends_the_job(
    mpiexec, small_cifar: Path, tmp_path: Path, victim: int
) -> None:  # type: ignore[no-untyped-def]  # a fixture
    out = tmp_path / "run.h5"
    pids = tmp_path / "pids"
    pids.mkdir()
    program = (
        "import os, pathlib; from emuchain.launch.launch import launcher_rank; "
        f"pathlib.Path({str(pids)!r}, str(launcher_rank())).write_text(str(os.getpid())); "
        "from emuchain.emulator.commands.cli import main; main()"
    )
    arguments = [
        "train",
        "--data",
        str(small_cifar),
        "--epochs",
        "10000",
        "--out",
        str(out),
        "--progress",
        "plain",
    ]
    watcher = subprocess.Popen(
        ["python3", "-c", _KILL_AFTER_AN_EPOCH, str(out), str(pids / str(victim))]
    )
    started = mpiexec(4, ["-c", program, *arguments], status=None, timeout=180)
    ended_s = time.time()
    assert watcher.wait(10) == 0
    assert started.returncode != 0
    killed_s = float((pids / f"{victim}.killed").read_text())
    assert ended_s - killed_s < 10
    for pid in (int(path.read_text()) for path in pids.iterdir() if path.suffix == ""):
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    results = read_results(out)
    assert results.epochs >= 1
    assert all(len(column) == results.epochs for column in results.history.values())
    assert np.all(np.diff(results.history["virtual_time_ps"]) > 0)


_KILL_AFTER_AN_EPOCH = """
import os, signal, sys, time
import pathlib
out, pid = sys.argv[1], pathlib.Path(sys.argv[2])
while True:
    time.sleep(0.2)
    # The first file holds no epoch; the second one at least one.
    if os.path.exists(out):
        first = os.stat(out).st_ino
        break
while os.stat(out).st_ino == first:
    time.sleep(0.2)
os.kill(int(pid.read_text()), signal.SIGKILL)
pid.with_suffix(".killed").write_text(str(time.time()))
"""


def test_results_file(mpiexec, small_cifar: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]  # a fixture
    out = tmp_path / "run.h5"
    arguments = ["--data", str(small_cifar), "--epochs", "2", "--batch", "32", "--out", str(out)]
    finished = mpiexec(2, ["-m", "emuchain", "train", *arguments])
    assert finished.stdout.count("epoch 2/2 done") == 1
    with h5py.File(out) as file:
        assert file["history/virtual_time_ps"].shape == file["history/host_time_s"].shape == (2,)
        assert np.all(np.diff(file["history/host_time_s"][()]) > 0)
        assert np.all(file["history/train_loss"][()] > 0)
        assert np.all(
            (file["history/test_accuracy"][()] >= 0) & (file["history/test_accuracy"][()] <= 1)
        )
        for layer in load_network("quick-cifar").layers:
            assert file[f"weights/{layer.name}/weight"].shape == layer.weight_shape
            assert file[f"weights/{layer.name}/bias"].shape == (layer.channels,)
        assert file["config"].attrs["batch"] == 32
        assert file["config"].attrs["devices"] == 2
        assert "MPI" in file["versions"].attrs["mpi"]
    shown = mpiexec(1, ["-m", "emuchain", "show", str(out)])
    for word in ("quick-cifar", "History", "Devices", "Links", "conv1", "128x64x3x3"):
        assert word in shown.stdout


def test_interrupt(one_line: OneLine, small_cifar: Path) -> None:
    """Ctrl-C in one process: one line, no traceback."""
    command = [
        sys.executable,
        "-m",
        "emuchain",
        "train",
        "--data",
        str(small_cifar),
        "--epochs",
        "1000",
    ]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        # Children of a background job inherit that it ignores SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    while "epoch 1/" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert one_line(err) == "emuchain: interrupted"
    assert process.returncode == 130


@pytest.mark.parametrize(
    ("ranks", "needed", "said"),
    [
        (1, 1, "one process"),
        (1, 4, "one process"),
        (2, 4, "2 ranks"),
        (4, 4, "4 ranks"),
        (3, 2, "3 ranks (1 rank idle)"),
        (4, 2, "4 ranks (2 ranks idle)"),
    ],
)
def test_hosts_name_idle_ranks(ranks: int, needed: int, said: str) -> None:
    assert hosts(ranks, needed) == said
