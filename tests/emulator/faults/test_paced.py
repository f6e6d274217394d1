"""Rows on a resource with delays: against a loop row by row, whatever the spans, and however rows
come together.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.comm import FifoResource, Served
from emuchain.emulator.common import InputError
from emuchain.emulator.faults import BoardFault, Delay, LinkFault, Loss, PacedResource, exact

FACTORS = [1.0, 1.1, 1.5, 2.0, 3.25]
PLACE = (7, 0, 1, 5)


@st.composite
def delays(draw: Any) -> list[Delay]:
    """Up to three faults of one resource, with spans of samples, of time, or of both, and perhaps
    lost packets.
    """
    found = []
    for _ in range(draw(st.integers(1, 3))):
        from_sample, from_us = draw(st.integers(0, 4)), draw(st.integers(0, 40)) / 1e5
        span = {
            "from_sample": from_sample,
            "to_sample": draw(st.none() | st.integers(from_sample + 1, 6)),
            "from_us": from_us,
            "to_us": draw(st.none() | st.integers(41, 99).map(lambda hundredth: hundredth / 1e5)),
        }
        fault = LinkFault(link=0, **span)
        rate = draw(st.sampled_from([0.0, 0.2, 0.6]))
        loss = (
            Loss(rate, draw(st.integers(1, 4)), draw(st.integers(0, 50)), PLACE) if rate else None
        )
        found.append(
            Delay(fault, exact(draw(st.sampled_from(FACTORS))), draw(st.integers(0, 90)), loss)
        )
    return found


def by_loop(ready: Any, row_ps: int, latency_ps: int, faults: list[Delay]) -> list[list[int]]:
    """When rows arrive, by the text of docs/time-model.md: one row after another."""
    free = arrived = 0
    found = []
    for sample, rows in enumerate(ready.tolist()):
        found.append([])
        for row, ready_ps in enumerate(rows):
            start = max(free, ready_ps)
            on = [
                each
                for each in faults
                if each.span.from_sample <= sample and sample < (each.span.to_sample or math.inf)
                if round(each.span.from_us * 1e6) <= start
                if each.span.to_us is None or start < round(each.span.to_us * 1e6)
            ]
            takes = row_ps * math.prod(each.factor for each in on)
            own_ps = free = start + math.ceil(takes)
            for each in on:
                if each.loss is not None:
                    lost = int(each.loss.lost(sample, len(rows))[row])
                    packets = each.loss.row_packets
                    free += (
                        math.ceil((own_ps - start) * lost / packets) + lost * each.loss.timeout_ps
                    )
            arrived = max(arrived, free + latency_ps + sum(each.latency_ps for each in on))
            found[-1].append(arrived)
    return found


@st.composite
def ready_times(draw: Any) -> Any:
    """When the rows of up to six samples are ready, in any order of time."""
    samples, rows = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    times = draw(st.lists(st.integers(0, 600), min_size=samples * rows, max_size=samples * rows))
    return np.array(times, np.int64).reshape(samples, rows)


@given(delays(), ready_times(), st.integers(1, 60), st.integers(0, 30))
def test_rows_are_those_of_a_loop(
    faults: list[Delay], ready: Any, row_ps: int, latency_ps: int
) -> None:
    resource = PacedResource(FifoResource("it", row_ps, latency_ps), faults)
    assert resource.serve(ready).tolist() == by_loop(ready, row_ps, latency_ps, faults)


@given(delays(), ready_times(), st.integers(1, 60), st.data())
def test_rows_may_come_in_any_blocks(
    faults: list[Delay], ready: Any, row_ps: int, data: Any
) -> None:
    at_once = PacedResource(FifoResource("it", row_ps, 3), faults)
    in_blocks = PacedResource(FifoResource("it", row_ps, 3), faults)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(ready)))) | {0, len(ready)})
    found = []
    for first, last in itertools.pairwise(cuts):
        again = PacedResource(FifoResource("it", row_ps, 3), faults)
        again.restore(in_blocks.state())
        found += (in_blocks := again).serve(ready[first:last]).tolist()
    assert found == at_once.serve(ready).tolist()
    assert in_blocks.busy_ps == at_once.busy_ps


@given(ready_times(), st.integers(1, 60))
def test_faults_that_hurt_nothing_change_nothing(ready: Any, row_ps: int) -> None:
    plain = FifoResource("it", row_ps, 5)
    paced = PacedResource(FifoResource("it", row_ps, 5), [Delay(LinkFault(link=0), exact(1.0))])
    assert paced.serve(ready).tolist() == plain.serve(ready).tolist()
    assert (paced.free_ps, paced.busy_ps) == (plain.free_ps, plain.busy_ps)


def test_the_first_starts_are_those_of_slow_rows() -> None:
    resource = PacedResource(
        FifoResource("it", 10), [Delay(BoardFault(board=0, factor=3, to_sample=1), exact(3.0))]
    )
    left = resource.serve(np.array([[5, 5], [100, 100]], np.int64))
    assert left.tolist() == [[35, 65], [110, 120]]
    assert resource.first_starts(left).tolist() == [5, 100]
    assert resource.busy_ps == 80


def test_observers_get_a_sample_at_a_time() -> None:
    resource = PacedResource(
        FifoResource("it", 10), [Delay(BoardFault(board=0, factor=3, to_sample=1), exact(3.0))]
    )
    seen: list[Served] = []
    resource.observer = seen.append
    resource.serve(np.array([[5, 5], [100, 100]], np.int64))
    assert [(served.left_ps.tolist(), served.row_ps) for served in seen] == [
        ([[35, 65]], 30),
        ([[110, 120]], 10),
    ]


def test_compressed_rows_are_slowed_down_by_as_much() -> None:
    resource = PacedResource(
        FifoResource("it", 10), [Delay(BoardFault(board=0, factor=3), exact(3.0))]
    )
    resource.shrink(0.5)
    assert resource.serve(np.array([[0]], np.int64)).tolist() == [[15]]


def test_time_that_no_clock_holds_is_refused() -> None:
    resource = PacedResource(
        FifoResource("it", 10**13), [Delay(BoardFault(board=0, factor=1e4), exact(1e4))]
    )
    with pytest.raises(InputError, match="virtual time runs past"):
        resource.serve(np.zeros((1, 100), np.int64))
