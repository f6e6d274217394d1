"""Files that commands write, and what is in their way: full disks, devices, pipes, other runs; one
line each.
"""

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

from emuchain.emulator.common import WholeFile, own_folder
from emuchain.emulator.run import StepRow, open_log

from .running import PIPELINE, status_of

Run = Callable[..., subprocess.CompletedProcess[str]]
TRAIN = [
    "train",
    "--samples",
    "32",
    "--test-samples",
    "10",
    "--devices",
    "2",
    "--progress",
    "plain",
]


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


def test_a_full_disk_leaves_the_last_good_file(
    emuchain: Run, tmp_path: Path, one_line: Callable[[str], str]
) -> None:
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
def test_what_is_no_file(
    emuchain: Run, tmp_path: Path, one_line: Callable[[str], str], writer: str
) -> None:
    ending = ".png" if writer == "picture" else ""
    pipe, device = tmp_path / f"pipe{ending}", tmp_path / f"device{ending}"
    os.mkfifo(pipe)
    device.symlink_to("/dev/full")
    assert "is a pipe" in refusal(emuchain(*WRITERS[writer], pipe), one_line)
    assert "is a device" in refusal(emuchain(*WRITERS[writer], device), one_line)
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


LOCKED = {
    **WRITERS,
    "checkpoint": [*TRAIN, "--checkpoint"],
    "trace of training": [*TRAIN, "--trace"],
    "trace of a pair": [
        *"simulate lstm-rows --schedule farnn --cluster farnn-9p".split(),
        "--trace",
    ],
    "trace of a pipeline": ["pipeline", *PIPELINE, "--trace"],
    "picture of a pipeline": ["pipeline", *PIPELINE, "--plot"],
    "picture of a pair": [*"plan lstm-rows --schedule farnn --cluster farnn-9p".split(), "--plot"],
    "picture of a run": ["simulate", "quick-cifar", "--samples", "8", "--plot"],
    "picture of a sweep": ["sweep", "quick-cifar", "--devices", "1-2", "--plot"],
    "picture of a timeline": ["timeline", "quick-cifar", "--plot"],
    "picture of a comparison": ["study", "compare", "quick-cifar", "--devices", "2", "--plot"],
    "picture of topologies": ["study", "topology", "quick-cifar", "--devices", "2", "--plot"],
    "picture of exchanges": ["study", "exchange", "quick-cifar", "--workers", "4", "--plot"],
    "report": ["report", "none.h5", "--out"],
}
"""Commands whose last word names a file that they write."""


@pytest.mark.parametrize("writer", LOCKED)
def test_who_writes_second_is_refused_at_the_start(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    one_line: Callable[[str], str],
    writer: str,
) -> None:
    """Nothing of the work is said to be done, and nothing is left; this process is the first."""
    monkeypatch.chdir(tmp_path)
    with WholeFile(tmp_path / "out.png") as other:
        other.write(b"other")
        assert status_of(*LOCKED[writer], "out.png") == 2
    said = capsys.readouterr()
    assert "this run writes another file there" in one_line(said.err)
    assert said.out == ""
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.png"]
    assert (tmp_path / "out.png").read_bytes() == b"other"


@pytest.mark.parametrize(
    "words",
    [
        ["rtl", "quick-cifar", "--out"],
        ["validate", "fpdeep", "--only", "t6", "--pictures"],
        ["data", "fetch", "mnist", "--mirror", "http://127.0.0.1:9/", "--to"],
    ],
)
def test_a_folder_has_one_writer(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    one_line: Callable[[str], str],
    words: list[str],
) -> None:
    folder = tmp_path / "out"
    with own_folder(folder):
        assert status_of(*words, str(folder)) == 2
        assert "this run writes another file there" in one_line(capsys.readouterr().err)
        assert [entry.name for entry in folder.iterdir()] == [".emuchain.lock"]
    assert [*folder.iterdir()] == []


def test_rtl_replaces_files_and_leaves_other_links_to_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, kept = tmp_path / "rtl", tmp_path / "kept.sv"
    folder.mkdir()
    kept.write_text("of last week")
    (folder / "tile.sv").hardlink_to(kept)
    network = tmp_path / "t.toml"
    layers = "[{ type = 'fc', features = 2 }, { type = 'softmax' }]"
    network.write_text(f"name = 't'\ninput = [1, 2, 2]\nlayers = {layers}\n")
    assert status_of("rtl", str(network), "--out", str(folder)) == 0
    capsys.readouterr()
    assert kept.read_text() == "of last week"
    assert "module tile" in (folder / "tile.sv").read_text()
    assert [entry.name for entry in folder.iterdir() if entry.suffix != ".sv"] == []


def test_a_refused_plan_leaves_no_cut_and_no_picture(
    emuchain: Run, tmp_path: Path, one_line: Callable[[str], str]
) -> None:
    actions = "plan quick-cifar --devices 500 --engines turns --schedule sync".split()
    files = ["--save", tmp_path / "cut.toml", "--plot", tmp_path / "layout.png"]
    assert "`devices` = 500" in refusal(emuchain(*actions, *files), one_line)
    assert [*tmp_path.iterdir()] == []


def test_two_logs_in_one_folder(
    emuchain: Run, tmp_path: Path, one_line: Callable[[str], str]
) -> None:
    with open_log(f"csv:{tmp_path / 'log.csv'}") as log:
        log.step(StepRow(1, 1, 0.5, 0.25, 7), 1)
        assert f"another run (process {os.getpid()} on " in refusal(
            emuchain(*TRAIN, "--log", "csv"), one_line
        )
        log.step(StepRow(1, 2, 0.5, 0.25, 9), 2)
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert lines == [
        "epoch,step,loss,learning_rate,virtual_time_ps",
        "1,1,0.5,0.25,7",
        "1,2,0.5,0.25,9",
    ]


@pytest.mark.parametrize("writer", WRITERS)
def test_another_run_writes_it(
    emuchain: Run, tmp_path: Path, one_line: Callable[[str], str], writer: str
) -> None:
    out = tmp_path / "out.png"
    with WholeFile(out) as other:
        other.write(b"other")
        assert f"another run (process {os.getpid()} on " in refusal(
            emuchain(*WRITERS[writer], out), one_line
        )
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
