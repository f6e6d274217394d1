"""Traces as JSON: names, exact times, arguments, no overlaps as Perfetto reads them, and flows."""

from __future__ import annotations

import collections
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.mapping import DataPath
from emuchain.emulator.view import LaneKind, Level, Window, write_trace
from emuchain.emulator.view.timeline.rows import fed_by
from emuchain.emulator.view.timeline.trace import micros

from .conftest import TracedPlan
from .runs import RUNS, events, simulated

Event = dict[str, Any]


def threads(found: list[Event]) -> dict[tuple[int, int], list[Event]]:
    """Slices by process and thread."""
    by_thread: dict[tuple[int, int], list[Event]] = collections.defaultdict(list)
    for event in found:
        if event["ph"] == "X":
            by_thread[event["pid"], event["tid"]].append(event)
    return by_thread


@given(st.integers(0, 10**16))
def test_times_in_microseconds_are_exact_and_never_cut_too_low(time_ps: int) -> None:
    time_us = micros(time_ps)
    assert math.isclose(time_us * 1e6, time_ps, rel_tol=1e-15, abs_tol=1e-9)
    assert int(time_us * 1000) == time_ps // 1000
    assert time_ps > 10**15 or round(time_us * 1e6) == time_ps


def test_a_time_that_floating_point_would_cut() -> None:
    assert int(1.001 * 1000) == 1000
    assert int(micros(1_001_000) * 1000) == 1001


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("run", RUNS)
def test_slices(traced_plan: TracedPlan, run: str, level: Level, tmp_path: Path) -> None:
    timeline, _ = simulated(traced_plan(run), Window(10, 17))
    found = events(timeline, tmp_path, level)
    names = {
        (e["pid"], e.get("tid")): e["args"]["name"]
        for e in found
        if e["name"] in ("process_name", "thread_name")
    }
    by_thread = threads(found)
    assert len(by_thread) == len(timeline.run.lanes)
    for number, lane in enumerate(timeline.run.lanes, 1):
        key = lane.device + 1, number
        assert names[key[0], None] == timeline.run.samples.devices[lane.device]
        assert names[key] == lane.title
        assert f"device {lane.device}" not in lane.title
        spans, slices = timeline.by_resource[lane.resource], by_thread[key]
        assert sum(e["args"]["busy_ps"] for e in slices) == sum(span.busy_ps for span in spans)
        rows = level is Level.ROW and lane.counts_samples
        assert len(slices) == (sum(len(span.left_ps) for span in spans) if rows else len(spans))
        end_ns = 0
        for event in slices:
            args = event["args"]
            assert event["cat"] == lane.kind.value
            assert event["ts"] == pytest.approx(args["start_ps"] / 1e6, rel=1e-15)
            assert event["dur"] == pytest.approx(
                (args["end_ps"] - args["start_ps"]) / 1e6, rel=1e-15
            )
            # As Perfetto reads them: slices of a thread do not overlap.
            assert int(event["ts"] * 1000) >= end_ns
            end_ns = int(event["ts"] * 1000) + int(event["dur"] * 1000)
            if rows:
                assert args["busy_ps"] == args["end_ps"] - args["start_ps"]
            assert ("bytes" in args) == (
                lane.kind in (LaneKind.LINK, LaneKind.EXCHANGE, LaneKind.MEMORY)
            )
            assert ("sample" in args) == lane.counts_samples


def test_arguments_by_hand(traced_plan: TracedPlan, tmp_path: Path) -> None:
    """Sample 53 is number 11 of the second epoch's 42: the last of a mini-batch, and in its third
    block of 5.
    """
    timeline, _ = simulated(traced_plan("sync"), Window(53, 54))
    found = threads(events(timeline, tmp_path))
    [last, first] = found[1, 1]
    assert last["name"] == "sample 53"
    assert {
        k: last["args"][k] for k in ("sample", "epoch", "mini_batch", "micro_batch", "version")
    } == {**{"sample": 53, "epoch": 2, "mini_batch": 0, "micro_batch": 2, "version": 0}}
    assert (
        first["args"]["mini_batch"],
        first["args"]["micro_batch"],
        first["args"]["version"],
    ) == (1, 3, 1)


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("run", RUNS)
def test_flows_lead_from_a_send_to_work_that_waited_for_it(
    traced_plan: TracedPlan, run: str, level: Level
) -> None:
    timeline, _ = simulated(traced_plan(run), Window(10, 17))
    feeds, flows = list(timeline.feeds(level)), list(timeline.timeline(level).flows)
    assert bool(feeds) == (timeline.run.samples.plan.devices > 1)
    for (source, target), flow in zip(feeds, flows, strict=True):
        assert (flow.source, flow.target, flow.leaves_ps) == (
            source.lane,
            target.lane,
            source.start_ps,
        )
        assert source.lane.kind is LaneKind.LINK
        assert source.lane.receiver == target.lane.stage
        assert source.number == target.number
        assert target.ready_ps[-1] >= source.arrival_ps
        assert source.start_ps < source.arrival_ps <= flow.enters_ps < target.end_ps


FEEDS = {
    "shortcuts": {
        DataPath.ACTIVATIONS: {LaneKind.FP, LaneKind.LINK},
        DataPath.PARTIAL_ACTIVATIONS: {LaneKind.FP},
        DataPath.OUTPUT_ERRORS: {LaneKind.EB},
        DataPath.INPUT_ERRORS: {LaneKind.EB, LaneKind.LINK},
    },
    "balanced": {
        DataPath.ACTIVATIONS: {LaneKind.FP},
        DataPath.PARTIAL_ACTIVATIONS: {LaneKind.FP},
        DataPath.OUTPUT_ERRORS: {LaneKind.EB},
        DataPath.INPUT_ERRORS: {LaneKind.EB},
        DataPath.PARAMETERS: {LaneKind.FP, LaneKind.LINK},
        DataPath.PARAMETER_GRADIENTS: {LaneKind.LINK},
    },
}


@pytest.mark.parametrize(("run", "devices"), [("shortcuts", 14), ("balanced", 5)])
def test_what_streams_feed(traced_plan: TracedPlan, run: str, devices: int) -> None:
    """Engines, or the next link where a tensor or balanced parameters pass by; gradients end where
    they are stored.
    """
    timeline, _ = simulated(traced_plan(run, devices=devices), Window(0, 0))
    kinds: dict[DataPath, set[LaneKind]] = collections.defaultdict(set)
    for source, target in timeline.feeds(Level.SAMPLE):
        assert source.lane.key is not None
        kinds[source.lane.key.path].add(target.lane.kind)
    assert kinds == FEEDS[run]


@pytest.mark.parametrize("run", RUNS)
def test_each_stream_feeds_something(traced_plan: TracedPlan, run: str) -> None:
    """But gradients of parameters on the device that stores them: they end in its memory."""
    plan = traced_plan(run)
    timeline, _ = simulated(plan, Window(0, 0))
    clocks = [plan.timing.clock(stage) for stage in range(plan.stage_count)]
    for lane in timeline.run.lanes:
        if lane.key is not None:
            fed = fed_by(clocks[lane.receiver], lane.key)
            stored = (
                lane.key.path is DataPath.PARAMETER_GRADIENTS
                and clocks[lane.receiver].streams.stored
            )
            assert fed or stored, lane.title


@pytest.mark.parametrize("level", Level)
def test_flow_events_are_within_their_slices(
    traced_plan: TracedPlan, level: Level, tmp_path: Path
) -> None:
    timeline, _ = simulated(traced_plan("fpdeep"), Window(0, 5))
    found = events(timeline, tmp_path, level)
    by_thread = threads(found)
    ends: dict[int, list[Event]] = collections.defaultdict(list)
    for event in found:
        if event["ph"] in "sf":
            ends[event["id"]].append(event)
            at = int(event["ts"] * 1000)
            assert any(
                int(e["ts"] * 1000) <= at < int(e["ts"] * 1000) + int(e["dur"] * 1000)
                for e in by_thread[event["pid"], event["tid"]]
            )
    assert len(ends) == len(list(timeline.feeds(level))) > 0
    for start, end in ends.values():
        assert (start["ph"], end["ph"], end["bp"]) == ("s", "f", "e")
        assert start["ts"] < end["ts"]


def test_a_file_that_cannot_be_written(traced_plan: TracedPlan, tmp_path: Path) -> None:
    timeline, _ = simulated(traced_plan("single device"), Window(0, 0))
    with pytest.raises(InputError, match="`trace` = .*nowhere"):
        write_trace(tmp_path / "nowhere" / "run.json", timeline.timeline(Level.SAMPLE))
