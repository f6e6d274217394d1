"""Timelines: busy times and bytes are those of the run's usage; training and simulation have the
same ones.
"""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.mapping import DataPath
from emuchain.emulator.plan import training_data
from emuchain.emulator.run import PHASES, Usage, train
from emuchain.emulator.timing import engine_loads
from emuchain.emulator.view import LaneKind, Level, RunSamples, Window
from emuchain.emulator.view.timeline.rows import RecordedRows, RowLane
from emuchain.launch import SingleProcess

from .conftest import TracedPlan
from .runs import RUNS, SAMPLES, events, run_of, simulated, whole_window


def lanes_by_kind(timeline: RecordedRows, device: int, kind: LaneKind) -> list[RowLane]:
    return [lane for lane in timeline.run.lanes if (lane.stage, lane.kind) == (device, kind)]


def assert_usage(timeline: RecordedRows, usage: Usage) -> None:
    """Busy shares of engines, weighted by multipliers, and bytes of data paths."""
    multipliers = {
        load.name: load.engine.multipliers
        for load in engine_loads(timeline.run.samples.plan.timing)
    }
    for device in usage.devices:
        shares = {}
        for phase in PHASES:
            lanes = lanes_by_kind(timeline, device.device, LaneKind(phase))
            busy = sum(
                span.busy_ps * multipliers[lane.resource]
                for lane in lanes
                for span in spans_of(timeline, lane)
            )
            if lanes:
                total = sum(multipliers[lane.resource] for lane in lanes)
                shares[phase] = busy / (total * usage.virtual_time_ps)
        assert shares == device.busy
    for link in usage.links:
        sent: dict[DataPath, int] = collections.defaultdict(int)
        for lane in lanes_by_kind(timeline, link.sender, LaneKind.LINK):
            if lane.key is not None and lane.receiver == link.receiver:
                sent[lane.key.path] += sum(span.bytes or 0 for span in spans_of(timeline, lane))
        assert sent == link.path_bytes


def spans_of(timeline: RecordedRows, lane: RowLane) -> Any:
    return timeline.by_resource[lane.resource]


@pytest.mark.parametrize("run", RUNS)
def test_busy_times_and_bytes_are_those_of_the_usage(traced_plan: TracedPlan, run: str) -> None:
    timeline, simulation = simulated(traced_plan(run))
    assert_usage(timeline, simulation.usage)
    samples = SAMPLES * 2 // simulation.plan.data_parallel.replicas
    for lane in timeline.run.lanes:
        numbers = [span.number for span in spans_of(timeline, lane)]
        steps = 2 * 4  # epochs, and mini-batches of each
        assert numbers == list(range(samples if lane.counts_samples else steps))


@pytest.mark.parametrize("run", RUNS)
def test_spans_of_a_lane_follow_one_another(traced_plan: TracedPlan, run: str) -> None:
    timeline, _ = simulated(traced_plan(run))
    for lane in timeline.run.lanes:
        free_ps = 0
        for span in spans_of(timeline, lane):
            starts = span.left_ps - span.row_ps
            assert starts[0] == span.start_ps >= free_ps
            assert (starts[1:] >= span.left_ps[:-1]).all()
            assert (starts >= span.ready_ps).all()
            assert span.busy_ps <= span.end_ps - span.start_ps
            free_ps = span.end_ps


def test_the_exchange_lane_has_the_time_that_the_run_reports(traced_plan: TracedPlan) -> None:
    timeline, simulation = simulated(traced_plan("replicas"))
    lanes = [lane for lane in timeline.run.lanes if lane.kind is LaneKind.EXCHANGE]
    assert [lane.device for lane in lanes] == [0, 1, 2]
    spent_ps = sum(span.busy_ps for lane in lanes for span in spans_of(timeline, lane))
    # The other replica is ready at other times, so its mean is near, and the first one's own sum is
    # what it spent.
    assert spent_ps / 3 == pytest.approx(simulation.exchange_ps, rel=0.05)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("level", Level)
def test_traces_of_training_and_simulation_are_the_same(
    traced_plan: TracedPlan, run: str, level: Level, tmp_path: Path
) -> None:
    """Micro-batches differ, a codec's sizes and their times are real, and the window begins within
    a mini-batch.
    """
    plan = traced_plan(run)
    window = Window(10, 17)
    run = run_of(plan, window)
    recorder = run.recorder()
    train(plan, training_data(plan), SingleProcess(), gather_weights=False, observer=recorder)
    trained = run.rows([recorder])
    expected, _ = simulated(plan, window)
    assert events(trained, tmp_path, level) == events(expected, tmp_path, level)


def test_compressed_gradients_have_their_real_bytes_and_times(
    traced_plan: TracedPlan, trained: Any
) -> None:
    plan = traced_plan("balanced", schedule="sync", compress="truncate:16", samples=36, epochs=1)
    run = run_of(plan, Window(0, 35), 36)
    recorder = run.recorder()
    [result] = trained(plan, recorder).history
    timeline = run.rows([recorder])
    assert_usage(timeline, result.usage)
    gradients = [
        lane
        for lane in timeline.run.lanes
        if lane.key is not None and lane.key.path is DataPath.PARAMETER_GRADIENTS
    ]
    assert gradients
    for lane in gradients:
        full, compressed = (
            timeline.by_resource[lane.resource][0],
            timeline.by_resource[lane.resource][12],
        )
        assert full.bytes == 2 * (compressed.bytes or 0)
        assert compressed.busy_ps == -(-full.busy_ps // 2)


def test_spans_of_several_ranks_are_put_together(traced_plan: TracedPlan) -> None:
    timeline, _ = simulated(traced_plan("fpdeep"))
    halves = [timeline.run.recorder() for _ in range(2)]
    whole = timeline.run.recorder()
    for half, lanes in zip(halves, (timeline.run.lanes[:7], timeline.run.lanes[7:]), strict=True):
        for lane in lanes:
            for span in spans_of(timeline, lane):
                rows = (span.ready_ps, span.left_ps, span.row_ps, span.share)
                half.kept.setdefault(lane.resource, {})[span.number] = rows  # type: ignore[assignment]
    assert not whole.kept
    joined = timeline.run.rows(halves)
    assert joined.by_resource.keys() == timeline.by_resource.keys()
    for name, spans in timeline.by_resource.items():
        assert [s.end_ps for s in joined.by_resource[name]] == [s.end_ps for s in spans]
        assert spans


@pytest.mark.parametrize("run", ["fpdeep", "sync", "replicas", "interleaved"])
def test_places_and_versions_are_those_of_the_schedule(traced_plan: TracedPlan, run: str) -> None:
    """A sample uses old weights where its FP starts before the update."""
    plan = traced_plan(run)
    own = SAMPLES // plan.data_parallel.replicas
    batch = 12 // plan.data_parallel.replicas
    timeline = RunSamples.of(plan, SAMPLES)
    assert timeline.samples == own
    for sample in (0, batch - 1, batch, own - 1, own, 2 * own - 1):
        place = timeline.place(sample)
        at = sample % own
        assert (place.epoch, place.mini_batch) == (1 + sample // own, at // batch)
        step = (sample // own) * 4 + at // batch
        assert timeline.steps(Window(sample, sample)) == range(step, step + 1)
    versions = timeline.versions(range(2 * own))
    for device, stale in enumerate(plan.steady.staleness):
        old = [step for step in range(own) if versions[device][step].forward != step // batch]
        if plan.config.schedule.drains:
            assert not old
        else:
            assert sum(step // batch == 2 for step in old) == stale.stale_samples
        assert versions[device][3] == versions[device][own + 3]


def test_a_window_beyond_the_end_is_cut(traced_plan: TracedPlan) -> None:
    plan = traced_plan("single device")
    assert Window(80, 200).within(RunSamples.of(plan, SAMPLES).number, "trace_samples") == Window(
        80, 83
    )
    assert whole_window(plan).numbers == range(84)


def test_what_is_kept_does_not_hold_the_run_in_memory(traced_plan: TracedPlan) -> None:
    timeline, _ = simulated(traced_plan("fpdeep"), Window(3, 4))
    spans = [span for found in timeline.by_resource.values() for span in found]
    assert {span.number for span in spans} == {3, 4}
    for span in spans:
        assert isinstance(span.left_ps, np.ndarray)
        assert span.left_ps.base is None
