"""The fixture `mpiexec` starts ranks and ends them, under each MPI."""

import os
import select
import subprocess
import sys

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


def test_an_end_waits_for_what_was_said(tmp_path):
    """The launcher passes on nothing more once it is told to end: so that has to be read before."""
    said, told = os.pipe(), os.pipe()
    program = (
        "import os; from emuchain.launch import launch; launch._DRAIN_S = 60;"
        f"os.dup2({said[1]}, 2); os.write(2, b'why'); launch.abort_ranks(3)"
    )
    environment = {**os.environ, "PMI_FD": str(told[1])}
    rank = subprocess.Popen(
        [sys.executable, "-c", program], pass_fds=(said[1], told[1]), env=environment
    )
    os.close(told[1])
    with pytest.raises(subprocess.TimeoutExpired):
        rank.wait(1)
    assert select.select([said[0], told[0]], [], [])[0] == [said[0]]
    assert os.read(said[0], 9) == b"why"
    assert os.read(told[0], 99) == b"cmd=abort exitcode=3\n"
    assert rank.wait() == 0
    for end in (said[0], said[1], told[0]):
        os.close(end)
