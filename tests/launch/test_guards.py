"""Guards of several hosts, which are launchers on this one here: of all deaths one line tells, with
the last step.
"""

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from emuchain.launch import guard, launch, watch

# It is known to the guard of its launcher, and does what the lines of its standard input say.
RANK = """
import os, socket, sys, time
from emuchain.launch.watch import introduce
rank, *lines = map(int, sys.argv[1:])
watch = introduce(rank)
watch.join(f"rank {rank}")
for fd in lines:
    watch.connect(socket.socket(fileno=fd))
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
time.sleep(600)
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a rank under a launcher of this name, with these connections to other guards."""
    started = []

    def start_one(
        launcher: str, rank: int, *lines: socket.socket, **more: Any
    ) -> subprocess.Popen[str]:
        fds = [line.fileno() for line in lines]
        process = subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), *map(str, fds)],
            env={
                "PATH": "",
                "PYTHONPATH": ":".join(sys.path),
                "PMIX_NAMESPACE": f"{launcher}-{id(started)}",
                **{
                    name: value
                    for name, value in os.environ.items()
                    if name.startswith("OMPI_COMM_WORLD_")
                },
            },
            pass_fds=fds,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **more,
        )
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for line in lines:
            line.close()
        return process

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


def do(process: subprocess.Popen[str], what: str) -> None:
    """Have a rank do something; wait until it is done, or the rank has died."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{what}\n")
    process.stdin.flush()
    process.stdout.readline()


def said(*processes: subprocess.Popen[str]) -> str:
    """Return what ranks and their guards say until all have ended."""
    return "".join(process.communicate(timeout=60)[1] for process in processes)


def test_the_first_guard_tells_of_a_death_on_another_host_with_the_last_step(start: Start) -> None:
    first, second = start_two(start)
    do(first, "watch.note('step 7')")
    second.kill()
    assert (
        said(first, second)
        == "emuchain: error: rank 1 was killed by SIGKILL; last step done: step 7\n"
    )


@pytest.mark.parametrize("again", range(3))
def test_a_rank_that_the_library_ends_for_it_is_not_named(start: Start, again: int) -> None:
    first, second = start_two(start)
    second.kill()
    do(first, "os._exit(14)")
    assert said(first, second) == "emuchain: error: rank 1 was killed by SIGKILL\n"


def test_the_first_death_is_named_where_all_other_ranks_follow(start: Start) -> None:
    first, second = start_two(start)
    first.kill()
    do(second, "os._exit(14)")
    assert said(first, second) == "emuchain: error: rank 0 was killed by SIGKILL\n"


def test_a_rank_that_dies_while_another_host_ends_is_not_named(start: Start) -> None:
    """Nor on a third host."""
    one, other = socket.socketpair()
    two, another = socket.socketpair()
    first, second, third = start("a", 0, one, two), start("b", 1, other), start("c", 2, another)
    do(second, "watch.leave()")
    do(second, "os._exit(3)")
    third.kill()
    first.kill()
    assert said(first, second, third) == ""


def test_a_guard_whose_first_one_is_gone_tells(start: Start) -> None:
    line, gone = socket.socketpair()
    gone.close()
    second = start("b", 1, line)
    second.kill()
    assert said(second) == "emuchain: error: rank 1 was killed by SIGKILL\n"


def test_ranks_that_are_left_when_another_host_aborts_are_ended(start: Start) -> None:
    """As those are that are stopped, if the launcher leaves them."""
    first, second = start_two(start)
    second.send_signal(signal.SIGSTOP)
    do(first, "watch.leave(aborts=True)")
    do(first, "os._exit(3)")
    assert said(first, second) == ""
    assert second.wait() == -signal.SIGKILL


def test_the_line_says_which_signal_has_asked_a_rank_to_end_before(start: Start) -> None:
    alone = start("a", 0)
    do(alone, "watch.asked(15)")
    alone.kill()
    assert said(alone) == "emuchain: error: rank 0 was killed by SIGKILL after SIGTERM\n"


def start_two(start: Start) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
    """Start a rank on each of two hosts."""
    one, other = socket.socketpair()
    return start("a", 0, one), start("b", 1, other)


def test_a_guard_that_has_reported_is_not_waited_for() -> None:
    line, far = socket.socketpair()
    there, here = guard.Others(), guard.Others()
    there.add(far.detach())
    fd = line.detach()
    here.add(fd)
    here.ask()
    assert here.silent == {fd}
    there.say("0 rank 1 died")
    assert here.hear(fd) == "0 rank 1 died"
    here.ask()
    assert here.silent == set()


MEETING = """
import socket
from mpi4py import MPI
from emuchain.launch.watch import connect_guards
class Watch:
    lines = []
    def connect(self, line):
        self.lines.append(line.dup())
connect_guards(MPI.COMM_WORLD, ["host 1", "host 2", "host 2", "", "host 3"], Watch())
rank = MPI.COMM_WORLD.Get_rank()
for line in Watch.lines if rank else []:
    line.sendall(bytes([rank]))
heard = sorted(line.recv(1)[0] for line in Watch.lines) if rank == 0 else None
for each in MPI.COMM_WORLD.gather((len(Watch.lines), heard)) or []:
    print(each)
"""


def test_the_first_rank_of_each_guard_is_connected_with_that_of_rank_0(mpiexec: Any) -> None:
    printed = mpiexec(5, ["-c", MEETING]).stdout
    assert printed.splitlines() == [
        "(2, [1, 4])",
        "(1, None)",
        "(0, None)",
        "(0, None)",
        "(1, None)",
    ]


def test_a_stranger_at_the_meeting_is_turned_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        stranger = socket.create_connection(server.getsockname())
        stranger.sendall(b"no words")
        with pytest.raises(ConnectionRefusedError):
            watch.accepted(server, b"the word")
        assert stranger.recv(1) == b""
        stranger.close()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "4", "OMPI_COMM_WORLD_SIZE": "4"}, {}),
        (
            {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_SIZE": "4"},
            {"OMPI_MCA_opal_abort_delay": "2"},
        ),
    ],
)
def test_on_several_hosts_open_mpi_waits_before_it_ends_a_rank(
    given: dict[str, str], expected: dict[str, str]
) -> None:
    assert launch.library_settings(given) == {
        **expected,
        "UCX_DEBUG_SIGNO": "0",
    }  # SIGHUP is for this run


@pytest.mark.parametrize("most_bytes", [64 << 10, 100])
def test_a_limit_on_the_size_of_files(
    start: Start, monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    """The guard's page takes 256 bytes for each rank here; where not even that is allowed, ranks do
    without a guard.
    """
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    limit = (most_bytes, most_bytes)
    ranks = [
        start("one", rank, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
        for rank in range(2)
    ]
    do(ranks[0], "watch.note('step 7')")
    ranks[1].kill()
    if most_bytes < 256:
        ranks[0].kill()
        assert said(*ranks) == ""
    else:
        assert (
            said(*ranks)
            == "emuchain: error: rank 1 was killed by SIGKILL; last step done: step 7\n"
        )
