"""Messages packed into bytes and out again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.comm.message import Format, Message

SIZES = st.integers(1, 5)


@given(st.integers(0, 2**62), SIZES, SIZES, SIZES, SIZES, st.booleans(), st.integers(0, 100), st.integers(0, 2**32 - 1))
def test_round_trip(
    index: int, samples: int, channels: int, rows: int, columns: int, with_data: bool, excess: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    times = random.integers(0, 2**62, (samples, rows))
    bits = random.integers(0, 2**32, (samples, channels, rows, columns), np.uint32)  # not-a-numbers too
    data = bits.view(np.float32) if with_data else None
    form = Format(channels, rows, columns, with_data)

    packed = form.pack(Message(index, times, data))
    assert packed.dtype == np.uint8
    assert packed.size == form.bytes_of(samples) == 8 + samples * rows * (8 + with_data * 4 * channels * columns)

    # A receive is posted for the largest message, so the buffer may be longer than what came.
    found = form.unpack(np.concatenate([packed, np.full(excess, 255, np.uint8)]), packed.size)
    assert found.micro_batch == index
    assert found.times.dtype == np.int64
    assert found.times.tolist() == times.tolist()
    if with_data:
        assert found.data is not None
        assert found.data.dtype == np.float32
        assert (found.data.view(np.uint32) == bits).all()
    else:
        assert found.data is None


@pytest.mark.parametrize("with_data", [True, False])
def test_what_a_sample_costs_the_link_does_not_depend_on_whether_numbers_are_computed(with_data: bool) -> None:
    assert Format(3, 5, 7, with_data).payload_bytes == 4 * 3 * 5 * 7


def test_a_packed_message_does_not_change_with_its_source() -> None:
    form = Format(1, 1, 1, True)
    times, data = np.array([[5]]), np.ones((1, 1, 1, 1), np.float32)
    packed = form.pack(Message(1, times, data))
    times[...], data[...] = 6, 2
    found = form.unpack(packed, packed.size)
    assert found.times.tolist() == [[5]]
    assert found.data is not None
    assert found.data.tolist() == [[[[1.0]]]]


def test_maps_that_do_not_lie_in_one_piece() -> None:
    form = Format(2, 3, 4, True)
    data = np.arange(48, dtype=np.float32).reshape(4, 2, 3, 2).transpose(3, 1, 2, 0)
    times = np.arange(6).reshape(3, 2).T
    packed = form.pack(Message(0, times, data))
    found = form.unpack(packed, packed.size)
    assert found.times.tolist() == times.tolist()
    assert found.data is not None
    assert found.data.tolist() == data.tolist()
