"""Servers of virtual time against the recurrence written out in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.comm.fifo import Server

TIMES = st.integers(0, 10**15)


@st.composite
def ready_times(draw: st.DrawFn) -> list[list[int]]:
    """Times of the rows of some samples, in any order."""
    rows = draw(st.integers(1, 6))
    return draw(st.lists(st.lists(TIMES, min_size=rows, max_size=rows), min_size=1, max_size=8))


def plain(ready: list[list[int]], row_ps: int, latency_ps: int) -> list[list[int]]:
    """A row is taken when it is ready and the one before is done; it arrives a latency after it is done."""
    free, arrivals = 0, []
    for sample in ready:
        arrivals.append([])
        for time in sample:
            start = time if time > free else free
            free = start + row_ps
            arrivals[-1].append(free + latency_ps)
    return arrivals


@given(ready_times(), st.integers(0, 10**9), st.integers(0, 10**9))
def test_recurrence(ready: list[list[int]], row_ps: int, latency_ps: int) -> None:
    server = Server(row_ps, latency_ps)
    expected = plain(ready, row_ps, latency_ps)
    assert server.serve(np.array(ready)).tolist() == expected
    assert server.free_ps == expected[-1][-1] - latency_ps


@given(ready_times(), st.integers(0, 10**9), st.integers(0, 10**9), st.data())
def test_blocks_change_no_time(ready: list[list[int]], row_ps: int, latency_ps: int, data: st.DataObject) -> None:
    times = np.array(ready)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(times)), max_size=4)))
    whole, split = Server(row_ps, latency_ps), Server(row_ps, latency_ps)
    parts = [split.serve(times[low:high]) for low, high in zip([0, *cuts], [*cuts, len(times)], strict=True)]
    assert np.concatenate(parts).tolist() == whole.serve(times).tolist()
    assert (split.free_ps, split.busy_ps) == (whole.free_ps, whole.busy_ps)


@given(ready_times(), st.integers(0, 10**9))
def test_busy_time_is_rows_times_their_time_and_fits_into_the_time_that_passed(
    ready: list[list[int]], row_ps: int
) -> None:
    server = Server(row_ps)
    done = server.serve(np.array(ready))
    assert server.busy_ps == done.size * row_ps
    assert server.busy_ps <= done.max() - min(min(sample) for sample in ready)


@given(ready_times(), st.integers(1, 10**9))
def test_rows_are_a_rows_time_apart_and_none_leaves_early(ready: list[list[int]], row_ps: int) -> None:
    done = Server(row_ps).serve(np.array(ready))
    assert (np.diff(done.ravel()) >= row_ps).all()
    assert (done >= np.array(ready) + row_ps).all()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_nothing_to_serve(shape: tuple[int, int]) -> None:
    server = Server(5, 7)
    server.serve(np.array([[100]]))
    assert server.serve(np.zeros(shape, np.int64)).shape == shape
    assert (server.free_ps, server.busy_ps) == (105, 5)


def test_input_is_left_alone_whatever_its_layout() -> None:
    ready = np.array([[1, 2, 3], [4, 5, 6]])[:, ::-1]
    before = ready.copy()
    assert Server(10).serve(ready).tolist() == [[13, 23, 33], [43, 53, 63]]
    assert (ready == before).all()


def test_a_month_of_picoseconds() -> None:
    month_ps = 30 * 24 * 3600 * 10**12
    assert Server(1, 2).serve(np.array([[month_ps]])).tolist() == [[month_ps + 3]]
