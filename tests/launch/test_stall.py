"""Ranks that are stopped, under each MPI; and who is to blame, by hand."""

import os
import re
import signal
import subprocess
import uuid

import pytest

from emuchain.comm import ALL_RANKS, Awaited
from emuchain.launch.processes import is_stopped
from emuchain.launch.stall import STALL_STATUS, Answer, Peers, stall_line

from .test_guard import DYING, TRAIN, assert_nothing_is_left

FROM_1 = Awaited("path 1 (activations) of device 1 on rank 1, for device 2", 1)
FROM_3 = Awaited("path 4 (input errors) of device 3 on rank 3, for device 2", 3)
PEERS = Peers(0, ["rank 0 on a", "rank 1 on b (device 1)", "rank 2 on b", "rank 3 on b"], {})


def test_the_line_blames_those_that_do_not_answer():
    waiting = {
        2: Answer([FROM_3, FROM_1], 5.0),
        0: Answer([ALL_RANKS], 7.0),
        3: Answer([FROM_3], 1.0),
    }
    line = stall_line(PEERS, waiting, {1}, 7.2, "epoch 1, step 3 of 5")
    assert re.fullmatch(
        r"emuchain: error: no progress for 7 s: rank 1 on b \(device 1\) does not answer;"
        r" since \d\d:\d\d:\d\d rank 0 waits for all ranks to get as far;"
        r" since \d\d:\d\d:\d\d rank 2 waits for path 1 \(activations\) of device 1 on rank 1, for"
        r" device 2;"
        r" last step done: epoch 1, step 3 of 5",
        line,
    )


def test_where_all_answer_all_wait():
    line = stall_line(PEERS, {2: Answer([FROM_3], 5.0)}, set(), 5.0, "")
    assert "all ranks wait for one another" in line
    assert "rank 2 waits for path 4" in line and "last step" not in line


def test_stopped_processes_are_found():
    with subprocess.Popen(["sleep", "60"]) as process:
        assert not is_stopped(process.pid)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        assert is_stopped(process.pid)
        assert Peers(0, ["a", "b"], {1: process.pid}).stopped() == {1}
        process.kill()
    assert not is_stopped(process.pid)


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_stopped_rank_ends_the_run(mpiexec, one_line, tmp_path, rank):
    mark = uuid.uuid4().hex
    program = ["-c", DYING, tmp_path, str(rank), "SIGSTOP", "300", *TRAIN, "--stall-timeout", "2"]
    done = mpiexec(3, program, status=None, env={"EMUCHAIN_TEST_MARK": mark})
    # MPICH's launcher may give the status of the rank that it had to kill.
    assert done.returncode in ((STALL_STATUS, 9) if mpiexec.name == "mpich" else (STALL_STATUS,))
    line = one_line(done.stderr)
    waits = (
        rf"since [\d:]+ rank \d waits for path \d \([a-z ]+\) of device {rank} on rank {rank}, for"
        r" device \d"
    )
    assert re.match(
        rf"emuchain: error: no progress for \d+ s: rank {rank} on \S+ \(device {rank}\) is stopped;"
        rf" {waits}",
        line,
    )
    assert_nothing_is_left(mark, tmp_path)
