"""GPipe's schedule: all forward, then all backward, then the update; found by its file alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.schedule import (
    EpochShape,
    ScheduleKind,
    dry_run,
    pipelines,
    schedules,
    to_text,
)
from emuchain.kernels.extensions import modules

GPIPE = schedules()["gpipe"]


@given(st.integers(1, 6), st.integers(1, 40), st.integers(1, 16), st.integers(1, 16))
def test_nothing_is_missing_or_out_of_order(
    devices: int, samples: int, batch: int, micro_batch: int
) -> None:
    schedule = GPIPE.generate(EpochShape(devices, samples, batch, micro_batch))
    dry_run(schedule)
    assert schedule.steps == -(-samples // batch)


def test_by_hand() -> None:
    assert to_text(GPIPE.generate(EpochShape(2, 7, 4, 2))) == (
        "schedule gpipe, 2 devices\n"
        "micro-batches 0:2 2:4 | 4:6 6:7\n"
        "0F0v0 0F1v0 0B0v0 0W0 0B1v0 0W1 0U1 0F2v1 0F3v1 0B2v1 0W2 0B3v1 0W3 0U2\n"
        "1F0v0 1F1v0 1B0v0 1W0 1B1v0 1W1 1U1 1F2v1 1F3v1 1B2v1 1W2 1B3v1 1W3 1U2\n"
    )


@pytest.mark.parametrize("network", ["quick-cifar", "resnet8-cifar"])
def test_weights_and_times_are_those_of_sync(
    network: str, small_cifar, plan_of, trained, bits
) -> None:
    keys = {
        "network": network,
        "devices": 3,
        "data": str(small_cifar),
        "samples": 70,
        "test_samples": 7,
        "batch": 20,
    }
    gpipe, sync = (
        trained(plan_of(**keys, micro_batch=6, schedule=schedule)) for schedule in ("gpipe", "sync")
    )
    assert bits(gpipe.weights) == bits(sync.weights)
    assert gpipe.history[-1].virtual_time_ps == sync.history[-1].virtual_time_ps
    assert gpipe.history[-1].train == sync.history[-1].train


def test_the_file_of_a_kind_of_schedule_names_it() -> None:
    named = set()
    for module in modules(ScheduleKind.__module__.rpartition(".")[0]):
        own = {value.name for value in vars(module).values() if isinstance(value, ScheduleKind)}
        assert all(f"`{name}`" in str(module.__doc__) for name in own), (
            f"{module.__name__} does not name {own}"
        )
        named |= own
    assert named == schedules().keys() | pipelines().keys()
