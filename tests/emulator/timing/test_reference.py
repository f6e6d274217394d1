"""The emulator against a second simulator that was written from docs/time-model.md alone: the same picoseconds.

Chains are drawn at random: convolutions, pools, joins and fully connected layers, cut by input and by output channels,
on boards and links that differ, with off-chip memory, balanced parameters, stale weights and a short last mini-batch.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from emuchain.comm import Served
from emuchain.emulator.run import simulate

from .chains import Run, runs
from .reference import Reference


@given(runs())
@settings(max_examples=150)
def test_same_picoseconds(run: Run) -> None:
    """Every row leaves every engine, link and memory port at the same time; so the run takes the same time."""
    plan, samples = run
    left_ps: dict[str, list[int]] = {}
    row_ps: dict[str, int] = {}

    def observe(rows: Served) -> None:
        left_ps.setdefault(rows.resource, []).extend(np.ravel(rows.left_ps).tolist())
        row_ps[rows.resource] = rows.row_ps

    found = simulate(plan, samples, observe)
    reference = Reference(plan.timing)
    staleness = [] if plan.config.schedule.drains else plan.steady.staleness
    time_ps = reference.run(samples, plan.batch, staleness, plan.config.epochs)
    assert plan.timing.interval_ps == reference.interval_ps
    assert row_ps == {name: fifo.row_ps for name, fifo in reference.resources.items()}
    assert left_ps == {name: fifo.left_ps for name, fifo in reference.resources.items()}
    assert found.virtual_time_ps == time_ps


@given(runs())
@settings(max_examples=150)
def test_same_staleness(run: Run) -> None:
    """As many updates are missing, in FP and in EB of each sample of a mini-batch on each device."""
    found = Reference(run.plan.timing).staleness(run.plan.batch)
    assert found == [list(zip(each.forward, each.backward, strict=True)) for each in run.plan.steady.staleness]
