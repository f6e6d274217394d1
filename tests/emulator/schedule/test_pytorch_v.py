"""PyTorch's tables whose stages lie in a V: read, valid, timed, and written as PyTorch has them."""

from __future__ import annotations

import csv
import io
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.schedule import (
    Fold,
    Kind,
    Machine,
    Schedule,
    StageCosts,
    check_complete,
    dry_run,
    parse,
    parse_csv,
    to_csv,
    to_text,
)
from emuchain.emulator.schedule.shape import Backward
from emuchain.emulator.timing import time_pipeline

from .chains import actions_of

NAMES = ["ScheduleZBVZeroBubble", "ScheduleDualPipeV"]
SIZES = [
    (devices, count)
    for devices in range(1, 6)
    for count in (2 * devices, 2 * devices + 1, 4 * devices + 3)
]
SPLIT = Machine(backward=Backward.SPLIT)

ZBV = """0F0,0F1,3F0,3I0,3W0,3F1,0I0,0W0,3I1,0I1,3W1,0W1
,1F0,2F0,1F1,2F1,2I0,2W0,1I0,1W0,2I1,1I1,2W1,1W1
"""
"""Two devices with two stages in a V, and two micro-batches."""
OVERLAPPED = "0F0,3F0,3I0,3W0,(0F1;0B0)OVERLAP_F_B,3F1,3B1,0B1\n1F0,2F0,2B0,1B0,1F1,2F1,2B1,1B1\n"


@pytest.fixture(scope="module")
def classes() -> Any:
    pytest.importorskip("torch", reason="PyTorch's schedules are what the CSV is for")
    return pytest.importorskip("torch.distributed.pipelining.schedules")


def rows_of(classes: Any, name: str, devices: int, count: int) -> list[list[Any]]:
    """The actions of each rank under a class of PyTorch's with two stages on each rank."""
    its = SimpleNamespace(pp_group_size=devices, num_stages=2 * devices, _n_microbatches=count)
    return [
        getattr(classes, name)._calculate_single_rank_operations(its, rank)
        for rank in range(devices)
    ]


def dumped(rows: list[list[Any]]) -> str:
    """What `_dump_csv` writes of them."""
    written = io.StringIO()
    csv.writer(written).writerows(rows)
    return written.getvalue()


@pytest.mark.parametrize(("devices", "count"), SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_what_pytorch_dumps_is_written_back(
    classes: Any, name: str, devices: int, count: int
) -> None:
    """Cell by cell, with the empty ones, in which a rank waits; by way of text without these."""
    rows = rows_of(classes, name, devices, count)
    schedule = parse_csv(dumped(rows))
    check_complete(schedule)
    dry_run(schedule, aligned=True)
    assert (schedule.fold, len(schedule.micro_batches)) == (
        Fold(devices, 2, in_v=devices > 1),
        count,
    )
    assert to_csv(schedule) == dumped(rows).replace("\r", "")
    full = [[each for each in row if each is not None] for row in rows]
    assert to_csv(parse(to_text(schedule))) == dumped(full).replace("\r", "")


@pytest.mark.parametrize("name", NAMES)
def test_pytorch_reads_what_we_write(classes: Any, tmp_path: Path, name: str) -> None:
    rows = rows_of(classes, name, 4, 9)
    file = tmp_path / "written.csv"
    file.write_text(to_csv(parse_csv(dumped(rows))))
    reader = SimpleNamespace(
        pipeline_order={},
        _validate_and_set_stage_mapping=lambda orders: classes._validate_schedule(orders, 4, 8, 9),
    )
    classes.PipelineScheduleMulti._load_csv(reader, file)
    assert list(reader.pipeline_order.values()) == rows


def makespan(schedule: Schedule, transfer: int = 0) -> int:
    costs = [StageCosts(1, 2, 1, transfer_ps=transfer)] * schedule.fold.count
    return time_pipeline(schedule, costs, SPLIT).makespan_ps


@pytest.mark.parametrize("devices", range(1, 7))
def test_zbv_takes_what_its_paper_says(classes: Any, devices: int) -> None:
    """F, B and W that take as long leave no bubble but that of the first F, N - 1 (Qi et al.,
    section 6).
    """
    for count in range(2 * devices, 6 * devices):
        schedule = parse_csv(dumped(rows_of(classes, "ScheduleZBVZeroBubble", devices, count)))
        assert makespan(schedule) == 6 * count + devices - 1


def test_what_stays_on_a_device_takes_no_time_on_a_link(classes: Any) -> None:
    """Of one device, whose stages are neighbours, messages take none; of others there is one way
    between each two.
    """
    for name, (devices, count) in itertools.product(NAMES, SIZES):
        schedule = parse_csv(dumped(rows_of(classes, name, devices, count)))
        costs = [StageCosts(1, 2, 1, transfer_ps=1)] * schedule.fold.count
        sent = time_pipeline(schedule, costs, SPLIT).sent
        assert len(sent) == 4 * (devices - 1) * count
        assert {abs(message.sender - message.receiver) for message in sent} <= {1}


def test_a_v_by_hand() -> None:
    schedule = parse_csv(ZBV)
    assert schedule.fold == Fold(2, 2, in_v=True)
    assert to_text(schedule).splitlines()[0] == "schedule csv, 2 devices in a V"
    assert "0F1v0 0F0c1v0 0B0c1v0- 0W0c1" in to_text(schedule)
    assert to_csv(schedule) == ZBV
    assert to_csv(parse(to_text(schedule))) == ZBV.replace("\n,", "\n")
    assert (
        makespan(schedule) == 16
    )  # 12 of device 0, which waits for 2F0, 1I0 and 1I1, for 1, 1 and 2


def test_an_overlap_by_hand() -> None:
    schedule = parse_csv(OVERLAPPED)
    dry_run(schedule, aligned=True)
    [joined] = [action for action in actions_of(schedule)[0] if action.joined]
    assert (joined.kind, joined.index, joined.chunk) == (Kind.FORWARD, 1, 0)
    assert "0F1v0+ 0B0v0 0W0" in to_text(schedule)
    assert to_csv(schedule) == to_csv(parse(to_text(schedule))) == OVERLAPPED


BROKEN = {
    "a stage on another rank": (
        "3F0",
        "2F0",
        "rank 0: '2F0': stage 2 must be on rank 1 of 2, in a V",
    ),
    "no F of a stage": ("2F1,", "", "device 1: never does F1c1"),
    "a B before its F": ("3F1,0I0,0W0,3I1", "3I1,0I0,0W0,3F1", "device 0: B1c1v0 comes before F1"),
    "messages in another order": (
        "1F0,2F0,1F1",
        "1F1,2F0,1F0",
        "device 1: F1v0 does not follow the order of its ",
    ),
    "a circle": (
        "1I0,1W0,2I1,1I1,2W1,1W1",
        "1I0,1W0,1I1,2I1,2W1,1W1",
        "deadlock: device 0 waits at B1v0",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_v_that_cannot_work(name: str) -> None:
    old, new, expected_text = BROKEN[name]
    assert ZBV.count(old) == 1
    with pytest.raises(InputError) as error:
        schedule = parse_csv(ZBV.replace(old, new))
        check_complete(schedule)
        dry_run(schedule, aligned=True)
    assert expected_text in str(error.value)
    assert len(str(error.value).splitlines()) == 1
