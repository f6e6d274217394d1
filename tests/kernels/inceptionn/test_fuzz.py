"""Arbitrary buffers: values, or an error of one line; never a read beyond the buffer.

A buffer ends where a page ends, before one that must not be touched: a read beyond it ends the
process.
"""

import ctypes
import mmap
import random

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from numpy.typing import NDArray

from emuchain.kernels import CodecError
from emuchain.kernels.inceptionn import compress, decompress, width_counts
from emuchain.kernels.inceptionn.burst import LEAST_BYTES

CASES = 100_000


class Cliff:
    """Memory that ends before a page that cannot be read."""

    def __init__(self, pages: int = 1) -> None:
        self.memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
        self.bytes = np.frombuffer(self.memory, np.uint8)
        self.edge = pages * mmap.PAGESIZE
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        beyond = self.bytes.ctypes.data + self.edge
        assert libc.mprotect(beyond, mmap.PAGESIZE, 0) == 0

    def put(self, data: bytes) -> NDArray[np.uint8]:
        """A buffer with these bytes, up to the edge."""
        place = self.bytes[self.edge - len(data) : self.edge]
        place[:] = np.frombuffer(data, np.uint8)
        return place


@pytest.fixture(scope="module")
def cliff() -> Cliff:
    return Cliff()


def one_bit_changed(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(0, len(data))
    return data[:place] + bytes([data[place] ^ 1 << chance.randrange(0, 8)]) + data[place + 1 :]


def accepted(buffer: NDArray[np.uint8], count: int) -> bool:
    """Return whether a buffer was accepted; check that values and counts fit its size."""
    try:
        values = decompress(buffer, count)
    except CodecError as error:
        assert str(error) and "\n" not in str(error)
        with pytest.raises(CodecError):
            width_counts(buffer, count)
        return False
    assert values.shape == (count,)
    zero, byte, half, full = width_counts(buffer, count)
    assert zero + byte + half + full == count
    assert 2 * -(-count // 8) + byte + 2 * half + 4 * full == buffer.size
    return True


def test_many_buffers(cliff: Cliff) -> None:
    """Random bytes, and valid buffers that were cut, extended, changed, or read with another
    count.
    """
    chance = random.Random(7)
    source = np.random.Generator(np.random.Philox(key=7))
    valid = []
    for count in range(0, 200):
        x = source.laplace(0, 2.0 ** -chance.randrange(0, 14), count).astype(np.float32)
        valid.append((compress(x, -10).tobytes(), count))
    count_accepted = 0
    for case in range(CASES):
        data, count = valid[case % len(valid)]
        match case % 5:
            case 0:
                data = chance.randbytes(chance.randrange(0, 120))
            case 1:
                data = data[: chance.randrange(0, len(data) + 1)]
            case 2:
                data += chance.randbytes(chance.randrange(1, 40))
            case 3 if data:
                data = one_bit_changed(data, chance)
            case _:
                count = chance.randrange(-3, 2 * count + 20)
        buffer = cliff.put(data)
        try:
            count_accepted += decompress(buffer, count).size == count
        except CodecError:
            pass
    assert CASES // 50 < count_accepted < CASES // 2


def test_long_buffers() -> None:
    """Long enough for four readers at once: valid ones that were cut or changed, and random
    bytes.
    """
    cliff, chance = Cliff(pages=60), random.Random(8)
    x = (
        np.random.Generator(np.random.Philox(key=8))
        .laplace(0, 2.0**-10, 200_000)
        .astype(np.float32)
    )
    valid = compress(x, -10).tobytes()
    assert 1.5 * LEAST_BYTES < len(valid) < cliff.edge
    count_accepted = 0
    for case in range(CASES // 100):
        data = valid
        match case % 3:
            case 0:
                data = data[: chance.randrange(LEAST_BYTES, len(data) + 1)]
            case 1:
                data = one_bit_changed(data, chance)
            case _:
                data = chance.randbytes(chance.randrange(LEAST_BYTES, 2 * LEAST_BYTES))
        count = x.size if case % 2 else chance.randrange(x.size // 2, 2 * x.size)
        count_accepted += accepted(cliff.put(data), count)
    assert CASES // 1000 < count_accepted < CASES // 200


@hypothesis.given(st.binary(max_size=200), st.integers(-2, 1700))
def test_any_bytes(cliff: Cliff, data: bytes, count: int) -> None:
    accepted(cliff.put(data), count)


@hypothesis.given(
    st.lists(st.floats(width=32), max_size=60),
    st.integers(-127, 0),
    st.integers(0, 40),
    st.binary(max_size=3),
)
def test_valid_buffers(
    cliff: Cliff, numbers: list[float], exponent: int, less: int, more: bytes
) -> None:
    """A buffer is accepted as it is, and neither cut nor extended."""
    data = compress(np.array(numbers, np.float32), exponent).tobytes()
    assert accepted(cliff.put(data), len(numbers))
    if more:
        assert not accepted(cliff.put(data + more), len(numbers))
    if 0 < less <= len(data):
        assert not accepted(cliff.put(data[: len(data) - less]), len(numbers))


def test_compress_reads_no_value_beyond(cliff: Cliff) -> None:
    for count in range(40):
        x = cliff.put(np.full(count, 0.25, np.float32).tobytes()).view(np.float32)
        assert (decompress(compress(x, -10), count) == 0.25).all()
