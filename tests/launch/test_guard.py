"""A rank that dies: one line names it, all others end, and nothing is left, under each MPI."""

import os
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from emuchain.launch.guard import Death, first_of, shared_by

# The rank of the second argument sends itself a signal instead of its n-th message.
DYING = """
import os, signal, sys
from pathlib import Path
from emuchain.comm import Sender
from emuchain.launch.guard import shared_by
from emuchain.launch.launch import launcher_rank
from emuchain.emulator.commands.cli import main
folder, rank, signal_name, count, *arguments = sys.argv[1:]
put, left = Sender.put, int(count)
def dying(self, message):
    global left
    left -= 1
    if left == 0 and launcher_rank() == int(rank):
        Path(folder, "shared").write_text("".join(f"{file.path}\\n" for file in shared_by(os.getpid())))
        os.kill(os.getpid(), getattr(signal, signal_name))
    put(self, message)
Sender.put = dying
main(arguments)
"""
TRAIN = [
    "train",
    "--samples",
    "640",
    "--test-samples",
    "8",
    "--batch",
    "16",
    "--epochs",
    "20",
    "--progress",
    "none",
]


def left_of(mark: str) -> list[psutil.Process]:
    """Processes whose environment has a mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.environ().get("EMUCHAIN_TEST_MARK") == mark
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process)
        except psutil.Error:
            continue
    return found


def assert_nothing_is_left(mark: str, folder: Path) -> None:
    """Check that no process and no file of the run remains, once the guard has had time to tidy
    up.
    """
    until = time.monotonic() + 20
    while left_of(mark) and time.monotonic() < until:
        time.sleep(0.1)
    assert left_of(mark) == []
    shared = Path(folder, "shared").read_text().splitlines()
    assert shared
    assert [path for path in shared if Path(path).exists()] == []


# Launchers kill the other ranks, too; on a busy machine before the guard has seen which one was
# first.
@pytest.mark.alone
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("rank", "signal_name"), [(0, "SIGKILL"), (2, "SIGKILL"), (0, "SIGSEGV"), (2, "SIGSEGV")]
)
def test_a_dead_rank_is_named(mpiexec, one_line, tmp_path, rank, signal_name):
    mark = uuid.uuid4().hex
    program = ["-c", DYING, tmp_path, str(rank), signal_name, "400", *TRAIN]
    done = mpiexec(3, program, status=None, env={"EMUCHAIN_TEST_MARK": mark})
    assert done.returncode not in (0, 1)
    line = one_line(done.stderr)
    how = rf"rank {rank} on \S+ \(device {rank}\) (was killed by {signal_name}|died)"
    assert re.fullmatch(rf"emuchain: error: {how}; last step done: epoch \d+, step \d+ of 40", line)
    assert_nothing_is_left(mark, tmp_path)


# Before they join MPI: rank 1 waits until the others are known to the guard, and dies, known or
# not.
STARTING = """
import os, signal, sys, time
from pathlib import Path
from emuchain.launch import introduce, launcher_rank
folder, is_known, rank = Path(sys.argv[1]), sys.argv[2] == "known", launcher_rank()
if rank != 1 or is_known:
    introduce(rank).name(f"rank {rank}, known")  # waits for the guard
(folder / str(rank)).touch()
while rank == 1 and len(list(folder.iterdir())) < 3:
    time.sleep(0.01)
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(60)
"""


@pytest.mark.alone
def test_a_rank_that_dies_before_it_is_in_mpi(mpiexec, one_line, tmp_path):
    done = mpiexec(3, ["-c", STARTING, tmp_path, "known"], status=None)
    assert re.fullmatch(
        r"emuchain: error: rank 1, known (was killed by SIGKILL|died)", one_line(done.stderr)
    )


@pytest.mark.alone
def test_a_rank_that_dies_before_the_guard_knows_it(mpiexec, one_line, tmp_path):
    """The launcher ends the others, and which of them all was the first the guard cannot know."""
    done = mpiexec(3, ["-c", STARTING, tmp_path, "unknown"], status=None)
    line = one_line(done.stderr)
    assert re.fullmatch(
        r"emuchain: error: rank (0 or 1|1|1 or 2) on \S+ died while the run started", line
    )


DYING_IN_MPI = """
import os, signal, sys
from pathlib import Path
from emuchain.launch import launch, launcher_rank
from emuchain.launch.guard import shared_by
from emuchain.emulator.commands.cli import main
world = launch._world
def dying():
    joined = world()
    if launcher_rank() == 1:
        Path(sys.argv[1], "shared").write_text("".join(f"{file.path}\\n" for file in shared_by(os.getpid())))
        os.kill(os.getpid(), signal.SIGKILL)
    return joined
launch._world = dying
main(sys.argv[2:])
"""


@pytest.mark.alone
def test_a_rank_that_dies_as_soon_as_it_is_in_mpi(mpiexec, one_line, tmp_path):
    mark = uuid.uuid4().hex
    done = mpiexec(
        3, ["-c", DYING_IN_MPI, tmp_path, *TRAIN], status=None, env={"EMUCHAIN_TEST_MARK": mark}
    )
    # On a busy machine the launcher may have ended all before the guard is awake.
    line = (
        r"emuchain: error: rank (0 or )?1( or 2)? on \S+ (was killed by SIGKILL|died|died while the"
        r" run started)"
    )
    assert re.fullmatch(line, one_line(done.stderr))
    assert_nothing_is_left(mark, tmp_path)


def test_help_of_train_is_not_taken_for_a_death(mpiexec):
    done = mpiexec(2, ["-m", "emuchain", "train", "--help"])
    assert done.stderr == ""


def test_ranks_that_end_as_they_should_are_not_named(mpiexec):
    lines = [
        "from emuchain.launch import join",
        "ranks = join()",
        "ranks.watch()",
        "ranks.dismiss(0)",
    ]
    program = "; ".join([*lines, "ranks.leave_together()"])
    assert "emuchain" not in mpiexec(3, ["-c", program]).stderr


def test_shared_memory_of_others_is_not_found():
    assert shared_by(os.getpid()) == set()
    assert shared_by(-1) == set()


def test_of_several_hosts_deaths_the_first_is_named():
    killed, crashed = "rank 1 on b was killed by SIGKILL", "rank 0 on a was killed by SIGSEGV"
    assert first_of([Death(crashed, 2.0), Death(killed, 1.0)]).line == killed
    assert first_of([Death(crashed, 1.0), Death(killed, 2.0)]).line == crashed


@pytest.mark.parametrize(
    "how", ["was killed by SIGTERM", "ended with status 9", "was killed by SIGKILL after SIGTERM"]
)
def test_a_death_that_only_follows_is_named_alone(how):
    killed, followed = (
        Death("rank 1 on b was killed by SIGKILL", 2.0),
        Death(f"rank 0 on a {how}", 1.0),
    )
    assert first_of([followed, killed]) == killed
    assert first_of([followed]) == followed


def test_a_reported_death_keeps_its_age():
    seen_s = time.monotonic() - 30
    reported = Death.reported(Death("rank 1 on b was killed by SIGKILL", seen_s).report())
    assert reported.line == "rank 1 on b was killed by SIGKILL"
    assert 0 <= reported.seen_s - seen_s < 20


def test_a_file_that_is_about_to_be_mapped_is_known():
    """UCX makes one of 4 MiB for each of MPICH's ranks, fills it, maps it, and removes it: a kill
    may come between.
    """
    path = Path(f"/dev/shm/ucx_shm_posix_{os.getpid():x}")
    with open(path, "w"):
        try:
            assert [file.path for file in shared_by(os.getpid())] == [str(path)]
        finally:
            path.unlink()
    assert shared_by(os.getpid()) == set()


# Two ranks of one parent, as under a launcher: a signal has reached both, and each says why the run
# ends.
BOTH_SAY = """
import os, sys
from emuchain.launch.watch import introduce
watches = [introduce(rank) for rank in range(2)]
for watch in watches:
    watch.join("")
ends = os.fork()
if not ends:
    watches[1].end("emuchain: interrupted")
    os._exit(0)
if sys.argv[1] == "after":
    os.waitpid(ends, 0)
assert watches[0].tell("emuchain: interrupted")
watches[0].leave()
"""


@pytest.mark.parametrize("expected_text", ["after", "at once"])
def test_a_run_that_a_signal_ends_is_reported_of_once(expected_text):
    """Whether the guard hears the rank that ends at once first, or rank 0."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PMI", "OMPI", "PRTE"))
    }
    program = [sys.executable, "-c", BOTH_SAY, expected_text]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "emuchain: interrupted\n")
