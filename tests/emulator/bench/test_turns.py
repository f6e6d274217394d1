"""Training runs that take turns: they go on only in their turns, and their memory is counted."""

from __future__ import annotations

import math
import os
import sys

import psutil
import pytest

from emuchain.emulator.bench import turns
from emuchain.emulator.common import InputError

from .helpers import is_there, wait_until

COUNTING = """
import itertools, sys, time
for done in itertools.count(1):
    time.sleep(0.01)
    print(f"epoch 1/1  {done}/1000000 samples", flush=True)
    if len(sys.argv) > 1 and done == int(sys.argv[1]):
        sys.exit("emuchain: error: enough")
"""


def states(pid: int) -> set[str]:
    return {psutil.Process(member).status() for member in turns.family(pid)}


def test_a_run_goes_on_only_in_its_turns() -> None:
    launcher = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    with turns.Run("it", [sys.executable, "-c", launcher, COUNTING], os.environ) as run:
        first = run.turn(0.0, look_at_memory=True)
        assert first.samples == turns.LEAST_COUNTED
        assert run.peak_bytes > 2**20
        members = turns.family(run.pid)
        assert len(members) == 2
        wait_until(lambda: states(run.pid) == {psutil.STATUS_STOPPED})
        second = run.turn(0.05)
        assert second.samples >= turns.LEAST_COUNTED >= 5
        assert second.seconds >= 0.05
        assert second.rate == second.samples / second.seconds
    wait_until(lambda: not any(is_there(pid) for pid in members))


def test_a_run_that_ends_says_why() -> None:
    with (
        turns.Run("the chain", [sys.executable, "-c", COUNTING, "3"], os.environ) as run,
        pytest.raises(InputError, match=r"^the chain ended with status 1: enough$"),
    ):
        run.turn(math.inf)


def test_memory_that_is_shared_counts_once() -> None:
    pid = os.getpid()
    once = turns.memory_bytes([pid])
    assert once == pytest.approx(psutil.Process(pid).memory_full_info().pss, rel=0.2)
    assert turns.memory_bytes([pid, pid]) == pytest.approx(2 * once, rel=0.05)
    assert turns.memory_bytes([2**22 + 1]) == 0  # no such process
