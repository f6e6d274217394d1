"""The dry run: what it finds in schedules that were tampered with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.schedule import Schedule, dry_run, parse

from .chains import VALID, actions_of, any_schedule


def complaint(text: str) -> str:
    """What the dry run says, in one line."""
    with pytest.raises(InputError) as error:
        dry_run(parse(text))
    line = str(error.value)
    assert "\n" not in line
    assert line.startswith("schedule mine: ")
    return line.removeprefix("schedule mine: ")


def test_the_schedule_that_is_tampered_with_is_valid() -> None:
    with_comment = parse("# a comment\n\n" + VALID.replace("\n", "\n\n"))
    dry_run(parse(VALID))
    dry_run(with_comment)
    assert actions_of(with_comment) == actions_of(parse(VALID))


TAMPERED = {
    # name: what is replaced, with what, what the dry run must say
    "missing F": ("0F0v0 0F1v0", "0F1v0", ["device 1", "F0v0", "of micro-batch 1"]),
    "missing F at the end": ("1F2v1 1B2v1", "1B2v1", ["device 1", "B2v1", "before F2"]),
    "missing last F": (
        "0F2v1 0B2v1 0W2 0U2",
        "",
        ["deadlock", "device 1 waits at F2v1 for its left neighbour"],
    ),
    "missing B": ("1B0v0 1W0", "1W0", ["device 1", "W0", "before B0"]),
    "missing B and W": ("1B0v0 1W0 ", "", ["device 1", "U1", "before W0"]),
    "missing W": ("0W1 0U1", "0U1", ["device 0", "U1", "before W1"]),
    "missing U": ("0U1 0F2v1", "0F2v1", ["device 0", "F2v1", "version 1", "has 0"]),
    "missing last U": ("1W2 1U2", "1W2", ["device 1", "1 updates of 2"]),
    "F twice": ("0F1v0 0B0v0", "0F1v0 0F1v0 0B0v0", ["device 0", "F1v0", "done twice"]),
    "B twice": ("1B1v0 1W1", "1B1v0 1B1v0 1W1", ["device 1", "B1v0", "done twice"]),
    "W twice": ("0W0 0B1v0", "0W0 0W0 0B1v0", ["device 0", "W0", "done twice"]),
    "U twice": ("1U1 1F2v1", "1U1 1U1 1F2v1", ["device 1", "U1", "done twice"]),
    "U of a later version": ("0U1 0F2v1", "0U2 0F2v1", ["device 0", "U2", "must be U1"]),
    "U too many": ("1U2", "1U2 1U3", ["device 1", "3 updates of 2"]),
    "F with a version to come": ("0F1v0", "0F1v1", ["device 0", "F1v1", "version 1", "has 0"]),
    "B with an old version": (
        "1B2v1",
        "1B2v0",
        ["device 1", "B2v0", "version 0", "older than version 1 of its F"],
    ),
    "W of the next step": (
        "0U1 0F2v1 0B2v1 0W2 0U2",
        "0F2v0 0B2v0 0W2 0U1 0U2",
        ["device 0", "W2", "of step 1"],
    ),
    "messages in another order to the right": (
        "0F0v0 0F1v0",
        "0F1v0 0F0v0",
        ["device 1", "F0v0", "of micro-batch 1"],
    ),
    "messages in another order to the left": (
        "1F0v0 1B0v0 1W0 1F1v0 1B1v0 1W1",
        "1F0v0 1F1v0 1B1v0 1W1 1B0v0 1W0",
        ["device 0", "B0v0", "of micro-batch 1"],
    ),
    "deadlock": (
        "0F0v0 0F1v0 0B0v0 0W0",
        "0F0v0 0B0v0 0W0 0F1v0",
        None,  # this is valid: one micro-batch in flight
    ),
    "deadlock of both": (
        "1F0v0 1B0v0 1W0 1F1v0 1B1v0",
        "1F0v0 1F1v0 1F2v0 1B0v0 1W0 1B1v0",
        [
            "deadlock",
            "device 0 waits at B0v0 for its right neighbour",
            "device 1 waits at F2v0 for its left neighbour",
        ],
    ),
    "B before F": ("1F0v0 1B0v0", "1B0v0 1F0v0", ["device 1", "B0v0", "before F0"]),
    "a device that does nothing": (
        "1F0v0 1B0v0 1W0 1F1v0 1B1v0 1W1 1U1 1F2v1 1B2v1 1W2 1U2",
        "1F0v0",
        ["deadlock", "device 0 waits at B0v0 for its right neighbour"],
    ),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_what_the_dry_run_finds(name: str) -> None:
    old, new, message = TAMPERED[name]
    assert VALID.count(old) == 1
    text = VALID.replace(old, new)
    if message is None:
        dry_run(parse(text))
        return
    line = complaint(text)
    for part in message:
        assert part in line


@pytest.mark.parametrize("kind", "FBW")
def test_samples_that_are_left_out_of_training(kind: str) -> None:
    """All actions of the last micro-batch are gone, on all devices, and so is the update that would
    miss them.
    """
    text = VALID
    for word in ("F2v1 ", "B2v1 ", "W2 ", "U2")["FBW".index(kind) :]:
        for device in "01":
            text = text.replace(device + word, "")
    assert complaint(text) == f"device 0 never does {kind}2"


@given(any_schedule(), st.data())
def test_without_any_one_action_it_is_not_valid(schedule: Schedule, data: st.DataObject) -> None:
    actions = actions_of(schedule)
    device = data.draw(st.integers(0, schedule.devices - 1))
    actions[device].pop(data.draw(st.integers(0, len(actions[device]) - 1)))
    broken = Schedule(
        "broken",
        schedule.devices,
        schedule.micro_batches,
        lambda ds: {d: iter(actions[d]) for d in ds},
    )
    with pytest.raises(InputError, match="^schedule broken: ") as error:
        dry_run(broken)
    assert "device" in str(error.value)
    assert "\n" not in str(error.value)


@given(any_schedule(), st.data())
def test_with_any_one_action_twice_it_is_not_valid(schedule: Schedule, data: st.DataObject) -> None:
    actions = actions_of(schedule)
    device = data.draw(st.integers(0, schedule.devices - 1))
    twice = data.draw(st.sampled_from(actions[device]))
    actions[device].insert(data.draw(st.integers(0, len(actions[device]))), twice)
    broken = Schedule(
        "broken",
        schedule.devices,
        schedule.micro_batches,
        lambda ds: {d: iter(actions[d]) for d in ds},
    )
    with pytest.raises(InputError, match="^schedule broken: "):
        dry_run(broken)


def test_no_devices() -> None:
    with pytest.raises(InputError):
        dry_run(parse("schedule mine, 0 devices\nmicro-batches 0:2\n"))
