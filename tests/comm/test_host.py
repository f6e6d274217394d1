"""Hosts: which device is resumed when, what stalls, and for how long pumps are polled."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.comm import Mailbox, Message, StalledError, others_first, run


def message(index: int) -> Message:
    """A message with this number."""
    return Message(index, np.zeros((1, 1), np.int64), None)


class LatePump:
    """Leaves one message at the call of number `after`."""

    def __init__(self, mailbox: Mailbox, index: int, after: int) -> None:
        self.mailbox, self.index, self.left = mailbox, index, after
        self.calls = 0

    def poll(self) -> bool:
        """Count down; return whether the message was left."""
        self.calls += 1
        self.left -= 1
        if self.left == 0:
            self.mailbox.put(message(self.index))
        return self.left == 0


async def read(mailbox: Mailbox, count: int, into: list[int]) -> None:
    """Take `count` messages."""
    for _ in range(count):
        into.append((await mailbox.get()).first)


def test_no_devices() -> None:
    """All that remains is to settle, with the pumps polled."""
    pump = LatePump(Mailbox(), 0, 1000)
    run([], [pump], lambda: lambda: pump.calls >= 3)
    assert pump.calls == 3
    run([])


def test_a_mailbox_is_true_where_it_holds_a_message() -> None:
    mailbox = Mailbox()
    assert not mailbox
    mailbox.put(message(1))
    assert mailbox
    run([read(mailbox, 1, [])])
    assert not mailbox


@given(st.lists(st.integers(0, 99)), st.integers(0, 20))
def test_messages_keep_their_order(indices: list[int], before: int) -> None:
    """Some are there before the reader starts, others come while it waits."""
    mailbox, found = Mailbox(), []
    for index in indices[:before]:
        mailbox.put(message(index))
    if indices[before:]:

        async def write() -> None:
            for index in indices[before:]:
                mailbox.put(message(index))

        run([read(mailbox, len(indices), found), write()])
    else:
        run([read(mailbox, len(indices), found)])
    assert found == indices


@given(
    st.integers(1, 12).flatmap(lambda devices: st.permutations(range(devices))), st.integers(1, 6)
)
def test_a_chain_of_devices_in_any_order(order: list[int], messages: int) -> None:
    """Each adds one to what its left neighbour sends; the order in which they start does not
    matter.
    """
    devices = len(order)
    mailboxes = [Mailbox() for _ in range(devices + 1)]

    async def device(number: int) -> None:
        for _ in range(messages):
            got = await mailboxes[number].get()
            mailboxes[number + 1].put(message(got.first + 1))

    for index in range(messages):
        mailboxes[0].put(message(10 * index))
    found: list[int] = []
    run([*(device(number) for number in order), read(mailboxes[-1], messages, found)])
    assert found == [10 * index + devices for index in range(messages)]


def test_ping_pong() -> None:
    there, back = Mailbox(), Mailbox()
    log: list[str] = []

    async def first() -> None:
        for index in range(3):
            there.put(message(index))
            log.append(f"back {(await back.get()).first}")

    async def second() -> None:
        for _ in range(3):
            got = await there.get()
            log.append(f"there {got.first}")
            back.put(got)

    run([first(), second()])
    assert log == ["there 0", "back 0", "there 1", "back 1", "there 2", "back 2"]


@given(st.integers(0, 5), st.integers(0, 5))
def test_others_go_first(messages: int, waits: int) -> None:
    """A device that lets others go first goes on when all who have mail have used it; where none
    has, at once.
    """
    mailbox, seen = Mailbox(), list[str]()

    async def patient() -> None:
        for _ in range(waits):
            await others_first()
        seen.append("patient")

    async def sender() -> None:
        for index in range(messages):
            mailbox.put(message(index))
            seen.append(f"sent {index}")
        mailbox.put(message(messages))

    async def reader() -> None:
        for _ in range(messages + 1):
            await mailbox.get()
        seen.append("reader")

    run([patient(), reader(), sender()])
    sent = [f"sent {index}" for index in range(messages)]
    assert seen == (["patient", *sent, "reader"] if waits == 0 else [*sent, "reader", "patient"])


def test_a_message_from_elsewhere_goes_first() -> None:
    """What a pump brings at its first poll is read before a device at leisure goes on."""
    mailbox, seen = Mailbox(), list[int]()

    async def patient() -> None:
        await others_first()
        seen.append(-1)

    run([patient(), read(mailbox, 1, seen)], [LatePump(mailbox, 7, 2)])
    assert seen == [7, -1]


@pytest.mark.parametrize("devices", [1, 3])
def test_stall(devices: int) -> None:
    coroutines = [read(Mailbox(), 1, []) for _ in range(devices)]
    with pytest.raises(StalledError, match=f"^{devices} devices wait"):
        run(coroutines)


def test_a_device_that_is_left_stalls() -> None:
    """One device gets all its messages and ends, the other lacks its second."""
    here, there = Mailbox(), Mailbox()
    for mailbox in (here, there):
        mailbox.put(message(0))
    found: list[int] = []
    with pytest.raises(StalledError, match="^1 devices wait"):
        run([read(here, 1, found), read(there, 2, found)])
    assert found == [0, 0]


@pytest.mark.parametrize("after", [1, 2, 50])
def test_with_a_pump_devices_wait(after: int) -> None:
    mailbox, found = Mailbox(), []
    pump = LatePump(mailbox, 7, after)
    run([read(mailbox, 1, found)], [pump])
    assert found == [7]
    assert pump.calls >= after


def test_all_pumps_are_polled() -> None:
    mailboxes, found = [Mailbox(), Mailbox()], []
    pumps = [LatePump(mailboxes[0], 1, 3), LatePump(mailboxes[1], 2, 5)]
    run([read(mailboxes[1], 1, found), read(mailboxes[0], 1, found)], pumps)
    assert sorted(found) == [1, 2]


def test_pumps_are_polled_until_all_ranks_have_ended() -> None:
    pump = LatePump(Mailbox(), 0, 1000)
    log: list[int] = []

    def settling() -> Callable[[], bool]:
        log.append(pump.calls)
        return lambda: pump.calls >= 25

    async def nothing() -> None:
        assert not log  # it is not asked before the devices have ended

    run([nothing()], [pump], settling)
    assert len(log) == 1
    assert pump.calls >= 25


def test_a_devices_error_is_not_swallowed() -> None:
    async def broken() -> None:
        raise ZeroDivisionError("of the device")

    with pytest.raises(ZeroDivisionError, match="of the device"):
        run([broken()])


def test_a_pumps_error_is_not_swallowed() -> None:
    class Broken:
        def poll(self) -> bool:
            raise ZeroDivisionError("of the pump")

    with pytest.raises(ZeroDivisionError, match="of the pump"):
        run([read(Mailbox(), 1, [])], [Broken()])
