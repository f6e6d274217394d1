import fcntl
import io
import os
import struct
import termios

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.common import format_bytes, format_time_ps
from emuchain.emulator.run import EpochResult
from emuchain.emulator.view import make_progress, progress, terminal
from emuchain.emulator.view.progress import LiveProgress, PlainProgress, SilentProgress

ROW = EpochResult(
    epoch=1,
    learning_rate=0.01,
    train_loss=1.25,
    train_accuracy=0.4,
    test_loss=1.5,
    test_accuracy=0.5,
    virtual_time_ps=12_300_000_000,
    host_time_s=4.2,
)
UNTESTED = ROW._replace(
    train_loss=0.5, test_loss=float("nan"), test_accuracy=float("nan"), virtual_time_ps=1000
)


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


# Units


@pytest.mark.parametrize(
    ("ps", "text"),
    [
        (0, "0 ps"),
        (999, "999 ps"),
        (1000, "1.00 ns"),
        (9994, "9.99 ns"),
        (9996, "10.0 ns"),
        (12_300_000_000, "12.3 ms"),
        (999_499, "999 ns"),
        (999_999, "1.00 us"),
        (119_000_000_000_000, "119 s"),
        (125_000_000_000_000, "2 min 05 s"),
        (3600 * 10**12 * 2 + 5 * 60 * 10**12, "2 h 05 min"),
        (-1500, "-1.50 ns"),
    ],
)
def test_times(ps, text):
    assert format_time_ps(ps) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (3 * 2**19, "1.50 MiB"),
        (2**30 - 1, "1.00 GiB"),
        (5000 * 2**40, "5000 TiB"),
        (-2048, "-2.00 KiB"),
    ],
)
def test_bytes(count, text):
    assert format_bytes(count) == text


@given(st.integers(min_value=1, max_value=10**14))
def test_time_is_right_to_three_digits(ps):
    number, unit = format_time_ps(ps).split(" ")
    size = {"ps": 1, "ns": 10**3, "us": 10**6, "ms": 10**9, "s": 10**12}[unit]
    assert len(number.replace(".", "")) <= 3
    assert abs(float(number) * size - ps) <= 0.00501 * ps


# Terminals


def processes(*chain):
    """A reader of statuses: the first name is process 100's, the next its parent's, and so on;
    above them is init.
    """
    table = {100 - i: (name, 99 - i) for i, name in enumerate(chain)}
    table[100 - len(chain)] = ("systemd", 0)
    return lambda pid: "Name:\t{}\nUmask:\t0022\nState:\tS (sleeping)\nPPid:\t{}\n".format(
        *table[pid]
    )


def test_status_is_parsed():
    assert terminal.parse_status("Name:\ta b: c\nPid:\t7\nPPid:\t3\n") == ("a b: c", 3)
    with pytest.raises(ValueError, match="PPid"):
        terminal.parse_status("Name:\tx\n")


@pytest.mark.parametrize(
    ("chain", "launcher"),
    [
        (["python", "hydra_pmi_proxy", "mpiexec", "bash", "sshd"], 98),
        (["python", "hydra_pmi_proxy", "mpiexec.hydra", "mpiexec", "bash"], 97),
        (["python", "prterun", "bash"], 99),
        (["emuchain", "bash", "orterun", "make"], 98),
        (["python", "prted", "sshd"], 99),
        (["python", "prterun", "python", "hydra_pmi_proxy", "mpiexec", "bash"], 99),
        (["python", "slurmstepd"], None),
        (["mpiexec", "bash"], None),
    ],
)
def test_launcher_is_found(chain, launcher):
    assert terminal.outermost_launcher(100, processes(*chain)) == launcher


@pytest.mark.parametrize(
    "path", ["/dev/pts/0", "/dev/pts/12", "/dev/tty1", "/dev/ttyS0", "/dev/console"]
)
def test_terminal_paths(path):
    assert terminal.is_terminal_path(path)


@pytest.mark.parametrize(
    "path", ["pipe:[123]", "/dev/null", "/home/dev/pts/0", "/dev/pts/0 (deleted)", "socket:[1]"]
)
def test_other_paths(path):
    assert not terminal.is_terminal_path(path)


def test_ranks_are_known_by_their_environment():
    assert not terminal.launched({"HOME": "/root"})
    assert terminal.launched({"PMI_RANK": "0"})
    assert terminal.launched({"OMPI_COMM_WORLD_RANK": "3"})


ASK = """
import os, pathlib, sys
from mpi4py import MPI
from emuchain.emulator.view.terminal import is_terminal, terminal_width
pathlib.Path(sys.argv[1], str(MPI.COMM_WORLD.rank)).write_text(f"{is_terminal()} {terminal_width()}")
"""


@pytest.mark.each_mpi
def test_ranks_see_the_launchers_terminal(mpiexec, tmp_path):
    master, slave = os.openpty()
    try:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 77, 0, 0))
        mpiexec(2, ["-c", ASK, tmp_path], stdout=slave)
    finally:
        os.close(master)
        os.close(slave)
    assert (tmp_path / "0").read_text() == "True 77"


@pytest.mark.each_mpi
def test_ranks_see_that_the_launcher_writes_to_a_file(mpiexec, tmp_path):
    mpiexec(2, ["-c", ASK, tmp_path])
    assert (tmp_path / "0").read_text() == "False 100"


# Progress


def test_plain_says_a_line_now_and_then():
    stream, clock = io.StringIO(), Clock()
    with PlainProgress(stream, interval=10, clock=clock) as plain:
        plain.start(total_samples=1000, epochs=2)
        for done in range(100, 501, 100):
            clock.now += 5
            plain.step(done, 1, 2.5, 0.25, 12_300_000_000)
        plain.epoch(ROW)
        plain.note("one word more")
    assert stream.getvalue().splitlines() == [
        (
            "epoch 1/2  200/1000 samples  20 samples/s  loss 2.5000  accuracy 25.0 %  virtual 12.3"
            " ms  0:40 left"
        ),
        (
            "epoch 1/2  400/1000 samples  20 samples/s  loss 2.5000  accuracy 25.0 %  virtual 12.3"
            " ms  0:30 left"
        ),
        "epoch 1/2 done: loss 1.2500, test accuracy 50.00 %, virtual 12.3 ms, host 4.2 s",
        "one word more",
    ]


def test_plain_leaves_out_what_is_not_known():
    stream, clock = io.StringIO(), Clock()
    plain = PlainProgress(stream, interval=0, clock=clock)
    plain.start(10, 1)
    plain.step(0, 1, None, None, 0)
    plain.epoch(UNTESTED)
    assert stream.getvalue().splitlines() == [
        "epoch 1/1  0/10 samples  0 samples/s  virtual 0 ps",
        "epoch 1/1 done: loss 0.5000, virtual 1.00 ns, host 4.2 s",
    ]


def test_bar_draws_into_a_pipe(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream, clock = io.StringIO(), Clock()
    with LiveProgress(stream, width=100, clock=clock) as live:
        live.start(total_samples=1000, epochs=2)
        for done in (100, 200, 300):
            clock.now += 1
            live.step(done, 1, 2.5, 0.25, 12_300_000_000)
        live.epoch(ROW)
        live.note("[one] word more")
    text = stream.getvalue()
    for part in (
        "epoch 1/2",
        "100/s",
        "loss 2.5000",
        "accuracy 25.0 %",
        "virtual 12.3 ms",
        "0:07",
        "[one] word more",
    ):
        assert part in text
    assert "\x1b[?25h" in text, "the cursor is shown again"


def test_bar_is_not_drawn_for_every_step(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream, clock = io.StringIO(), Clock()
    with LiveProgress(stream, width=100, clock=clock) as live:
        live.start(1000, 1)
        live.step(1, 1, 2.5, None, 0)
        drawn = len(stream.getvalue())
        live.step(2, 1, 2.5, None, 0)
        assert len(stream.getvalue()) == drawn


@pytest.mark.parametrize("close_twice", [False, True])
def test_bar_can_be_closed_at_any_time(monkeypatch, close_twice):
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    live = LiveProgress(stream, width=100)
    live.start(10, 1)
    live.step(1, 1, None, None, 0)
    live.close()
    drawn = stream.getvalue()
    assert "\x1b[?25h" in drawn, "the cursor is shown again"
    if close_twice:
        live.close()
    assert stream.getvalue() == drawn


def test_mode_chooses(monkeypatch):
    assert type(make_progress("none")) is SilentProgress
    assert type(make_progress("plain")) is PlainProgress
    assert type(make_progress("steps")) is PlainProgress
    assert type(make_progress("bar")) is LiveProgress
    assert type(make_progress("bar", rank=1)) is SilentProgress
    for is_terminal, kind in ((True, LiveProgress), (False, PlainProgress)):
        monkeypatch.setattr(progress, "is_terminal", lambda answer=is_terminal: answer)
        assert type(make_progress("auto")) is kind


def test_silence(capsys):
    with SilentProgress() as silent:
        silent.start(10, 1)
        silent.step(5, 1, 1.0, 0.5, 0)
        silent.epoch(ROW)
        silent.note("not heard")
    assert capsys.readouterr() == ("", "")
