"""`tests/attack/kill`: what it starts, kills and judges."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.alone]

SCRIPT = Path(__file__).resolve().with_name("kill")
TRAIN = [
    "train",
    "--samples",
    "640",
    "--test-samples",
    "4",
    "--epochs",
    "50",
    "--batch",
    "16",
    "--progress",
    "none",
]


def test_killed_runs_end_as_they_should(mpiexec):
    variable = {"mpich": "EMUCHAIN_TEST_MPICH", "openmpi": "EMUCHAIN_TEST_OPENMPI"}[mpiexec.name]
    environment = {**os.environ, variable: str(mpiexec.launcher.parent.parent)}
    command = [
        sys.executable,
        SCRIPT,
        "--mpi",
        mpiexec.name,
        "--kills",
        "2",
        "--ranks",
        "2",
        "--from",
        "2",
        "--to",
        "4",
    ]
    done = subprocess.run(
        [*command, "--", *TRAIN], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 runs, 0 of them failed the check" in done.stdout


def test_killed_runs_go_on_from_their_checkpoints(mpiexec):
    variable = {"mpich": "EMUCHAIN_TEST_MPICH", "openmpi": "EMUCHAIN_TEST_OPENMPI"}[mpiexec.name]
    environment = {**os.environ, variable: str(mpiexec.launcher.parent.parent)}
    command = [
        sys.executable,
        SCRIPT,
        "--checkpoint",
        "--mpi",
        mpiexec.name,
        "--kills",
        "1",
        "--from",
        "1",
    ]
    command += ["--variant", "fpdeep", "--variant", "ring", "--seed", "3"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    name, runs, kills, *_, equal = done.stdout.splitlines()[-1].split()
    assert (name, runs, equal) == ("all", "2", "2")
    assert int(kills) >= 2


def test_runs_that_signals_end(mpiexec):
    """At three moments after the start, each to a rank and to `emuchain launch`."""
    variable = {"mpich": "EMUCHAIN_TEST_MPICH", "openmpi": "EMUCHAIN_TEST_OPENMPI"}[mpiexec.name]
    environment = {**os.environ, variable: str(mpiexec.launcher.parent.parent)}
    command = [
        sys.executable,
        SCRIPT,
        "--ends",
        "--mpi",
        mpiexec.name,
        "--every",
        "0.4",
        "--from",
        "0.2",
        "--to",
        "1",
    ]
    command += ["--target", "rank", "--target", "run", "--signal", "INT", "--signal", "TERM"]
    done = subprocess.run(
        [*command, "--", *TRAIN], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[-4:]]
    assert [row[:4] + row[6:8] for row in rows] == [
        [mpiexec.name, target, signal, "3", "0", "0"]
        for target in ("rank", "run")
        for signal in ("SIGINT", "SIGTERM")
    ]
