"""Schedules as the CSV of PyTorch's: by hand, there and back, and read and written by PyTorch's own
functions.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.schedule import (
    EpochShape,
    Kind,
    Schedule,
    dry_run,
    parse,
    parse_csv,
    schedules,
    to_csv,
    to_text,
)

from .chains import VALID, actions_of

DRAINED = [name for name, kind in schedules().items() if kind.drains and not kind.replicates]

ONE = """schedule csv, 2 devices
micro-batches 0:1 1:2
0F0v0 0F1v0 0B0v0 0W0 0B1v0 0W1 0U1
1F0v0 1B0v0 1F1v0 1W0 1B1v0 1W1 1U1
"""
CSV = "0F0,0F1,0B0,0B1\n1F0,1I0,1F1,1W0,1B1\n"


def made(name: str, devices: int, count: int, chunks: int = 1) -> Schedule:
    """A mini-batch of micro-batches of one sample."""
    return schedules()[name].generate(EpochShape(devices, count, count, 1, chunks=chunks))


@st.composite
def drained(draw: st.DrawFn) -> Schedule:
    """A mini-batch of any schedule that drains."""
    name, devices = draw(st.sampled_from(DRAINED)), draw(st.integers(1, 5))
    if name == "interleaved":
        return made(name, devices, draw(st.integers(1, 12)), draw(st.integers(1, 3)))
    return made(name, devices, draw(st.integers(1, 9)))


def test_by_hand() -> None:
    assert to_csv(parse(ONE)) == CSV
    assert to_text(parse_csv(CSV)) == ONE


@given(drained())
def test_text_to_csv_and_back_is_the_identity(schedule: Schedule) -> None:
    text = to_text(schedule)
    again = parse_csv(to_csv(parse(text)), name=schedule.name)
    assert to_text(again) == text
    assert (again.devices, again.chunks, again.steps) == (schedule.devices, schedule.chunks, 1)
    dry_run(again, aligned=True)


@given(drained())
def test_csv_to_text_and_back_is_the_identity(schedule: Schedule) -> None:
    written = to_csv(schedule)
    assert to_csv(parse(to_text(parse_csv(written)))) == written


def test_cells_that_are_empty_are_left_out() -> None:
    padded = '"0F0",,0F1 ,0B0,,0B1,0REDUCE_GRAD,\r\n,1F0,1I0,1F1,1W0,1B1,1REDUCE_GRAD\r\n\r\n'
    assert to_text(parse_csv(padded)) == ONE


BAD = {
    "nothing": ("", "is empty; there must be a row for each rank"),
    "blank lines": ("\n\n", "is empty"),
    "no actions": (",,\n,,", "has 0 micro-batches"),
    "another letter": (
        CSV.replace("1F1", "1G1"),
        "rank 1: '1G1' is not an action such as 1F0, 1B0, 1I0, 1W0",
    ),
    "no micro-batch": (CSV.replace("1F1", "1F"), "rank 1: '1F' is not"),
    "one pass at once": (
        CSV.replace("0B0", "(0F1)OVERLAP_F_B"),
        "rank 0: '(0F1)OVERLAP_F_B' is not",
    ),
    "two F at once": (
        CSV.replace("0B0", "(0F1;0F0)OVERLAP_F_B"),
        "rank 0: '(0F1;0F0)OVERLAP_F_B' is not",
    ),
    "a stage of another rank": (
        CSV.replace("1F0", "2F0"),
        "rank 1: '2F0': stage 2 must be on rank 0 of 2",
    ),
    "more stages on one rank": (
        "0F0,0B0\n1F0,2F0,2B0,1B0\n",
        (
            "as (0; 1, 2), as PyTorch may have them; emuchain has a loop (0, 2; 1, 3) or a V (0, 3;"
            " 1, 2), as many on each"
        ),
    ),
    "stages in blocks": (
        "0F0,1F0,1B0,0B0\n2F0,3F0,3B0,2B0\n",
        "stages are on ranks as (0, 1; 2, 3), as PyTorch may",
    ),
    "ranks in another order": (
        "1F0,1B0\n0F0,0B0\n",
        "as (1; 0), as PyTorch may have them; emuchain has a loop (0; 1)",
    ),
    "stages in a V, and one not": (
        "0F0,3F0,3B0,2B0\n1F0,2F0,2B0,1B0\n",
        "rank 0: '2B0': stage 2 must be on rank 1 of 2, in a V",
    ),
    "a micro-batch far ahead": (
        CSV.replace("0F1", "0F999999999"),
        "has 1,000,000,000 micro-batches",
    ),
    "a stage far ahead": (
        CSV.replace("0F1", "999999998F1"),
        "device 0: F1c499999999v0: chunks are counted from 0 on",
    ),
    "a quote that does not end": (CSV + '"0F0', "is not CSV: "),
}


@pytest.mark.parametrize("name", BAD)
def test_csv_that_cannot_be_read(name: str, one_line: Any) -> None:
    text, message = BAD[name]
    with pytest.raises(InputError) as error:
        parse_csv(text, "some.csv")
    assert one_line(error).startswith("some.csv: ")
    assert message in str(error.value)


@given(st.integers(0, len(CSV)), st.integers(0, 9), st.text('0123FBIW,\n"();', max_size=8))
def test_damaged_csv_is_valid_or_refused_in_one_line(begin: int, length: int, new: str) -> None:
    try:
        dry_run(parse_csv(CSV[:begin] + new + CSV[begin + length :]))
    except InputError as error:
        assert len(str(error).splitlines()) == 1


SWAPPED = {
    "deadlock": (
        "0B0,0F1,0F0,0B1\n1F1,1F0,1B0,1B1\n",
        (
            "deadlock: device 0 waits at B0v0 for its right neighbour; device 1 waits at F1v0 for"
            " its left neighbour"
        ),
    ),
    "left out": ("0F0,0F1,0B0,0B1\n1F0,1I0,1F1,1B1\n", "device 1: U1 comes before W0"),
    "twice": ("0F0,0F1,0B0,0B1\n1F0,1I0,1F1,1W0,1W0,1B1\n", "device 1: W0 is done twice"),
}


@pytest.mark.parametrize("name", SWAPPED)
def test_the_dry_run_checks_csv(name: str) -> None:
    text, message = SWAPPED[name]
    with pytest.raises(InputError) as error:
        dry_run(parse_csv(text))
    assert str(error.value) == f"schedule csv: {message}"


def test_several_mini_batches_are_not_csv() -> None:
    with pytest.raises(
        InputError, match="^schedule mine: has 2 mini-batches; as CSV, it must be one$"
    ):
        to_csv(parse(VALID))


def test_parts_of_micro_batches_are_not_csv() -> None:
    parts = "schedule own, 1 device\nmicro-batches 0:2\n0F0[0:1]v0 0F0[1:2]v0 0B0v0 0W0 0U1\n"
    dry_run(parse(parts))
    with pytest.raises(
        InputError,
        match=r"^schedule own: device 0: F0\[0:1\]v0: as CSV, it must be all of a micro-",
    ):
        to_csv(parse(parts))


@pytest.fixture(scope="module")
def classes() -> Any:
    pytest.importorskip("torch", reason="PyTorch's schedules are what the CSV is for")
    return pytest.importorskip("torch.distributed.pipelining.schedules")


ONE_STAGE = [(1, 3, 1), (2, 4, 1), (3, 3, 1), (4, 8, 1)]
"""Devices, micro-batches, and stages on a device."""
SEVERAL = [(2, 4, 2), (3, 6, 2), (4, 8, 3)]


def table_of(classes: Any, name: str, devices: int, count: int) -> dict[int, list[Any]]:
    """The actions of each rank under a class of PyTorch's with one stage on each rank."""
    its = SimpleNamespace(_num_stages=devices, _n_microbatches=count)
    orders = getattr(classes, name)._get_pipeline_order(its)
    if name == "Schedule1F1B":  # PyTorch 2.13 counts F of the last rank from 1 on
        orders[devices - 1] = [
            (
                each._replace(microbatch_index=each.microbatch_index - 1)
                if each and each.computation_type == "F"
                else each
            )
            for each in orders[devices - 1]
        ]
    return orders


def interleaved_of(
    classes: Any, name: str, devices: int, count: int, chunks: int
) -> dict[int, list[Any]]:
    """The same under a class of PyTorch's with several stages on each rank."""
    its = SimpleNamespace(n_local_stages=chunks, pp_group_size=devices, _n_microbatches=count)
    its.microbatches_per_round = count // max(1, count // devices)
    single = getattr(classes, name)._calculate_single_rank_operations
    return {rank: single(its, rank) for rank in range(devices)}


def check_dumped(
    classes: Any, orders: dict[int, list[Any]], file: Path, shape: tuple[int, int, int]
) -> None:
    """What PyTorch dumps is read, is valid, and is the same after being written and read again."""
    classes.PipelineScheduleMulti._dump_csv(SimpleNamespace(pipeline_order=orders), file)
    schedule = parse_csv(file.read_text())
    dry_run(schedule, aligned=True)
    assert (schedule.devices, len(schedule.micro_batches), schedule.chunks) == shape
    assert actions_of(parse_csv(to_csv(schedule))) == actions_of(schedule)


@pytest.mark.parametrize("shape", ONE_STAGE)
@pytest.mark.parametrize("name", ["ScheduleGPipe", "Schedule1F1B"])
def test_what_pytorch_dumps_is_valid(
    classes: Any, tmp_path: Path, name: str, shape: tuple[int, int, int]
) -> None:
    devices, count, _ = shape
    check_dumped(classes, table_of(classes, name, devices, count), tmp_path / "dumped.csv", shape)


@pytest.mark.parametrize("shape", ONE_STAGE + SEVERAL)
@pytest.mark.parametrize("name", ["ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble"])
def test_what_pytorch_dumps_of_several_stages_is_valid(
    classes: Any, tmp_path: Path, name: str, shape: tuple[int, int, int]
) -> None:
    check_dumped(classes, interleaved_of(classes, name, *shape), tmp_path / "dumped.csv", shape)


WRITTEN = [(name, shape) for name in DRAINED for shape in ONE_STAGE] + [
    ("interleaved", shape) for shape in SEVERAL
]


@pytest.mark.parametrize(("name", "shape"), WRITTEN)
def test_pytorch_reads_what_we_write(
    classes: Any, tmp_path: Path, name: str, shape: tuple[int, int, int]
) -> None:
    """And finds it valid, and the same actions: our B and W where it has I and W, or a B of
    both.
    """
    devices, count, chunks = shape
    schedule = made(name, *shape)
    file = tmp_path / "written.csv"
    file.write_text(to_csv(schedule))
    reader = SimpleNamespace(
        pipeline_order={},
        _validate_and_set_stage_mapping=lambda orders: classes._validate_schedule(
            orders, devices, devices * chunks, count
        ),
    )
    classes.PipelineScheduleMulti._load_csv(reader, file)
    letters = {"F": "F", "B": "BW", "I": "B", "W": "W"}
    theirs = [
        [
            (letter, each.microbatch_index, each.stage_index)
            for each in row
            for letter in letters[each.computation_type]
        ]
        for row in reader.pipeline_order.values()
    ]
    ours = [
        [
            (each.kind.value, each.index, each.chunk * devices + device)
            for each in row
            if each.kind is not Kind.UPDATE
        ]
        for device, row in enumerate(actions_of(schedule))
    ]
    assert theirs == ours


def test_an_interleaved_schedule_is_written_as_pytorch_dumps_it(
    classes: Any, tmp_path: Path
) -> None:
    """Cell by cell, but for empty ones."""
    orders = interleaved_of(classes, "ScheduleInterleaved1F1B", 4, 8, 2)
    theirs = [
        [str(each) for each in row if each and "REDUCE" not in str(each)] for row in orders.values()
    ]
    assert [row.split(",") for row in to_csv(made("interleaved", 4, 8, 2)).splitlines()] == theirs
