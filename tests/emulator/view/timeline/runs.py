"""Runs of several kinds, their timelines, and traces read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.run import Simulation, simulate
from emuchain.emulator.view import Level, RowRun, RunSamples, Window, write_trace
from emuchain.emulator.view.timeline.rows import RecordedRows

SAMPLES = 42  # the last mini-batch is shorter

RUNS: dict[str, dict[str, Any]] = {
    "fpdeep": {"schedule": "fpdeep", "devices": 4},
    "sync": {"schedule": "sync", "devices": 4},
    "gpipe": {"schedule": "gpipe", "devices": 3},
    "interleaved": {"schedule": "interleaved", "devices": 2},
    "single device": {"schedule": "fpdeep", "devices": 1},
    "shortcuts": {"network": "resnet8-cifar", "schedule": "fpdeep", "devices": 6},
    "balanced": {"cluster": "small", "schedule": "fpdeep", "devices": 5, "memory": "fpdeep"},
    "off chip": {"cluster": "small with a port", "schedule": "fpdeep", "devices": 5},
    "replicas": {"schedule": "fpdeep", "devices": 3, "replicas": 2, "compress": "truncate:16"},
}


def whole_window(plan: ChainPlan) -> Window:
    """All samples of a run."""
    return Window(0, RunSamples.of(plan, SAMPLES).number - 1)


def run_of(plan: ChainPlan, window: Window | None = None, samples: int = SAMPLES) -> RowRun:
    """A run of rows that is recorded in a window, or as a whole."""
    return RowRun(RunSamples.of(plan, samples), window or whole_window(plan))


def simulated(
    plan: ChainPlan, window: Window | None = None, samples: int = SAMPLES
) -> tuple[RecordedRows, Simulation]:
    """The rows of a simulation in a window, or of all its samples, and the simulation."""
    run = run_of(plan, window, samples)
    recorder = run.recorder()
    simulation = simulate(plan, samples, recorder)
    return run.rows([recorder]), simulation


def events(
    recorded: RecordedRows, folder: Path, level: Level = Level.SAMPLE
) -> list[dict[str, Any]]:
    """The events of a trace, written and read back."""
    path = folder / "trace.json"
    write_trace(path, recorded.timeline(level))
    return json.loads(path.read_text())["traceEvents"]
