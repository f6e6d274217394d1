"""Schedules from files: what repeats, tails, several mini-batches, and one line for each that
cannot be trained.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.schedule import (
    Backward,
    Engines,
    EpochShape,
    dry_run,
    edited_kind,
    is_schedule_file,
    schedules,
    to_csv,
    to_text,
)

from .chains import actions_of

GPIPE = """schedule mine, 2 devices
micro-batches 0:1 1:2
0F0v0 0F1v0 0B0v0 0W0 0B1v0 0W1 0U1
1F0v0 1F1v0 1B0v0 1W0 1B1v0 1W1 1U1
"""
TWO_STEPS = """schedule mine, 1 device
micro-batches 0:1 1:2 | 2:3 3:4
0F0v0 0F1v0 0B0v0 0W0 0B1v0 0W1 0U1 0F3v1 0F2v1 0B2v1 0B3v1 0W3 0W2 0U2
"""

Written = Callable[[str], str]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Writes a text into a file, and gives its path."""
    folder = tmp_path_factory.mktemp("edited")

    def write(text: str) -> str:
        file = folder / ("mine.csv" if text[:1].isdigit() else "mine.txt")
        file.write_text(text)
        return str(file)

    return write


DRAINED = [
    kind
    for kind in schedules().values()
    if kind.drains and kind.replicates is None and kind.offload is None and kind.aligned
]


@given(st.sampled_from(DRAINED), st.integers(1, 5), st.integers(1, 7), st.integers(1, 3), st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_printed_schedule_is_itself(
    written: Written, kind: Any, devices: int, count: int, steps: int, data: st.DataObject
) -> None:
    """A mini-batch that was printed, as text or as CSV, gives the actions of any number of them."""
    epoch = EpochShape(devices, count, count, 1, chunks=kind.chunks)
    one = kind.generate(epoch)
    text = data.draw(st.sampled_from([to_text, to_csv]))(one)
    whole = EpochShape(devices, steps * count, count, 1, chunks=kind.chunks)
    edited = edited_kind(written(text)).schedule_of(whole)
    assert actions_of(edited) == actions_of(kind.generate(whole))
    dry_run(edited, aligned=True)


def test_a_short_mini_batch_leaves_out_what_it_does_not_have(written: Written) -> None:
    kind = edited_kind(written("0F1,0F0,0B0,0B1\n1F1,1F0,1I0,1I1,1W1,1W0\n"))
    schedule = kind.schedule_of(EpochShape(2, 5, 4, 2))
    assert to_text(schedule).splitlines()[1:] == [
        "micro-batches 0:2 2:4 | 4:5",
        "0F1v0 0F0v0 0B0v0 0W0 0B1v0 0W1 0U1 0F2v1 0B2v1 0W2 0U2",
        "1F1v0 1F0v0 1B0v0 1B1v0- 1W1 1W0 1U1 1F2v1 1B2v1 1W2 1U2",
    ]
    dry_run(schedule, aligned=True)


def test_several_mini_batches_take_turns(written: Written) -> None:
    schedule = edited_kind(written(TWO_STEPS)).schedule_of(EpochShape(1, 6, 2, 1))
    assert (
        to_text(schedule).splitlines()[2]
        == "0F0v0 0F1v0 0B0v0 0W0 0B1v0 0W1 0U1 0F3v1 0F2v1 0B2v1 0B3v1 0W3 0W2 0U2 0F4v2 0F5v2"
        " 0B4v2 0W4 0B5v2 0W5 0U3"
    )
    dry_run(schedule, aligned=True)


def test_its_machine(written: Written) -> None:
    """That of the schedule whose name the text has; W is apart where one does not follow its B."""
    assert edited_kind(written(GPIPE)).machine.backward is Backward.FUSED
    late = GPIPE.replace("0B0v0 0W0 0B1v0 0W1", "0B0v0 0B1v0 0W0 0W1")
    assert edited_kind(written(late)).machine.backward is Backward.SPLIT
    assert edited_kind(written("0F0,0B0\n")).machine.backward is Backward.FUSED
    assert edited_kind(written("0F0,0I0,0W0\n")).machine.backward is Backward.SPLIT
    fbp = edited_kind(written(GPIPE.replace("mine", "fbp-as")))
    assert fbp.machine.engines is Engines.SHARED


def test_other_ranks_get_what_the_file_said(written: Written) -> None:
    file = written(GPIPE)
    kind = edited_kind(file)
    sent = pickle.dumps(kind)
    Path(file).unlink()
    again = pickle.loads(sent)
    epoch = EpochShape(2, 4, 2, 1)
    assert actions_of(again.schedule_of(epoch)) == actions_of(kind.schedule_of(epoch))
    assert actions_of(edited_kind(file, kind.text).schedule_of(epoch)) == actions_of(
        kind.schedule_of(epoch)
    )


BAD = {
    "a deadlock": (
        ("0F1v0 0B0v0 0W0", "0B0v0 0W0 0F1v0"),
        None,
        (
            "deadlock: device 0 waits at B0v0 for its right neighbour; device 1 waits at F1v0 for"
            " its left neighbour"
        ),
    ),
    "no order": (
        ("0F0v0 0F1v0", "0F1v0 0F0v0"),
        None,
        "device 1: F0v0 does not follow the order of its neighbour",
    ),
    "a circle": (
        ("1F1v0 1B0v0 1W0", "1B0v0 1W0 1F1v0"),
        ("0F1v0 0B0v0 0W0 0B1v0", "0B0v0 0W0 0B1v0 0F1v0"),
        (
            "deadlock: device 0 waits at B1v0 for its right neighbour; device 1 waits at F1v0 for"
            " its left neighbour"
        ),
    ),
    "no B": (("1B1v0 ", ""), None, "device 1: never does B1"),
    "no W": (("0W1 ", ""), None, "device 0: never does W1"),
    "no U": ((" 0U1", ""), None, "device 0 makes 0 updates of 1"),
    "W twice": (("0W1", "0W1 0W1"), None, "device 0: W1 is done twice"),
    "U too early": (("0W1 0U1", "0U1 0W1"), None, "device 0: U1 comes before W1"),
    "weights to come": (
        ("0F1v0", "0F1v1"),
        None,
        "device 0: F1v1 needs version 1 of the weights; the device has 0",
    ),
    "a part": (
        ("0F0v0 0F1v0", "0F0[0:1]v0 0F1v0"),
        None,
        "device 0: F0[0:1]v0: is a part of a micro-batch; what is trained should do whole ones",
    ),
    "another device": (
        ("1F0v0", "0F0v0"),
        None,
        "device 1: '0F0v0' is not an action such as 1F0v0, 1W0",
    ),
    "no head": (
        ("schedule mine, 2 devices", "mine"),
        None,
        "the first line must read `schedule NAME, N devices`",
    ),
    "no V": (
        ("2 devices", "2 devices in a W"),
        None,
        "the first line must read `schedule NAME, N devices`",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_trained(written: Written, name: str) -> None:
    *edits, message = BAD[name]
    text = GPIPE
    for edit in edits:
        if isinstance(edit, tuple):
            assert text.count(edit[0]) == 1
            text = text.replace(*edit)
    file = written(text)
    with pytest.raises(InputError) as error:
        edited_kind(file)
    line = str(error.value)
    assert message in line and file in line and len(line.splitlines()) == 1


STALE = """schedule mine, 1 device
micro-batches 0:1 | 1:2
0F0v0 0F1v0 0B0v0 0W0v0 0U1 0B1v0 0W1v0 0U2
"""


def test_what_does_not_drain(written: Written) -> None:
    """Versions are counted from where the file begins anew; there the pipeline is empty."""
    kind = edited_kind(written(STALE))
    assert not kind.drains and kind.order.late == (1,)
    schedule = kind.schedule_of(EpochShape(1, 3, 1, 1))
    assert (
        to_text(schedule).splitlines()[2]
        == "0F0v0 0F1v0 0B0v0 0W0v0 0U1 0B1v0 0W1v0 0U2 0F2v2 0B2v2 0W2v2 0U3"
    )
    dry_run(schedule, aligned=True)


STASHING = [
    kind
    for kind in schedules().values()
    if not kind.drains and kind.aligned and kind.offload is None
]


@pytest.mark.parametrize("kind", STASHING, ids=lambda kind: kind.name)
@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("tail", [0, 1, 3])
def test_what_stashes_weights_begins_anew(
    written: Written, kind: Any, steps: int, tail: int
) -> None:
    """Printed for some mini-batches, it is itself for as many, and passes the dry run for any
    number.
    """
    epoch = EpochShape(3, 4 * steps, 4, 1)
    edited = edited_kind(written(to_text(kind.generate(epoch))))
    assert actions_of(edited.schedule_of(epoch)) == actions_of(kind.generate(epoch))
    assert edited.drains == (steps == 1)
    dry_run(edited.schedule_of(EpochShape(3, 4 * (2 * steps + 1) + tail, 4, 1)), aligned=True)


def test_mini_batches_that_differ(written: Written) -> None:
    text = TWO_STEPS.replace("2:3 3:4", "2:3").replace("0F3v1 ", "").replace("0B3v1 0W3 ", "")
    with pytest.raises(
        InputError,
        match=r"mine.txt: its mini-batches have 2, 1 micro-batches; all should have as many",
    ):
        edited_kind(written(text))


@pytest.mark.parametrize(
    "epoch", [EpochShape(3, 2, 2, 1), EpochShape(2, 2, 2, 2), EpochShape(2, 2, 2, 1, chunks=2)]
)
def test_a_run_of_other_sizes(written: Written, epoch: EpochShape) -> None:
    with pytest.raises(
        InputError,
        match=r"mine.txt': has 2 devices and 2 micro-batches in a mini-batch; this run has",
    ):
        edited_kind(written(GPIPE)).schedule_of(epoch)


def test_what_names_a_file(written: Written) -> None:
    assert (
        is_schedule_file(written(GPIPE))
        and is_schedule_file("none.csv")
        and is_schedule_file("none.TXT")
    )
    assert not is_schedule_file("none") and not is_schedule_file(str(Path(written(GPIPE)).parent))
