"""Output that is closed, full or read no further, and names of what is no file: one line, never an
internal error.
"""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from emuchain.emulator.commands.cli import main
from emuchain.emulator.commands.frame.output import phases

LONG = "a" * 5000
Shell = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Runs a line of a shell, in which `emuchain` is the command, in a folder of its own."""

    def run(line: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = f'emuchain() {{ {shlex.quote(sys.executable)} -m emuchain "$@"; }}; {line}'
        return subprocess.run(
            ["bash", "-c", command],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            timeout=60,
            env={**os.environ, **variables},
        )

    return run


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["--help", "plan quick-cifar", "network quick-cifar --json"])
def test_output_that_is_read_no_further(shell: Shell, command: str, unbuffered: str) -> None:
    # `true` reads nothing; what is written once it has ended meets a closed pipe.
    done = shell(
        f"(sleep 0.2; emuchain {command}) | true; exit ${{PIPESTATUS[0]}}",
        PYTHONUNBUFFERED=unbuffered,
    )
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "command", ["--help", "plan quick-cifar", "train --samples 16 --test-samples 1 --batch 16"]
)
def test_output_that_is_full(
    shell: Shell, one_line: Callable[[str], str], command: str, unbuffered: str
) -> None:
    done = shell(f"emuchain {command} > /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 2
    assert "standard output cannot be written: No space left on device" in one_line(done.stderr)
    assert len(done.stderr.splitlines()) == 1


def test_output_that_is_closed(
    shell: Shell, one_line: Callable[[str], str], tmp_path: Path
) -> None:
    done = shell("emuchain train --out run.h5 >&-")
    assert done.returncode == 2
    assert "standard output is closed" in one_line(done.stderr)
    assert not list(tmp_path.iterdir())
    assert shell("emuchain plan quick-cifar >&- 2>&-").returncode == 2
    without_error = shell("emuchain plan quick-cifar 2>&- <&-")
    assert without_error.returncode == 0 and without_error.stdout.startswith("quick-cifar on ")
    nowhere = shell("emuchain plan none 2> /dev/full", PYTHONUNBUFFERED="")
    assert nowhere.returncode == 2


NAMES = {
    "network": "train {}",
    "network file": "train {}.toml",
    "onnx": "plan {}.onnx",
    "cluster": "plan quick-cifar --cluster {}",
    "cluster file": "plan quick-cifar --cluster {}.toml",
    "data": "train --data {}",
    "text": "train char-lstm --data {}.txt",
    "results": "show {}",
    "schedule": "schedule --check {}",
    "command": "{}",
    "profile": "explore --profile {}",
}


@pytest.mark.parametrize("kind", NAMES)
def test_names_that_no_file_can_have(
    shell: Shell, one_line: Callable[[str], str], kind: str
) -> None:
    done = shell(f"emuchain {NAMES[kind].format(LONG)}")
    assert done.returncode == 2, done.stderr
    assert len(one_line(done.stderr)) < 2100
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "kind", ["network file", "cluster file", "onnx", "text", "schedule", "results", "profile"]
)
def test_what_is_no_file(
    shell: Shell, one_line: Callable[[str], str], tmp_path: Path, kind: str
) -> None:
    for ending in ("", ".toml", ".onnx", ".txt"):
        os.mkfifo(tmp_path / f"pipe{ending}")
        (tmp_path / f"endless{ending}").symlink_to("/dev/zero")
    for name in ("pipe", "endless"):
        done = shell(f"emuchain {NAMES[kind].format(name)}")
        assert done.returncode == 2, done.stderr
        one_line(done.stderr)


def test_what_a_terminal_would_obey_is_spelled_out(shell: Shell) -> None:
    done = shell("emuchain plan $'no\\e]0;title\\a'")
    assert done.returncode == 2 and "\x1b" not in done.stderr and "\x07" not in done.stderr


def test_no_mpi_library(shell: Shell, one_line: Callable[[str], str]) -> None:
    launched = {"PMI_RANK": "0", "PMI_SIZE": "1", "PMI_PORT": "localhost:1"}
    done = shell("emuchain train", **launched, MPI4PY_MPIABI="", MPI4PY_LIBMPI="/none/libmpi.so")
    assert done.returncode == 2
    assert "mpi4py does not load" in one_line(done.stderr)


def test_a_key_of_many_dots(shell: Shell, one_line: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "dots.toml").write_text("a" + ".a" * 50_000 + " = 1\n")
    for command in ("train dots.toml", "plan quick-cifar --cluster dots.toml"):
        done = shell(f"emuchain {command}")
        assert done.returncode == 2
        assert "nested too deeply" in one_line(done.stderr)


SMALL = "quick-cifar --devices 2"
PIPELINE = "pipeline --schedule gpipe --stages 2 --micro-batches 2 --forward 1 --backward 2"


@pytest.mark.parametrize(
    ("command", "file"),
    [
        (f"timeline {SMALL} --plot x.png", "x.png"),
        (
            "timeline lstm-5x1024 --cluster farnn-9p --schedule farnn --time-steps 20 --plot x.png",
            "x.png",
        ),
        (f"simulate {SMALL} --samples 64 --plot x.png --trace x.json", "x.json"),
        (f"simulate {SMALL} --samples 64 --plot x.png", "x.png"),
        (f"train {SMALL} --samples 64 --test-samples 8 --trace x.json --progress none", "x.json"),
        (f"train {SMALL} --samples 64 --test-samples 8 --out x.h5 --progress none", "x.h5"),
        (f"plan {SMALL} --plot x.png", "x.png"),
        ("plan quick-cifar --devices 1,2 --plot x.png", "x.png"),
        ("sweep quick-cifar --devices 1,2 --plot x.png --csv x.csv", "x.csv"),
        ("sweep quick-cifar --devices 1,2 --plot x.png", "x.png"),
        ("study compare quick-cifar --devices 2,3 --plot x.png", "x.png"),
        ("study topology quick-cifar --devices 2,3 --plot x.png", "x.png"),
        ("study exchange hdc --workers 4 --plot x.png", "x.png"),
        (f"{PIPELINE} --plot x.png --trace x.json", "x.json"),
        (f"{PIPELINE} --plot x.png", "x.png"),
        ("data preview --out x.png", "x.png"),
    ],
)
def test_files_are_written_before_a_word_is_printed(
    command: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads the first lines only, as `head` does, has the files."""
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    there = []

    class Watching(io.StringIO):
        def write(self, text: str) -> int:
            there.append((tmp_path / file).stat().st_size > 0)
            return super().write(text)

    monkeypatch.setattr(sys, "stdout", Watching())
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command))
    assert ended.value.code == 0
    assert there and all(there)


def test_silent_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with phases("mapping") as show:
        show("simulating")
    assert capsys.readouterr() == ("", "")


def test_shown_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with phases("mapping 1,024 devices") as show:
        show("simulating 100 images")
    said = capsys.readouterr()
    assert said.out == ""
    assert "simulating 100 images" in said.err
