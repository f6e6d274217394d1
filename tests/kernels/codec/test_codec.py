"""The codecs' common interface, truncation, and no codec."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.extra.numpy
import hypothesis.strategies as st
import numpy as np
import pytest
from numpy.typing import NDArray

from emuchain.kernels import CodecError
from emuchain.kernels.codec import Codec, Inceptionn, NoCodec, parse_codec
from emuchain.papers.inceptionn.truncation import Truncation

TEXTS = (
    "none",
    "inceptionn:-10",
    "inceptionn:0",
    "inceptionn-range:-127",
    "truncate:16",
    "truncate:22",
    "truncate:24",
)


@pytest.mark.parametrize("text", TEXTS)
@hypothesis.given(words=hypothesis.extra.numpy.arrays(np.uint32, st.integers(0, 40)))
def test_all_codecs(text: str, words: NDArray[np.uint32]) -> None:
    codec: Codec = parse_codec(text)
    assert str(codec) == text
    x = words.view(np.float32)
    buffer = codec.compress(x)
    y = codec.decompress(buffer, x.size)
    assert (buffer.dtype, buffer.ndim, y.dtype, y.shape) == (np.uint8, 1, np.float32, x.shape)
    assert np.array_equal(codec.decompress(codec.compress(y), x.size), y, equal_nan=True)
    for wrong in (np.append(buffer, np.uint8(1)), buffer[:-1]):
        if wrong.size != buffer.size:
            with pytest.raises(CodecError):
                codec.decompress(wrong, x.size)
    for count in (-1, 2.5, "3", x.size + 100):
        with pytest.raises(CodecError):
            codec.decompress(buffer, count)  # type: ignore[arg-type]
    others: list[Any] = [buffer.view(np.int8), buffer.tolist(), words.astype(np.float64)]
    for other in others:
        with pytest.raises(CodecError, match="uint8"):
            codec.decompress(other, x.size)
        with pytest.raises(CodecError, match="float32"):
            codec.compress(other)


@pytest.mark.parametrize("bits", [16, 22, 24])
@hypothesis.given(words=hypothesis.extra.numpy.arrays(np.uint32, st.integers(0, 40)))
def test_truncation(bits: int, words: NDArray[np.uint32]) -> None:
    x = words.view(np.float32)
    buffer = Truncation(bits).compress(x)
    assert buffer.size == -(-words.size * (32 - bits) // 8)
    packed = sum((int(word) >> bits) << (32 - bits) * place for place, word in enumerate(words))
    assert int.from_bytes(buffer.tobytes(), "little") == packed
    y = Truncation(bits).decompress(buffer, x.size)
    assert (y.view(np.uint32) == words >> bits << bits).all()


def test_truncation_by_hand() -> None:
    x = np.array([1.75, -1.0, 3.0], np.float32)
    assert Truncation(16).compress(x).tolist() == [0xE0, 0x3F, 0x80, 0xBF, 0x40, 0x40]
    assert Truncation(24).compress(x).tolist() == [0x3F, 0xBF, 0x40]
    assert Truncation(24).decompress(Truncation(24).compress(x), 3).tolist() == [
        0.5,
        -0.5,
        2.0,
    ]  # exponents lose a bit
    assert Truncation(22).decompress(Truncation(22).compress(x), 3).tolist() == [1.5, -1.0, 3.0]
    with pytest.raises(CodecError, match="bits set that belong to no value"):
        Truncation(22).decompress(np.array([0, 4], np.uint8), 1)


def test_unknown_codecs_are_refused(
    one_line: Callable[[pytest.ExceptionInfo[Exception]], str],
) -> None:
    for text in (
        "",
        "inceptionn",
        "inceptionn:",
        "inceptionn:-128",
        "inceptionn:1",
        "truncate:8",
        "truncate:-16",
        "zip",
    ):
        with pytest.raises(ValueError, match="known codecs: none, inceptionn:E") as raised:
            parse_codec(text)
        assert repr(text) in one_line(raised)
    for make in (lambda: Inceptionn(1), lambda: Inceptionn(-10, "other"), lambda: Truncation(8)):  # type: ignore[arg-type]
        with pytest.raises(CodecError):
            make()


def test_codecs_are_values() -> None:
    assert parse_codec("inceptionn:-10") == Inceptionn(-10)
    assert parse_codec("inceptionn-range:-6") == Inceptionn(-6, "range")
    assert parse_codec("truncate:22") == Truncation(22)
    assert parse_codec("none") == NoCodec()
    assert len({parse_codec(text) for text in TEXTS * 2}) == len(TEXTS)


def test_no_codec_copies() -> None:
    x = np.ones(3, np.float32)
    buffer = NoCodec().compress(x)
    y = NoCodec().decompress(buffer, 3)
    buffer[:] = 0
    assert (x.tolist(), y.tolist()) == ([1, 1, 1], [1, 1, 1])


def test_numba_is_not_imported() -> None:
    program = (
        "import sys, emuchain.kernels.codec; print([name for name in ('numba', 'llvmlite') if name"
        " in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]", done.stderr
