"""Runs of several kinds, their timelines, and traces read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.run import Simulation, simulate
from emuchain.emulator.timeline import Course, Level, SpanRecorder, Timeline, Window, timeline_of, write_trace

SAMPLES = 42  # the last mini-batch is shorter

RUNS: dict[str, dict[str, Any]] = {
    "fpdeep": {"schedule": "fpdeep", "devices": 4},
    "sync": {"schedule": "sync", "devices": 4},
    "gpipe": {"schedule": "gpipe", "devices": 3},
    "single device": {"schedule": "fpdeep", "devices": 1},
    "shortcuts": {"network": "resnet8-cifar", "schedule": "fpdeep", "devices": 6},
    "balanced": {"cluster": "small", "schedule": "fpdeep", "devices": 5, "memory": "ignored"},
    "off chip": {"cluster": "small with a port", "schedule": "fpdeep", "devices": 5},
    "replicas": {"schedule": "fpdeep", "devices": 3, "replicas": 2, "compress": "truncate:16"},
}


def whole_window(plan: ChainPlan) -> Window:
    """All samples of a run."""
    return Window(0, Course.of(plan, SAMPLES).run_samples - 1)


def simulated(plan: ChainPlan, window: Window | None = None) -> tuple[Timeline, Simulation]:
    """The timeline of a simulation in a window, or of all its samples, and the simulation."""
    course, chosen = Course.of(plan, SAMPLES), window or whole_window(plan)
    recorder = SpanRecorder(course, chosen)
    simulation = simulate(plan, SAMPLES, recorder)
    return timeline_of(course, chosen, [recorder]), simulation


def events(timeline: Timeline, folder: Path, level: Level = Level.SAMPLE) -> list[dict[str, Any]]:
    """The events of a timeline, written and read back."""
    path = folder / "trace.json"
    write_trace(path, timeline, level)
    return json.loads(path.read_text())["traceEvents"]
