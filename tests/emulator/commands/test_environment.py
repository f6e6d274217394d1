"""What surrounds a command: bytes in names, a folder that is gone, limits, and what other programs
have left behind.
"""

from __future__ import annotations

import csv
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from .running import status_of

OneLine = Callable[[str], str]
NETWORK = """
name = "t"
input = [3, 16, 16]
layers = [
  { type = "conv", channels = 4, kernel = 3, stride = 2 },
  { type = "relu" },
  { type = "fc", features = 4 },
  { type = "softmax" },
]
"""
TRAIN = ["--epochs", "1", "--batch", "8", "--test-samples", "4", "--progress", "none"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Forty images of four classes."""
    path = tmp_path / "d.h5"
    with h5py.File(path, "w") as file:
        file["images"] = np.random.default_rng(0).integers(0, 256, (40, 3, 16, 16), dtype="u1")
        file["labels"] = np.arange(40) % 4
    return path


@pytest.fixture
def latin(tmp_path: Path, data: Path) -> Path:
    """A folder named in Latin-1, in which each file's name is, too: `t\\xe9.toml` and `d\\xe9.h5`."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xe9"))
    folder.mkdir()
    (folder / "t\udce9.toml").write_text(NETWORK)
    data.rename(folder / "d\udce9.h5")
    return folder


def test_results_name_files_in_any_bytes(latin: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """They are found again by what results say of them, and each command that reads results takes
    them.
    """
    network, images, out = (
        str(latin / name) for name in ("t\udce9.toml", "d\udce9.h5", "o\udce9.h5")
    )
    assert status_of("train", network, "--data", images, *TRAIN, "--out", out) == 0
    with h5py.File(out) as file:
        assert os.fsencode(file["config"].attrs["network"]) == os.fsencode(latin) + b"/t\xe9.toml"
    for command in (
        ["show", out],
        ["evaluate", out],
        ["report", out, "--out", str(latin / "r\udce9.html")],
        ["export", out, str(latin / "m\udce9.safetensors")],
        [
            "train",
            network,
            "--data",
            images,
            *TRAIN,
            "--init",
            out,
            "--log",
            f"csv:{latin}/l\udce9.csv",
        ],
    ):
        assert status_of(*command) == 0, capfd.readouterr().err
    assert capfd.readouterr().err == ""


def test_a_sweep_names_files_in_any_bytes(latin: Path, capfd: pytest.CaptureFixture[str]) -> None:
    network, table = str(latin / "t\udce9.toml"), latin / "s\udce9.csv"
    for _ in range(2):  # at the second time all points are there
        assert (
            status_of("sweep", network, "--devices", "1-2", "--csv", str(table), "--jobs", "1") == 0
        )
        with open(table, encoding="utf-8", newline="") as file:  # which other programs can read
            rows = list(csv.DictReader(file))
        assert [os.path.basename(row["network"]) for row in rows] == ["t\\udce9.toml"] * 2
    pytest.importorskip("matplotlib")
    assert (
        status_of(
            "sweep",
            network,
            "--devices",
            "1-2",
            "--jobs",
            "1",
            "--plot",
            str(latin / "p\udce9.svg"),
        )
        == 0
    )
    assert capfd.readouterr().err == ""


def test_strict_output_takes_names_in_any_bytes(latin: Path) -> None:
    """As it is in most locales; the last line that a run prints names its files, whose odd bytes
    are spelled out.
    """
    network, images = (str(latin / name) for name in ("t\udce9.toml", "d\udce9.h5"))
    command = [sys.executable, "-m", "emuchain", "train", network, "--data", images, *TRAIN]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"/\\udce9/t\\udce9.toml" in done.stdout


@pytest.fixture
def gone(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder is removed; returns another one, with a network and data."""
    folder = tmp_path / "gone"
    folder.mkdir()
    (tmp_path / "t.toml").write_text(NETWORK)
    monkeypatch.chdir(folder)
    folder.rmdir()
    yield tmp_path
    monkeypatch.undo()


WRITERS = {
    "results": ["train", "{0}/t.toml", "--data", "{0}/d.h5", *TRAIN, "--out", "{1}x.h5"],
    "checkpoint": [
        "train",
        "{0}/t.toml",
        "--data",
        "{0}/d.h5",
        *TRAIN,
        "--checkpoint",
        "{1}x.ckpt",
    ],
    "log": ["train", "{0}/t.toml", "--data", "{0}/d.h5", *TRAIN, "--log", "csv:{1}x.csv"],
    "trace": ["simulate", "{0}/t.toml", "--samples", "8", "--trace", "{1}x.json"],
    "description": ["network", "{0}/t.toml", "--out", "{1}x.toml"],
    "sweep": ["sweep", "{0}/t.toml", "--devices", "1-2", "--jobs", "1", "--csv", "{1}x.csv"],
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_current_folder_that_is_gone(
    gone: Path, capfd: pytest.CaptureFixture[str], one_line: OneLine, writer: str
) -> None:
    """What is named by absolute paths works; what would be written there is refused in one line."""
    assert status_of(*(word.format(gone, f"{gone}/") for word in WRITERS[writer])) == 0, (
        capfd.readouterr().err
    )
    capfd.readouterr()
    assert status_of(*(word.format(gone, "") for word in WRITERS[writer])) == 2
    assert "the current folder has been removed; change to one that exists" in one_line(
        capfd.readouterr().err
    )


def test_ranks_need_a_current_folder(
    gone: Path, capfd: pytest.CaptureFixture[str], one_line: OneLine
) -> None:
    assert status_of("launch", "-n", "2", "--", "train", f"{gone}/t.toml") == 2
    assert "the current folder has been removed" in one_line(capfd.readouterr().err)


def test_a_file_in_place_of_the_cache(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    one_line: OneLine,
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    assert status_of("simulate", "quick-cifar", "--samples", "8") == 2
    assert (
        one_line(capfd.readouterr().err)
        == f"emuchain: error: NUMBA_CACHE_DIR = '{tmp_path}/file': {tmp_path}/file is a file; name"
        " a folder for compiled code"
    )


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process has a connection to MPICH's launcher, as its rank 1 has, and MPI cannot be
    initialised.
    """

    def refuse() -> None:
        raise AssertionError("MPI is initialised")

    monkeypatch.setattr("emuchain.launch.launch._world", refuse)
    ours, launchers = socket.socketpair()
    with ours, launchers:
        monkeypatch.setenv("PMI_FD", str(ours.fileno()))
        monkeypatch.setenv("PMI_SIZE", "2")
        yield


PLAIN = (
    ["--version"],
    ["train", "--help"],
    ["plan", "quick-cifar"],
    ["plan", "quick-cifar", "--devices", "1-2"],
    ["simulate", "quick-cifar", "--samples", "8"],
)


@pytest.mark.usefixtures("launched")
@pytest.mark.parametrize("words", PLAIN, ids=" ".join)
def test_a_command_that_needs_no_ranks_leaves_mpi_alone(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Rank 0 carries it out, and the others end."""
    monkeypatch.setenv("PMI_RANK", "0")
    assert status_of(*words) == 0
    assert capfd.readouterr().out != ""
    monkeypatch.setenv("PMI_RANK", "1")
    stdout, stderr = sys.stdout, sys.stderr
    assert status_of(*words) == 0
    sys.stdout, sys.stderr = stdout, stderr
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("setting", ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"])
def test_a_rank_that_no_launcher_has_started_trains_and_says_so(
    setting: str,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    one_line: OneLine,
) -> None:
    (data.parent / "t.toml").write_text(NETWORK)
    monkeypatch.setenv(setting, "1")
    assert status_of("train", str(data.parent / "t.toml"), "--data", str(data), *TRAIN) == 0
    said = capfd.readouterr()
    assert "t on 1 VC709" in said.out
    assert (
        one_line(said.err)
        == f"emuchain: note: no launcher is behind {setting}=1; this process runs alone"
    )
