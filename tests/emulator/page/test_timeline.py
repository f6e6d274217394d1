"""The timeline's excerpt: bars are what engines serve."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from emuchain.comm import Served
from emuchain.emulator.page import timeline
from emuchain.emulator.page.timeline import excerpt
from emuchain.emulator.plan import Plan

PlanOf = Callable[..., Plan]


@pytest.mark.parametrize("keys", [{"devices": 4}, {"devices": 1}, {"devices": 3, "schedule": "sync", "batch": 8}])
def test_bars_of_engines(plan_of: PlanOf, keys: dict[str, object]) -> None:
    plan = plan_of(**keys)
    found = excerpt(plan, 64)
    lane, sample, start, end = found.bars.T
    assert (start >= 0).all() and (start < end).all() and end.max() == found.window_ps
    for number in range(len(found.lanes)):
        assert (start[lane == number][1:] >= end[lane == number][:-1]).all()
        assert (np.diff(sample[lane == number]) >= 0).all()
    kinds = np.array([found.lanes[number].kind for number in lane])
    first = sample == 0
    assert start[first].min() == 0
    assert end[first & (kinds == "PG")].max() == plan.steady.fill_ps


def test_where_the_pipeline_drains_the_first_update_is_shown(plan_of: PlanOf) -> None:
    found = excerpt(plan_of(devices=3, schedule="sync", batch=8), 64)
    of_first_engine = found.bars[found.bars[:, 0] == 0]
    gap_ps = of_first_engine[1:, 2] - of_first_engine[:-1, 3]
    assert of_first_engine[1 + gap_ps.argmax(), 1] == 8  # the first sample of the second mini-batch waits


def test_too_many_bars_are_joined(plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(devices=4)
    apart = excerpt(plan, 64)
    monkeypatch.setattr(timeline, "MOST_BARS", 20)
    joined = excerpt(plan, 64)
    assert len(joined.bars) < len(apart.bars)
    assert set(joined.bars[:, 1]) == {-1}
    assert joined.bars[:, 3].max() == apart.bars[:, 3].max()


def test_other_resources_of_devices_have_lanes(plan_of: PlanOf) -> None:
    recorder = timeline._Recorder(plan_of(devices=2), 1_000_000)
    left_ps = np.array([[100, 200], [300, 900]]) * 1000
    recorder(Served("memory of device 1, FP of fc1[0:64] ICP", left_ps, left_ps, 50_000))
    recorder(Served("link 0 -> 1, path 1 #0", left_ps, left_ps, 50_000))
    found = recorder.timeline()
    assert [(lane.kind, lane.device) for lane in found.lanes] == [("memory", 1)]
    assert found.bars[:, 1:].tolist() == [
        [0, 50_000, 100_000], [0, 150_000, 200_000], [1, 250_000, 300_000], [1, 850_000, 900_000],
    ]  # fmt: skip
