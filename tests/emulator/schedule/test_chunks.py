"""Several stages on a device: the dry run of interleaved schedules, and what it finds in those that
were changed.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.schedule import (
    Action,
    EpochShape,
    Kind,
    Schedule,
    dry_run,
    parse,
    schedules,
    to_text,
)

from .chains import actions_of

VALID = """schedule mine, 2 devices
micro-batches 0:1 1:2
0F0v0 0F1v0 0F0c1v0 0B0c1v0 0W0c1 0F1c1v0 0B1c1v0 0W1c1 0B0v0 0W0 0B1v0 0W1 0U1
1F0v0 1F1v0 1F0c1v0 1B0c1v0 1W0c1 1F1c1v0 1B1c1v0 1W1c1 1B0v0 1W0 1B1v0 1W1 1U1
"""


def interleaved(devices: int, rounds: int, chunks: int, steps: int = 1) -> Schedule:
    batch = devices * rounds
    return schedules()["interleaved"].generate(
        EpochShape(devices, steps * batch, batch, 1, chunks=chunks)
    )


@given(st.integers(1, 8), st.integers(1, 32), st.integers(1, 4))
def test_interleaved_takes_any_number_of_micro_batches(
    devices: int, count: int, chunks: int
) -> None:
    dry_run(
        schedules()["interleaved"].generate(EpochShape(devices, count, count, 1, chunks=chunks)),
        aligned=True,
    )


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4), st.integers(1, 2))
def test_interleaved_passes_the_dry_run(devices: int, rounds: int, chunks: int, steps: int) -> None:
    schedule = interleaved(devices, rounds, chunks, steps)
    dry_run(schedule, aligned=True)
    again = parse(to_text(schedule))
    assert (again.chunks, actions_of(again)) == (chunks, actions_of(schedule))
    dry_run(again, aligned=True)


def test_each_stage_does_each_micro_batch_once() -> None:
    schedule = interleaved(3, 2, 2)
    for actions in actions_of(schedule):
        wanted = set(itertools.product("FBW", range(6), range(2)))
        found = [(action.kind.value, action.index, action.chunk) for action in actions[:-1]]
        assert len(found) == len(wanted) and set(found) == wanted
        assert actions[-1] == Action(Kind.UPDATE, 1)


def complaint(schedule: Schedule, *, aligned: bool = False) -> str:
    with pytest.raises(InputError) as error:
        dry_run(schedule, aligned=aligned)
    line = str(error.value)
    assert "\n" not in line
    return line.removeprefix("schedule mine: ")


def test_the_schedule_by_hand_is_valid() -> None:
    dry_run(parse(VALID), aligned=True)


CHANGED = {
    # name: what is replaced, with what, what the dry run must say
    "F of chunk 1 left out": ("1F0c1v0 ", "", "device 1: B0c1v0 comes before F0"),
    "W twice": ("0W0c1", "0W0c1 0W0c1", "device 0: W0c1 is done twice"),
    "B of the first chunk first": (
        "1B0c1v0 1W0c1 1F1c1v0 1B1c1v0 1W1c1 1B0v0",
        "1B0v0 1B0c1v0 1W0c1 1F1c1v0 1B1c1v0 1W1c1",
        (
            "deadlock: device 0 waits at B0c1v0 for stage 3 on device 1; device 1 waits at B0v0 for"
            " stage 2 on device 0"
        ),
    ),
    "no chunk 1 on one device": (
        "1F0c1v0 1B0c1v0 1W0c1 1F1c1v0 1B1c1v0 1W1c1 ",
        "",
        (
            "deadlock: device 0 waits at B0c1v0 for stage 3 on device 1; device 1 waits at B0v0 for"
            " stage 2 on device 0"
        ),
    ),
    "W of a chunk left out": ("1W1c1 ", "", "device 1: U1 comes before W1c1"),
    "messages in another order": (
        "0F0v0 0F1v0",
        "0F1v0 0F0v0",
        (
            "device 1: F0v0 does not follow the order of its neighbour, whose next message is of"
            " micro-batch 1"
        ),
    ),
    "a version to come": (
        "0F1c1v0",
        "0F1c1v1",
        "device 0: F1c1v1 needs version 1 of the weights; the device has 0",
    ),
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_the_dry_run_finds(name: str) -> None:
    old, new, expected_text = CHANGED[name]
    assert VALID.count(old) == 1
    assert complaint(parse(VALID.replace(old, new))) == expected_text


def test_a_chunk_that_is_left_out_everywhere() -> None:
    schedule = parse(VALID)
    kept = [[action for action in actions if not action.chunk] for actions in actions_of(schedule)]
    broken = Schedule(
        "mine",
        2,
        schedule.micro_batches,
        lambda devices: {device: iter(kept[device]) for device in devices},
        chunks=2,
    )
    assert complaint(broken).startswith(
        "deadlock: device 0 waits at B0v0 for stage 1 on device 1; device 1 waits at B0v0"
    )


def test_a_chunk_too_many() -> None:
    schedule = parse(VALID)
    of_one = Schedule("mine", 2, schedule.micro_batches, schedule.programs)
    assert (
        complaint(of_one)
        == "device 0: F0c1v0 is of chunk 1, but the chain has one stage on each device"
    )


@pytest.mark.parametrize(
    "text", [VALID.replace("0F0c1v0", "0F0c999999999v0"), VALID.replace("1W0c1", "1W0c30")]
)
def test_chunks_that_cannot_be_as_many(text: str) -> None:
    with pytest.raises(
        InputError, match=r"^schedule: device [01]: \w+: chunks are counted from 0 on$"
    ):
        parse(text)


ALIGNED = """schedule mine, 1 device
micro-batches 0:1 | 1:2
0F0v0 0B0v0 0W0v0 0F1v0 0U1 0B1v0 0W1v0 0U2
"""


def test_versions_of_a_sample_that_do_not_agree() -> None:
    dry_run(parse(ALIGNED), aligned=True)
    for old, expected_text in (("0B1v0", "B1v1"), ("0W1v0", "W1v1")):
        newer = parse(ALIGNED.replace(old, f"0{expected_text}"))
        dry_run(newer)
        why = (
            f"device 0: {expected_text} uses version 1 of the weights, newer than version 0 of"
            " its F"
        )
        assert complaint(newer, aligned=True) == why


@given(st.sampled_from([name for name, kind in schedules().items() if kind.aligned]), st.data())
def test_all_but_fpdeep_use_one_version_for_a_sample(name: str, data: st.DataObject) -> None:
    devices, batch = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 9))
    micro_batch = data.draw(st.integers(1, 4))
    kind = schedules()[name]
    steps = data.draw(st.integers(1, 2 * devices + 2))
    tail = data.draw(st.integers(0, batch - 1))
    dry_run(
        kind.generate(EpochShape(devices, steps * batch + tail, batch, micro_batch)), aligned=True
    )
