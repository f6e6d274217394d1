"""O and L in orders: read and written as text and CSV, carried out by the dry run, and refused in
one line where they have no place.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.schedule import (
    Backward,
    EpochShape,
    Kind,
    Machine,
    StageCosts,
    check_complete,
    dry_run,
    edited_kind,
    kept_micro_batches,
    parse,
    parse_csv,
    schedules,
    to_csv,
    to_text,
)
from emuchain.emulator.timing import FeatureBytes, kept_courses, time_pipeline

from .chains import actions_of, with_drawn_moves, with_drawn_r

DRAINED = ("sync", "gpipe", "1f1b-sno", "1f1b-so", "zero-bubble", "interleaved")
TEXT = """schedule mine, 2 devices
micro-batches 0:2 2:4
0F0v0 0O0 0F1v0 0L0 0B0v0 0W0 0B1v0 0W1 0U1
1F0v0 1B0v0 1W0 1F1v0 1B1v0 1W1 1U1
"""


@given(st.sampled_from(DRAINED), st.integers(1, 4), st.integers(1, 3), st.integers(0, 999))
@settings(deadline=None)
def test_orders_are_read_as_they_were_written(
    name: str, devices: int, rounds: int, seed: int
) -> None:
    kind, count, chance = schedules()[name], devices * rounds, random.Random(seed)
    one = kind.generate(EpochShape(devices, count, count, 1, chunks=kind.chunks))
    order = with_drawn_moves(with_drawn_r(one, chance, 0.3), chance)
    dry_run(order, aligned=True)
    check_complete(order)
    assert actions_of(parse(to_text(order))) == actions_of(order)
    text = to_csv(order)
    assert to_csv(parse_csv(text)) == text
    edited = edited_kind("own.csv", to_text(order))
    drawn = any(a.kind is Kind.OFFLOAD for program in actions_of(order) for a in program)
    assert edited.offloads == drawn
    twice = edited.schedule_of(EpochShape(devices, 2 * count, count, 1, chunks=kind.chunks))
    dry_run(twice, aligned=True)


WRONG = {
    "ahead of F": ("0F0v0 0O0", "0O0 0F0v0", "O0 comes before F0"),
    "L ahead of O": ("0O0 0F1v0 0L0", "0L0 0F1v0 0O0", "L0 comes before O0"),
    "no L": ("0L0 ", "", "B0v0 comes before L0"),
    "no O": ("0O0 ", "", "L0 comes before O0"),
    "behind B": ("0B1v0 0W1", "0B1v0 0O1 0W1", "O1 comes after B1"),
    "twice": ("0O0", "0O0 0O0", "O0 is done twice"),
    "with R": ("0L0", "0L0 0R0v0", "O0 has nothing to move: R0 computes the features again"),
}


@pytest.mark.parametrize("name", WRONG)
def test_moves_that_have_no_place(name: str, one_line: Callable[..., str]) -> None:
    old, new, message = WRONG[name]
    assert old in TEXT
    with pytest.raises(InputError) as error:
        dry_run(parse(TEXT.replace(old, new)), aligned=True)
    assert message in one_line(error)


def test_a_move_names_no_version(one_line: Callable[..., str]) -> None:
    with pytest.raises(InputError) as error:
        parse(TEXT.replace("0O0", "0O0v0"))
    assert "'0O0v0' is not an action" in one_line(error)


TIMES = st.integers(1, 9)


@given(st.integers(1, 3), st.integers(1, 5), TIMES, TIMES, st.integers(0, 20), st.randoms())
@settings(deadline=None, max_examples=60)
def test_moves_in_time(
    devices: int, count: int, forward: int, backward: int, move: int, chance: random.Random
) -> None:
    """Each direction of a link carries one micro-batch at a time, beside F and B; what is kept over
    time is never more than the order says.
    """
    one = schedules()["gpipe"].generate(EpochShape(devices, count, count, 1))
    order = with_drawn_moves(one, chance)
    costs = (StageCosts(forward, 2 * backward, backward, offload_ps=move),) * devices
    result = time_pipeline(order, costs, Machine(backward=Backward.SPLIT))
    at = {timed.step: timed for timed in result.timed}
    for step, timed in at.items():
        if step.kind is Kind.OFFLOAD:
            assert timed.end_ps - timed.start_ps == move
            assert timed.start_ps >= at[step._replace(kind=Kind.FORWARD)].end_ps
            load = at[step._replace(kind=Kind.LOAD)]
            assert load.start_ps >= timed.end_ps
            assert at[step._replace(kind=Kind.BACKWARD)].start_ps >= load.end_ps
    for device in range(devices):
        for kind in (Kind.OFFLOAD, Kind.LOAD):
            own = [t for t in result.timed if t.device == device and t.step.kind is kind]
            assert all(a.end_ps <= b.start_ps for a, b in itertools.pairwise(own))
    courses = kept_courses(
        result.timed, devices, Kind.GRADIENT, lambda step: FeatureBytes(1, late=1)
    )
    for device, program in enumerate(actions_of(order)):
        [most] = kept_micro_batches(program, 1, Kind.GRADIENT)
        assert courses[device].kept_bytes[-1] == 0
        assert courses[device].peak_bytes <= most
        assert result.features[device] == Fraction(courses[device].peak_bytes)


def test_a_link_that_is_fast_takes_no_time_and_frees_room() -> None:
    """Two micro-batches wait at the host while two others are there, by hand."""
    text = "0F0,0O0,0F1,0O1,0F2,0F3,0B2,0L0,0B3,0L1,0B0,0B1\n"
    plain = "0F0,0F1,0F2,0F3,0B2,0B3,0B0,0B1\n"
    costs = (StageCosts(2, 4, 2, offload_ps=2),)
    moved, kept = (time_pipeline(parse_csv(one), costs, Machine()) for one in (text, plain))
    # F1 waits for O0, from 2 to 4, F2 for O1, from 6 to 8; L0 and L1 are behind B2 and B3.
    assert kept.makespan_ps == 24 and moved.makespan_ps == 28
    assert kept.features == (4,) and moved.features == (2,)
