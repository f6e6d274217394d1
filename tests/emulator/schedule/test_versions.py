"""Versions of the weights follow from the actions: which ones a device keeps, until when, and which
it cannot use.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.device.memories import Versions
from emuchain.emulator.schedule import (
    Action,
    EpochShape,
    Kind,
    Schedule,
    dry_run,
    parse,
    schedules,
    to_text,
    with_versions,
)
from emuchain.kernels import Arena

from .chains import any_schedule, stashing


def stashed(epoch: EpochShape) -> Schedule:
    """PipeDream's: device d of D begins with D - d times F."""
    return stashing(epoch, lambda device: epoch.devices - device)


STASHED = """schedule stashing, 2 devices
micro-batches 0:2 | 2:4 | 4:6 | 6:8 | 8:9
0F0v0 0F1v0 0B0v0 0W0 0U1 0F2v1 0B1v0 0W1 0U2 0F3v2 0B2v1 0W2 0U3 0F4v3 0B3v2 0W3 0U4 0B4v3 0W4 0U5
1F0v0 1B0v0 1W0 1U1 1F1v1 1B1v1 1W1 1U2 1F2v2 1B2v2 1W2 1U3 1F3v3 1B3v3 1W3 1U4 1F4v4 1B4v4 1W4 1U5
"""


def held_after(schedule: Schedule, device: int) -> dict[str, set[int]]:
    """The versions that a device's memory holds after each of its actions; what an action names
    must be there.

    The weights of version v are the number v, so an update that overwrites a version still in use
    is found out.
    """
    weights, found = Versions(np.zeros(1, np.float32), Arena()), dict[str, set[int]]()
    held, newest = {0}, 0
    for action, keeps, frees in with_versions(schedule.programs([device])[device]):
        if action.version is not None:
            assert weights[action.version] == action.version, action
        if action.kind is Kind.UPDATE:
            weights.advance(keeps=keeps)[...] += 1
            held -= set() if keeps else {newest}
            newest = action.index
            held |= {newest}
        weights.free(frees)
        held -= set(frees)
        assert len(weights) == len(held)
        assert all(weights[version] == version for version in held)
        found[str(action)] = set(held)
    return found


def changes(held: dict[str, set[int]]) -> dict[str, set[int]]:
    """Only the actions after which other versions are held than before."""
    before = {0}
    found = {}
    for action, versions in held.items():
        if versions != before:
            found[action] = versions
        before = versions
    return found


def test_the_schedule_of_two_devices() -> None:
    schedule = stashed(EpochShape(devices=2, samples=9, batch=2, micro_batch=2))
    assert to_text(schedule) == STASHED
    dry_run(schedule)
    dry_run(parse(STASHED))


def test_versions_by_hand() -> None:
    """Device 0: B1v0 comes after U1, so U1 copies, and after F2v1; with B1v0 version 0 is of no use
    any more.

    So with every mini-batch; nothing comes after U5. Device 1 uses nothing but the newest version.
    """
    schedule = parse(STASHED)
    assert changes(held_after(schedule, 0)) == {
        "U1": {0, 1},
        "B1v0": {1},
        "U2": {1, 2},
        "B2v1": {2},
        "U3": {2, 3},
        "B3v2": {3},
        "U4": {3, 4},
        "B4v3": {4},
        "U5": {5},
    }
    assert changes(held_after(schedule, 1)) == {f"U{n}": {n} for n in range(1, 6)}


def test_b_uses_the_version_of_its_f_after_a_later_f_with_a_newer_one() -> None:
    held = held_after(parse(STASHED), 0)
    order = list(held)
    for earlier, later, back in (
        ("F1v0", "F2v1", "B1v0"),
        ("F2v1", "F3v2", "B2v1"),
        ("F3v2", "F4v3", "B3v2"),
    ):
        assert order.index(earlier) < order.index(later) < order.index(back)
        assert len(held[later]) == 2


def test_where_w_names_versions_they_stay_until_w() -> None:
    text = STASHED
    for number, version in enumerate((0, 0, 1, 2, 3)):
        text = text.replace(f"0W{number} ", f"0W{number}v{version} ")
    schedule = parse(text)
    dry_run(schedule)
    assert changes(held_after(schedule, 0)) == {
        "U1": {0, 1},
        "W1v0": {1},
        "U2": {1, 2},
        "W2v1": {2},
        "U3": {2, 3},
        "W3v2": {3},
        "U4": {3, 4},
        "W4v3": {4},
        "U5": {5},
    }


def test_three_devices_by_hand() -> None:
    """Device 0 has three micro-batches in flight, each F with its own version: F0v0 F1v0 F2v0,
    F3v1, F4v2, F5v3.
    """
    schedule = stashed(EpochShape(devices=3, samples=6, batch=1, micro_batch=1))
    dry_run(schedule)
    held = changes(held_after(schedule, 0))
    assert list(held.items())[:6] == [
        ("U1", {0, 1}),
        ("U2", {0, 1, 2}),
        ("B2v0", {1, 2}),
        ("U3", {1, 2, 3}),
        ("B3v1", {2, 3}),
        ("U4", {2, 3, 4}),
    ]
    assert [max(map(len, held_after(schedule, device).values())) for device in range(3)] == [
        3,
        2,
        1,
    ]


@given(st.integers(1, 6), st.integers(1, 30), st.integers(1, 3))
def test_a_device_keeps_as_many_versions_as_micro_batches_in_flight(
    devices: int, steps: int, batch: int
) -> None:
    """As many as the epoch suffices for, and one at its end."""
    schedule = stashed(EpochShape(devices, steps * batch, batch, batch))
    dry_run(schedule)
    for device in range(devices):
        in_flight = devices - device
        held = list(held_after(schedule, device).values())
        most = max(map(len, held))
        # Update n - 1 of n in flight makes version n - 1, which F of micro-batch 2n - 2 is the
        # first to use.
        assert most == in_flight if steps > 2 * in_flight - 2 else most <= in_flight
        assert held[-1] == {steps}


@given(any_schedule())
def test_sync_and_fpdeep_keep_one_version(schedule: Schedule) -> None:
    for program in schedule.programs(range(schedule.devices)).values():
        assert not any(keeps or frees for _, keeps, frees in with_versions(program))


def test_programs_are_read_ahead_no_further_than_needed() -> None:
    """Here as far as the next F and B after each update; the program never ends."""
    read = 0

    def program() -> Iterator[Action]:
        nonlocal read
        for number in itertools.count():
            for action in (
                Action(Kind.FORWARD, number, number),
                Action(Kind.BACKWARD, number, number),
                Action(Kind.GRADIENT, number),
                Action(Kind.UPDATE, number + 1),
            ):
                read += 1
                yield action

    for done, (action, _, _) in enumerate(itertools.islice(with_versions(program()), 400), start=1):
        assert read - done <= 2, action


UNKNOWN = {
    # name: what is replaced, with what, what the dry run must say
    "F, to come": (
        "0F4v3",
        "0F4v4",
        "device 0: F4v4 needs version 4 of the weights; the device has 3",
    ),
    "F, freed": ("0F4v3", "0F4v0", "device 0: F4v0 {freed 0}"),
    "F, overwritten": ("1F3v3", "1F3v1", "device 1: F3v1 {freed 1}"),
    "B, to come": (
        "0B3v2",
        "0B3v4",
        "device 0: B3v4 needs version 4 of the weights; the device has 3",
    ),
    "B, freed": ("0B3v2", "0B3v0", "device 0: B3v0 {freed 0}"),
    "B, overwritten": ("1B3v3", "1B3v1", "device 1: B3v1 {freed 1}"),
    "W, to come": (
        "0W3",
        "0W3v4",
        "device 0: W3v4 needs version 4 of the weights; the device has 3",
    ),
    "W, freed": ("0W3", "0W3v0", "device 0: W3v0 {freed 0}"),
    "W, overwritten": ("1W3", "1W3v1", "device 1: W3v1 {freed 1}"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_versions_that_are_not_there(name: str, one_line) -> None:
    old, new, message = UNKNOWN[name]
    for version in "01":
        message = message.replace(
            f"{{freed {version}}}",
            f"needs version {version} of the weights, which was freed after its last use",
        )
    assert STASHED.count(f"{old} ") == 1
    with pytest.raises(InputError) as error:
        dry_run(parse(STASHED.replace(f"{old} ", f"{new} ")))
    assert one_line(error) == f"schedule stashing: {message}"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0B2v1", "0B2v0", "B2v0 uses version 0 of the weights, older than version 1 of its F"),
        (
            "0W1 0U2 0F3v2 0B2v1 0W2",
            "0W1v0 0U2 0F3v2 0B2v1 0W2v0",
            "W2v0 uses version 0 of the weights, older than version 1 of its F",
        ),
    ],
)
def test_versions_older_than_that_of_f(old: str, new: str, message: str, one_line) -> None:
    """Version 0 would be kept until then, but the sample went forward with version 1."""
    assert STASHED.count(f"{old} ") == 1
    with pytest.raises(InputError) as error:
        dry_run(parse(STASHED.replace(f"{old} ", f"{new} ")))
    assert one_line(error) == f"schedule stashing: device 0: {message}"


def test_gpipe_keeps_one_version() -> None:
    """All its F use the newest one, which no update replaces before their B."""
    schedule = schedules()["gpipe"].generate(
        EpochShape(devices=2, samples=9, batch=4, micro_batch=2)
    )
    assert {len(held) for device in range(2) for held in held_after(schedule, device).values()} == {
        1
    }
