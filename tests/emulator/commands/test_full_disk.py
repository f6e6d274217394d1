"""A disk that is really full: each command ends with one line and status 2, and the last good file
stays.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import emuchain
from emuchain import InputError
from emuchain.emulator.run import EpochResult

from .running import status_of

PAGE = 4096
SMALL = [
    "--samples",
    "16",
    "--test-samples",
    "4",
    "--batch",
    "4",
    "--devices",
    "2",
    "--progress",
    "none",
]
MANY = ["--samples", "240", "--batch", "1", "--learning-rate", "1e-6"]
"""As many mini-batches as make a log of several pages."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no right to mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path, room: int) -> None:
    """Leave `room` bytes free, in whole pages."""
    with open(disk / "filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(PAGE))
        except OSError:
            file.truncate(max(0, file.tell() - room) // PAGE * PAGE)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder."""
    command = [sys.executable, "-m", "emuchain", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results file to export."""
    folder = tmp_path_factory.mktemp("trained")
    assert run(folder, "train", *SMALL, "--out", "run.h5").returncode == 0
    return folder / "run.h5"


WRITERS = {
    "out": (["train", *SMALL, "--out", "{file}"], "`out` = '{file}'"),
    "checkpoint": (["train", *SMALL, "--checkpoint", "{file}"], "`checkpoint` = '{file}'"),
    "trace": (
        ["simulate", "--samples", "16", "--devices", "2", "--trace", "{file}"],
        "`trace` = '{file}'",
    ),
    "safetensors": (["export", "{run}", "{file}"], "'{file}'"),
}


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS)
def test_the_last_good_file_stays(
    disk: Path, trained: Path, one_line: Callable[[str], str], writer: str
) -> None:
    file = disk / f"good.{writer}"
    arguments, named = WRITERS[writer]
    command = [word.format(file=file, run=trained) for word in arguments]
    assert run(disk, *command).returncode == 0
    before = file.read_bytes()
    fill(disk, len(before) // 2)
    full = run(disk, *command)
    line = one_line(full.stderr)
    assert full.returncode == 2, line
    assert named.format(file=file) in line
    assert "No space left on device; it holds what it held before" in line
    assert file.read_bytes() == before
    assert sorted(entry.name for entry in disk.iterdir()) == ["filler", file.name]


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, 2 * PAGE])
def test_a_log(disk: Path, one_line: Callable[[str], str], room: int) -> None:
    """It is written line by line: what there was room for stays. Its lock takes a page as long as
    the run.
    """
    fill(disk, room)
    log = disk / "log.csv"
    full = run(disk, "train", *SMALL, *MANY, "--log", f"csv:{log}")
    assert full.returncode == 2
    line = one_line(full.stderr)
    assert line.startswith(
        f"emuchain: error: `log` = 'csv:{log}': cannot be written: No space left on device"
    )
    assert sorted(entry.name for entry in disk.iterdir()) == ["filler", log.name]
    assert log.stat().st_size == max(0, room - PAGE)


SHAPE = [
    "--schedule",
    "gpipe",
    "--stages",
    "4",
    "--micro-batches",
    "20",
    "--forward",
    "1",
    "--backward",
    "2",
]
OTHERS = {
    "a folder for TensorBoard": ("log", ["train", *SMALL, *MANY, "--log", "tensorboard:{new}"]),
    "a picture of a run": (
        "--plot",
        ["simulate", "quick-cifar", "--samples", "8", "--plot", "{new}.png"],
    ),
    "a timeline": ("--plot", ["timeline", "quick-cifar", "--plot", "{new}.svg"]),
    "a sweep": ("csv", ["sweep", "quick-cifar", "--devices", "1-3", "--csv", "{new}.csv"]),
    "a trace": ("trace", ["pipeline", *SHAPE, "--trace", "{new}.json"]),
    "RTL": ("out", ["rtl", "{network}", "--out", "{new}"]),
    "a preview": ("out", ["data", "preview", "--out", "{new}.png"]),
    "a page": ("out", ["report", "{run}", "--out", "{new}.html"]),
    "weights": ("out", ["export", "{run}", "{new}.onnx"]),
    "figures": ("--pictures", ["validate", "fpdeep", "--only", "t6", "--pictures", "{new}"]),
}
"""What is written elsewhere than in `WRITERS`: the setting that is blamed, and the command."""


@pytest.mark.parametrize("what", OTHERS)
def test_every_other_output(
    disk: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    one_line: Callable[[str], str],
    trained: Path,
    what: str,
) -> None:
    """In this process: in one line that names it, and without an end of its own, as of a thread
    that waits.
    """
    monkeypatch.chdir(tmp_path)
    network = tmp_path / "t.toml"
    layers = "[{ type = 'fc', features = 2 }, { type = 'softmax' }]"
    network.write_text(f"name = 't'\ninput = [1, 2, 2]\nlayers = {layers}\n")
    fill(disk, PAGE)
    threads = threading.active_count()
    setting, words = OTHERS[what]
    assert (
        status_of(*(word.format(new=disk / "new", network=network, run=trained) for word in words))
        == 2
    )
    line = one_line(capsys.readouterr().err)
    assert line.startswith(f"emuchain: error: `{setting}` = ")
    assert str(disk / "new") in line and ": cannot be written: No space left on device; " in line
    assert threading.active_count() == threads
    assert not [path for path in disk.rglob("*") if path.suffix in (".lock", ".partial")]


@pytest.mark.parametrize("key", ["out", "checkpoint"])
def test_a_disk_that_is_full_when_a_later_epoch_ends(
    disk: Path, one_line: Callable[[object], str], key: str
) -> None:
    """What the first epoch left is whole: its results are read, and the run is resumed from its
    checkpoint.
    """
    file = disk / "run"
    keys = {"devices": 2, "samples": 16, "test_samples": 4, "batch": 4, "seed": 3}

    def fill_up(result: EpochResult, _: object) -> None:
        if result.epoch == 2:
            fill(disk, 0)

    with pytest.raises(InputError) as error:
        emuchain.train(**keys, epochs=3, on_epoch=fill_up, **{key: str(file)})
    assert f"`{key}` = '{file}': cannot be written: No space left on device" in one_line(error)
    assert sorted(entry.name for entry in disk.iterdir()) == ["filler", "run"]
    whole = emuchain.train(**keys, epochs=3)
    left = (
        emuchain.results(file)
        if key == "out"
        else emuchain.train(resume=str(file), epochs=3, checkpoint=None)
    )
    assert 1 <= left.epochs <= 3
    assert (
        left.history["train_loss"].tolist() == whole.history["train_loss"][: left.epochs].tolist()
    )
