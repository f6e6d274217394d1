"""A rank that dies: one line names it, all others end, and nothing is left, under each MPI."""

import os
import re
import time
import uuid
from pathlib import Path

import psutil
import pytest

from emuchain.comm.guard import shared_by

# The rank of the second argument sends itself a signal instead of its n-th message.
DYING = """
import os, signal, sys
from pathlib import Path
from emuchain.comm import Sender
from emuchain.comm.guard import shared_by
from emuchain.comm.launch import launcher_rank
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
TRAIN = ["train", "--samples", "640", "--test-samples", "8", "--batch", "16", "--epochs", "20", "--progress", "none"]


def left_of(mark: str) -> list[psutil.Process]:
    """Processes whose environment has a mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("EMUCHAIN_TEST_MARK") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def assert_nothing_is_left(mark: str, folder: Path) -> None:
    """Check that no process and no file of the run remains, once the guard has had time to tidy up."""
    until = time.monotonic() + 20
    while left_of(mark) and time.monotonic() < until:
        time.sleep(0.1)
    assert left_of(mark) == []
    shared = Path(folder, "shared").read_text().splitlines()
    assert shared
    assert [path for path in shared if Path(path).exists()] == []


# Launchers kill the other ranks, too; on a busy machine before the guard has seen which one was first.
@pytest.mark.alone
@pytest.mark.parametrize(("rank", "signal_name"), [(0, "SIGKILL"), (2, "SIGKILL"), (2, "SIGSEGV")])
def test_a_dead_rank_is_named(mpiexec, one_line, tmp_path, rank, signal_name):
    mark = uuid.uuid4().hex
    program = ["-c", DYING, tmp_path, str(rank), signal_name, "400", *TRAIN]
    done = mpiexec(3, program, status=None, env={"EMUCHAIN_TEST_MARK": mark})
    assert done.returncode not in (0, 1)
    line = one_line(done.stderr)
    how = rf"rank {rank} on \S+ \(device {rank}\) (was killed by {signal_name}|died)"
    assert re.fullmatch(rf"emuchain: error: {how}; last step done: epoch \d+, step \d+ of 40", line)
    assert_nothing_is_left(mark, tmp_path)


@pytest.mark.alone
def test_a_rank_that_dies_before_it_has_devices(mpiexec, one_line, tmp_path):
    program = (
        "import os, signal, time\n"
        "from emuchain.comm import join\n"
        "ranks = join(); ranks.watch(); ranks.share(None)\n"
        "if ranks.rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "time.sleep(60)"
    )
    done = mpiexec(3, ["-c", program], status=None)
    # The launcher may have ended the others before the guard has begun to watch.
    one = r"rank 1 on \S+ (was killed by SIGKILL|died)"
    assert re.fullmatch(rf"emuchain: error: ({one}|all ranks of this host were killed at once)", one_line(done.stderr))


def test_ranks_that_end_as_they_should_are_not_named(mpiexec):
    program = "from emuchain.comm import join; ranks = join(); ranks.watch(); ranks.dismiss(0); ranks.leave_together()"
    assert "emuchain" not in mpiexec(3, ["-c", program]).stderr


def test_shared_memory_of_others_is_not_found():
    assert shared_by(os.getpid()) == set()
    assert shared_by(-1) == set()
