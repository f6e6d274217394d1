"""Clusters whose constants are multiples of what their files say, as draws from the ranges of
constants make them.

A constant has one factor on all boards: its quantile is the same on each, within the board's own
range.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TypeAlias, TypeVar

from .board import Board
from .cluster import Cluster, Link
from .constants import ConstantRange, find_range
from .fpga import Fpga
from .gpu import Gpu

Factors: TypeAlias = Mapping[ConstantRange, float]
"""The factors of constants by their ranges; of those left out, it is 1."""

CLOCK = ("board.clock_mhz", "board.efficiency")
"""The constants whose product is the rate of an FPGA's engines."""
MEMORY = "board.off_chip_gbytes_per_s"
BANDWIDTH, LATENCY = "link.bandwidth_gbps", "link.latency_ns"

_GPU_RATES = (
    *("peak_tflops", "gemm_efficiency", "memory_gbytes_per_s"),
    *("persistent_gbytes_per_s", "persistent_gru_gbytes_per_s"),
)

BoardT = TypeVar("BoardT", bound=Board)


def varied(cluster: Cluster, factors: Factors) -> Cluster:
    """Return a cluster with all constants of boards and links multiplied by their factors; counts
    stay.
    """
    over = cluster.own_interconnect

    def of_network(key: str) -> float:
        return factors.get(cluster.range_of(f"network.{key}"), 1.0)

    if over is not None:
        faster = of_network("bandwidth_gbps")
        over = dataclasses.replace(
            over,
            bandwidth_mbps=_at_least_one(over.bandwidth_mbps * faster),
            cost=over.cost.times(1 / faster),
            latency_ps=round(over.latency_ps * of_network("latency_us")),
            packet_stack_ps=round(over.packet_stack_ps * of_network("packet_stack_ns")),
            # The file has a rate, and the cluster its inverse.
            sum_ps_per_kbyte=round(over.sum_ps_per_kbyte / of_network("sum_gbytes_per_s")),
        )
    boards = tuple(varied_board(board, factors) for board in cluster.boards)
    return dataclasses.replace(
        cluster,
        boards=boards,
        link=varied_link(cluster.link, factors, cluster.ranges),
        own_links=tuple(varied_link(link, factors, cluster.ranges) for link in cluster.own_links),
        own_interconnect=over,
    )


def varied_link(link: Link, factors: Factors, ranges: Iterable[ConstantRange]) -> Link:
    """Return a link with bandwidth and latency multiplied by their factors; what messages cost
    beside their bytes is divided by the bandwidth's. `ranges` are those that are given.
    """
    bandwidth, latency = (find_range(key, ranges) for key in (BANDWIDTH, LATENCY))
    faster = factors.get(bandwidth, 1.0)
    return dataclasses.replace(
        link,
        bandwidth_mbps=_at_least_one(link.bandwidth_mbps * faster),
        latency_ps=round(link.latency_ps * factors.get(latency, 1.0)),
        cost=link.cost.times(1 / faster),
    )


def varied_board(board: BoardT, factors: Factors) -> BoardT:
    """Return a board with its rates multiplied by their factors."""

    def of(key: str) -> float:
        return factors.get(find_range(key, board.ranges), 1.0)

    if isinstance(board, Fpga):
        # An FPGA has one period, of the cycles in which its engines work: it holds both constants.
        speed = of(CLOCK[0]) * of(CLOCK[1])
        memory = board.off_chip_gbytes_per_s
        return dataclasses.replace(
            board,
            period_ps=_at_least_one(board.period_ps / speed),
            off_chip_gbytes_per_s=None if memory is None else memory * of(MEMORY),
        )
    if isinstance(board, Gpu):
        rates = {key: getattr(board, key) * of(f"board.{key}") for key in _GPU_RATES}
        return dataclasses.replace(
            board, **rates, recurrent_ps=round(board.recurrent_ps * of("board.recurrent_us"))
        )
    return board


def _at_least_one(value: float) -> int:
    return max(1, round(value))
