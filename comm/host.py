"""A host runs its devices: coroutines that wait for messages, in one thread.

A device only sees mailboxes. Whether a message comes from a device on the same host or through MPI
is settled when the chain is built. The host resumes devices that have mail; when none has, it polls
the transports (`Pump`), and when those have nothing either it yields the processor, because ranks
may outnumber cores.
"""

from __future__ import annotations

import collections
import functools
import os
import time
import types
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from typing import Any, NamedTuple, Protocol


class Awaited(NamedTuple):
    """A description of a message that a device waits for, and the rank that sends it; None: every
    rank.
    """

    text: str
    rank: int | None


ALL_RANKS = Awaited("all ranks to get as far", None)


_SPINS_BEFORE_SLEEP = 10
_SHORTEST_SLEEP_S, _LONGEST_SLEEP_S = 20e-6, 4e-3


class Mailbox:
    """Messages of one stream, in order, for the one device that reads them; `awaited` says which,
    if from elsewhere.
    """

    def __init__(self, awaited: Awaited | None = None) -> None:
        self.awaited = awaited
        self._messages: collections.deque[Any] = collections.deque()
        self._on_mail: Callable[[], None] | None = None

    def put(self, message: Any) -> None:
        """Add a message and notify the reader."""
        self._messages.append(message)
        if self._on_mail is not None:
            # Forgotten before it is called: a second message must not make the reader runnable
            # twice.
            on_mail, self._on_mail = self._on_mail, None
            on_mail()

    def notify(self, on_mail: Callable[[], None]) -> None:
        """Call `on_mail` when the next message arrives."""
        self._on_mail = on_mail

    async def get(self) -> Any:
        """Return the next message, as soon as there is one."""
        while not self._messages:
            await _wait_for(self)
        return self._messages.popleft()

    def __bool__(self) -> bool:
        return bool(self._messages)


@types.coroutine
def _wait_for(mailbox: Mailbox) -> Generator[Mailbox, None, None]:
    yield mailbox


@types.coroutine
def others_first() -> Generator[None, None, None]:
    """Let all devices of this host that have mail go before, as what comes now is needed later than
    their messages.
    """
    yield None


class Pump(Protocol):
    """Moves messages when it is polled: MPI requests, delayed deliveries, the side channel."""

    def poll(self) -> bool:
        """Do what can be done without waiting; return whether anything was done."""


class Watchdog(Protocol):
    """What is reported when a host has work, and when it has none."""

    def busy(self) -> None:
        """Note that something has moved."""

    def idle(self, waits: Callable[[], list[Awaited]]) -> None:
        """Note that nothing has moved; `waits` says what its devices wait for."""


class StalledError(RuntimeError):
    """All devices wait, and no message is in transit: a bug, or a schedule that was not dry-run."""


def run(
    devices: Iterable[Coroutine[Any, Any, None]],
    pumps: Sequence[Pump] = (),
    settling: Callable[[], Callable[[], bool]] = lambda: lambda: True,
    watchdog: Watchdog | None = None,
) -> None:
    """Run the devices' coroutines until all have ended, then poll the pumps until all ranks have.

    `settling` is called when the devices here have ended; what it returns is polled until it
    returns true. The `watchdog` is notified when nothing moves.

    Raises:
        StalledError: everything waits and there is no pump that could bring a message.
    """
    runnable = collections.deque(devices)
    unfinished = len(runnable)
    with_mail: list[Coroutine[Any, Any, None]] = []
    at_leisure: collections.deque[Coroutine[Any, Any, None]] = collections.deque()
    waiting: dict[Coroutine[Any, Any, None], Mailbox] = {}
    idle_turns = 0

    def awaited() -> list[Awaited]:
        # Entries stay until their devices wait again; those whose mail has come wait no more.
        return [
            mailbox.awaited
            for mailbox in waiting.values()
            if mailbox.awaited is not None and not mailbox
        ]

    while unfinished:
        while runnable:
            device = runnable.popleft()
            try:
                mailbox = device.send(None)
                # It came from `others_first`: the device waits for its turn, not for mail.
                if mailbox is None:
                    waiting.pop(device, None)
                    at_leisure.append(device)
                else:
                    waiting[device] = mailbox
                    mailbox.notify(functools.partial(with_mail.append, device))
            except StopIteration:
                waiting.pop(device, None)
                unfinished -= 1
            if runnable:  # messages move on while others compute
                _poll(pumps)
        moved = _poll(pumps)
        if with_mail:
            runnable.extend(with_mail)
            with_mail.clear()
            idle_turns = 0
            if watchdog is not None:
                watchdog.busy()
        elif at_leisure:  # no device has mail: one that had yielded resumes, one at a time
            runnable.append(at_leisure.popleft())
            idle_turns = 0
        elif unfinished and not pumps:
            raise StalledError(f"{unfinished} devices wait for messages that no device will send")
        # Between messages a few polls in vain are usual; only a host that begins to sleep is idle.
        elif not moved:
            idle_turns += 1
            _yield_processor(idle_turns)
            if watchdog is not None and idle_turns > _SPINS_BEFORE_SLEEP:
                watchdog.idle(awaited)
    # MPI moves messages only while it is polled, and other ranks may still wait for ours.
    settled = settling()
    idle_turns = 0
    while not settled():
        idle_turns = 0 if _poll(pumps) else idle_turns + 1
        _yield_processor(idle_turns)
        if watchdog is not None:
            watchdog.idle(lambda: [ALL_RANKS])


def _poll(pumps: Sequence[Pump]) -> bool:
    moved = False
    for pump in pumps:
        moved |= pump.poll()
    return moved


def _yield_processor(idle_turns: int) -> None:
    """Yield and poll again at once; after some turns sleep, twice as long each time, because
    polling costs time too.
    """
    doublings = idle_turns - _SPINS_BEFORE_SLEEP
    if doublings < 0:
        os.sched_yield()
    else:
        # The exponent is bounded, or after 1,024 doublings the power would be too large for a
        # float.
        time.sleep(min(_SHORTEST_SLEEP_S * 2 ** min(doublings, 12), _LONGEST_SLEEP_S))
