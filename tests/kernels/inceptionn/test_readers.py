"""Four readers of a long buffer: the same values and errors as a single reader, whatever the
buffer.
"""

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from emuchain.kernels import CodecError
from emuchain.kernels.inceptionn import BURST, LONGEST, compress, decompress
from emuchain.kernels.inceptionn.burst import LEAST_BYTES
from emuchain.kernels.inceptionn.inceptionn import burst

COUNT = 400_000
Floats = NDArray[np.float32]


def laplace(count: int, scale: float) -> Floats:
    """Gradient-like values."""
    return np.random.Generator(np.random.Philox(key=11)).laplace(0, scale, count).astype(np.float32)


def uneven() -> Floats:
    """Bursts of 34 bytes, then of 2 to 18, then mostly of 2."""
    return np.concatenate(
        [laplace(COUNT // 8, 100.0), laplace(COUNT // 2, 2.0**-7), laplace(COUNT, 2.0**-9)]
    )


def sparse() -> Floats:
    """Few values of 8 bits, after each of which bursts begin at odd places, up to the next one."""
    random = np.random.Generator(np.random.Philox(key=12))
    return np.where(random.random(4 * COUNT) < 0.002, np.float32(0.5), np.float32(0))


def odd() -> Floats:
    """One value of 8 bits, then zeros: all other bursts begin at odd places, and no reader can find
    that out.
    """
    x = np.zeros(4 * COUNT, np.float32)
    x[0] = 0.5
    return x


def outcome(kernel: object, buffer: NDArray[np.uint8], bursts: int) -> tuple[bytes, list[int]]:
    """The values that a kernel reads from a buffer, and how far it comes."""
    out, reached = np.zeros(BURST * bursts, np.float32), np.zeros(3, np.int64)
    kernel(buffer.ctypes.data, buffer.size - LONGEST + 1, bursts, out, reached)  # type: ignore[operator]  # a Kernel
    return out.tobytes(), reached.tolist()


@pytest.mark.parametrize(
    ("x", "in_step"),
    [
        (laplace(COUNT, 2.0**-10), True),
        (laplace(COUNT, 2.0**-6), True),
        (laplace(COUNT, 1.0), True),
        (np.full(COUNT, 2.0, np.float32), False),
        (np.zeros(4 * COUNT, np.float32), True),
        (uneven(), True),
        (sparse(), True),
        (odd(), False),
    ],
    ids=[
        "small",
        "middling",
        "large",
        "all in 32 bits and alike",
        "zeros",
        "uneven",
        "sparse",
        "odd",
    ],
)
@pytest.mark.parametrize("exponent", [-10, -6])
def test_four_readers_read_the_same_as_one(x: Floats, in_step: bool, exponent: int) -> None:
    buffer, bursts = compress(x, exponent), x.size // BURST
    assert buffer.size >= LEAST_BYTES + LONGEST
    assert outcome(burst.decompress, buffer, bursts) == outcome(burst.read_on, buffer, bursts)
    _, (at, done, last) = outcome(burst.by_four, buffer, bursts)
    assert 0 < done <= bursts
    assert last < at <= buffer.size
    assert (at > 0.7 * buffer.size) if in_step else (at < 0.4 * buffer.size)


def test_any_number_of_values_reads_the_same() -> None:
    x = laplace(COUNT, 2.0**-10)
    whole = compress(x, -10)
    for count in range(0, COUNT, COUNT // 40 + 3):
        buffer = compress(x[:count], -10)
        assert decompress(buffer, count).tobytes() == decompress(whole, COUNT)[:count].tobytes()


def test_any_long_buffer_has_the_outcome_of_a_single_reader() -> None:
    """Cut, changed, or read with another count: the same values, as far, and so the same error."""
    chance = random.Random(3)
    valid = [
        (compress(x, -10), x.size // BURST)
        for x in (laplace(COUNT, 2.0**-10), laplace(COUNT // 2, 0.1), uneven())
    ]
    read_by_four = 0
    for case in range(300):
        buffer, bursts = valid[case % len(valid)]
        buffer = buffer.copy()
        match case % 4:
            case 0:
                buffer = buffer[: chance.randrange(LEAST_BYTES // 2, buffer.size)]
            case 1:
                for place in chance.sample(range(buffer.size), 3):
                    buffer[place] ^= 1 << chance.randrange(8)
            case 2:
                bursts = chance.randrange(bursts // 4, 2 * bursts)
            case _:
                buffer = np.frombuffer(chance.randbytes(2 * LEAST_BYTES), np.uint8)
        assert outcome(burst.decompress, buffer, bursts) == outcome(burst.read_on, buffer, bursts)
        read_by_four += outcome(burst.by_four, buffer, bursts)[1][0] > 0.7 * buffer.size
    assert read_by_four > 100


def test_errors_of_long_buffers() -> None:
    x = laplace(COUNT, 2.0**-10)
    buffer = compress(x, -10)
    for wrong, count, message in (
        (buffer[:-1], COUNT, "cut short"),
        (np.append(buffer, np.uint8(0)), COUNT, "goes on after"),
        (buffer, COUNT - 8, "goes on after"),
        (buffer, COUNT + 8, "cut short"),
        (buffer, COUNT // 8, "goes on after"),
    ):
        with pytest.raises(CodecError, match=message):
            decompress(wrong, count)
