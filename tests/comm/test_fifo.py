"""FIFO resources against the recurrence written out in plain Python; their observers, and their
state.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.comm import FifoResource, Served

TIMES = st.integers(0, 10**15)
DURATIONS = st.integers(0, 10**9)
SHARES = st.floats(0, 1)


@st.composite
def ready_times(draw: st.DrawFn) -> list[list[int]]:
    """Times of the rows of some samples, in any order."""
    rows = draw(st.integers(1, 6))
    return draw(st.lists(st.lists(TIMES, min_size=rows, max_size=rows), min_size=1, max_size=8))


def plain(ready: list[list[int]], row_ps: int, latency_ps: int) -> list[list[int]]:
    """A row is taken when it is ready and the one before has left; it arrives a latency after it
    has left.
    """
    free, arrivals = 0, []
    for sample in ready:
        arrivals.append([])
        for time in sample:
            start = time if time > free else free
            free = start + row_ps
            arrivals[-1].append(free + latency_ps)
    return arrivals


def counters(resource: FifoResource) -> tuple[int, int, int, float]:
    """All that a resource counts."""
    return resource.free_ps, resource.served_rows, resource.busy_ps, resource.spared_rows


@given(ready_times(), DURATIONS, DURATIONS)
def test_recurrence(ready: list[list[int]], row_ps: int, latency_ps: int) -> None:
    resource = FifoResource("link", row_ps, latency_ps)
    expected = plain(ready, row_ps, latency_ps)
    assert resource.serve(np.array(ready)).tolist() == expected
    assert resource.free_ps == expected[-1][-1] - latency_ps


@given(ready_times(), DURATIONS, DURATIONS, st.data())
def test_cuts_change_no_time(
    ready: list[list[int]], row_ps: int, latency_ps: int, data: st.DataObject
) -> None:
    times = np.array(ready)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(times)), max_size=4)))
    whole, split = (
        FifoResource("whole", row_ps, latency_ps),
        FifoResource("split", row_ps, latency_ps),
    )
    parts = [
        split.serve(times[low:high])
        for low, high in zip([0, *cuts], [*cuts, len(times)], strict=True)
    ]
    assert np.concatenate(parts).tolist() == whole.serve(times).tolist()
    assert (split.free_ps, split.busy_ps) == (whole.free_ps, whole.busy_ps)


@given(ready_times(), DURATIONS)
def test_busy_time_is_rows_times_their_time_and_fits_into_the_time_that_passed(
    ready: list[list[int]], row_ps: int
) -> None:
    resource = FifoResource("engine", row_ps)
    left = resource.serve(np.array(ready))
    assert resource.busy_ps == left.size * row_ps
    assert resource.busy_ps <= left.max() - min(min(sample) for sample in ready)


@given(ready_times(), st.integers(1, 10**9))
def test_rows_are_a_rows_time_apart_and_none_leaves_early(
    ready: list[list[int]], row_ps: int
) -> None:
    left = FifoResource("engine", row_ps).serve(np.array(ready))
    assert (np.diff(left.ravel()) >= row_ps).all()
    assert (left >= np.array(ready) + row_ps).all()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_nothing_to_serve(shape: tuple[int, int]) -> None:
    resource = FifoResource("link", 5, 7)
    resource.serve(np.array([[100]]))
    assert resource.serve(np.zeros(shape, np.int64)).shape == shape
    assert (resource.free_ps, resource.busy_ps) == (105, 5)


def test_input_is_left_alone_whatever_its_layout() -> None:
    ready = np.array([[1, 2, 3], [4, 5, 6]])[:, ::-1]
    before = ready.copy()
    assert FifoResource("engine", 10).serve(ready).tolist() == [[13, 23, 33], [43, 53, 63]]
    assert (ready == before).all()


def test_a_month_of_picoseconds() -> None:
    month_ps = 30 * 24 * 3600 * 10**12
    assert FifoResource("link", 1, 2).serve(np.array([[month_ps]])).tolist() == [[month_ps + 3]]


def test_rows_with_a_share_of_their_bytes() -> None:
    """A quarter of 10 ps is rounded up to 3; shares are of the full row, whatever the share
    before.
    """
    resource = FifoResource("link", 10, 100)
    resource.shrink(0.5)
    assert resource.serve(np.array([[0, 0]])).tolist() == [[105, 110]]
    resource.shrink(0.25)
    assert resource.serve(np.array([[0, 0]])).tolist() == [[113, 116]]
    assert counters(resource) == (16, 4, 16, 2 * 0.5 + 2 * 0.75)


@given(st.lists(st.tuples(ready_times(), SHARES), max_size=4), DURATIONS, DURATIONS)
def test_an_observer_gets_what_is_served_and_changes_nothing(
    turns: list[tuple[list[list[int]], float]], row_ps: int, latency_ps: int
) -> None:
    reports: list[Served] = []
    observed, unobserved = (
        FifoResource("link", row_ps, latency_ps),
        FifoResource("link", row_ps, latency_ps),
    )
    observed.observer = reports.append
    for ready, share in turns:
        found = []
        for resource in (observed, unobserved):
            resource.shrink(share)
            found.append(resource.serve(np.array(ready)).tolist())
        assert found[0] == found[1]
        report = reports[-1]
        assert report.resource == "link"
        assert report.ready_ps.tolist() == ready
        assert (report.left_ps + latency_ps).tolist() == found[0]
        assert report.row_ps == unobserved.row_ps
        assert report.share == share
    assert len(reports) == len(turns)
    assert counters(observed) == counters(unobserved)


def test_what_an_observer_gets_by_hand() -> None:
    """Rows leave before they arrive; a row that waits was ready long before it left."""
    reports: list[Served] = []
    resource = FifoResource("from 0 to 1", 10, latency_ps=1000)
    resource.serve(np.array([[1, 2]]))
    resource.observer = reports.append
    assert resource.serve(np.array([[3, 50], [50, 50]])).tolist() == [[1031, 1060], [1070, 1080]]
    resource.serve(np.zeros((0, 2), np.int64))
    resource.observer = None
    resource.serve(np.array([[90, 90]]))
    (report,) = reports
    assert (report.resource, report.row_ps) == ("from 0 to 1", 10)
    assert report.ready_ps.tolist() == [[3, 50], [50, 50]]
    assert report.left_ps.tolist() == [[31, 60], [70, 80]]


@given(ready_times(), ready_times(), SHARES, DURATIONS, DURATIONS)
def test_a_restored_resource_goes_on_as_the_one_before(
    before: list[list[int]], after: list[list[int]], share: float, row_ps: int, latency_ps: int
) -> None:
    first, second = (
        FifoResource("link", row_ps, latency_ps),
        FifoResource("link", row_ps, latency_ps),
    )
    first.shrink(share)
    first.serve(np.array(before))
    state = first.state()
    expected = first.serve(np.array(after)).tolist()
    second.restore(state)
    assert (
        second.state() == state
    )  # a state does not change with the resource that it was taken from
    assert second.serve(np.array(after)).tolist() == expected
    assert counters(second) == counters(first)
    first.shrink(0.5)
    second.shrink(0.5)
    assert second.row_ps == first.row_ps
    assert second.state() == first.state()


def test_a_state_is_needed_to_go_on() -> None:
    """A fresh resource serves otherwise: it is free, and its rows have all their bytes."""
    used = FifoResource("link", 10)
    used.shrink(0.5)
    used.serve(np.array([[100]]))
    restored, fresh = FifoResource("link", 10), FifoResource("link", 10)
    restored.restore(used.state())
    assert restored.serve(np.array([[0]])).tolist() == [[110]]
    assert fresh.serve(np.array([[0]])).tolist() == [[10]]


def test_compression_leaves_headers_as_they_are() -> None:
    """Of 10 ps 4 are headers': half of the bytes take 4 + 3."""
    resource = FifoResource("link", 10, header_ps=4)
    resource.shrink(0.5)
    assert resource.serve(np.array([[0, 0]])).tolist() == [[7, 14]]
    assert counters(resource) == (14, 2, 14, 2 * 0.5)
