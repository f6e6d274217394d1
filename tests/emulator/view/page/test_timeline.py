"""The timeline's excerpt: bars are what engines serve."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.view.page import boards
from emuchain.emulator.view.page.boards import excerpt

PlanOf = Callable[..., ChainPlan]


@pytest.mark.parametrize(
    "keys", [{"devices": 4}, {"devices": 1}, {"devices": 3, "schedule": "sync", "batch": 8}]
)
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
    assert (
        of_first_engine[1 + gap_ps.argmax(), 1] == 8
    )  # the first sample of the second mini-batch waits


def test_too_many_bars_are_joined(plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(devices=4)
    apart = excerpt(plan, 64)
    monkeypatch.setattr(boards, "MOST_BARS", 20)
    joined = excerpt(plan, 64)
    assert len(joined.bars) < len(apart.bars)
    assert set(joined.bars[:, 1]) == {-1}
    assert joined.bars[:, 3].max() == apart.bars[:, 3].max()


def test_memory_ports_have_lanes(plan_of: PlanOf, tmp_path: Path) -> None:
    """Beside engines; links have none. A port begins before its engine."""
    cluster = tmp_path / "small.toml"
    cluster.write_text(
        'name = "small"\nboards = [{ type = "vc709", on_chip_memory_kbit = 4000 }]\n'
        "links = { bandwidth_gbps = 150, latency_ns = 100 }\n"
    )
    plan = plan_of(devices=2, cluster=str(cluster))
    found = excerpt(plan, 64)
    ports = {(lane.device, lane.name) for lane in found.lanes if lane.kind == "memory"}
    expected = {
        (device, f"{stream.phase.value} of {part}")
        for device, parts in enumerate(plan.mapping.devices)
        for part, streams in zip(parts, plan.timing.memory(device), strict=True)
        for stream in streams
    }
    assert ports == expected
    assert ports
    assert {lane.kind for lane in found.lanes} == {"FP", "EB", "PG", "memory"}
    lane, sample, start, _ = found.bars.T
    first_ps = {
        (of.device, of.kind, of.name): start[(lane == number) & (sample == 0)].min()
        for number, of in enumerate(found.lanes)
    }
    for device, name in ports:
        phase, _, part = name.partition(" of ")
        assert first_ps[device, "memory", name] < first_ps[device, phase, part]
