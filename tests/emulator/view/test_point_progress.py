"""Progress of a sweep: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import os
import pty
import sys

import pytest

from emuchain.emulator.view import point_progress


class Clock:
    """A clock that is put forward by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_lines_are_sparse(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with point_progress("sweep", 50, 10, clock) as advance:
        for _ in range(40):
            clock.now += 1
            advance()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"sweep: {10 + n} of 50 points, {40 - n} s left" for n in (10, 20, 30, 40)
    ]


def test_short_sweeps_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with point_progress("sweep", 3, clock=Clock()) as advance:
        advance()
    assert capsys.readouterr().err == ""


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = pty.openpty()
    with open(follower, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with point_progress("sweep", 7, 2) as advance:
            advance()
    drawn = b""
    with contextlib.suppress(OSError):  # at the end, as the other side is closed
        while True:
            drawn += os.read(leader, 100_000)
    os.close(leader)
    assert b"3/7" in drawn
