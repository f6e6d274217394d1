"""Random orders of stages in a V: valid, the same after CSV and text, and timed as longest paths in
a graph.
"""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.emulator.schedule import (
    Backward,
    Engines,
    Machine,
    Schedule,
    StageCosts,
    Transport,
    check_complete,
    dry_run,
    parse,
    parse_csv,
    to_csv,
    to_text,
)
from emuchain.emulator.timing import run_timeline

from ..schedule.chains import order_in_v
from .longest_path import ends_by_longest_path

TIMES = st.integers(1, 40)


@st.composite
def schedules_in_v(draw: st.DrawFn) -> Schedule:
    """Draw a schedule."""
    devices, count = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    written = order_in_v(devices, count, random.Random(draw(st.integers(0, 1 << 32))))
    schedule = parse_csv(written)
    assert to_csv(schedule) == written
    return schedule


@given(schedules_in_v())
@settings(max_examples=100)
def test_it_is_valid_and_the_same_as_text(schedule: Schedule) -> None:
    check_complete(schedule)
    dry_run(schedule, aligned=True)
    assert schedule.in_v == (schedule.devices > 1)
    assert to_csv(parse(to_text(schedule))) == to_csv(schedule)


@given(
    schedules_in_v(),
    st.sampled_from([Transport.STORED, Transport.STREAMED]),
    st.sampled_from(Backward),
    st.data(),
)
@settings(max_examples=200)
def test_it_is_timed(
    schedule: Schedule, transport: Transport, backward: Backward, data: st.DataObject
) -> None:
    rows = data.draw(st.integers(1, 4))
    costs = []
    for _ in range(2 * schedule.devices):
        errors, gradients, sent = (
            data.draw(TIMES),
            data.draw(TIMES),
            data.draw(st.none() | st.integers(0, 60)),
        )
        times = data.draw(TIMES), errors + gradients, gradients, data.draw(st.integers(0, 60)), sent
        costs.append(StageCosts(*times, rows=rows))
    machine = Machine(Engines.TURNS, transport, backward, data.draw(st.integers(0, 9)))
    timed = run_timeline(schedule, costs, machine).timed
    ends = {
        (each.step.kind.value, each.step.micro_batch, each.step.stage): each.end_ps
        for each in timed
    }
    assert ends == ends_by_longest_path(schedule, costs, machine)
