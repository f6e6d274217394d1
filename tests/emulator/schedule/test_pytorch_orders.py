"""The orders of GPipe, 1F1B, interleaved 1F1B and zero-bubble H1 beside those of PyTorch's own
classes.
"""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from emuchain.emulator.schedule import Kind, StageCosts, pipeline_kind
from emuchain.emulator.timing import schedule_of

from ..timing.shapes import shape_of

SHAPES = [(1, 3), (2, 2), (2, 8), (3, 6), (4, 4), (4, 8), (4, 3), (4, 10), (3, 1)]


def theirs(actions: list[Any]) -> list[tuple[str, int, int]]:
    """PyTorch's F and B, and W where it is apart, without idle places and the reduction of
    gradients.
    """
    letters = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "B", "BACKWARD_WEIGHT": "W"}
    named = [
        (letters.get(each.computation_type.name), each.microbatch_index, each.stage_index)
        for each in actions
        if each
    ]
    return [(letter, index, stage) for letter, index, stage in named if letter is not None]


def ours(
    name: str,
    stages: int,
    count: int,
    chunks: int = 1,
    kinds: Collection[Kind] = (Kind.FORWARD, Kind.BACKWARD),
) -> list[list[tuple[str, int, int]]]:
    """Our F and B, as PyTorch's B includes W, or other kinds."""
    schedule, _ = schedule_of(
        pipeline_kind(name), shape_of(name, stages, count, StageCosts(1, 2, 1), chunks=chunks)
    )
    return [
        [(a.kind.value, a.index, a.chunk * stages + d) for a in program if a.kind in kinds]
        for d, program in schedule.programs(range(stages)).items()
    ]


@pytest.fixture(scope="module")
def classes() -> Any:
    pytest.importorskip("torch", reason="PyTorch's schedules are what the orders are compared with")
    return pytest.importorskip("torch.distributed.pipelining.schedules")


@pytest.mark.parametrize(("stages", "count"), SHAPES)
def test_gpipe(classes: Any, stages: int, count: int) -> None:
    orders = classes.ScheduleGPipe._get_pipeline_order(
        SimpleNamespace(_num_stages=stages, _n_microbatches=count)
    )
    assert ours("gpipe", stages, count) == [theirs(orders[rank]) for rank in range(stages)]


@pytest.mark.parametrize(
    ("stages", "count"), [(stages, count) for stages, count in SHAPES if count >= stages]
)
def test_1f1b(classes: Any, stages: int, count: int) -> None:
    """Of the last stage, which has no F ahead of its first pair, PyTorch 2.13's table counts F from
    1 on.
    """
    orders = classes.Schedule1F1B._get_pipeline_order(
        SimpleNamespace(_num_stages=stages, _n_microbatches=count)
    )
    *found, last = (theirs(orders[rank]) for rank in range(stages))
    found.append([(kind, number - (kind == "F"), stage) for kind, number, stage in last])
    assert ours("1f1b-sno", stages, count) == found


@pytest.mark.parametrize(("stages", "count"), SHAPES)
@pytest.mark.parametrize("chunks", [2, 3])
def test_interleaved(classes: Any, stages: int, count: int, chunks: int) -> None:
    rounds = max(1, count // stages)
    its = SimpleNamespace(
        n_local_stages=chunks,
        pp_group_size=stages,
        _n_microbatches=count,
        microbatches_per_round=count // rounds,
    )
    orders = [
        classes.ScheduleInterleaved1F1B._calculate_single_rank_operations(its, rank)
        for rank in range(stages)
    ]
    assert ours("interleaved", stages, count, chunks) == list(map(theirs, orders))


@pytest.mark.parametrize(
    ("stages", "count"), [(stages, count) for stages, count in SHAPES if count >= stages]
)
def test_zero_bubble(classes: Any, stages: int, count: int) -> None:
    """PyTorch's interleaved zero-bubble with one stage on each rank."""
    rounds = max(1, count // stages)
    its = SimpleNamespace(
        n_local_stages=1,
        pp_group_size=stages,
        _n_microbatches=count,
        microbatches_per_round=count // rounds,
    )
    single = classes.ScheduleInterleavedZeroBubble._calculate_single_rank_operations
    kinds = (Kind.FORWARD, Kind.BACKWARD, Kind.GRADIENT)
    assert ours("zero-bubble", stages, count, kinds=kinds) == [
        theirs(single(its, rank)) for rank in range(stages)
    ]
