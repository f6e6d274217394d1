"""`emuchain sweep`: what it prints, files, a sweep that is killed, ranks, and bad input as one
line.
"""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner, Result

from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.commands.design.sweep import run_sweep
from emuchain.emulator.commands.frame import command
from emuchain.emulator.commands.frame.session import Session
from emuchain.emulator.common import InputError
from emuchain.emulator.studies.sweep import Measured, Point, Space, run_space

RUN = sys.modules[run_space.__module__]
SHORT = ["quick-cifar", "--devices", "1-3"]
LONG_GBPS = (10, 20, 40, 80)
LONG = ["quick-cifar", "--devices", "1-24", "--link.bandwidth_gbps", "10,20,40,80"]
LONG_POINTS = 96


def invoke(*arguments: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(commands, ["sweep", *arguments], obj=Session())


def printed(*arguments: str) -> str:
    """What the command prints when it succeeds."""
    result = invoke(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def test_pairs() -> None:
    words = [
        "lstm-5x1024",
        "--cluster",
        "farnn-9p",
        "--schedule",
        "farnn,gpu-standard",
        "--time-steps",
        "100,800",
    ]
    lines = printed(*words, "--batch", "1").splitlines()
    assert lines[0].startswith("best: time_steps = 100, schedule = ")
    [schedules] = (line for line in lines if line.startswith("schedules: "))
    assert " times gpu-standard's" in schedules
    [heads] = [of.split() for of in lines if of.startswith("boards")]
    assert heads[:4] == ["boards", "time_steps", "schedule", "samples/s"]
    rows = json.loads(printed(*words, "--batch", "1", "--json"))["rows"]
    assert {(row["schedule"], row["boards"]) for row in rows} == {("farnn", 2), ("gpu-standard", 1)}
    gains = {row["time_steps"]: row["images_per_s"] for row in rows if row["schedule"] == "farnn"}
    alone = {
        row["time_steps"]: row["images_per_s"] for row in rows if row["schedule"] == "gpu-standard"
    }
    assert gains[800] / alone[800] > 2 > gains[100] / alone[100]


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    """Start the command as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "emuchain", "sweep", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Children of a background job inherit that it ignores SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for_rows(path: Path, count: int) -> None:
    """Wait until the file has some rows."""
    while not path.exists() or path.read_bytes().count(b"\n") <= count:
        time.sleep(0.005)


def test_the_answer_comes_first() -> None:
    lines = printed(*SHORT, "--link.bandwidth_gbps", "1,100").splitlines()
    assert lines[0].startswith("best: 3 boards, link.bandwidth_gbps = 100: ")
    assert lines[0].endswith(" limits")
    assert lines[1].startswith("range: 90 % from ")
    assert lines[2].startswith("measure first: ")
    assert lines[3].startswith("choice: best in ")
    assert lines[4].startswith("knee: ")
    assert lines[5].startswith("memory: all is on chip from 1 board on")
    assert lines[6].startswith("engines of VC709: 576 fp32 multipliers of 5 DSPs at 100 MHz")
    assert "quick-cifar on vc709" in lines
    assert sum(line.split()[:1] in (["1"], ["2"], ["3"]) for line in lines) == 6


def test_json() -> None:
    said = json.loads(printed(*SHORT, "--schedule", "sync,fpdeep", "--json"))
    assert said["keys"] == {
        "network": ["quick-cifar"],
        "cluster": ["vc709"],
        "devices": [1, 2, 3],
        "schedule": ["sync", "fpdeep"],
    }
    assert said["best"] in said["rows"]
    assert len(said["rows"]) == 6
    assert said["findings"][0].startswith("best: ")


def test_many_rows() -> None:
    arguments = ["quick-cifar", "--devices", "1-26"]
    assert "points; `--full` prints all" in printed(*arguments)
    full = printed(*arguments, "--full")
    assert "points; `--full` prints all" not in full
    assert [
        line.split()[0]
        for line in full.splitlines()
        if line.split()[:1] and line.split()[0].isdigit()
    ] == [str(number) for number in range(1, 27)]


def test_several_networks_and_clusters() -> None:
    said = json.loads(printed("quick-cifar,lenet-mnist", "--cluster", "vc709,u280", "--json"))
    assert [(row["network"], row["cluster"]) for row in said["rows"]] == [
        (network, cluster)
        for network in ("quick-cifar", "lenet-mnist")
        for cluster in ("vc709", "u280")
    ]


def test_a_picture_and_a_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    printed(*SHORT, "--plot", str(tmp_path / "x.png"), "--csv", str(tmp_path / "x.csv"))
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "x.csv").open(newline="") as file:
        assert [row["devices"] for row in csv.DictReader(file)] == ["1", "2", "3"]


def test_points_that_fail_are_rows() -> None:
    text = printed("quick-cifar", "--devices", "2,385")
    assert "1 of 2 points fail, the first: `devices` = 385: must be 1 to 384" in text


def test_for_other_commands(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_sweep({"network": "quick-cifar", "devices": range(1, 4)}, {"samples": 640}, jobs=1)
    assert isinstance(result, command.Answer)
    result.show()
    assert capsys.readouterr().out.startswith("best: 3 boards: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["vgg61", "--devices", "1-2"], ["vgg61", "vgg16"]),
        (["quick-cifar"], ["nothing to sweep", "--devices 1-64"]),
        (["quick-cifar", "--devices", "0-3"], ["`devices` = 0"]),
        ([*SHORT, "--seed", "3"], ["`seed` = 3", "give `trials`, too"]),
        (["quick-cifar", "--devices", "many"], ["`devices` = 'many'"]),
        (["quick-cifar", "--devices", "2", "--cluster", "none"], ["`cluster` = 'none'"]),
        (["quick-cifar", "--link.bandwidth_gbps", "0"], ["bandwidth_gbps` = 0"]),
        (["quick-cifar", "--devices", "400-500"], ["all 101 points fail", "must be 1 to 384"]),
        (["quick-cifar", "--devices", "400"], ["`devices` = 400: must be 1 to 384"]),
        ([*SHORT, "--plot", "x.abc"], ["`--plot` x.abc", ".png"]),
        ([*SHORT, "--plot", "no/x.png"], ["`--plot` = 'no/x.png'", "does not exist"]),
        ([*SHORT, "--csv", "no/x.csv"], ["`csv` = 'no/x.csv'", "does not exist"]),
    ],
)
def test_bad_input_is_one_line(
    one_line: Callable[[pytest.ExceptionInfo[Exception]], str],
    arguments: list[str],
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as error:
        commands.main(["sweep", *arguments], standalone_mode=False, obj=Session())
    line = one_line(error)
    assert all(word in line for word in words), line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--devices", "4-1"], "runs downwards; write 1-4"),
        (["--devices", "1,two"], "mixes the word 'two' with numbers"),
        (["--link.bandwith_gbps", "3"], "--link.bandwidth_gbps"),
        (["--learning-rate", "3"], "No such option"),
        (["--jobs", "0", "--devices", "2"], "--jobs"),
    ],
)
def test_bad_flags(arguments: list[str], message: str) -> None:
    result = invoke("quick-cifar", *arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_help_names_keys() -> None:
    text = printed("--help")
    for words in ("--devices VALUES", "--schedule VALUES", "--link.KEY", "--csv FILE.csv"):
        assert words in text


# A sweep that ends before its time


def test_a_killed_sweep_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed with its workers at work; only the points that are not in the file are computed by the
    next one.
    """
    path = tmp_path / "x.csv"
    process = start(*LONG, "--csv", path, "--jobs", "2")
    wait_for_rows(path, 5)
    workers = psutil.Process(process.pid).children()
    process.kill()
    process.communicate(timeout=30)
    psutil.wait_procs(workers, timeout=30)
    assert len(workers) == 2
    assert not any(
        worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers
    )
    kept = path.read_bytes().count(b"\n") - 1
    assert 5 <= kept < LONG_POINTS

    computed: list[Point] = []
    measure = RUN.measure

    def counting(task: tuple[Point, int]) -> Measured:
        computed.append(task[0])
        return measure(task)

    monkeypatch.setattr(RUN, "measure", counting)
    printed(*LONG, "--csv", str(path), "--jobs", "1")
    assert len(computed) == LONG_POINTS - kept
    monkeypatch.undo()
    space = Space.of(
        {"network": "quick-cifar", "devices": range(1, 25), "link.bandwidth_gbps": LONG_GBPS}
    )
    run_space(space, 1_281_167, csv=tmp_path / "whole.csv")
    assert path.read_bytes() == (tmp_path / "whole.csv").read_bytes()


@pytest.mark.parametrize("jobs", [1, 2])
def test_interrupt(one_line: Callable[[str], str], tmp_path: Path, jobs: int) -> None:
    """Ctrl-C: one line, and what is done stays."""
    path = tmp_path / "x.csv"
    process = start(*LONG, "--csv", path, "--jobs", str(jobs))
    wait_for_rows(path, 3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    kept = path.read_bytes().count(b"\n") - 1
    message = re.fullmatch(
        rf"emuchain: interrupted after (\d+) of {LONG_POINTS} points;"
        rf" they are kept in {re.escape(str(path))}, from which the same command resumes",
        one_line(err),
    )
    assert message is not None
    assert abs(int(message[1]) - kept) <= 1  # which of both a point was in when the signal came


# Ranks


def test_ranks_give_the_same_rows(mpiexec: Any, tmp_path: Path) -> None:
    arguments = ["quick-cifar", "--devices", "1-6,400", "--link.bandwidth_gbps", "1,40", "--csv"]
    finished = mpiexec(2, ["-m", "emuchain", "sweep", *arguments, tmp_path / "ranks.csv"])
    alone = printed(*arguments, str(tmp_path / "alone.csv"), "--jobs", "1")
    assert finished.stdout.splitlines() == alone.splitlines()
    assert (tmp_path / "ranks.csv").read_bytes() == (tmp_path / "alone.csv").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--devices", "400-401"], "all 2 points fail"),
        (["--devices", "1-2", "--jobs", "2"], "`jobs` = 2: under mpiexec the ranks compute"),
        (["--devices", "1-2", "--csv", "/proc/x.csv"], "`csv` = '/proc/x.csv'"),
    ],
)
def test_bad_input_on_ranks(
    mpiexec: Any, one_line: Callable[[str], str], arguments: list[str], message: str
) -> None:
    finished = mpiexec(2, ["-m", "emuchain", "sweep", "quick-cifar", *arguments], status=2)
    assert message in one_line(finished.stderr)
    assert finished.stdout == ""


def test_progress_is_not_in_the_output() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "emuchain", "sweep", *SHORT],
        capture_output=True,
        text=True,
        env={**os.environ},
    )
    assert (done.returncode, done.stderr) == (0, "")
