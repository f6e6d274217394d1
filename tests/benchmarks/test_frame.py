"""Timing of calls, on a clock that the tests set: rounds, repetitions and ratios."""

from __future__ import annotations

from emuchain.benchmarks import frame
from emuchain.benchmarks.frame import Pace


class Machine:
    """A clock, and calls that take their time on it; notes who was called."""

    def __init__(self) -> None:
        self.now, self.log = 0.0, ""

    def call(self, name: str, seconds: float):  # type: ignore[no-untyped-def]
        def run() -> None:
            self.now += seconds
            self.log += name

        return run


def test_calls_are_interleaved_and_short_ones_repeated() -> None:
    machine = Machine()
    calls = [machine.call("a", 1.0), machine.call("b", 0.25)]
    timings = frame.interleaved(calls, Pace(7, least_s=1.0, enough_s=0.0), lambda: machine.now)
    assert timings == [[1.0] * 7, [0.25] * 7]
    # Each once, to compile; then how often to call each; then the rounds.
    assert machine.log == "ab" + "a" + "bbbbb" + "abbbb" * 7


def test_short_rounds_are_more() -> None:
    machine = Machine()
    (timings,) = frame.interleaved(
        [machine.call("a", 1.0)], Pace(7, 1.0, enough_s=10.0), lambda: machine.now
    )
    assert len(timings) == 10
    (timings,) = frame.interleaved(
        [machine.call("a", 1.0)], Pace(7, 1.0, enough_s=1e9), lambda: machine.now
    )
    assert len(timings) == frame.MOST_ROUNDS


def test_ratios_are_taken_side_by_side() -> None:
    # A machine ten times slower in one round: the ratio of medians would be 6, the median of ratios
    # is 2.
    assert frame.median_ratio([2.0, 20.0, 12.0], [1.0, 10.0, 2.0]) == 2.0
