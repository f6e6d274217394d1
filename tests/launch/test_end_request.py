"""SIGTERM, SIGUSR1 and SIGHUP: noted where a run asks for them, otherwise the end, under each
MPI.
"""

import contextlib
import os
import signal

import pytest

from emuchain.launch import EndRequest, SingleProcess, Terminated, ended_by, importing
from emuchain.launch.end_request import ENDING

from .test_guard import DYING, TRAIN


@pytest.fixture
def listening():
    """The ranks of one process, which listens; the handlers before are put back."""
    numbers = signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP
    before = [signal.getsignal(number) for number in numbers]
    ranks = SingleProcess()
    ranks.end_request.listen()
    yield ranks
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGUSR1, 138), (signal.SIGHUP, 129)]
)
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


def test_who_wants_to_know_is_notified_of_a_signal_that_is_noted(listening):
    message = []
    request = EndRequest(message.append)
    request.listen()  # in place of the fixture's, which puts handlers back
    with request.noting():
        os.kill(os.getpid(), signal.SIGTERM)
    assert message == [signal.SIGTERM]


def test_nothing_is_noted_at_first():
    assert EndRequest().noted == 0


@pytest.mark.parametrize("rank", [0, 2])
def test_a_signal_to_one_rank_ends_all(mpiexec, one_line, tmp_path, rank):
    done = mpiexec(3, ["-c", DYING, tmp_path, str(rank), "SIGTERM", "200", *TRAIN], status=143)
    assert one_line(done.stderr) == "emuchain: ended by SIGTERM"


@pytest.fixture
def taking():
    """A request that has taken signals, as a command does at first, and the numbers of those that
    ended it.
    """
    before = {number: signal.getsignal(number) for number in ENDING}
    request, ended = EndRequest(), []

    def end(number):
        ended.append(number)
        raise SystemExit(128 + number)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    request.take()
    yield request, ended, end
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_before_a_command_knows_how_to_end_ends_it_then(taking, number):
    request, ended, end = taking
    os.kill(os.getpid(), number)
    os.kill(os.getpid(), signal.SIGTERM)  # another one is no other end
    assert not ended
    with pytest.raises(SystemExit):
        request.end_at_once(end)
    assert ended == [number]


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_ends_a_command_at_once_until_there_is_something_to_put_in_order(taking, number):
    request, ended, end = taking
    request.end_at_once(end)
    with pytest.raises(SystemExit):
        os.kill(os.getpid(), number)
    os.kill(os.getpid(), number)  # it ends already
    assert ended == [number]


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (signal.SIGINT, KeyboardInterrupt),
        (signal.SIGUSR2, KeyboardInterrupt),
        (signal.SIGTERM, Terminated),
        (signal.SIGUSR1, Terminated),
        (signal.SIGHUP, Terminated),
    ],
)
def test_a_signal_is_an_exception_once_imports_are_done(taking, number, error):
    request, ended, end = taking
    request.end_at_once(end)
    with importing():
        pass
    with pytest.raises(error):
        os.kill(os.getpid(), number)
    assert not ended


def test_a_signal_that_code_swallows_ends_a_command_all_the_same(taking, monkeypatch):
    request, ended, end = taking
    monkeypatch.setattr("emuchain.launch.end_request._MOST_S", 0.01)
    request.end_at_once(end)
    with request.at_once():
        pass
    with contextlib.suppress(KeyboardInterrupt):  # as Python does in a destructor
        os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(SystemExit):
        signal.pause()
    assert ended == [signal.SIGINT]


def test_a_command_that_ends_takes_no_more_signals(taking):
    request, ended, end = taking
    request.end_at_once(end)
    request.close()
    for number in ENDING:
        os.kill(os.getpid(), number)
    assert not ended


@pytest.mark.parametrize("ignored", [signal.SIGINT, signal.SIGHUP])
def test_what_a_shell_has_ignored_stays_ignored(ignored):
    """As it does for what a script starts in the background, and for what `nohup` starts."""
    before = {number: signal.getsignal(number) for number in ENDING}
    try:
        signal.signal(ignored, signal.SIG_IGN)
        EndRequest().take()
        EndRequest().listen()
        assert signal.getsignal(ignored) is signal.SIG_IGN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_signals_stay_a_callers_own_where_python_calls():
    before = {number: signal.getsignal(number) for number in ENDING}
    with importing():
        pass
    EndRequest().end_at_once(lambda _: None)
    EndRequest().close()
    assert {number: signal.getsignal(number) for number in ENDING} == before


@pytest.mark.parametrize(
    ("number", "line", "status"),
    [
        (signal.SIGINT, "emuchain: interrupted", 130),
        (signal.SIGUSR2, "emuchain: interrupted", 130),
        (signal.SIGTERM, "emuchain: ended by SIGTERM", 143),
        (signal.SIGUSR1, "emuchain: ended by SIGUSR1", 138),
        (signal.SIGHUP, "emuchain: ended by SIGHUP", 129),
    ],
)
def test_what_is_said_of_a_signal_is_documented(number, line, status):
    assert ended_by(number) == (line, status)


def test_a_caller_gets_its_signals_back():
    """Of a command that runs in a process which goes on."""
    before = {number: signal.getsignal(number) for number in ENDING}
    request = EndRequest()
    request.listen()
    assert signal.getsignal(signal.SIGTERM) != before[signal.SIGTERM]
    request.close()
    assert {number: signal.getsignal(number) for number in ENDING} == before
