"""Sizes of messages that pass a codec: kept in training, so that a finished run can be timed again."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import numpy as np

from .time import Sizes

GivenBytes = Callable[[int], int]
"""Function that returns the bytes of a sender's next message after the codec, from those before it."""


class SizeLog:
    """The sizes of a sender's messages before and after the codec, in order, until they are taken."""

    def __init__(self) -> None:
        self._sizes = array("q")

    def add(self, value_bytes: int, compressed_bytes: int) -> None:
        """Add a message."""
        self._sizes.extend((value_bytes, compressed_bytes))

    def take(self) -> Sizes:
        """Return the sizes in bytes (message, 2), and begin anew."""
        sizes, self._sizes = self._sizes, array("q")
        return np.array(sizes, np.int64).reshape(-1, 2)
