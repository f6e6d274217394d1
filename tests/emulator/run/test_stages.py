"""Boards that take actions as a whole: times equal those of the timeline engine, and bits stay what they are."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain.emulator.pipeline import StageCosts, run_timeline
from emuchain.emulator.plan import Plan
from emuchain.emulator.schedule import schedules

NETWORK = {
    "name": "stages",
    "input": [3, 16, 16],
    "layers": [
        {"type": "conv", "channels": 8, "kernel": 3, "padding": 1},
        {"type": "relu"},
        {"type": "conv", "channels": 8, "kernel": 3, "padding": 1},
        {"type": "max-pool", "kernel": 2},
        {"type": "conv", "channels": 16, "kernel": 3, "padding": 1},
        {"type": "relu"},
        {"type": "conv", "channels": 16, "kernel": 3, "padding": 1},
        {"type": "max-pool", "kernel": 2},
        {"type": "fc", "features": 10},
        {"type": "softmax"},
    ],
}
MACHINES = [("turns", "stored"), ("turns", "hidden"), ("split", "stored"), ("split", "hidden")]
ONE_STAGE = [name for name, kind in schedules().items() if not kind.replicates and kind.chunks == 1]


def planned(**keys: Any) -> Plan:
    return emuchain.plan(NETWORK, **{"devices": 4, "batch": 24, "micro_batch": 4, **keys})


def on_the_engine(plan: Plan, samples: int) -> int:
    """The time of an epoch by the timeline engine, from the stages' costs and the bytes between them."""
    assert plan.stages is not None
    size, costs = plan.stages.samples, list[StageCosts]()
    for stage in range(plan.stage_count):
        streams = plan.timing.links[stage] if stage + 1 < plan.stage_count else ()
        mbps = plan.cluster.link_at(stage).bandwidth_mbps
        right, left = (
            -(-8_000_000 * size * sum(each.sample_bytes for each in streams if each.path.is_forward == forward) // mbps)
            for forward in (True, False)
        )
        costs.append(dataclasses.replace(plan.stages.costs(stage, size), transfer_ps=right, errors_ps=left))
    machine = dataclasses.replace(plan.stages.machine, latency_ps=plan.cluster.link.latency_ps)
    return max(each.end_ps for each in run_timeline(plan.schedule(samples), costs, machine))


@pytest.mark.parametrize("schedule", ONE_STAGE)
@pytest.mark.parametrize(("engines", "transport"), MACHINES)
@pytest.mark.parametrize("stages", ["layers", "channels"])
def test_times_are_those_of_the_timeline_engine(schedule: str, engines: str, transport: str, stages: str) -> None:
    """The chain hands times on from device to device; the engine works off events in order of time."""
    samples = 24 if schedules()[schedule].drains else 72
    plan = planned(schedule=schedule, engines=engines, transport=transport, stages=stages, samples=samples)
    assert emuchain.simulate(plan).virtual_time_ps == on_the_engine(plan, samples)
