"""Addresses of arrays in any layout."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from emuchain.kernels.jit import address_of

WHOLE = np.zeros((6, 8), np.float32)
READ_ONLY = WHOLE.copy()
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    "array",
    [
        WHOLE,
        WHOLE[2:],
        WHOLE.T,
        WHOLE[:, ::2],
        WHOLE[::-1],
        READ_ONLY,
        np.frombuffer(bytes(64), np.float32),
        np.frombuffer(bytearray(65), np.uint8)[1:].view(np.float32),
        np.array(3, np.float32),
        WHOLE[:, 8:],
    ],
    ids=[
        "whole",
        "rows",
        "turned",
        "strided",
        "reversed",
        "read-only",
        "bytes",
        "unaligned",
        "0-d",
        "empty",
    ],
)
def test_address_is_that_of_the_first_number(array: NDArray[np.float32]) -> None:
    assert address_of(array) == array.__array_interface__["data"][0]
