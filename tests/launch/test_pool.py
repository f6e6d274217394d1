"""The pool of workers: results by task, in this process, in others, and on other ranks."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from emuchain.launch import SingleProcess, WorkerLost, in_parallel, usable_cores


def square(number: int) -> tuple[int, int]:
    """The square, and who has worked it out."""
    return number**2, os.getpid()


def die(_: int) -> None:
    """End this process as the kernel does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def ignores_interrupts(_: int) -> bool:
    """Whether Ctrl-C is left to another process."""
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


@pytest.mark.parametrize("jobs", [1, 2, 50])
def test_every_task_has_its_result(jobs: int) -> None:
    found = list(in_parallel(SingleProcess(), jobs, square, range(20)))
    assert sorted((place, value) for place, (value, _) in found) == [(n, n**2) for n in range(20)]
    workers = {pid for _, (_, pid) in found}
    assert (os.getpid() in workers) == (jobs == 1)


def test_one_process_works_in_order() -> None:
    assert [place for place, _ in in_parallel(SingleProcess(), 1, square, range(9))] == list(
        range(9)
    )


def test_no_tasks() -> None:
    assert list(in_parallel(SingleProcess(), 4, square, [])) == []


def test_workers_leave_interrupts_alone() -> None:
    assert dict(in_parallel(SingleProcess(), 2, ignores_interrupts, range(3))) == dict.fromkeys(
        range(3), True
    )
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def test_a_worker_that_dies() -> None:
    with pytest.raises(WorkerLost, match="a worker process has died"):
        list(in_parallel(SingleProcess(), 2, die, range(4)))


def test_workers_end_when_nobody_asks_for_more() -> None:
    before = set(psutil.Process().children())
    results = in_parallel(SingleProcess(), 2, square, range(100))
    next(results)
    results.close()
    assert set(psutil.Process().children()) <= before


def test_cores() -> None:
    assert usable_cores() == len(psutil.Process().cpu_affinity())


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from mpi4py import MPI
import work
from emuchain.launch import Dismissed, MpiRanks, in_parallel
ranks = MpiRanks(MPI.COMM_WORLD.Clone())
if ranks.rank > 0:
    try:
        ranks.follow()
    except Dismissed as dismissed:
        sys.exit(dismissed.status)
for turn in range(2):  # ranks go back to wait for tasks
    found = dict(in_parallel(ranks, 1, work.of, range(10)))
    print("found", sorted((place, value) for place, (value, _) in found.items()), {rank for _, rank in found.values()})
ranks.dismiss(0)
"""

WORK = """
from mpi4py import MPI
def of(number):
    return number ** 2, MPI.COMM_WORLD.rank
"""


def test_other_ranks_work(mpiexec: Any, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORK)
    lines = [
        line
        for line in mpiexec(3, ["-c", PROGRAM, tmp_path]).stdout.splitlines()
        if line.startswith("found")
    ]
    assert len(lines) == 2
    for line in lines:
        assert line.startswith(f"found {[(n, n**2) for n in range(10)]} ")
        assert " 0" not in line.rpartition("{")[2]


def squares(count: int) -> list[tuple[int, int]]:
    """The squares, as this process has them worked out by others where it may have some."""
    return [result for _, result in in_parallel(SingleProcess(), 2, square, range(count))]


def test_a_worker_of_a_pool_works_itself() -> None:
    """Python lets such a process have no children."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        [worker] = {process for _, process in pool.apply(squares, (3,))}
        assert worker != os.getpid()
        assert [number for number, _ in pool.apply(squares, (4,))] == [0, 1, 4, 9]
