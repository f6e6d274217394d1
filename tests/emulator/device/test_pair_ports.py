"""Ends of a pair's streams: what comes, what is counted, and what is not due."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emuchain.comm import Mailbox, run
from emuchain.emulator.device import PairPorts
from emuchain.emulator.timing.pair import Content, PairKey

KEY = PairKey(0, 0, Content.SUMS)


def received(ports: PairPorts, first: int) -> Any:
    found = []

    async def take() -> None:
        found.append(await ports.receive(KEY, first))

    run([take()])
    return found[0]


def test_values_come_as_they_were_sent() -> None:
    mailbox = Mailbox()
    sender, receiver = PairPorts({}, {KEY: mailbox}), PairPorts({KEY: mailbox}, {})
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for first in (0, 2):
        sender.send(KEY, first, values + first)
    assert sender.take_sent_bytes() == {KEY: 2 * 96}
    assert sender.take_sent_bytes() == {}
    for first in (0, 2):
        assert received(receiver, first).tolist() == (values + first).tolist()


def test_values_that_are_not_due() -> None:
    mailbox = Mailbox()
    PairPorts({}, {KEY: mailbox}).send(KEY, 4, np.zeros((1, 1, 1), np.float32))
    with pytest.raises(RuntimeError, match="4 came, 0 was expected"):
        received(PairPorts({KEY: mailbox}, {}), 0)
