"""Random streams of faults: each depends on the seed, the fault, the place, and the sample or mini-batch alone."""

from __future__ import annotations

import enum

import numpy as np


class Purpose(enum.IntEnum):
    """What is drawn."""

    LOSS = 1
    WEIGHTS = 2
    ACTIVATIONS = 3
    MESSAGES = 4
    GRADIENTS = 5


def stream(seed: int, purpose: Purpose, fault: int, board: int, part: int, number: int) -> np.random.Generator:
    """Return the random stream of one event.

    Args:
        seed: of the faults.
        purpose: what is drawn.
        fault: place of the fault in its list.
        board: where it happens; of messages the sender.
        part: what on that board: a layer or a data path.
        number: which time: sample, mini-batch or message.
    """
    key = np.array([seed, purpose << 32 | fault], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=np.array([0, number, part, board], np.uint64)))
