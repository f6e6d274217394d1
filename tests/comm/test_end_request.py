"""SIGTERM and SIGUSR1: noted where a run asks for them, otherwise the end, under each MPI."""

import os
import signal

import pytest

from emuchain.comm import EndRequest, SingleProcess, Terminated

from .test_guard import DYING, TRAIN


@pytest.fixture
def listening():
    """The ranks of one process, which listens; the handlers before are put back."""
    numbers = signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2
    before = [signal.getsignal(number) for number in numbers]
    ranks = SingleProcess()
    ranks.end_request.listen()
    yield ranks
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGUSR1, 138)])
def test_a_signal_ends_a_run_that_does_not_ask(listening, number, status):
    with pytest.raises(Terminated) as ended:
        os.kill(os.getpid(), number)
    assert (ended.value.status, ended.value.line) == (status, f"emuchain: ended by {number.name}")


def test_the_first_signal_is_noted_and_the_second_ends(listening):
    with listening.end_request.noting():
        assert listening.end_wanted() == 0
        os.kill(os.getpid(), signal.SIGUSR1)
        assert listening.end_wanted() == signal.SIGUSR1
        with pytest.raises(Terminated):
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_launcher_may_interrupt_by_another_signal(listening):
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGUSR2)
    assert listening.end_request.noted == 0


def test_who_wants_to_know_is_told_of_a_signal_that_is_noted(listening):
    told = []
    request = EndRequest(told.append)
    request.listen()  # in place of the fixture's, which puts handlers back
    with request.noting():
        os.kill(os.getpid(), signal.SIGTERM)
    assert told == [signal.SIGTERM]


def test_nothing_is_noted_at_first():
    assert EndRequest().noted == 0


@pytest.mark.parametrize("rank", [0, 2])
def test_a_signal_to_one_rank_ends_all(mpiexec, one_line, tmp_path, rank):
    done = mpiexec(3, ["-c", DYING, tmp_path, str(rank), "SIGTERM", "200", *TRAIN], status=143)
    assert one_line(done.stderr) == "emuchain: ended by SIGTERM"
