"""A mini-batch on a pair as JSON; every key names the unit of its figure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from .devices import Pair
from .layout import LayerNeeds
from .result import PairTimes
from .steps import StepCycles
from .timeline import Timed


def times_as_json(found: PairTimes) -> dict[str, Any]:
    """Return times, utilisation, what limits, and the timeline."""
    return {
        "mini_batch_ps": found.mini_batch_ps,
        "forward_ps": found.forward_ps,
        "backward_ps": found.backward_ps,
        "peak_ps": found.peak_ps,
        "utilisation": found.utilisation,
        "samples_per_s": 1e12 * found.workload.batch / found.mini_batch_ps,
        "limit": found.limit.resource.value,
        "resources": {
            resource.value: {
                "busy_ps": busy.busy_ps,
                "utilisation": busy.busy_ps / found.mini_batch_ps,
                "longest": busy.longest.name,
            }
            for resource, busy in found.busy.items()
        },
        "tasks": [_task_as_json(each) for each in found.timed],
    }


def _task_as_json(timed: Timed) -> dict[str, Any]:
    task = timed.task
    return {
        "part": task.part.value,
        "phase": task.phase.value,
        "layer": task.layer,
        "direction": task.direction,
        "resource": task.resource.value,
        "start_ps": timed.start_ps,
        "end_ps": timed.end_ps,
        "streams_ps": {link.value: busy for link, busy in task.streams},
    }


def needs_as_json(needs: Sequence[LayerNeeds], pair: Pair) -> dict[str, Any]:
    """Return the FPGA's MVM units, and what each layer takes of them; empty for a GPU alone."""
    if pair.fpga is None:
        return {}
    array = pair.array
    return {
        "pes": array.pes,
        "mvm_units": array.units,
        "pe_words": array.words,
        "clock_period_ps": pair.cycle_ps,
        "layers": [
            {
                "layer": each.work.name,
                "cell": each.work.cell.value,
                "inputs": each.work.inputs,
                "cells": each.work.cells,
                "projection": each.work.projection,
                "directions": each.work.directions,
                "steps": each.work.steps,
                "forward": _cycles_as_json(each.forward),
                "backward": _cycles_as_json(each.backward),
                "words_of_a_pe": each.words,
                "missing_bytes": each.missing_bytes,
                "weight_bytes": each.weight_bytes,
                "bias_bytes": each.bias_bytes,
                "values_in_bytes": each.in_bytes,
                "values_out_bytes": each.out_bytes,
                "errors_in_bytes": each.errors_in_bytes,
                "errors_out_bytes": each.errors_out_bytes,
                "kept_bytes": each.kept_bytes,
            }
            for each in needs
        ],
    }


def _cycles_as_json(cycles: StepCycles) -> dict[str, int]:
    names = {"recurrent": "cycles", "unsplit": "unsplit_cycles"}
    found = {names.get(key, f"{key}_cycles"): value for key, value in dataclasses.asdict(cycles).items()}
    return {**found, "step_cycles": cycles.total}
