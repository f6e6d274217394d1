"""Schedules as text: what is printed can be parsed, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.schedule import Schedule, dry_run, parse, to_text

from .chains import VALID, actions_of, any_schedule, fpdeep, staleness_of, sync

GOLDEN = Path(__file__).parent / "golden"


@given(any_schedule())
def test_text_round_trip(schedule: Schedule) -> None:
    text = to_text(schedule)
    found = parse(text)
    assert (found.name, found.devices, found.steps) == (
        schedule.name,
        schedule.devices,
        schedule.steps,
    )
    assert list(found.micro_batches) == list(schedule.micro_batches)
    assert actions_of(found) == actions_of(schedule)
    assert to_text(found) == text
    dry_run(found)


@given(any_schedule())
def test_a_parsed_schedule_can_be_run_twice(schedule: Schedule) -> None:
    found = parse(to_text(schedule))
    assert actions_of(found) == actions_of(found)


GOLDEN_SCHEDULES: dict[str, Callable[[], Schedule]] = {
    "sync-1": lambda: sync(1, 4, 2, 1),
    "sync-3": lambda: sync(3, 7, 4, 2),
    "fpdeep-1": lambda: fpdeep([staleness_of(1, 1, 2)], 5, 2, 2),
    "fpdeep-3": lambda: fpdeep(
        [staleness_of(5, 1, 4), staleness_of(3, 1, 4), staleness_of(1, 0, 4)], 14, 4, 2
    ),
    "fpdeep-two-versions-late": lambda: fpdeep(
        [staleness_of(4, 1, 2), staleness_of(2, 1, 2)], 8, 2, 1
    ),
}


@pytest.mark.parametrize("name", GOLDEN_SCHEDULES)
def test_golden(name: str) -> None:
    """The files were read through by hand; a schedule that changes on purpose has to be read
    through again.
    """
    text = (GOLDEN / f"{name}.txt").read_text()
    assert to_text(GOLDEN_SCHEDULES[name]()) == text
    dry_run(parse(text))


def test_no_golden_file_is_forgotten() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(GOLDEN_SCHEDULES)


BAD_TEXTS = {
    "nothing": ("", "first line"),
    "comments only": ("# schedule sync, 1 device\n", "first line"),
    "no number": ("schedule sync, two devices\n", "first line"),
    "fewer lines than devices": (VALID.rsplit("\n", 2)[0] + "\n", "2 lines of actions"),
    "more lines than devices": (VALID + "1F0v0\n", "2 lines of actions"),
    "no micro-batches": (VALID.replace("micro-batches ", "batches "), "micro-batches"),
    "a gap": (VALID.replace("2:4", "3:4"), "'3:4'; expected 2:END"),
    "an empty micro-batch": (VALID.replace("2:4", "2:2"), "'2:2'"),
    "no span": (VALID.replace("2:4", "2-4"), "'2-4'"),
    "another device's action": (VALID.replace("0W0", "1W0"), "device 0: '1W0'"),
    "an unknown kind": (VALID.replace("1B1v0", "1X1v0"), "device 1: '1X1v0'"),
    "no index": (VALID.replace("1B1v0", "1Bv0"), "device 1: '1Bv0'"),
    "an index too large": (VALID.replace("0W2", "0W3"), "'0W3': there are only 3"),
}


@pytest.mark.parametrize("name", BAD_TEXTS)
def test_texts_that_cannot_be_parsed(name: str) -> None:
    text, message = BAD_TEXTS[name]
    with pytest.raises(InputError) as error:
        parse(text, "some.txt")
    assert str(error.value).startswith("some.txt: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@given(
    st.integers(0, len(VALID)),
    st.integers(0, 12),
    st.text("schedulmn,vFBWU0123456789:| \n#-é\0", max_size=8),
)
def test_a_damaged_text_is_valid_or_refused_in_one_line(begin: int, length: int, new: str) -> None:
    text = VALID[:begin] + new + VALID[begin + length :]
    try:
        schedule = parse(text, "some.txt")
        assert len(actions_of(schedule)) == schedule.devices
        dry_run(schedule)
    except InputError as error:
        assert len(str(error).splitlines()) == 1


@given(st.text(max_size=80))
def test_garbage_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse(text)


@pytest.mark.parametrize("old", ["2 devices", "0:2", "0W0"])
def test_endless_numbers(old: str) -> None:
    with pytest.raises(InputError):
        parse(
            VALID.replace(
                old, old[0] + "0" * 5000 + old[1:] if old == "2 devices" else old + "0" * 5000
            )
        )
