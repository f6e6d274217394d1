"""Joining ranks: an error where processes were started that cannot find one another; tasks, and turns."""

import pytest

from emuchain.comm import LaunchError, SingleProcess, join, launcher_rank

VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_without_a_launcher_there_is_a_single_process() -> None:
    assert launcher_rank() is None
    ranks = join()
    assert isinstance(ranks, SingleProcess)
    assert ranks.share("x") == ranks.gather("x") == ["x"]


def test_srun_without_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    with pytest.raises(LaunchError, match="4 tasks without MPI.*--mpi"):
        join()


def test_the_launcher_of_another_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setattr("emuchain.comm.launch.is_installed", lambda name: name == "mpich")
    with pytest.raises(LaunchError, match="Open MPI's mpiexec, but MPICH is installed"):
        join()


def test_ranks_know_one_another_and_rank_0_hears_from_all(mpiexec) -> None:  # type: ignore[no-untyped-def]  # a fixture
    """Every rank knows all others; rank 0 gets what each rank sends to it."""
    program = (
        "from emuchain.comm import join; ranks = join(); heard = []; ranks.on_object = heard.append; "
        "ranks.send_to_root(ranks.rank); shared = ranks.share(ranks.rank); "
        "assert shared == [0, 1, 2], shared; ranks.share(None); "
        "ranks.poll(); assert ranks.rank or sorted(heard) == [0, 1, 2], heard; "
        "print('heard') if ranks.rank == 0 else None"
    )
    assert mpiexec(3, ["-c", program]).stdout.strip() == "heard"


TASKS = """
import functools, sys
from emuchain.comm import Dismissed, join
ranks = join()
done = []

def work(word, ranks):
    shared = ranks.share(word)
    done.append((word, shared == [word] * ranks.size, ranks.running))

if ranks.rank == 0:
    for word in ("dig", "fill"):
        ranks.start(functools.partial(work, word))
        work(word, ranks)
        ranks.running = False
    ranks.dismiss(4)
    status = 4
else:
    try:
        ranks.follow()
    except Dismissed as dismissed:
        status = dismissed.status
assert done == [("dig", True, True), ("fill", True, True)], done
assert not ranks.running
sys.exit(status)
"""


def test_ranks_do_the_tasks_of_rank_0_until_it_dismisses_them(mpiexec) -> None:  # type: ignore[no-untyped-def]  # a fixture
    """They exit with the status that it gave."""
    mpiexec(4, ["-c", TASKS], status=4)


IN_TURN = """
import sys, time
from pathlib import Path
from emuchain.comm import join
ranks, mark = join(), Path(sys.argv[1], "done")
seen = []

def task():
    seen.append(mark.exists())
    time.sleep(0.3 * (ranks.rank == 0))
    mark.touch()

ranks.in_turn(task)
assert seen == [ranks.rank > 0], (ranks.rank, seen)
ranks.share(None)
"""


def test_the_first_rank_of_a_machine_goes_first(mpiexec, tmp_path) -> None:  # type: ignore[no-untyped-def]  # fixtures
    mpiexec(4, ["-c", IN_TURN, tmp_path])


def test_a_single_process_starts_no_task_elsewhere() -> None:
    ranks, done = SingleProcess(), []
    ranks.start(done.append)
    ranks.in_turn(lambda: done.append("turn"))
    ranks.dismiss(1)
    assert done == ["turn"]
    assert not ranks.running
