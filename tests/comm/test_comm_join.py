"""Joining ranks: whoever starts processes that cannot find one another is told so."""

import pytest

from emuchain.comm.join import LaunchError, join
from emuchain.comm.mpi import launcher_rank
from emuchain.comm.ranks import Alone

VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_without_a_launcher_this_process_is_alone() -> None:
    assert launcher_rank() is None
    ranks = join()
    assert isinstance(ranks, Alone)
    assert ranks.share("x") == ranks.gather("x") == ["x"]


def test_srun_without_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    with pytest.raises(LaunchError, match="4 tasks without MPI.*--mpi"):
        join()


def test_the_launcher_of_another_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setattr("emuchain.comm.join._installed", lambda name: name == "mpich")
    with pytest.raises(LaunchError, match="Open MPI's mpiexec, but MPICH is installed"):
        join()


def test_a_crowd_without_the_other_side(mpiexec) -> None:  # type: ignore[no-untyped-def]  # a fixture
    """Every rank knows all others; what rank 1 tells, rank 0 hears."""
    program = (
        "from emuchain.comm.join import join; ranks = join(); heard = []; ranks.on_object = heard.append; "
        "ranks.tell(ranks.rank); everybody = ranks.share(ranks.rank); "
        "assert everybody == [0, 1, 2], everybody; ranks.share(None); "
        "ranks.poll(); assert ranks.rank or sorted(heard) == [0, 1, 2], heard; "
        "print('heard') if ranks.rank == 0 else None"
    )
    assert mpiexec(3, ["-c", program]).stdout.strip() == "heard"
