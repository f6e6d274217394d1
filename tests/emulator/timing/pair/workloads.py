"""Recurrent layers and pairs for the tests of this folder."""

from __future__ import annotations

from emuchain.emulator.cluster import load_cluster
from emuchain.emulator.schedule import schedules
from emuchain.emulator.timing.pair import (
    Cell,
    Pair,
    PairTimes,
    RecurrentWork,
    Workload,
    pair_of,
    time_mini_batch,
)


def synthetic(
    cell: Cell = Cell.LSTM, layers: int = 5, cells: int = 1024, steps: int = 1600, batch: int = 1
) -> Workload:
    """FARNN's synthetic benchmarks: layers that take as many values as they make."""
    works = [RecurrentWork(f"layer{place}", cell, cells, cells, steps) for place in range(layers)]
    return Workload("synthetic", tuple(works), batch)


def pair(cluster: str = "farnn-9p", schedule: str = "farnn") -> Pair:
    return pair_of(load_cluster(cluster), schedules()[schedule])


def timed(workload: Workload, cluster: str = "farnn-9p", schedule: str = "farnn") -> PairTimes:
    offload = schedules()[schedule].offload
    assert offload is not None
    return time_mini_batch(workload, pair(cluster, schedule), offload)
