"""The fixture `mpiexec` starts ranks and ends them, under each MPI."""

import psutil
import pytest


def test_ranks_are_one_world(mpiexec):
    program = (
        "from mpi4py import MPI; world = MPI.COMM_WORLD;"
        "print(f'<{MPI.get_vendor()[0]} {world.size} {world.allreduce(world.rank)}>', flush=True)"
    )
    vendor = {"mpich": "MPICH", "openmpi": "Open MPI"}[mpiexec.name]
    finished = mpiexec(4, ["-c", program])
    # Ranks may write into one another's lines, but not into one another's strings.
    assert finished.stdout.count(f"<{vendor} 4 6>") == 4


def test_ranks_are_not_pinned(mpiexec):
    program = (
        "import os; from mpi4py import MPI; print(f'<{len(os.sched_getaffinity(0))}>', flush=True)"
    )
    finished = mpiexec(2, ["-c", program])
    assert finished.stdout.count(f"<{len(psutil.Process().cpu_affinity())}>") == 2


def test_status_of_the_ranks_is_the_launchers(mpiexec):
    finished = mpiexec(4, ["-c", "import sys; from mpi4py import MPI; sys.exit(2)"], status=2)
    assert finished.returncode == 2


def test_other_status_fails_with_output(mpiexec):
    with pytest.raises(pytest.fail.Exception, match=r"(?s)status 3, not 0.*so it goes"):
        mpiexec(
            2,
            [
                "-c",
                "import sys; from mpi4py import MPI; print('so it goes', flush=True); sys.exit(3)",
            ],
        )


def test_late_ranks_are_ended(mpiexec, tmp_path):
    # One rank dies and the others wait for it forever. Ranks that have not left their number when
    # the time is over cannot be checked.
    program = (
        "import os, pathlib, sys; from mpi4py import MPI; world = MPI.COMM_WORLD\n"
        "pathlib.Path(sys.argv[1], str(os.getpid())).touch()\n"
        "if world.rank == 1: raise ValueError('rank 1 is no more')\n"
        "world.Barrier()"
    )
    with pytest.raises(pytest.fail.Exception, match=r"(?s)not done after 3 s"):
        mpiexec(4, ["-c", program, tmp_path], timeout=3)
    for path in tmp_path.iterdir():
        number = int(path.name)
        gone = (
            not psutil.pid_exists(number) or psutil.Process(number).status() == psutil.STATUS_ZOMBIE
        )
        assert gone, f"rank {number} still runs"
