"""CSV with communication: what would hang or do harm is refused, beside PyTorch's own loader and
simulator.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.schedule import (
    EpochShape,
    check_complete,
    dry_run,
    parse_csv,
    schedules,
    to_csv,
)

GOOD = """0F0,0SEND_F0,2RECV_F0,2F0,2SEND_F0,0F1,0SEND_F1,2RECV_B0,2I0,2SEND_B0,2RECV_F1,2W0,2F1,2SEND_F1,2RECV_B1,\
2B1,2SEND_B1,0RECV_B0,0B0,0RECV_B1,0B1
1RECV_F0,1F0,1SEND_F0,3RECV_F0,3F0,1RECV_F1,3B0,3SEND_B0,1RECV_B0,1F1,1SEND_F1,3RECV_F1,3F1,3B1,3SEND_B1,1RECV_B1,1B0,\
1SEND_B0,1B1,1SEND_B1
"""
"""Two ranks with two stages each, and two micro-batches."""
COMPUTED = "0F0,2F0,0F1,2I0,2W0,2F1,2B1,0B0,0B1\n1F0,3F0,3B0,1F1,3F1,3B1,1B0,1B1\n"

SHARDED = "0UNSHARD,0F0,0B0,0RESHARD,0UNSHARD,0F1,0B1,0REDUCE_GRAD,0RESHARD\n"
"""One rank, whose weights are sharded."""


def check(text: str) -> None:
    """What `emuchain schedule --check` does.

    Raises:
        InputError: it is refused.
    """
    schedule = parse_csv(text, "f.csv")
    check_complete(schedule)
    dry_run(schedule, aligned=True)


def test_communication_that_fits_is_taken() -> None:
    check(GOOD)
    assert to_csv(parse_csv(GOOD)) == COMPUTED
    check(SHARDED)
    assert to_csv(parse_csv(SHARDED)) == "0F0,0B0,0F1,0B1\n"


def without(text: str, cell: str) -> str:
    assert text.count(f",{cell},") == 1, cell
    return text.replace(f",{cell},", ",")


REFUSED = {
    "no SEND": (
        without(GOOD, "0SEND_F0"),
        "deadlock: rank 1 waits at 1RECV_F0 for 0SEND_F0, which is in no row",
    ),
    "a late SEND": (
        without(GOOD, "0SEND_F0").replace("0B1\n", "0B1,0SEND_F0\n"),
        (
            "deadlock: rank 0 waits at 2RECV_F0 for 1SEND_F0, which comes later on rank 1; rank 1"
            " waits at 1RECV_F0 for 0SEND_F0, which comes later on rank 0"
        ),
    ),
    "no RECV": (
        without(GOOD, "2RECV_F0"),
        "deadlock: rank 0 waits at 2F0 for 2RECV_F0, which is in no row",
    ),
    "no RECV of errors": (
        without(GOOD, "0RECV_B1"),
        "rank 0 waits at 0B1 for 0RECV_B1, which is in no row",
    ),
    "no F": (without(GOOD, "2F0"), "rank 0 waits at 2SEND_F0 for 2F0, which is in no row"),
    "no I": (without(GOOD, "2I0"), "rank 0 waits at 2SEND_B0 for 2B0, which is in no row"),
    "a SEND ahead of its I": (
        GOOD.replace("2I0,2SEND_B0", "2SEND_B0,2I0"),
        "rank 0 waits at 2SEND_B0 for 2I0, which comes later on rank 0",
    ),
    "a SEND twice": (
        GOOD.replace("0SEND_F0,", "0SEND_F0,0SEND_F0,"),
        "rank 0: 0SEND_F0 is done twice",
    ),
    "a RECV twice": (
        GOOD.replace("1RECV_F0,", "1RECV_F0,1RECV_F0,"),
        "rank 1: 1RECV_F0 is done twice",
    ),
    "crossed messages": (
        GOOD.replace("0RECV_B0,0B0,0RECV_B1", "0RECV_B1,0RECV_B0,0B0"),
        (
            "rank 0: 0RECV_B1 comes before 0RECV_B0, whose 1SEND_B0 is ahead of 1SEND_B1 on rank 1;"
            " libraries match"
        ),
    ),
    "features of the last stage": (
        GOOD.replace("3F0,", "3F0,3SEND_F0,"),
        "rank 1: 3SEND_F0: stage 3 is the last",
    ),
    "errors of the first stage": (
        GOOD.replace("0B1\n", "0B1,0SEND_B1\n"),
        "rank 0: 0SEND_B1: stage 0 is the first",
    ),
    "features for the first stage": (
        GOOD.replace("0F1,", "0RECV_F1,0F1,"),
        "0RECV_F1: stage 0 is the first",
    ),
    "another rank's": (
        GOOD.replace("1F0,", "1F0,0SEND_B0,"),
        "rank 1: '0SEND_B0': stage 0 must be on rank 0 of 2",
    ),
    "an empty cell": (
        GOOD.replace("1F0,", "1F0,,"),
        "rank 1: cell 2 is empty; beside cells of messages, PyTorch ",
    ),
    "no number": (GOOD.replace("0SEND_F0", "0SEND_F"), "rank 0: '0SEND_F' is not an action"),
    "UNSHARD left out": (
        SHARDED.replace("RESHARD,0UNSHARD", "RESHARD"),
        "rank 0: 0F1 comes without 0UNSHARD, and",
    ),
    "UNSHARD twice": (
        SHARDED.replace("0RESHARD,0UNSHARD", "0UNSHARD"),
        "rank 0: 0UNSHARD comes twice without",
    ),
    "RESHARD at once": (
        SHARDED.replace("0F0,0B0,0RESHARD", "0RESHARD,0F0,0B0"),
        "0RESHARD comes without 0UNSHARD and",
    ),
    "RESHARD left out": (
        SHARDED.replace("GRAD,0RESHARD", "GRAD"),
        "rank 0: 0UNSHARD: no 0RESHARD follows",
    ),
    "REDUCE_GRAD twice": (
        SHARDED.replace("0REDUCE", "0REDUCE_GRAD,0REDUCE"),
        "rank 0: 0REDUCE_GRAD is done twice",
    ),
    "REDUCE_GRAD ahead of a B": (
        SHARDED.replace("0B1,0REDUCE_GRAD", "0REDUCE_GRAD,0B1"),
        "rank 0: 0B1 comes behind 0REDUCE_GRAD",
    ),
    "REDUCE_GRAD of one stage": (
        "0F0,0B0,0REDUCE_GRAD\n1F0,1B0\n",
        "rank 1: never does 1REDUCE_GRAD, and other",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_communication_that_cannot_work(name: str) -> None:
    text, message = REFUSED[name]
    with pytest.raises(InputError) as error:
        check(text)
    assert str(error.value).startswith("f.csv: ") and message in str(error.value)


STRICTER = {
    "is done twice": (
        "a computation done twice adds its gradients twice, and a second RECV waits for no SEND"
    ),
    "libraries match messages of two ranks by their order": (
        "PyTorch's simulator has messages with names"
    ),
    "does not follow the order of its neighbour": (
        "emuchain's links carry features and errors in one order"
    ),
}
"""What emuchain refuses and PyTorch's loader and simulator take, and why."""


@pytest.fixture(scope="module")
def classes() -> Any:
    pytest.importorskip(
        "torch", reason="PyTorch's loader and simulator are what the check is compared with"
    )
    return pytest.importorskip("torch.distributed.pipelining.schedules")


def runtime_of(classes: Any, ranks: int, stages: int, count: int) -> Any:
    """PyTorch's runtime without stages of a network."""
    runtime = object.__new__(classes._PipelineScheduleRuntime)
    of = {
        "pp_group_size": ranks,
        "_num_stages": stages,
        "_n_microbatches": count,
        "_stages": [],
        "pipeline_order": {},
    }
    runtime.__dict__.update(of, _defer_pp_recv=False)
    return runtime


def pytorch_takes(classes: Any, file: Path, ranks: int, stages: int, count: int) -> bool:
    """Whether PyTorch's loader and simulator take a file; the latter knows no pairs of F and B, and
    no UNSHARD.
    """
    runtime = runtime_of(classes, ranks, stages, count)
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            runtime._load_csv(file, format="compute_comms")
            plain = "F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B"
            for rank, actions in runtime.pipeline_order_with_comms.items():
                each = [part for action in actions for part in action.sub_actions or (action,)]
                runtime.pipeline_order_with_comms[rank] = [
                    part for part in each if part.computation_type in plain
                ]
            runtime._simulate()
        except (
            AssertionError,
            ValueError,
            RuntimeError,
            LookupError,
        ):  # the last one as it prints what hangs
            return False
    return True


def emuchain_refuses(text: str) -> str:
    try:
        check(text)
    except InputError as error:
        return str(error)
    return ""


SHAPES = {
    "ScheduleInterleaved1F1B": (1, 2, 3),
    "ScheduleInterleavedZeroBubble": (1, 2),
    "ScheduleZBVZeroBubble": (2,),
    "ScheduleDualPipeV": (2,),
}
"""Classes of PyTorch's, and the stages on a rank that are tried."""


@st.composite
def tables(draw: st.DrawFn, classes: Any) -> tuple[list[list[str]], int, int]:
    """The cells of each rank as PyTorch lowers one of its schedules, its stages, and its
    micro-batches.
    """
    name = draw(st.sampled_from(sorted(SHAPES)))
    ranks, chunks = draw(st.integers(1, 4)), draw(st.sampled_from(SHAPES[name]))
    stages, rounds = ranks * chunks, draw(st.integers(2, 3))
    count = ranks * rounds
    its = SimpleNamespace(pp_group_size=ranks, num_stages=stages, _n_microbatches=count)
    its.__dict__.update(
        n_local_stages=chunks, number_of_rounds=rounds, microbatches_per_round=ranks
    )
    runtime = runtime_of(classes, ranks, stages, count)
    own = getattr(classes, name)._calculate_single_rank_operations
    runtime._prepare_schedule_with_comms({rank: own(its, rank) for rank in range(ranks)})
    left_out = draw(
        st.sampled_from([(), ("UNSHARD", "RESHARD"), ("UNSHARD", "RESHARD", "REDUCE_GRAD")])
    )
    lowered = runtime.pipeline_order_with_comms.values()
    return (
        [[str(each) for each in row if each.computation_type not in left_out] for row in lowered],
        stages,
        count,
    )


def as_csv(rows: list[list[str]]) -> str:
    return "".join(",".join(row) + "\n" for row in rows)


@settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150
)
@given(data=st.data())
def test_what_pytorch_simulates(classes: Any, tmp_path: Path, data: st.DataObject) -> None:
    """Of one cell removed, moved or doubled: nothing is taken that PyTorch refuses, and what it
    takes is, too.
    """
    rows, stages, count = data.draw(tables(classes))
    file = tmp_path / "f.csv"
    file.write_text(as_csv(rows))
    assert pytorch_takes(classes, file, len(rows), stages, count) and not emuchain_refuses(
        as_csv(rows)
    )
    row = data.draw(st.sampled_from(rows))
    change, place = (
        data.draw(st.sampled_from(["remove", "move", "double"])),
        data.draw(st.integers(0, len(row) - 1)),
    )
    cell = row[place] if change == "double" else row.pop(place)
    if change != "remove":
        into = data.draw(st.sampled_from([row, row, row, *rows]))
        into.insert(data.draw(st.integers(0, len(into))), cell)
    file.write_text(as_csv(rows))
    refused, taken = (
        emuchain_refuses(as_csv(rows)),
        pytorch_takes(classes, file, len(rows), stages, count),
    )
    if refused and taken:
        whole = ("UNSHARD", "RESHARD", "REDUCE_GRAD")  # which PyTorch's simulator does not know
        assert any(why in refused for why in (*STRICTER, *whole)), (change, cell, refused)
    else:
        assert bool(refused) != taken, (change, cell, refused)


DRAINED = [name for name, kind in schedules().items() if kind.drains and not kind.replicates]


@pytest.mark.parametrize("devices", [1, 2, 4])
@pytest.mark.parametrize("name", DRAINED)
def test_pytorch_runs_what_we_write(classes: Any, tmp_path: Path, name: str, devices: int) -> None:
    """It reads the CSV, adds communication, and simulates it; and what it then dumps is taken, and
    as CSV the same.
    """
    chunks, count = schedules()[name].chunks, 2 * devices
    written = to_csv(
        schedules()[name].generate(EpochShape(devices, count, count, 1, chunks=chunks))
    )
    file, dumped = tmp_path / "f.csv", tmp_path / "dumped.csv"
    file.write_text(written)
    runtime = runtime_of(classes, devices, devices * chunks, count)
    runtime._load_csv(file)
    runtime._dump_csv(dumped)
    assert pytorch_takes(classes, dumped, devices, devices * chunks, count)
    assert not emuchain_refuses(dumped.read_text())
    assert to_csv(parse_csv(dumped.read_text())) == written
