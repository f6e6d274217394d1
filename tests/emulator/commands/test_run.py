"""`emuchain run`: what it starts, what it starts again, and what it refuses."""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUN = [sys.executable, "-m", "emuchain", "run"]

# A launcher that leaves its arguments, and ends with the next status of a list, or as a line of shell says.
LAUNCHER = """#!/bin/sh
printf '%s\\n' "$*" >> {folder}/calls
n=$(wc -l < {folder}/calls)
eval "$(sed -n ${{n}}p {folder}/ends)"
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python with a launcher of its own beside it, which `ends` tells what to do."""
    there = tmp_path / "bin"
    there.mkdir()
    launcher = there / "mpiexec"
    launcher.write_text(LAUNCHER.format(folder=tmp_path))
    launcher.chmod(launcher.stat().st_mode | stat.S_IXUSR)
    program = "import sys; sys.executable = sys.argv.pop(1); from emuchain.emulator.commands.cli import main; main()"
    (tmp_path / "main.py").write_text(program)
    return there / "python"


def run(python: Path, ends: list[str], *arguments: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run the command with this launcher; return how it ended, and the launcher's arguments."""
    folder = python.parent.parent
    (folder / "ends").write_text("".join(f"{end}\n" for end in ends))
    command = [sys.executable, folder / "main.py", python, "run", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder)
    calls = folder / "calls"
    return done, calls.read_text().splitlines() if calls.exists() else []


def test_ranks_are_started_with_all_arguments(python: Path) -> None:
    done, calls = run(python, ["echo out; exit 0"], "-n", "3", "--", "train", "net.toml", "--batch", "8")
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "")
    assert calls == [f"-n 3 {python} -m emuchain train net.toml --batch 8"]


def test_a_run_is_started_again_and_goes_on_from_its_checkpoint(python: Path) -> None:
    ends = ["exit 9", "touch now.ckpt; exit 137", "exit 0"]
    done, calls = run(python, ends, "-n", "2", "--restarts", "3", "--", "train", "--checkpoint", "now.ckpt")
    assert done.returncode == 0
    assert [call.partition("train ")[2] for call in calls] == [
        "--checkpoint now.ckpt",
        "--checkpoint now.ckpt",
        "--checkpoint now.ckpt --resume now.ckpt",
    ]
    assert done.stderr.splitlines() == [
        "emuchain: status 9; restart 1 of 3, from the beginning",
        "emuchain: status 137; restart 2 of 3, from now.ckpt",
    ]


def test_the_last_status_counts(python: Path) -> None:
    done, calls = run(python, ["exit 9", "exit 3"], "-n", "2", "--restarts", "1", "--", "train", "--checkpoint=a")
    assert (done.returncode, len(calls)) == (3, 2)


@pytest.mark.parametrize("restarts", ["0", "5"])
def test_what_the_user_can_mend_is_not_tried_again(python: Path, restarts: str) -> None:
    done, calls = run(python, ["exit 2"], "-n", "2", "--restarts", restarts, "--", "train")
    assert (done.returncode, len(calls), done.stderr) == (2, 1, "")


@pytest.mark.parametrize(("number", "passed_on"), [("INT", "INT"), ("TERM", "USR1"), ("USR1", "USR1")])
def test_signals_are_passed_on_and_end_the_run(python: Path, number: str, passed_on: str) -> None:
    folder = python.parent.parent
    caught = f"trap 'touch caught; exit 1' {passed_on}; touch ready; while :; do sleep 0.05; done"
    (folder / "ends").write_text(f"{caught}\n")
    command = [sys.executable, folder / "main.py", python, "run", "-n", "2", "--restarts", "4", "--", "train"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        while not (folder / "ready").exists() and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(getattr(signal, f"SIG{number}"))
        _, said = process.communicate(timeout=60)
    assert (folder / "caught").exists()
    assert process.returncode == 128 + getattr(signal, f"SIG{number}")
    assert said == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "0", "--", "train"], "0 is not in the range x>=1"),
        (["--", "train"], "Missing option '-n'"),
        (["-n", "2", "--restarts", "-1", "--", "train"], "-1 is not in the range x>=0"),
        (["-n", "2", "--", "sweep"], "`sweep` cannot be run again"),
        (["-n", "2"], "nothing cannot be run again"),
    ],
)
def test_what_is_refused(one_line, arguments: list[str], message: str) -> None:
    done = subprocess.run([*RUN, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert message in one_line(done.stderr)


def test_without_mpiexec(one_line, python: Path) -> None:
    (python.parent / "mpiexec").unlink()
    command = [sys.executable, python.parent.parent / "main.py", python, "run", "-n", "2", "--", "train"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": ""})
    assert done.returncode == 2
    assert "no `mpiexec`" in one_line(done.stderr)


def test_within_ranks_it_is_refused(mpiexec, one_line) -> None:
    done = mpiexec(2, ["-m", "emuchain", "run", "-n", "2", "--", "train"], status=2)
    assert "leave out the other one" in one_line(done.stderr)


def test_ranks_train(mpiexec, tmp_path: Path) -> None:
    command = [mpiexec.python, "-m", "emuchain", "run", "-n", "2", "--", "train"]
    small = ["--samples", "32", "--test-samples", "4", "--batch", "16", "--out", "run.h5"]
    done = subprocess.run([*command, *small], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "in 2 ranks" in done.stdout + done.stderr
    assert (tmp_path / "run.h5").exists()
