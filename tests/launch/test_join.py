"""Joining ranks: an error where processes were started that cannot find one another; tasks, and
turns.
"""

import os
import resource
import socket
from types import SimpleNamespace

import pytest

from emuchain.launch import (
    LaunchError,
    SingleProcess,
    check_shared_memory,
    join,
    launcher_rank,
    left_over,
)

VARIABLES = (
    "PMI_RANK",
    "PMIX_RANK",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "SLURM_STEP_NUM_TASKS",
)


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
    monkeypatch.setattr("emuchain.launch.launch.is_installed", lambda name: name == "mpich")
    with socket.create_server(("127.0.0.1", 0)) as server:  # as the launcher has
        monkeypatch.setenv(
            "PMIX_SERVER_URI41", f"prterun-host-1@0.0;tcp4://127.0.0.1:{server.getsockname()[1]}"
        )
        with pytest.raises(LaunchError, match="Open MPI's mpiexec, but MPICH is installed"):
            join()


def test_settings_that_a_launcher_has_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """They reach all that a rank starts, in which no launcher is behind them: it is a process of
    its own.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        gone = server.getsockname()[1]
    with open(os.devnull) as file:
        for setting, more in (
            ("OMPI_COMM_WORLD_RANK", {}),
            (
                "OMPI_COMM_WORLD_RANK",
                {"PMIX_SERVER_URI41": f"prterun-host-1@0.0;tcp4://127.0.0.1:{gone}"},
            ),
            ("PMIX_RANK", {"SLURM_PROCID": "1"}),
            ("PMI_RANK", {"PMI_FD": "999999", "PMI_SIZE": "2"}),
            ("PMI_RANK", {"PMI_FD": str(file.fileno())}),
        ):
            with monkeypatch.context() as patch:
                for name, value in {setting: "1", **more}.items():
                    patch.setenv(name, value)
                assert launcher_rank() is None
                assert left_over() == f"{setting}=1"
                assert isinstance(join(), SingleProcess)


def test_a_connection_to_the_launcher_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, launchers = socket.socketpair()
    with ours, launchers:
        monkeypatch.setenv("PMI_RANK", "1")
        monkeypatch.setenv("PMI_FD", str(ours.fileno()))
        assert launcher_rank() == 1
        assert left_over() is None


def test_small_shared_memory_is_reported_before_mpich_takes_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MPICH takes 5.14 MiB a rank, and crashes where there is less; Docker gives 64 MiB."""
    monkeypatch.setattr(
        os, "statvfs", lambda _: SimpleNamespace(f_frsize=4096, f_blocks=64 << 8, f_bavail=20 << 8)
    )
    ranks = {"PMI_RANK": "0", "MPI_LOCALNRANKS": "12"}
    with pytest.raises(
        LaunchError,
        match=r"74 MiB of shared memory for 12 ranks, and /dev/shm has 64 MiB: .*--shm-s",
    ):
        check_shared_memory(is_first=False, environment=ranks)
    with pytest.raises(
        LaunchError,
        match=r"26 MiB of shared memory for 4 ranks.* has 20 MiB free: .*--shm-size=26m",
    ):
        check_shared_memory(is_first=True, environment={**ranks, "MPI_LOCALNRANKS": "4"})
    check_shared_memory(is_first=False, environment={**ranks, "MPI_LOCALNRANKS": "4"})
    check_shared_memory(is_first=True, environment={**ranks, "MPI_LOCALNRANKS": "1"})
    check_shared_memory(
        is_first=True, environment={"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "12"}
    )


def test_a_limit_on_files_is_reported_before_mpich_makes_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (128 << 10, 1 << 30))
    with pytest.raises(LaunchError, match=r"\(`ulimit -f`\) is 128 KiB: raise it"):
        check_shared_memory(
            is_first=False, folder="/nowhere", environment={"PMI_RANK": "1", "MPI_LOCALNRANKS": "2"}
        )


def test_ranks_know_one_another_and_rank_0_hears_from_all(mpiexec) -> None:  # type: ignore[no-untyped-def]  # a fixture
    """Every rank knows all others; rank 0 gets what each rank sends to it."""
    program = (
        "from emuchain.launch import join; ranks = join(); heard = []; ranks.on_object ="
        " heard.append; ranks.send_to_root(ranks.rank); shared = ranks.share(ranks.rank); assert"
        " shared == [0, 1, 2], shared; ranks.share(None); ranks.poll(); assert ranks.rank or"
        " sorted(heard) == [0, 1, 2], heard; print('heard') if ranks.rank == 0 else None"
    )
    assert mpiexec(3, ["-c", program]).stdout.strip() == "heard"


TASKS = """
import functools, sys
from emuchain.launch import Dismissed, join
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
from emuchain.launch import join
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
