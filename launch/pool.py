"""A pool of workers for tasks that do not depend on each other: processes of this machine, or the
other ranks.

Workers leave Ctrl-C to the process that gives them tasks, and end with it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from .end_request import ENDING, is_ignored
from .ranks import Ranks

Task = TypeVar("Task")
Result = TypeVar("Result")

_PR_SET_PDEATHSIG = 1


class WorkerLost(Exception):
    """A worker process has died; `str` is a line for the user."""


def in_parallel(
    ranks: Ranks, jobs: int, function: Callable[[Task], Result], tasks: Sequence[Task]
) -> Iterator[tuple[int, Result]]:
    """Yield the place of each task and its result, as they finish; to be called on rank 0 alone.

    Args:
        ranks: where there are others than this one, they work, and this one gives them tasks.
        jobs: number of processes to work otherwise; with one, and in a worker of a
            `multiprocessing.Pool`, this process works itself, in order.
        function: what to do with a task; a function of a module.
        tasks: what to do it with; to be pickled, as results are.

    Raises:
        WorkerLost: a process has died, such as for want of memory.
    """
    jobs = min(jobs, len(tasks))
    if ranks.size > 1:
        workers: contextlib.AbstractContextManager[Executor] = _other_ranks(ranks)
    elif jobs > 1 and ranks.comm is None and not multiprocessing.current_process().daemon:
        # MPI's own processes do not bear forks, and those of a `multiprocessing.Pool` may have no
        # children.
        workers = _processes(jobs)
    else:
        yield from ((place, function(task)) for place, task in enumerate(tasks))
        return
    with workers as executor:
        places: dict[Future[Result], int] = {}
        try:
            places = {executor.submit(function, task): place for place, task in enumerate(tasks)}
            for done in concurrent.futures.as_completed(list(places)):
                # Popped, so that a result is not kept here once it has been yielded.
                yield places.pop(done), done.result()
        except BrokenProcessPool:
            raise WorkerLost(
                "a worker process has died, possibly out of memory; try fewer jobs"
            ) from None
        finally:
            executor.shutdown(wait=True, cancel_futures=True)


def _processes(jobs: int) -> Executor:
    """Return processes that are copies of this one, so that they import nothing again, nor run a
    script again.
    """
    forks = multiprocessing.get_context("fork")
    return concurrent.futures.ProcessPoolExecutor(jobs, forks, _become_worker, (os.getpid(),))


def _become_worker(parent: int) -> None:
    for number in ENDING:
        if not is_ignored(number):
            # A fork has its parent's handlers, which would put the parent's work in order.
            signal.signal(number, signal.SIG_DFL)
    _leave_interrupts_alone()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before this was set
        os._exit(1)


def _leave_interrupts_alone() -> Any:
    return signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def _other_ranks(ranks: Ranks) -> Iterator[Executor]:
    from mpi4py.futures import MPICommExecutor

    ranks.start(_work)
    executor: Any
    with MPICommExecutor(ranks.comm, root=0) as executor:
        yield executor


def _work(ranks: Ranks) -> None:
    """Work for rank 0 until it has no more tasks."""
    from mpi4py.futures import MPICommExecutor

    before = _leave_interrupts_alone()
    with MPICommExecutor(ranks.comm, root=0):
        pass
    signal.signal(signal.SIGINT, before)
