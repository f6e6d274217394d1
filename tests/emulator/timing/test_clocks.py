"""The clocks of slices and devices: rows, weights that are waited for, the entry of samples,
updates.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.cluster import Cluster, Link
from emuchain.emulator.mapping import allocate, partition
from emuchain.emulator.timing import SliceClock, Timing

from ..mapping.networks import board, conv, fc, network

LINK = Link(1, 0)


def slice_clock() -> SliceClock:
    """conv2, 1x1, 16 to 2 channels, one tile for each engine: 3 pixels · 2 · 16 cycles of 10 ps a
    row.
    """
    found = network((16, 4, 3), conv(16), conv(2), fc(2))
    mapping = partition(found, Cluster("c", (board(1000, 10, on_chip_memory_bytes=1000),), LINK), 1)
    tight = board(8, 10, "tight", on_chip_memory_bytes=1000)
    return SliceClock(0, mapping.devices[0][1], allocate(mapping, 0, tight)[1], tight)


def test_a_row_leaves_when_it_is_done_and_its_partial_row_has_come() -> None:
    clock = slice_clock()
    row = clock.fp.row_ps
    assert row == 3 * 2 * 16 * 10
    x = np.array([[0, 0, 5000, 5000]])
    partial = np.array([[10, row * 3, 0, 10**6]])
    assert clock.forward(x, None, 0).tolist() == [[row, 2 * row, 5000 + row, 5000 + 2 * row]]
    start = 5000 + 2 * row  # the engine is free from here on; what leaves late does not hold it up
    expected = [max(start + (k + 1) * row, p) for k, p in enumerate(partial[0].tolist())]
    assert clock.forward(x, partial, 0).tolist() == [expected]
    assert clock.fp_start_ps.tolist() == [start]


def test_weights_are_waited_for() -> None:
    clock = slice_clock()
    row = clock.fp.row_ps
    x = np.array([[0, 0, 10**5, 10**6]])
    assert clock.forward(x, None, 50_000).tolist() == [
        [50_000 + row, 50_000 + 2 * row, 10**5 + row, 10**6 + row]
    ]
    assert clock.error(x, None, 50_000).tolist() == [
        [50_000 + row, 50_000 + 2 * row, 10**5 + row, 10**6 + row]
    ]


def test_fp_eb_and_pg_run_beside_one_another() -> None:
    clock = slice_clock()
    zeros = np.zeros((2, 4), np.int64)
    forward, error = clock.forward(zeros, None, 0), clock.error(zeros, None, 0)
    clock.gradient(zeros)
    assert forward.tolist() == error.tolist()
    assert (
        clock.pg_end_ps.tolist() == forward[:, -1].tolist()
    )  # pairs · columns = 2 · 16 · 3 cycles as well
    # Weights are new a cycle for each output channel after the last gradient.
    assert clock.updated_ps() == clock.pg_end_ps[-1] + 2 * 10


def chain_of_one(interval_ps: int) -> Timing:
    """A chain of one device, with an interval of our choice."""
    cluster = Cluster("c", (board(1000, 10, on_chip_memory_bytes=1000),), LINK)
    mapping = partition(network((1, 2, 1), fc(2)), cluster, 1)
    made = Timing.of(mapping, cluster)
    return Timing(cluster, mapping, made.engines, made.links, interval_ps)


@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 800)), min_size=1, max_size=8),
    st.integers(1, 4),
)
def test_samples_enter_one_each_interval(
    interval_ps: int, groups: list[tuple[int, int]], rows: int
) -> None:
    """And none before the one ahead had the weights that it needs; the new weights come later and
    later.
    """
    clock = chain_of_one(interval_ps).clock(0)
    new_ps = 0
    expected_ps = 0
    for samples, pause_ps in groups:
        new_ps += pause_ps
        entries = clock._enter(samples, rows, new_ps)
        assert entries.shape == (samples, rows)
        for entry in entries.tolist():
            assert entry == [expected_ps] * rows
            expected_ps = max(expected_ps + interval_ps, new_ps)


@pytest.mark.parametrize("device", [0, 1])
def test_a_devices_weights_are_new_when_its_last_slice_is_through(device: int) -> None:
    cluster = Cluster("c", (board(1000, 10, on_chip_memory_bytes=1000),), Link(1000, 0))
    found = network((16, 3, 3), conv(4), conv(7), fc(2))
    clock = Timing.of(partition(found, cluster, 2), cluster).clock(device)
    for number, part in enumerate(clock.slices):
        part.gradient(np.full((1, 3), 1000 * (number + 1)))
    clock.update()
    assert clock.updated_ps == max(part.updated_ps() for part in clock.slices) > 1000
