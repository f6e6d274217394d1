"""The trace of a pipeline: every action and message with start and end, on tracks where nothing
overlaps.
"""

from __future__ import annotations

import collections
import json
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.schedule import (
    Backward,
    Engines,
    Machine,
    Shape,
    StageCosts,
    Transport,
    pipeline_kind,
)
from emuchain.emulator.timing import PipelineResult, time_shape
from emuchain.emulator.view import PipelineDrawing, write_trace

from ...timing.shapes import shape_of

Event = dict[str, Any]
COSTS = StageCosts(10, 20, 10, 7)
CASES = {
    "by turns": ("1f1b-so", Machine(latency_ps=3), 1),
    "pool": ("fbp-as", Machine(Engines.SHARED, Transport.HIDDEN), 1),
    "three queues": ("zero-bubble", Machine(Engines.SPLIT, Transport.HIDDEN, Backward.SPLIT), 1),
    "streamed": ("1f1b-as", Machine(Engines.SPLIT, Transport.STREAMED), 1),
    "chunks": ("interleaved", Machine(), 2),
    "no messages": ("gpipe", Machine(), 1),
}


def timed(case: str) -> tuple[Shape, PipelineResult]:
    name, machine, chunks = CASES[case]
    devices = 1 if case == "no messages" else 3
    shape = shape_of(name, devices, 6, COSTS, machine, chunks=chunks)
    return shape, time_shape(pipeline_kind(name), shape)


@pytest.fixture(params=CASES)
def written(request: Any, tmp_path: Path) -> tuple[Shape, PipelineResult, list[Event]]:
    """The shape, the result and the events of its trace, of which 10 ps are a unit of time."""
    shape, result = timed(request.param)
    write_trace(tmp_path / "trace.json", PipelineDrawing(shape, result, 10).timeline())
    return shape, result, json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_every_action_and_message(written: tuple[Shape, PipelineResult, list[Event]]) -> None:
    shape, result, events = written
    names = {
        (e["pid"], e.get("tid")): e["args"]["name"]
        for e in events
        if e["name"] in ("process_name", "thread_name")
    }
    found, sent = [], []
    for event in events:
        if event["ph"] != "X":
            continue
        args = event["args"]
        step = event["cat"], args["micro_batch"], args["stage"]
        assert event["name"] == f"{event['cat']}{args['micro_batch']} of stage {args['stage']}"
        assert (event["ts"], event["ts"] + event["dur"]) == pytest.approx(
            (args["start"], args["end"])
        )
        device, thread = names[event["pid"], None], names[event["pid"], event["tid"]]
        if thread.startswith("link "):
            sent.append(
                (*step, device, thread, args["start"] * 10, args["end"] * 10, args["arrival"] * 10)
            )
        else:
            assert event["cat"] in thread.split(", ")
            found.append((*step, device, args["start"] * 10, args["end"] * 10))
    assert sorted(found) == sorted(
        (each.step.kind.value, *each.step[1:], f"device {each.device}", each.start_ps, each.end_ps)
        for each in result.timed
    )
    assert sorted(sent) == sorted(
        (
            *(
                each.step.kind.value,
                *each.step[1:],
                f"device {each.sender}",
                f"link {each.sender} -> {each.receiver}",
            ),
            *(each.start_ps, each.end_ps, each.arrival_ps),
        )
        for each in result.sent
    )
    links = 2 * (len(shape.costs) - 1) * shape.micro_batches
    assert len(sent) == links


def test_nothing_overlaps_on_a_track(written: tuple[Shape, PipelineResult, list[Event]]) -> None:
    _, _, events = written
    tracks = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(
                (event["args"]["start"], event["args"]["end"])
            )
    for spans in tracks.values():
        ends = 0
        for start, end in sorted(spans):
            assert start >= ends
            ends = end


def test_arrows_lead_from_messages_to_actions(
    written: tuple[Shape, PipelineResult, list[Event]],
) -> None:
    _, result, events = written
    slices = {(e["pid"], e["tid"], e["ts"]): e for e in events if e["ph"] == "X"}
    starts = {e["id"]: slices[e["pid"], e["tid"], e["ts"]] for e in events if e["ph"] == "s"}
    ends = {e["id"]: slices[e["pid"], e["tid"], e["ts"]] for e in events if e["ph"] == "f"}
    assert len(starts) == len(ends) == len(result.sent)
    for number, message in starts.items():
        action = ends[number]
        assert (action["cat"], action["args"]["micro_batch"]) == (
            message["cat"],
            message["args"]["micro_batch"],
        )
        assert abs(action["args"]["stage"] - message["args"]["stage"]) == 1
        assert action["ts"] >= message["ts"]


def test_units_that_are_no_whole_picoseconds_of_the_trace(tmp_path: Path) -> None:
    """A third of a unit: exact arguments, and no slice that begins before the one ahead of it
    ends.
    """
    shape, result = timed("by turns")
    write_trace(tmp_path / "trace.json", PipelineDrawing(shape, result, 3).timeline())
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    [first, second] = [e for e in events if e["ph"] == "X" and e["tid"] == 1][:2]
    assert (first["args"]["end"], second["args"]["start"]) == (10 / 3, 10 / 3)
    assert int(first["ts"] * 1000) + int(first["dur"] * 1000) <= int(second["ts"] * 1000)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`trace` = .*: the folder .* does not exist"):
        write_trace(
            tmp_path / "no" / "trace.json", PipelineDrawing(*timed("by turns"), 1).timeline()
        )
