"""Files that commands write, and what is in their way: full disks, devices, pipes, other runs; one line each."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from emuchain.emulator.common import WholeFile

Run = Callable[..., subprocess.CompletedProcess[str]]
TRAIN = ["train", "--samples", "32", "--test-samples", "10", "--devices", "2", "--progress", "plain"]


@pytest.fixture
def emuchain(tmp_path: Path) -> Run:
    """Runs a command in a folder of its own; `largest` limits the bytes of each file."""

    def run(*arguments: str | Path, largest: int | None = None) -> subprocess.CompletedProcess[str]:
        limit = resource.RLIM_INFINITY if largest is None else largest
        return subprocess.run(
            [sys.executable, "-m", "emuchain", *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            timeout=120,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        )

    return run


def refusal(run: subprocess.CompletedProcess[str], one_line: Callable[[str], str]) -> str:
    """The line on which a command ends with status 2."""
    assert run.returncode == 2, run.stderr
    return one_line(run.stderr)


def test_a_full_disk_leaves_the_last_good_file(emuchain: Run, tmp_path: Path, one_line: Callable[[str], str]) -> None:
    out = tmp_path / "run.h5"
    assert emuchain(*TRAIN, "--out", out).returncode == 0
    before = out.read_bytes()
    full = emuchain(*TRAIN, "--out", out, largest=len(before) // 2)
    assert "cannot be written: File too large" in refusal(full, one_line)
    assert "epoch 1 done" not in full.stdout  # is said after the file is in place
    assert out.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.h5"]


WRITERS = {
    "results": [*TRAIN, "--out"],
    "trace": ["simulate", "quick-cifar", "--samples", "8", "--trace"],
    "description": ["network", "quick-cifar", "--out"],
    "preview": ["data", "preview", "--out"],
    "sweep": ["sweep", "quick-cifar", "--devices", "1-2", "--csv"],
    "picture": ["plan", "quick-cifar", "--plot"],
}


@pytest.mark.parametrize("writer", WRITERS)
def test_what_is_no_file(emuchain: Run, tmp_path: Path, one_line: Callable[[str], str], writer: str) -> None:
    ending = ".png" if writer == "picture" else ""
    pipe, device = tmp_path / f"pipe{ending}", tmp_path / f"device{ending}"
    os.mkfifo(pipe)
    device.symlink_to("/dev/full")
    assert "is a pipe" in refusal(emuchain(*WRITERS[writer], pipe), one_line)
    assert "is a device" in refusal(emuchain(*WRITERS[writer], device), one_line)
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


@pytest.mark.parametrize("writer", WRITERS)
def test_another_run_writes_it(emuchain: Run, tmp_path: Path, one_line: Callable[[str], str], writer: str) -> None:
    out = tmp_path / "out.png"
    with WholeFile(out) as other:
        other.write(b"other")
        assert f"another run (process {os.getpid()} on " in refusal(emuchain(*WRITERS[writer], out), one_line)
    assert out.read_bytes() == b"other"


def test_two_outputs_of_a_run(emuchain: Run, one_line: Callable[[str], str]) -> None:
    same = emuchain(*TRAIN, "--out", "run.h5", "--trace", "run.h5")
    assert "this run writes another file there" in refusal(same, one_line)


def test_links_and_modes(emuchain: Run, tmp_path: Path) -> None:
    real, link = tmp_path / "real.h5", tmp_path / "run.h5"
    real.touch(mode=0o600)
    link.symlink_to("real.h5")
    assert emuchain(*TRAIN, "--out", link).returncode == 0
    assert link.is_symlink() and stat.S_IMODE(real.stat().st_mode) == 0o600
    with h5py.File(real) as file:
        assert len(file["history/epoch"]) == 1
