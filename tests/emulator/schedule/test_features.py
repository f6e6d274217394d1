"""The features and versions that devices keep, counted from their actions, by hand."""

from __future__ import annotations

import pytest

from emuchain.emulator.schedule import (
    EpochShape,
    Kind,
    kept_micro_batches,
    parse,
    schedules,
    weight_copies,
)

EPOCH = EpochShape(devices=3, samples=24, batch=8, micro_batch=1)


@pytest.mark.parametrize(
    ("name", "kept", "copies"),
    [
        ("gpipe", [8, 8, 8], [1, 1, 1]),
        ("1f1b-as", [3, 2, 1], [1, 1, 1]),
        ("1f1b-so", [6, 4, 2], [1, 1, 1]),
        ("2bw", [3, 2, 1], [2, 2, 2]),
    ],
)
def test_what_devices_keep(name: str, kept: list[int], copies: list[int]) -> None:
    schedule = schedules()[name].generate(EPOCH)
    programs = schedule.programs(range(3))
    assert [kept_micro_batches(programs[device], 1, Kind.BACKWARD) for device in range(3)] == [
        (n,) for n in kept
    ]
    programs = schedule.programs(range(3))
    assert [weight_copies(programs[device]) for device in range(3)] == copies


def test_features_are_kept_by_chunk_and_until_the_kind_that_is_asked_for() -> None:
    """Chunk 0 has F0 and F1 before a B, chunk 1 one at a time; W of micro-batch 0 comes after
    F2.
    """
    text = """schedule own, 1 device
micro-batches 0:1 1:2 2:3
0F0v0 0F1v0 0F0c1v0 0B0c1v0 0W0c1 0B0v0 0F2v0 0W0 0F1c1v0 0B1c1v0 0W1c1 0B1v0 0W1 0F2c1v0 0B2c1v0 0W2c1 0B2v0 0W2 0U1
"""
    for last, kept in ((Kind.BACKWARD, (2, 1)), (Kind.GRADIENT, (3, 1))):
        [program] = parse(text).programs([0]).values()
        assert kept_micro_batches(program, 2, last) == kept


def test_spans_of_a_micro_batch_count_once() -> None:
    text = """schedule own, 1 device
micro-batches 0:4 4:8
0F0[0:2]v0 0F0[2:4]v0 0B0[0:3]v0 0B0[3:4]v0 0W0 0F1v0 0B1v0 0W1 0U1
"""
    [program] = parse(text).programs([0]).values()
    assert kept_micro_batches(program, 1, Kind.BACKWARD) == (1,)
