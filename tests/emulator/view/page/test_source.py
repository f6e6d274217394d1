"""Runs: the plan that a results file describes is the one that ran, or none, with the reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.cluster import load_cluster
from emuchain.emulator.run import Results, simulate
from emuchain.emulator.schedule import EpochShape, Schedule, ScheduleKind, Staleness, pipeline
from emuchain.emulator.view.page import Run

Trained = Callable[..., Results]


@pytest.mark.parametrize(
    "keys",
    [
        {"devices": 3},
        {"devices": 2, "schedule": "sync", "samples": 70, "lr_schedule": "steps:at=1"},
        {"devices": 2, "replicas": 2, "samples": 67},
        {"devices": 4, "schedule": "data-parallel-aggregator"},
    ],
)
def test_the_plan_of_a_run(trained_results: Trained, keys: dict[str, Any]) -> None:
    results = trained_results(**keys)
    run = Run.of("run", results)
    assert run.plan is not None, run.why_no_plan
    ends_ps = simulate(run.plan, results.config["samples"]).epoch_ends_ps
    assert list(ends_ps) == results.history["virtual_time_ps"].tolist()


def test_files_of_network_and_cluster_are_not_needed(
    trained_results: Trained, tmp_path: Path
) -> None:
    network, cluster = tmp_path / "own.toml", tmp_path / "slow.toml"
    network.write_text(
        'name = "tiny"\ninput = [3, 32, 32]\nlayers = [{ type = "conv", channels = 4, kernel = 3,'
        ' stride = 4 }, { type = "fc", features = 10 }, { type = "softmax" }]'
    )
    cluster.write_text(
        'name = "slow"\nboards = [{ type = "vc709" }]\n[links]\nbandwidth_gbps = 1\nlatency_ns'
        " = 9\n"
    )
    results = trained_results(str(network), str(cluster), devices=2)
    network.unlink()
    cluster.unlink()
    run = Run.of("run", results)
    assert run.plan is not None
    assert (run.network, run.plan.cluster.link.bandwidth_gbps) == ("tiny", 1)


@pytest.mark.parametrize(
    "change", [{"link.bandwidth_gbps": 10}, {"board.clock_mhz": 50}, {"board.dsp": 400}]
)
def test_a_cluster_that_was_changed_in_python(
    trained_results: Trained, change: dict[str, object]
) -> None:
    """The results file describes the cluster as it was changed."""
    cluster = load_cluster("vc709", change)
    run = Run.of("run", trained_results(cluster=cluster, devices=2))
    assert run.plan is not None, run.why_no_plan
    assert (run.plan.cluster.boards, run.plan.cluster.link) == (cluster.boards, cluster.link)


def test_a_file_of_another_time_model(trained_results: Trained) -> None:
    """The plan that the description gives today is not that of the run."""
    results = trained_results(devices=2)
    busy = {**results.devices, "fp_busy": results.devices["fp_busy"] / 2}
    run = Run.of("run", dataclasses.replace(results, devices=busy))
    assert run.plan is None
    assert "not the one that has run" in run.why_no_plan


def test_a_cluster_from_python(trained_results: Trained) -> None:
    described = {
        "name": "mine",
        "boards": [{"type": "vc709", "count": 1}, {"type": "vc709", "dsp": 900}],
        "links": {"bandwidth_gbps": 10, "latency_ns": 500},
    }
    run = Run.of("run", trained_results(cluster=described, devices=2))
    assert run.plan is not None, run.why_no_plan
    assert run.plan.cluster.name == "mine"


def test_a_schedule_from_python(trained_results: Trained) -> None:
    def late(epoch: EpochShape) -> Schedule:
        return pipeline(
            "late", [Staleness((0,) * epoch.batch, (0,) * epoch.batch)] * epoch.devices, epoch
        )

    run = Run.of(
        "run",
        trained_results(
            devices=2, schedule=ScheduleKind("late", late, "none is late", drains=True)
        ),
    )
    assert run.plan is None
    assert "`schedule` = 'late'" in run.why_no_plan


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"descriptions": {}}, "key `"),
        ({"descriptions": {"network.toml": "= ="}}, "network.toml in the file cannot be read"),
    ],
)
def test_a_file_that_lacks_something(chain: Run, change: dict[str, Any], reason: str) -> None:
    run = Run.of("run", dataclasses.replace(chain.results, **change))
    assert run.plan is None
    assert reason in run.why_no_plan


def test_a_later_version_has_other_keys(chain: Run) -> None:
    with_more = dataclasses.replace(
        chain.results, config={**chain.results.config, "colour": "blue"}
    )
    assert Run.of("run", with_more).plan is not None


def test_the_ratio_that_was_reached_is_that_of_the_plan(replicas: Run) -> None:
    exchange = replicas.results.exchange
    assert replicas.plan is not None
    reached = exchange["value_bytes"].sum() / exchange["compressed_bytes"].sum()
    assert reached > 1.5
    assert np.isclose(replicas.plan.config.compress_ratio, reached)
