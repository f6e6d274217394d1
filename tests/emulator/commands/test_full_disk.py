"""A disk that is really full: each command ends with one line and status 2, and the last good file stays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PAGE = 4096
SMALL = ["--samples", "16", "--test-samples", "4", "--batch", "4", "--devices", "2", "--progress", "none"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder], check=True, capture_output=True)
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


def emuchain(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder."""
    command = [sys.executable, "-m", "emuchain", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results file to export."""
    folder = tmp_path_factory.mktemp("trained")
    assert emuchain(folder, "train", *SMALL, "--out", "run.h5").returncode == 0
    return folder / "run.h5"


WRITERS = {
    "out": (["train", *SMALL, "--out", "{file}"], "`out` = '{file}'"),
    "checkpoint": (["train", *SMALL, "--checkpoint", "{file}"], "`checkpoint` = '{file}'"),
    "trace": (["simulate", "--samples", "16", "--devices", "2", "--trace", "{file}"], "`trace` = '{file}'"),
    "safetensors": (["export", "{run}", "{file}"], "'{file}'"),
}


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS)
def test_the_last_good_file_stays(disk: Path, trained: Path, one_line: Callable[[str], str], writer: str) -> None:
    file = disk / f"good.{writer}"
    arguments, named = WRITERS[writer]
    command = [word.format(file=file, run=trained) for word in arguments]
    assert emuchain(disk, *command).returncode == 0
    before = file.read_bytes()
    fill(disk, len(before) // 2)
    full = emuchain(disk, *command)
    line = one_line(full.stderr)
    assert full.returncode == 2, line
    assert named.format(file=file) in line
    assert "No space left on device; it holds what it held before" in line
    assert file.read_bytes() == before
    assert sorted(entry.name for entry in disk.iterdir()) == ["filler", file.name]


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, 2 * PAGE])
def test_a_log(disk: Path, one_line: Callable[[str], str], room: int) -> None:
    """It is written line by line: what there was room for stays. Its lock takes a page as long as the run."""
    fill(disk, room)
    log = disk / "log.csv"
    many = ["--samples", "240", "--batch", "1", "--learning-rate", "1e-6"]
    full = emuchain(disk, "train", *SMALL, *many, "--log", f"csv:{log}")
    assert full.returncode == 2
    line = one_line(full.stderr)
    assert line.startswith(f"emuchain: error: `log` = 'csv:{log}': cannot be written: No space left on device")
    assert sorted(entry.name for entry in disk.iterdir()) == ["filler", log.name]
    assert log.stat().st_size == max(0, room - PAGE)
