"""Sparsification to the largest values, against a plain Python reading of it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from emuchain.kernels import CodecError
from emuchain.kernels.codec import codecs, parse_codec

VALUES = hnp.arrays(np.float32, st.integers(0, 200), elements=st.floats(width=32, allow_nan=False))
SHARES = st.floats(0.001, 1)


@given(VALUES, SHARES)
def test_the_largest_values_stay_and_the_others_are_zero(values: np.ndarray, share: float) -> None:
    codec = parse_codec(f"topk:{share!r}")
    found = codec.decompress(codec.compress(values), values.size)
    kept = math.ceil(values.size * share)
    order = sorted(range(values.size), key=lambda place: (-abs(float(values[place])), place))
    expected = np.zeros_like(values)
    for place in order[:kept]:
        expected[place] = values[place]
    assert found.tobytes() == expected.tobytes()


@given(VALUES, SHARES)
def test_bytes_are_those_expected_whatever_the_values(values: np.ndarray, share: float) -> None:
    codec = parse_codec(f"topk:{share!r}")
    size = codec.compress(values).nbytes
    assert size == codec.expected_bytes(values.size) == codec.largest_bytes(values.size)
    assert codec.expected_bytes(np.array([values.size, 0])).tolist() == [size, 0]
    assert codec.statistics(codec.compress(values), values.size) == {
        "values": values.size,
        "kept_values": math.ceil(values.size * share),
    }


def test_a_nan_is_never_lost() -> None:
    values = np.array([1, 9, math.nan, math.inf, -2, 3, 4, 5], np.float32)
    codec = parse_codec("topk:0.25")
    found = codec.decompress(codec.compress(values), values.size)
    assert np.isnan(found[2]) and found[3] == math.inf and not found[[0, 1, 4, 5, 6, 7]].any()


@pytest.mark.parametrize(
    "text", ["topk:0", "topk:-1", "topk:1.01", "topk:nan", "topk:", "topk", "topk:few"]
)
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(CodecError, match="topk"):
        parse_codec(text)


@pytest.mark.parametrize("size", [0, 7, 9, 16])
def test_buffers_of_another_size_are_refused(size: int) -> None:
    with pytest.raises(CodecError, match="8 bytes"):
        parse_codec("topk:0.01").decompress(bytes(size), 100)


def test_a_place_beyond_the_values_is_refused() -> None:
    buffer = np.array([100], np.uint32).tobytes() + np.array([1], np.float32).tobytes()
    with pytest.raises(CodecError, match="place 100"):
        parse_codec("topk:0.01").decompress(buffer, 100)


def test_it_is_found_by_its_file_alone() -> None:
    [found] = [codec for codec in codecs() if "topk" in codec.kinds]
    assert found.__module__.endswith(".codec.topk")
    assert str(parse_codec("topk:0.010")) == "topk:0.01"
