"""Warm-up forwards, then B and F by turns: by hand, beside the dry run, and in training."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.schedule import EpochShape, Kind, dry_run, parse, schedules, to_text, warm_up


def test_by_hand() -> None:
    schedule = warm_up("own", EpochShape(2, 5, 3, 1), [2, 1], late=[0, 1])
    assert to_text(schedule) == (
        "schedule own, 2 devices\n"
        "micro-batches 0:1 1:2 2:3 | 3:4 4:5\n"
        "0F0v0 0F1v0 0B0v0 0W0 0F2v0 0B1v0 0W1 0B2v0 0W2 0U1 0F3v1 0F4v1 0B3v1 0W3 0B4v1 0W4 0U2\n"
        "1F0v0 1B0v0 1F1v0 1B1v0 1W0 1F2v0 1B2v0 1W1 1W2 1U1 1F3v1 1B3v1 1F4v1 1B4v1 1W3 1W4 1U2\n"
    )


@given(st.data())
def test_warm_ups_that_do_not_grow_pass_the_dry_run(data: st.DataObject) -> None:
    devices = data.draw(st.integers(1, 5))
    forwards = sorted(
        data.draw(st.lists(st.integers(1, 12), min_size=devices, max_size=devices)), reverse=True
    )
    late = data.draw(st.lists(st.integers(0, 12), min_size=devices, max_size=devices))
    epoch = EpochShape(
        devices,
        data.draw(st.integers(1, 40)),
        data.draw(st.integers(1, 16)),
        data.draw(st.integers(1, 4)),
    )
    schedule = warm_up("own", epoch, forwards, late)
    dry_run(schedule)
    assert to_text(parse(to_text(schedule))) == to_text(schedule)


DRAINED = [
    name
    for name, kind in schedules().items()
    if kind.drains and not (kind.replicates or kind.offload or name == "sync")
]


@pytest.mark.parametrize("name", DRAINED)
def test_weights_are_those_of_sync(name, small_cifar, plan_of, trained, bits) -> None:
    keys = {
        "network": "quick-cifar",
        "devices": 3,
        "data": str(small_cifar),
        "samples": 70,
        "test_samples": 7,
    }
    own, sync = (
        trained(plan_of(**keys, batch=20, micro_batch=6, schedule=schedule))
        for schedule in (name, "sync")
    )
    assert bits(own.weights) == bits(sync.weights)


@pytest.mark.parametrize(
    ("name", "forwards"),
    [
        ("1f1b-as", (3, 2, 1)),
        ("1f1b-sno", (3, 2, 1)),
        ("fbp-as", (6, 4, 2)),
        ("1f1b-so", (6, 4, 2)),
    ],
)
def test_warm_ups_of_their_own_and_others(name: str, forwards: tuple[int, ...]) -> None:
    kind = schedules()[name]
    assert kind.warm_ups is not None
    assert kind.warm_ups(3) == forwards
    for asked in ((), (5, 3, 1)):
        schedule = kind.generate(EpochShape(3, 8, 8, 1, warm_ups=asked))
        dry_run(schedule)
        programs = schedule.programs(range(3)).values()
        ahead = [
            list(itertools.takewhile(lambda action: action.kind is Kind.FORWARD, each))
            for each in programs
        ]
        assert tuple(map(len, ahead)) == (asked or forwards)
