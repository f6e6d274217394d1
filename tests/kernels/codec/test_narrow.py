"""Number formats as codecs: what comes out is what rounding gives, in as many bytes as the format
says.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.kernels import CodecError
from emuchain.kernels.codec import parse_codec
from emuchain.kernels.codec.narrow import Narrow
from emuchain.kernels.number import BlockGrid, FloatGrid, number_format
from emuchain.kernels.quantise import codes_of, on_blocks, on_grid, values_of

NAMES = [*Narrow.kinds, "q2.6", "q1.11", "int4@16", "int9@16", "e2m5@48", "e4m3@8"]
"""Those of formats, and of some of each family."""

ANY = st.lists(st.floats(width=32, allow_subnormal=False), max_size=100)


def rounded(values: np.ndarray, name: str) -> np.ndarray:
    grid = number_format(name).grid
    return on_blocks(values, grid, -1) if isinstance(grid, BlockGrid) else on_grid(values, grid)


@pytest.mark.parametrize("name", NAMES)
@given(ANY)
def test_messages_hold_rounded_values(name: str, numbers: list[float]) -> None:
    codec, values = parse_codec(name), np.array(numbers, np.float32)
    assert str(codec) == name
    sent = codec.compress(values)
    assert sent.dtype == np.uint8 and sent.size == codec.largest_bytes(
        len(values)
    ) == codec.expected_bytes(len(values))
    np.testing.assert_array_equal(codec.decompress(sent, len(values)), rounded(values, name))


@pytest.mark.parametrize("name", NAMES)
def test_every_code_round_trips(name: str) -> None:
    number = number_format(name)
    grid = number.grid.element if isinstance(number.grid, BlockGrid) else number.grid
    assert isinstance(grid, FloatGrid)
    codes = np.arange(1 << number.bits, dtype=np.uint32)
    values = values_of(codes, grid, number.bits)
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(codes_of(values, grid, number.bits)[numbers], codes[numbers])
    finite = np.isfinite(values)
    np.testing.assert_array_equal(on_grid(values[finite], grid), values[finite])
    assert np.diff(values[: 1 << (number.bits - 1)][numbers[: 1 << (number.bits - 1)]]).min() > 0


def test_codes_are_those_of_the_standards() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="comes with the extra `onnx`")
    types = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16, "fp8-e5m2": ml_dtypes.float8_e5m2}
    types["fp8"] = ml_dtypes.float8_e4m3fn
    for name, kind in types.items():
        number = number_format(name)
        assert isinstance(number.grid, FloatGrid)
        codes = np.arange(1 << number.bits, dtype=np.uint32)
        theirs = codes.astype(f"u{number.bits // 8}").view(kind).astype(np.float32)
        ours = values_of(codes, number.grid, number.bits)
        if name == "fp8-e5m2":  # which saturates here, and needs no infinity
            ours, theirs = ours[np.isfinite(theirs)], theirs[np.isfinite(theirs)]
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("text", ["bf16:3", "mxfp8:", "mxfp9", "q2.6:1", "q2.40", "int9@0", "fp32"])
def test_no_such_codec(text: str) -> None:
    with pytest.raises(CodecError):
        parse_codec(text)


def test_a_buffer_of_another_size() -> None:
    with pytest.raises(CodecError, match="3 values are 4 bytes"):
        parse_codec("mxfp8").decompress(np.zeros(5, np.uint8), 3)
