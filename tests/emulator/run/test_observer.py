"""`simulate(…, observer)` and `train(…, observer=…)`: all that resources serve, and nothing else
changes.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from emuchain.comm import Served
from emuchain.emulator.mapping import DataPath
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.run import PHASES, Usage, simulate
from emuchain.emulator.timing import engine_loads, exchange_name

SAMPLES = 42  # the last mini-batch is shorter

Keys = dict[str, Any]
RUNS: dict[str, Keys] = {
    "fpdeep": {"schedule": "fpdeep", "devices": 4},
    "sync": {"schedule": "sync", "devices": 4},
    "single device": {"schedule": "fpdeep", "devices": 1},
    "shortcuts": {"network": "resnet8-cifar", "schedule": "fpdeep", "devices": 6},
    "balanced": {"cluster": "small", "schedule": "fpdeep", "devices": 5, "memory": "fpdeep"},
    "replicas": {"schedule": "fpdeep", "devices": 3, "replicas": 2, "compress": "truncate:16"},
}

ObservedPlan = Callable[..., ChainPlan]


class Rows(NamedTuple):
    """All rows that a resource has served: when each was ready, when it left, and how long it took,
    in order.
    """

    ready_ps: list[int]
    left_ps: list[int]
    row_ps: list[int]


@pytest.fixture
def observed_plan(plan_of: Any, small_cifar: Path, small_cluster: str) -> ObservedPlan:
    """Makes the plan of a run."""

    def make(run: str, **keys: Any) -> ChainPlan:
        settings = {
            "data": str(small_cifar),
            "samples": SAMPLES,
            "test_samples": 7,
            "batch": 12,
            "micro_batch": 5,
        }
        chosen = {**RUNS[run], **keys}
        if chosen.get("cluster") == "small":
            chosen["cluster"] = small_cluster
        return plan_of(**{**settings, "epochs": 2, **chosen})

    return make


def rows_of(records: list[Served]) -> dict[str, Rows]:
    """All records by resource."""
    found: dict[str, Rows] = collections.defaultdict(lambda: Rows([], [], []))
    for record in records:
        assert record.ready_ps.shape == record.left_ps.shape
        rows = found[record.resource]
        rows.ready_ps.extend(record.ready_ps.ravel().tolist())
        rows.left_ps.extend(record.left_ps.ravel().tolist())
        rows.row_ps.extend([record.row_ps] * record.left_ps.size)
    return dict(found)


def simulated(plan: ChainPlan) -> tuple[dict[str, Rows], Usage]:
    """What an observer sees of a simulation, and its usage."""
    records: list[Served] = []
    usage = simulate(plan, SAMPLES, records.append).usage
    return rows_of(records), usage


def expected_names(plan: ChainPlan) -> list[str]:
    """The names of all engines of a chain, of its links' streams, in both directions, and of
    exchanges.
    """
    links = [
        (
            f"link {link} -> {link + 1}, {stream.key}"
            if stream.path.is_forward
            else f"link {link + 1} -> {link}, {stream.key}"
        )
        for link, streams in enumerate(plan.timing.links)
        for stream in streams
    ]
    exchanges = [
        exchange_name(device) for device in range(plan.devices) if plan.data_parallel.replicas > 1
    ]
    return [*(load.name for load in engine_loads(plan.timing)), *links, *exchanges]


@pytest.mark.parametrize("run", RUNS)
def test_every_engine_and_link_is_observed_by_a_name_of_its_own(
    observed_plan: ObservedPlan, run: str
) -> None:
    plan = observed_plan(run)
    names = expected_names(plan)
    assert len(set(names)) == len(names)
    resources = [
        resource.name
        for device in range(plan.devices)
        for resource in plan.timing.clock(device).resources()
    ]
    assert sorted(resources) == sorted(name for name in names if not name.startswith("exchange"))
    seen, _ = simulated(plan)
    assert set(seen) == set(names)


@pytest.mark.parametrize("run", RUNS)
def test_records_are_those_of_a_fifo(observed_plan: ObservedPlan, run: str) -> None:
    """Each row is taken when it is ready and the one before it has left, and occupies the resource
    until it leaves.
    """
    seen, usage = simulated(observed_plan(run))
    for name, rows in seen.items():
        free_ps = 0
        for ready_ps, left_ps, row_ps in zip(*rows, strict=True):
            assert row_ps > 0
            assert left_ps == max(ready_ps, free_ps) + row_ps, name
            free_ps = left_ps
        assert free_ps <= usage.virtual_time_ps


@pytest.mark.parametrize("run", RUNS)
def test_busy_time_is_the_share_in_the_usage(observed_plan: ObservedPlan, run: str) -> None:
    plan = observed_plan(run)
    seen, usage = simulated(plan)
    assert_busy_shares(plan, seen, usage)


def assert_busy_shares(plan: ChainPlan, seen: Mapping[str, Rows], usage: Usage) -> None:
    """Engines weighted by multipliers; a link's streams are each busy for as long as all its bytes
    take.
    """
    assert usage.virtual_time_ps > 0
    for device in usage.devices:
        shares = {}
        for phase in PHASES:
            loads = [
                x
                for x in engine_loads(plan.timing)
                if (x.device, x.phase.value) == (device.device, phase)
            ]
            busy = sum(sum(seen[load.name].row_ps) * load.engine.multipliers for load in loads)
            multipliers = sum(load.engine.multipliers for load in loads)
            if loads:
                shares[phase] = busy / (multipliers * usage.virtual_time_ps)
        assert shares == device.busy
    samples = len(next(iter(seen.values())).row_ps) // engine_loads(plan.timing)[0].engine.rows
    assert samples * plan.data_parallel.replicas == SAMPLES * plan.config.epochs
    for link in usage.links:
        sent: dict[DataPath, int] = collections.defaultdict(int)
        busy_ps = []
        for stream in plan.timing.links[min(link.sender, link.receiver)]:
            if stream.path.is_forward == (link.sender < link.receiver):
                rows = seen[f"link {link.sender} -> {link.receiver}, {stream.key}"]
                assert len(rows.row_ps) == samples * stream.rows
                sent[stream.path] += len(rows.row_ps) * stream.row_bytes
                busy_ps.append((sum(rows.row_ps), len(rows.row_ps)))
        assert sent == link.path_bytes
        for busy, count in busy_ps:
            # Each row's time is rounded up to a picosecond.
            assert 0 <= busy - link.utilisation * usage.virtual_time_ps + 1e-3 < count + 2e-3


@pytest.mark.parametrize("run", [run for run in RUNS if run != "replicas"])
def test_busy_time_of_training_is_the_share_in_its_usage(
    observed_plan: ObservedPlan, run: str, trained: Any
) -> None:
    """Also after the first epoch."""
    plan = observed_plan(run, epochs=1)
    records: list[Served] = []
    [result] = trained(plan, records.append).history
    assert_busy_shares(plan, rows_of(records), result.usage)


def test_compressed_gradients_keep_a_link_busy_for_less(
    observed_plan: ObservedPlan, trained: Any
) -> None:
    """From the second mini-batch on, at half of their bytes, path 6 takes half of the time."""
    plan = observed_plan("balanced", schedule="sync", compress="truncate:16", samples=36)
    records: list[Served] = []
    trained(plan, records.append)
    seen = rows_of(records)
    compressed = 0
    for link, streams in enumerate(plan.timing.links):
        for stream in streams:
            sender, receiver = (link, link + 1) if stream.path.is_forward else (link + 1, link)
            row_ps = seen[f"link {sender} -> {receiver}, {stream.key}"].row_ps
            full_ps = plan.timing.path(link, stream).row_ps
            if stream.path is DataPath.PARAMETER_GRADIENTS:
                compressed += 1
                assert row_ps == [full_ps] * 12 + [-(-full_ps // 2)] * (2 * 36 - 12)
            else:
                assert set(row_ps) == {full_ps}
    assert compressed > 1


@pytest.mark.parametrize("run", RUNS)
def test_an_observer_changes_nothing(
    observed_plan: ObservedPlan, bits: Any, run: str, trained: Any
) -> None:
    plan = observed_plan(run)
    assert simulate(plan, SAMPLES, lambda _: None) == simulate(plan, SAMPLES)
    records: list[Served] = []
    weights, history = trained(plan, records.append)
    expected_weights, expected_history = trained(plan)
    assert records
    assert bits(weights) == bits(expected_weights)
    for result, expected in zip(history, expected_history, strict=True):
        assert (result.train, result.test) == (expected.train, expected.test)
        assert (result.virtual_time_ps, result.usage) == (expected.virtual_time_ps, expected.usage)
        assert result.exchanged.traffic == expected.exchanged.traffic


@pytest.mark.parametrize("run", RUNS)
def test_simulation_and_training_serve_the_same_rows_at_the_same_times(
    observed_plan: ObservedPlan, run: str, trained: Any
) -> None:
    """Micro-batches differ, so records are cut otherwise; rows are the same, in the same order."""
    plan = observed_plan(run)
    seen, _ = simulated(plan)
    records: list[Served] = []
    trained(plan, records.append)
    assert rows_of(records) == seen


def test_records_are_kept_as_they_were(observed_plan: ObservedPlan, trained: Any) -> None:
    """No one changes a record's times later, as memory is used again."""
    plan = observed_plan("balanced", micro_batch=1)
    kept: list[Served] = []
    copies: list[tuple[np.ndarray, np.ndarray]] = []

    def observer(record: Served) -> None:
        kept.append(record)
        copies.append((record.ready_ps.copy(), record.left_ps.copy()))

    trained(plan, observer)
    assert kept
    for record, (ready_ps, left_ps) in zip(kept, copies, strict=True):
        assert np.array_equal(record.ready_ps, ready_ps)
        assert np.array_equal(record.left_ps, left_ps)
