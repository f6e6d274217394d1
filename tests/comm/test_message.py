"""Messages packed into bytes and out again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.comm import Format, Message, join_messages, split
from emuchain.kernels import ALIGNMENT, Arena

SIZES = st.integers(1, 5)


@given(
    st.integers(0, 2**62),
    SIZES,
    SIZES,
    SIZES,
    SIZES,
    st.booleans(),
    st.integers(0, 5),
    st.integers(0, 2**32 - 1),
)
def test_round_trip(
    index: int,
    samples: int,
    rows: int,
    columns: int,
    channels: int,
    with_data: bool,
    more: int,
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    times = random.integers(0, 2**62, (samples, rows))
    bits = random.integers(
        0, 2**32, (samples, rows, columns, channels), np.uint32
    )  # not-a-numbers too
    data = bits.view(np.float32) if with_data else None
    form = Format(channels, rows, columns, with_data)

    packed = form.pack(Message(index, times, data, index % 7 - 3), Arena())
    assert packed.dtype == np.uint8
    assert packed.size == form.bytes_of(samples)
    content = 8 * times.size + with_data * 4 * bits.size
    assert content < packed.size < content + 24 + ALIGNMENT

    # A receive is posted for the largest message, so the buffer may be longer than the message.
    assert form.bytes_of(samples + more) >= packed.size
    buffer = np.full(form.bytes_of(samples + more), 255, np.uint8)
    buffer[: packed.size] = packed
    found = form.unpack(buffer)
    assert (found.first, found.scale) == (index, index % 7 - 3)
    assert found.times.dtype == np.int64
    assert found.times.tolist() == times.tolist()
    if with_data:
        assert found.data is not None
        assert found.data.dtype == np.float32
        assert (found.data.view(np.uint32) == bits).all()
    else:
        assert found.data is None


@pytest.mark.parametrize("with_data", [True, False])
def test_the_payload_has_one_size_with_and_without_data(with_data: bool) -> None:
    assert Format(3, 5, 7, with_data).payload_bytes == 4 * 3 * 5 * 7


def test_a_packed_message_does_not_change_with_its_source() -> None:
    form = Format(1, 1, 1, True)
    times, data = np.array([[5]]), np.ones((1, 1, 1, 1), np.float32)
    packed = form.pack(Message(1, times, data), Arena())
    times[...], data[...] = 6, 2
    found = form.unpack(packed)
    assert found.times.tolist() == [[5]]
    assert found.data is not None
    assert found.data.tolist() == [[[[1.0]]]]


def test_a_slice_of_the_channels() -> None:
    form = Format(channels=2, rows=3, columns=4, with_data=True)
    maps = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    times = np.arange(6).reshape(3, 2).T
    found = form.unpack(form.pack(Message(0, times, maps[..., 2:4]), Arena()))
    assert found.times.tolist() == times.tolist()
    assert found.data is not None
    assert found.data.tolist() == maps[..., 2:4].tolist()


@pytest.mark.parametrize("samples", range(1, 6))
def test_a_received_payload_can_be_worked_on_where_it_is(samples: int) -> None:
    """It starts on a cache line and is C-contiguous; nothing but the payload changes."""
    form = Format(channels=3, rows=3, columns=1, with_data=True)
    times = np.arange(3 * samples).reshape(samples, 3)
    buffer = form.pack(Message(7, times, np.ones((samples, 3, 1, 3), np.float32)), Arena())
    found = form.unpack(buffer)
    assert found.data is not None
    assert found.data.flags.c_contiguous
    assert found.data.ctypes.data % ALIGNMENT == 0
    found.data[...] = -1
    again = form.unpack(buffer)
    assert again.first == 7
    assert again.times.tolist() == times.tolist()
    assert again.data is not None
    assert (again.data == -1).all()


def test_buffers_are_used_again_when_their_message_is_gone() -> None:
    form, arena = Format(1, 1, 1, True), Arena()
    message = Message(0, np.array([[5]]), np.ones((1, 1, 1, 1), np.float32))
    found = form.unpack(form.pack(message, arena))
    assert found.data is not None
    place = found.data.ctypes.data
    kept = form.unpack(form.pack(message, arena)).data  # the first message is still there
    assert kept is not None
    assert kept.ctypes.data != place
    del found
    last = form.unpack(form.pack(message, arena)).data
    assert last is not None
    assert last.ctypes.data == place


@given(st.integers(1, 6), st.lists(st.integers(1, 5), max_size=3), st.booleans())
def test_a_split_message_can_be_joined(samples: int, cuts: list[int], with_data: bool) -> None:
    times = np.arange(samples * 2).reshape(samples, 2)
    data = (
        np.arange(samples * 12, dtype=np.float32).reshape(samples, 2, 2, 3) if with_data else None
    )
    rest, parts = Message(100, times, data, 5), []
    for cut in cuts:
        if cut < len(rest.times):
            part, rest = split(rest, cut)
            assert len(part.times) == cut
            parts.append(part)
    assert [part.first for part in parts] == [
        100 + sum(len(p.times) for p in parts[:n]) for n in range(len(parts))
    ]
    whole = join_messages([*parts, rest], Arena())
    assert whole.first == 100
    assert {part.scale for part in (*parts, rest, whole)} == {5}
    assert (whole.times == times).all()
    if data is None:
        assert whole.data is None
    else:
        assert whole.data is not None
        assert whole.data.tobytes() == data.tobytes()
