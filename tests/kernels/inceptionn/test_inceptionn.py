"""The INCEPTIONN codec: its bounds on values, and the bytes of its format."""

import itertools
from collections.abc import Callable
from typing import Any, get_args

import hypothesis
import hypothesis.extra.numpy
import hypothesis.strategies as st
import numpy as np
import pytest
from numpy.typing import NDArray

from emuchain.kernels import CodecError
from emuchain.kernels.inceptionn import Rule, compress, decompress, width_counts

EXPONENTS = (-127, -126, -125, -40, -24, -23, -17, -16, -15, -14, -10, -8, -7, -6, -1, 0)
RULES = get_args(Rule)


pytestmark = pytest.mark.filterwarnings(
    "ignore:invalid value:RuntimeWarning"
)  # NumPy's, of signalling NaNs


def patterns() -> NDArray[np.float32]:
    """Every exponent and both signs, with mantissas at the edges of all cuts and random ones."""
    ones = [(1 << bits) - 1 for bits in range(24)]
    edges = {0, *(1 << bit for bit in range(23)), *ones, *(0x7FFFFF & ~one for one in ones)}
    chance = np.random.Generator(np.random.Philox(key=2)).integers(
        0, 1 << 23, (256, 200), dtype=np.uint32
    )
    mantissas = np.concatenate(
        [np.broadcast_to(np.array(sorted(edges), np.uint32), (256, len(edges))), chance], axis=1
    )
    sizes = (np.arange(256, dtype=np.uint32) << 23)[:, None] | mantissas
    words: NDArray[np.uint32] = np.stack([sizes, sizes | 1 << 31]).reshape(-1)
    return np.random.Generator(np.random.Philox(key=3)).permutation(words).view(np.float32)


def widths(buffer: NDArray[np.uint8], count: int) -> NDArray[np.int64]:
    """The bits of each value, read from the tags one burst after the other."""
    found: list[int] = []
    at = 0
    while len(found) < count:
        tags = int.from_bytes(buffer[at : at + 2].tobytes(), "little")
        of_burst = [(0, 8, 16, 32)[tags >> 2 * place & 3] for place in range(8)]
        found += of_burst
        at += 2 + sum(of_burst) // 8
    assert at == buffer.size
    return np.array(found[:count])


def least_width(values: NDArray[np.float32], exponent: int) -> NDArray[np.int64]:
    """The shortest width that the rule allows, in double precision, which holds all these numbers
    exactly.
    """
    size = np.abs(values.astype(np.float64))
    bound = 2.0**exponent
    found = np.full(values.shape, 32)
    for width in (16, 8):
        step = 2.0 ** (1 - width)
        found[size - np.floor(size / step) * step < bound] = width
    found[size < bound] = 0
    found[~(size < 1)] = 32
    return found


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_bound_rule(exponent: int) -> None:
    x = patterns()
    buffer = compress(x, exponent)
    y = decompress(buffer, x.size)
    below = np.abs(x) < 1
    assert (x.view(np.uint32)[~below] == y.view(np.uint32)[~below]).all()
    distance = np.abs(x[below].astype(np.float64) - y[below])
    assert (distance < 2.0**exponent).all()
    assert (np.abs(y[below]) <= np.abs(x[below])).all()
    assert ((np.signbit(x) == np.signbit(y)) | (y == 0)).all()
    assert (y[x == 0] == 0).all()
    assert (widths(buffer, x.size) == least_width(x, exponent)).all()
    assert (compress(y, exponent) == buffer).all()


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_range_rule(exponent: int) -> None:
    x = patterns()
    buffer = compress(x, exponent, "range")
    y = decompress(buffer, x.size)
    below, size = np.abs(x) < 1, np.abs(x.astype(np.float64))
    assert (x.view(np.uint32)[~below] == y.view(np.uint32)[~below]).all()
    expected = np.where(size < 2.0 ** -(-exponent // 2), 8, 16)
    expected[size < 2.0**exponent] = 0
    expected[~below] = 32
    found = widths(buffer, x.size)
    assert (found == expected).all()
    for width in (8, 16):
        such = found == width
        assert (
            np.abs(y[such]) == np.floor(size[such] * 2.0 ** (width - 1)) * 2.0 ** (1 - width)
        ).all()
        assert (np.signbit(y[such]) == np.signbit(x[such])).all()


def test_range_rule_divides_where_grace_does() -> None:
    """eb_e + ceil((127 - eb_e) / 2), eb_e being the bound's exponent: 122 for 2^-10, 124 for
    2^-7.
    """
    for exponent, middle in ((-10, -5), (-7, -3), (-6, -3), (-1, 0), (-127, -63)):
        x = np.array(
            [2.0**middle, np.nextafter(np.float32(2.0**middle), np.float32(0))], np.float32
        )
        expected = [16 if middle < 0 else 32, 8]
        assert widths(compress(x, exponent, "range"), 2).tolist() == expected


def test_by_hand() -> None:
    x = np.array(
        [0.75, -0.5, 2.0**-11, 1.0, -(2.0**-7 + 2.0**-10), -(2.0**-9), 0.0, 127 / 128], np.float32
    )
    expected = [
        # tags 1, 1, 0, 3 | 2, 2, 0, 1, the first in the lowest bits
        0b11000101,
        0b01001010,
        0b01100000,  # 0.11
        0b11000000,  # -0.1
        *(0, 0, 0x80, 0x3F),  # 1.0
        *(0b00100000, 0b10000001),  # -0.000000 1001
        *(0b01000000, 0b10000000),  # -0.000000 001
        0b01111111,
    ]
    buffer = compress(x, -10)
    assert buffer.tolist() == expected
    assert decompress(buffer, 8).tolist() == [
        0.75,
        -0.5,
        0,
        1,
        -(2.0**-7 + 2.0**-10),
        -(2.0**-9),
        0,
        127 / 128,
    ]
    assert width_counts(buffer, 8) == (2, 3, 2, 1)


def test_a_last_burst_that_is_not_full() -> None:
    x = np.array([0.5] * 9, np.float32)
    assert compress(x, -10).tolist() == [0x55, 0x55, *[0x40] * 8, 1, 0, 0x40]
    assert width_counts(compress(x, -10), 9) == (0, 9, 0, 0)


@pytest.mark.parametrize("rule", RULES)
def test_nothing(rule: Rule) -> None:
    buffer = compress(np.empty(0, np.float32), -10, rule)
    assert (buffer.size, decompress(buffer, 0).size, width_counts(buffer, 0)) == (
        0,
        0,
        (0, 0, 0, 0),
    )


@hypothesis.given(
    hypothesis.extra.numpy.arrays(np.uint32, st.integers(0, 70)),
    st.integers(-127, 0),
    st.sampled_from(RULES),
)
def test_any_values(words: NDArray[np.uint32], exponent: int, rule: Rule) -> None:
    x = words.view(np.float32)
    buffer = compress(x, exponent, rule)
    y = decompress(buffer, x.size)
    assert y.shape == x.shape and y.dtype == np.float32
    below = np.abs(x) < 1
    assert (y.view(np.uint32)[~below] == words[~below]).all()
    bound = 2.0**exponent if rule == "bound" else max(2.0**exponent, 2.0**-7)
    assert (np.abs(x[below].astype(np.float64) - y[below]) < bound).all()
    if rule == "bound":
        assert compress(y, exponent).tobytes() == buffer.tobytes()
    counts = width_counts(buffer, x.size)
    assert counts == tuple(
        np.count_nonzero(widths(buffer, x.size) == width) for width in (0, 8, 16, 32)
    )


def test_arrays_of_other_layouts() -> None:
    x = np.random.Generator(np.random.Philox(key=4)).standard_normal((6, 10)).astype(np.float32)
    expected = compress(x.reshape(-1).copy(), -8)
    read_only = x.copy()
    read_only.flags.writeable = False
    apart = np.empty(1 + x.nbytes, np.uint8)[1:].view(np.float32)
    apart[:] = x.reshape(-1)
    for same in (x, read_only, apart, np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2]):
        assert (compress(same, -8) == expected).all()
    frozen = np.frombuffer(b"." + expected.tobytes(), np.uint8)[1:]
    assert (decompress(frozen, 60) == decompress(expected, 60)).all()
    for same in (np.repeat(expected, 2)[::2], expected.tobytes(), bytearray(expected)):
        assert (decompress(same, 60) == decompress(expected, 60)).all()


@pytest.mark.parametrize(
    ("exponent", "rule", "said"),
    [
        (1, "bound", "-127 to 0, not 1"),
        (-128, "range", "-127 to 0, not -128"),
        (-10.0, "bound", "must be an integer, not -10.0"),
        (True, "bound", "must be an integer, not True"),
        ("-10", "bound", "must be an integer, not '-10'"),
        (-10, "paper", "no rule 'paper'; it may be bound or range"),
    ],
)
def test_limits_that_are_refused(exponent: Any, rule: Any, said: str) -> None:
    with pytest.raises(CodecError, match=said):
        compress(np.zeros(8, np.float32), exponent, rule)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.zeros(8), "float32, not one of float64"),
        (np.zeros(8, ">f4"), "float32, not one of >f4"),
        ([0.5], "float32, not list"),
    ],
)
def test_values_that_are_refused(values: Any, said: str) -> None:
    with pytest.raises(CodecError, match=said):
        compress(values, -10)


FULL = compress(np.array([0.5, 2, 0, 2.0**-9, *[0.25] * 5], np.float32), -10)


@pytest.mark.parametrize("read", [decompress, width_counts])
@pytest.mark.parametrize(
    ("buffer", "count", "said"),
    [
        (FULL[:-1], 9, "cut short: its 15 bytes end before burst 2 of 2 does"),
        (FULL[:13], 9, "cut short: its 13 bytes end before burst 2 of 2 does"),
        (FULL[:12], 9, "cut short: its 12 bytes end before burst 1 of 2 does"),
        (FULL[:1], 9, "9 values have 4 bytes of tags alone, but it has 1 bytes"),
        (FULL, 17, "cut short"),
        (FULL, 1 << 62, "cut short"),
        (FULL, 8, "goes on after 8 values: 3 trailing bytes"),
        (np.append(FULL, FULL[:1]), 9, "goes on after 9 values: 1 trailing bytes"),
        (FULL, 0, "goes on after 0 values"),
        (np.array([4, 0, 64], np.uint8), 1, "tags for more than the 1 values"),
        (FULL, -1, "must not be negative: -1"),
        (FULL, 9.0, "must be an integer, not 9.0"),
        (FULL.view(np.int8), 9, "uint8, not one of int8"),
        (FULL.tobytes()[:-1], 9, "cut short"),
        (FULL.tolist(), 9, "bytes, or an array of uint8, not list"),
    ],
)
def test_buffers_that_are_refused(
    read: Any,
    buffer: Any,
    count: Any,
    said: str,
    one_line: Callable[[pytest.ExceptionInfo[Exception]], str],
) -> None:
    with pytest.raises(CodecError, match=said) as raised:
        read(buffer, count)
    assert one_line(raised)


def test_all_lengths_of_all_tags() -> None:
    """Each byte of tags, in each half of a burst, alone and among others."""
    for tags, place in itertools.product(range(256), (0, 8)):
        sizes = [(0, 1, 2, 4)[tags >> 2 * value & 3] for value in range(4)]
        payload = np.arange(1, sum(sizes) + 1, dtype=np.uint8)
        burst = np.concatenate([np.array([tags << place], "<u2").view(np.uint8), payload])
        for bursts in (1, 20):
            y = decompress(np.tile(burst, bursts), 8 * bursts).reshape(bursts, 8)
            assert (y.view(np.uint32) == y.view(np.uint32)[0]).all()
            four, at = y[0].view(np.uint32)[place // 2 :][:4].tolist(), 0
            for found, size in zip(four, sizes, strict=True):
                code = int.from_bytes(payload[at : at + size].tobytes(), "little")
                at += size
                assert found == (
                    code
                    if size == 4
                    else int(np.float32(code / (1, 2**7, 2**15)[size]).view(np.uint32))
                )
