"""Schedules of a user's own: what a builder returns is taken, or refused in one line that says what
is wrong.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import emuchain
from emuchain import InputError
from emuchain.emulator.schedule import (
    Action,
    EpochShape,
    Kind,
    MicroBatch,
    Schedule,
    ScheduleKind,
    Staleness,
    cut_samples,
    pipeline,
    schedules,
)

FIRST = Action(Kind.FORWARD, 0, 0)
SYNC = schedules()["sync"].generate


def changed(**values: Any) -> Callable[[EpochShape], Schedule]:
    """Return a builder of `sync` with other values."""
    return lambda epoch: dataclasses.replace(SYNC(epoch), **values)


def of_program(program: Any) -> Callable[[EpochShape], Schedule]:
    """Return a builder of which each device has a program."""
    return lambda epoch: dataclasses.replace(
        SYNC(epoch), programs=lambda devices: dict.fromkeys(devices, program)
    )


def of_first(**values: Any) -> Callable[[EpochShape], Schedule]:
    """Return a builder whose devices begin with F0, changed in some values."""
    return of_program([dataclasses.replace(FIRST, **values)])


def lost() -> Iterator[Action]:
    yield FIRST
    raise KeyError("lost\n\x1b[2J")


def late(forward: Any, backward: Any = None, more: int = 0) -> Callable[[EpochShape], Schedule]:
    """Return a builder of `pipeline`, whose devices, and `more` of them, are all late by as
    much.
    """

    def build(epoch: EpochShape) -> Schedule:
        staleness = Staleness(forward, forward if backward is None else backward)
        return pipeline("late", [staleness] * (epoch.devices + more), epoch)

    return build


BUILDERS: dict[str, tuple[Any, str]] = {
    "42": (
        lambda epoch: 42,
        "its builder returned 42; it should return a Schedule for 2 devices and 24 samples",
    ),
    "nothing": (lambda epoch: None, "its builder returned None; "),
    "a class": (lambda epoch: Schedule, "its builder returned <class "),
    "fails": (lambda epoch: 1 // 0, "its builder raised ZeroDivisionError: "),
    "takes nothing": (lambda: 42, "its builder raised TypeError: "),
    "fewer devices": (changed(devices=1), "its builder returned one whose `devices` is 1; "),
    "no devices": (changed(devices=None), "its builder returned one whose `devices` is None; "),
    "other chunks": (changed(chunks=2), "has 2 stages on a device, and the chain has 1; "),
    "no micro-batches": (
        changed(micro_batches=[]),
        "its micro-batches have 0 samples of 24; cut_samples(24, 4, 2) ",
    ),
    "micro-batches of numbers": (changed(micro_batches=[1]), "its micro-batch 0 is 1; "),
    "micro-batches once": (
        changed(micro_batches=iter([])),
        "its micro-batches are <list_iterator ",
    ),
    "too large a micro-batch": (
        changed(micro_batches=[MicroBatch(0, 0, 0, 3)]),
        "its micro-batch 0 is MicroBatch(index=0, step=0, begin=0, end=3); ",
    ),
    "no step": (
        lambda epoch: changed(micro_batches=cut_samples(24, 4, 0))(epoch),
        "its builder raised ValueError: ",
    ),
    "programs are 42": (changed(programs=42), "its `programs` raised TypeError: "),
    "programs fail": (
        changed(programs=lambda devices: 1 // 0),
        "its `programs` raised ZeroDivisionError: ",
    ),
    "programs return a list": (
        changed(programs=lambda devices: [[]]),
        "its `programs` returned [[]]; ",
    ),
    "programs of one device": (
        changed(programs=lambda devices: {0: []}),
        "its `programs` returned those of 0; ",
    ),
    "a program is 42": (of_program(42), "the program of device 0 raised TypeError: "),
    "a program of numbers": (
        of_program([1, 2]),
        "the program of device 0 has 1, which is no Action; ",
    ),
    "a program that fails": (
        lambda epoch: dataclasses.replace(
            SYNC(epoch), programs=lambda devices: {each: lost() for each in devices}
        ),
        "the program of device 0 raised KeyError: ",
    ),
    "a program without an end": (
        of_program(itertools.repeat(FIRST)),
        "device 0: F0v0 is done twice",
    ),
    "an empty program": (of_program([]), "device 0 never does F0"),
    "a kind that is a word": (of_first(kind="F"), "the program of device 0 has Action("),
    "an index below 0": (of_first(index=-1), "the program of device 0 has Action("),
    "an index too high": (of_first(index=99), "the program of device 0 has Action("),
    "a chunk too high": (of_first(chunk=1), "the program of device 0 has Action("),
    "a version that is a word": (of_first(version="0"), "the program of device 0 has Action("),
    "a version to come": (
        of_first(version=1),
        "device 0: F0v1 needs version 1 of the weights; the device has 0",
    ),
    "a span of one number": (of_first(span=(1,)), "the program of device 0 has Action("),
    "a span of nothing": (of_first(span=(1, 1)), "the program of device 0 has Action("),
    "a span too long": (of_first(span=(0, 3)), "the program of device 0 has Action("),
    "staleness too short": (
        late((0,)),
        "staleness of device 0, Staleness(forward=(0,), backward=(0,)): should be a ",
    ),
    "staleness too long": (
        late((0,) * 5),
        "should be a Staleness of 4 samples for each of 2 devices",
    ),
    "of other lengths": (late((0,) * 4, (0,)), "staleness of 4 samples forward, 1 backward: "),
    "of more devices": (
        late((0,) * 4, more=1),
        "should be a Staleness of 4 samples for each of 2 devices",
    ),
    "of no samples": (late(()), "staleness (): should be whole numbers, "),
    "of fractions": (late((0.5,) * 4), "staleness (0.5, 0.5, 0.5, 0.5): should be whole numbers, "),
    "of a number": (late(1), "staleness 1: should be whole numbers, "),
    "below 0": (
        late((-1,) * 4),
        "staleness (-1, -1, -1, -1) would take weights back to an older version; ",
    ),
    "no Staleness": (
        lambda epoch: pipeline("late", [42, 42], epoch),
        "staleness of device 0, 42: should be a ",
    ),
    "no list": (
        lambda epoch: pipeline("late", None, epoch),
        "staleness None: should be a Staleness of ",
    ),
}
"""Builders, and what is said of each."""


@pytest.mark.parametrize("drains", [True, False])
@pytest.mark.parametrize("name", BUILDERS)
def test_a_builder_that_makes_no_schedule(
    name: str, drains: bool, one_line: Callable[[str], str]
) -> None:
    build, said = BUILDERS[name]
    kind = ScheduleKind("own", build, "mine", drains=drains)
    with pytest.raises(InputError) as caught:
        emuchain.simulate(
            "quick-cifar", devices=2, batch=4, micro_batch=2, samples=24, schedule=kind
        )
    line = one_line(f"emuchain: error: {caught.value}\n")
    assert "\x1b" not in line
    assert (
        said.replace("24", "") in line.replace("24", "")
        if drains
        else "own" in line or "staleness" in line
    )


def test_training_refuses_as_well() -> None:
    kind = ScheduleKind("own", lambda epoch: 42, "mine", drains=True)
    with pytest.raises(InputError, match=r"^schedule own: its builder returned 42; "):
        emuchain.train("quick-cifar", devices=2, batch=4, samples=8, test_samples=4, schedule=kind)


def test_a_builder_that_fails_later() -> None:
    """It is asked anew for the epoch that is trained, once the plan is made."""
    kind = ScheduleKind(
        "own", lambda epoch: SYNC(epoch) if epoch.samples != 8 else None, "mine", drains=True
    )
    with pytest.raises(
        InputError, match=r"^schedule own: its builder returned None; .* 2 devices and 8 samples$"
    ):
        emuchain.train("quick-cifar", devices=2, batch=4, samples=8, test_samples=4, schedule=kind)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"name": ""}, "should have a name and a summary"),
        ({"name": 42}, "schedule 42: should have a name"),
        ({"name": "a\nb"}, "should have a name and a summary"),
        ({"summary": None}, "should have a name and a summary"),
        ({"generate": 42}, "`generate` is 42; should be a function that takes an EpochShape"),
        ({"chunks": 0}, "`chunks` is 0; should be an int, 1 or more"),
        ({"chunks": "2"}, "`chunks` is '2'; should be an int, 1 or more"),
        ({"replicates": "star"}, "`replicates` is 'star'; should be ring, aggregator or None"),
        ({"offload": 42}, "`offload` is 42; should be an Offload or None"),
    ],
)
def test_a_kind_that_cannot_be(values: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        ScheduleKind(
            **{"name": "own", "generate": SYNC, "summary": "mine", "drains": True, **values}
        )


def test_a_copy_of_sync_is_taken_and_trains_alike() -> None:
    kind = ScheduleKind("own", SYNC, "mine", drains=True)
    runs = [
        emuchain.train(
            "quick-cifar", devices=2, batch=4, samples=8, test_samples=4, schedule=schedule
        )
        for schedule in (kind, "sync")
    ]
    assert runs[0].history["virtual_time_ps"] == runs[1].history["virtual_time_ps"]
    assert (runs[0].weights["conv1"]["weight"] == runs[1].weights["conv1"]["weight"]).all()


def test_stages_in_a_v_are_taken() -> None:
    """All F of each chunk, then all B: the V of two devices, whose last stage is on device 0."""

    def build(epoch: EpochShape) -> Schedule:
        micro_batches = cut_samples(epoch.samples, epoch.batch, epoch.micro_batch)

        def program() -> Iterator[Action]:
            for step in range(-(-epoch.samples // epoch.batch)):
                numbers = [each.index for each in micro_batches if each.step == step]
                for kind, chunks in (
                    (Kind.FORWARD, (0, 1)),
                    (Kind.BACKWARD, (1, 0)),
                    (Kind.GRADIENT, (0, 1)),
                ):
                    version = None if kind is Kind.GRADIENT else step
                    yield from (
                        Action(kind, number, version, chunk=chunk)
                        for chunk in chunks
                        for number in numbers
                    )
                yield Action(Kind.UPDATE, step + 1)

        def programs(devices: Any) -> dict[int, Iterator[Action]]:
            return {device: program() for device in devices}

        return Schedule("v", epoch.devices, micro_batches, programs, epoch.chunks, in_v=True)

    kind = ScheduleKind("v", build, "mine", drains=True, chunks=2, in_v=True)
    keys: dict[str, Any] = {"devices": 2, "batch": 4, "micro_batch": 2, "samples": 8}
    runs = [
        emuchain.train("quick-cifar", test_samples=4, schedule=schedule, **keys)
        for schedule in (kind, "sync")
    ]
    assert (runs[0].weights["fc1"]["weight"] == runs[1].weights["fc1"]["weight"]).all()
    plan = emuchain.plan("quick-cifar", schedule=kind, **keys)
    assert [plan.fold.stages(device) for device in range(2)] == [[0, 3], [1, 2]]
    other = dataclasses.replace(kind, in_v=False)
    with pytest.raises(
        InputError, match=r"^schedule v: `in_v` is True; its kind's `in_v` should match$"
    ):
        emuchain.plan("quick-cifar", schedule=other, **keys)


def test_staleness_is_of_whole_numbers_however_they_are_given() -> None:
    np = pytest.importorskip("numpy")
    assert Staleness([1, 0], np.array([1, 1])) == Staleness((1, 0), (1, 1))
