"""R in orders: read and written as text and CSV, carried out by the dry run, and refused in one
line where it has no place.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.schedule import (
    EpochShape,
    Kind,
    Schedule,
    ScheduleKind,
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

from .chains import actions_of, with_drawn_r

DRAINED = ("sync", "gpipe", "1f1b-sno", "1f1b-so", "zero-bubble", "interleaved")
TEXT = """schedule mine, 2 devices
micro-batches 0:2 2:4
0F0v0 0F1v0 0R1v0 0B0v0 0W0 0B1v0 0W1 0U1
1F0v0 1B0v0 1W0 1F1v0 1B1v0 1W1 1U1
"""


@given(st.sampled_from(DRAINED), st.integers(1, 4), st.integers(1, 3), st.integers(0, 999))
@settings(deadline=None)
def test_orders_with_r_are_read_as_they_were_written(
    name: str, devices: int, rounds: int, seed: int
) -> None:
    kind, count = schedules()[name], devices * rounds
    one = kind.generate(EpochShape(devices, count, count, 1, chunks=kind.chunks))
    order = with_drawn_r(one, random.Random(seed))
    dry_run(order, aligned=True)
    check_complete(order)
    assert actions_of(parse(to_text(order))) == actions_of(order)
    text = to_csv(order)
    assert to_csv(parse_csv(text)) == text
    edited = edited_kind("own.csv", to_text(order))
    drawn = any(a.kind is Kind.RECOMPUTE for program in actions_of(order) for a in program)
    assert edited.recomputes == drawn
    # The order repeats, each F with what it said.
    twice = edited.schedule_of(EpochShape(devices, 2 * count, count, 1, chunks=kind.chunks))
    dry_run(twice, aligned=True)
    again = [a for program in actions_of(twice) for a in program if a.recomputed]
    assert len(again) == 2 * len(
        [a for program in actions_of(order) for a in program if a.recomputed]
    )


def test_only_f_of_a_micro_batch_with_r_lets_its_features_go() -> None:
    first, second = actions_of(parse(TEXT))
    assert [str(action) for action in first if action.recomputed] == ["F1v0"]
    assert not any(action.recomputed for action in second)


def test_features_are_there_from_r_on() -> None:
    first, _ = actions_of(parse(TEXT))
    assert kept_micro_batches(first, 1, Kind.BACKWARD) == (2,)
    assert kept_micro_batches(first, 1, Kind.BACKWARD, Kind.RECOMPUTE) == (2,)
    later = actions_of(parse(TEXT.replace("0R1v0 0B0v0 0W0", "0B0v0 0W0 0R1v0")))[0]
    assert kept_micro_batches(later, 1, Kind.BACKWARD, Kind.RECOMPUTE) == (1,)


WRONG = {
    "ahead of F": ("0F1v0 0R1v0", "0R1v0 0F1v0", "R1v0 comes before F1"),
    "behind B": ("0R1v0 0B0v0 0W0 0B1v0", "0B0v0 0W0 0B1v0 0R1v0", "B1v0 comes before R1"),
    "twice": ("0R1v0", "0R1v0 0R1v0", "R1v0 is done twice"),
    "another version": ("0R1v0", "0R1v1", "R1v1 needs version 1 of the weights"),
    "a span": ("0R1v0", "0R1[0:1]v0", "R1[0:1]v0 is a part of a micro-batch; R does whole ones"),
    "of spans": ("0F1v0", "0F1[0:1]v0 0F1[1:2]v0", "is a part of a micro-batch, which no R can"),
}


@pytest.mark.parametrize("name", WRONG)
def test_r_that_has_no_place(name: str, one_line: Callable[..., str]) -> None:
    old, new, message = WRONG[name]
    with pytest.raises(InputError) as error:
        dry_run(parse(TEXT.replace(old, new)), aligned=True)
    assert f"schedule mine: device 0: {message}" in one_line(error) or message in one_line(error)


def test_a_builder_says_that_it_has_r(one_line: Callable[..., str]) -> None:
    def build(epoch: EpochShape) -> Schedule:
        return with_drawn_r(schedules()["gpipe"].generate(epoch), random.Random(1), 1)

    epoch = EpochShape(2, 4, 4, 1)
    kind = ScheduleKind("own-r", build, "one of its own", drains=True, recomputes=True)
    dry_run(kind.schedule_of(epoch))
    silent = ScheduleKind("own-r", build, "one of its own", drains=True)
    with pytest.raises(InputError) as error:
        dry_run(silent.schedule_of(epoch))
    assert "and its kind's `recomputes` is False" in one_line(error)


def test_r_of_features_that_were_kept(one_line: Callable[..., str]) -> None:
    """A builder must say of F that it is recomputed; a file cannot forget it."""
    order = parse(TEXT)
    programs = []
    for program in actions_of(order):
        programs.append([dataclasses.replace(action, recomputed=False) for action in program])
    forgotten = dataclasses.replace(
        order, programs=lambda devices: {device: iter(programs[device]) for device in devices}
    )
    with pytest.raises(InputError) as error:
        dry_run(forgotten)
    assert "R1v0 has nothing to do: its F keeps all features" in one_line(error)
