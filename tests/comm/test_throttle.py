"""The wall-clock gate of a link, with a clock that the test sets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.comm import Gate

# 8 Mb/s: a microsecond a byte.
MBPS = 8
US = 1e-6
PS_PER_US = 10**6
ROUNDING_S = 1e-12


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def delivery(log: list[str], name: str) -> Callable[[], None]:
    """What to call when a message is delivered: its name is logged."""
    return lambda: log.append(name)


def assert_leaves_at(gate: Gate, clock: Clock, log: list[str], time_us: float, name: str) -> None:
    """Check that the next message to leave is `name`, at that time and not before."""
    before = list(log)
    clock.now_s = time_us * US - ROUNDING_S
    assert not gate.poll()
    assert log == before
    clock.now_s = time_us * US + ROUNDING_S
    assert gate.poll()
    assert log == [*before, name]


def test_a_message_leaves_after_its_bytes_and_the_latency() -> None:
    clock, log = Clock(), []
    gate = Gate(MBPS, 30 * PS_PER_US, clock)
    clock.now_s = 1000 * US
    gate.pass_through(50, delivery(log, "a"))
    assert not gate.is_empty
    assert_leaves_at(gate, clock, log, 1080, "a")
    assert gate.is_empty


def test_bytes_follow_one_another_and_latencies_overlap() -> None:
    clock, log = Clock(), []
    gate = Gate(MBPS, 300 * PS_PER_US, clock)
    gate.pass_through(50, delivery(log, "a"))
    gate.pass_through(20, delivery(log, "b"))
    clock.now_s = 10 * US
    gate.pass_through(5, delivery(log, "c"))
    clock.now_s = 200 * US  # the link has been free since 75
    gate.pass_through(40, delivery(log, "d"))
    assert_leaves_at(gate, clock, log, 350, "a")
    assert_leaves_at(gate, clock, log, 370, "b")
    assert_leaves_at(gate, clock, log, 375, "c")
    assert_leaves_at(gate, clock, log, 540, "d")
    assert gate.is_empty


def test_all_messages_that_are_due_leave_at_once_and_in_order() -> None:
    clock, log = Clock(), []
    gate = Gate(MBPS, 0, clock)
    for name in "abc":
        gate.pass_through(10, delivery(log, name))
    clock.now_s = 25 * US
    assert gate.poll()
    assert log == ["a", "b"]
    clock.now_s = 1
    assert gate.poll()
    assert not gate.poll()
    assert log == ["a", "b", "c"]


@pytest.mark.parametrize("mbps", [1, 8, 10_000, 150_000])
def test_bandwidth(mbps: int) -> None:
    """A gigabyte: 8e9 bits."""
    clock, log = Clock(), []
    gate = Gate(mbps, 0, clock)
    gate.pass_through(10**9, delivery(log, "a"))
    due_s = 8e9 / (mbps * 1e6)
    clock.now_s = due_s * (1 - 1e-9)
    assert not gate.poll()
    clock.now_s = due_s * (1 + 1e-9)
    assert gate.poll()


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=20),
    st.integers(0, 1000),
)
def test_recurrence(messages: list[tuple[int, int]], latency_us: int) -> None:
    """Messages are (microseconds since the one before, bytes)."""
    clock, log = Clock(), []
    gate = Gate(MBPS, latency_us * PS_PER_US, clock)
    due, free = [], 0
    now = 0
    for number, (pause, size) in enumerate(messages):
        now += pause
        clock.now_s = now * US
        gate.pass_through(size, delivery(log, str(number)))
        free = max(free, now) + size
        due.append(free + latency_us)
    for time in sorted({*due}):
        clock.now_s = time * US - 1e-9
        gate.poll()
        assert log == [str(number) for number, other in enumerate(due) if other < time]
        clock.now_s = time * US + 1e-9
        gate.poll()
        assert log == [str(number) for number, other in enumerate(due) if other <= time]
    assert gate.is_empty
