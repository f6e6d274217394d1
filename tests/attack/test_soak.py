"""`tests/attack/soak`: what it starts, and what it says of it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().with_name("soak")


@pytest.mark.exhaustive  # of a tool; what it looks for has tests of its own
@pytest.mark.slow
@pytest.mark.parametrize("mpiexec", ["mpich"], indirect=True)
def test_a_short_soak(mpiexec):
    """It ends by itself; how far it comes depends on the machine."""
    environment = {**os.environ, "EMUCHAIN_TEST_MPICH": str(mpiexec.launcher.parent.parent)}
    command = [
        sys.executable,
        SCRIPT,
        "--ranks",
        "2",
        "--minutes",
        "0.2",
        "--every",
        "3",
        "--most",
        "1000",
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    *samples, last = done.stdout.splitlines()
    memory = [
        line
        for line in samples
        if re.fullmatch(r" *[\d.]+ min: +[\d,]+ epochs, [\d.]+, [\d.]+ MiB", line)
    ]
    assert memory == samples[: len(memory)]
    assert memory
    assert re.search(r"KiB an epoch, slope|too short", samples[len(memory)])
    assert re.fullmatch(r"[\d,]+ bytes of run.h5, [\d,]+ bytes of run.ckpt", last)
