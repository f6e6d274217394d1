"""Cuts of a chain of layers into stages: BaPipe's, one stage a device, and PipeDream's, whose stages may be replicated.

Both are exact: no other cut has a faster slowest stage or link.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .layers import ChainLayer

StageTime = Callable[[int, int, int], float]
"""The time of layers begin … end-1 on a device: begin, end, device."""


class Cut(NamedTuple):
    """A cut before each layer of `firsts`, and the time of the slowest stage or link."""

    time: float
    firsts: tuple[int, ...]


def fastest_cut(layers: int, devices: int, stage: StageTime, links: Sequence[float] | None = None) -> Cut:
    """Return the cut whose slowest stage or link is fastest; each device has at least one layer.

    Args:
        layers: number of layers.
        devices: number of devices, in the order of the chain.
        stage: the time of a stage.
        links: the time of a link for a cut behind each layer, in one direction; 0 without it.
    """
    best = {end: Cut(stage(0, end, 0), ()) for end in range(1, layers + 1)}
    for device in range(1, devices):
        best = {
            end: min(
                Cut(
                    max(best[cut].time, stage(cut, end, device), links[cut - 1] if links else 0),
                    (*best[cut].firsts, cut),
                )
                for cut in range(device, end)
            )
            for end in range(device + 1, layers + 1)
        }
    return best[layers]


class Replicated(NamedTuple):
    """A stage of PipeDream's: layers begin … end-1 on several devices that share its batches."""

    begin: int
    end: int
    devices: int


def pipedream_stages(
    layers: Sequence[ChainLayer], devices: int, stage: StageTime, links: Sequence[float]
) -> tuple[Replicated, ...]:
    """Return PipeDream's partition, by its dynamic programme over computation and communication; memory has no part.

    Args:
        layers: the chain.
        devices: number of devices.
        stage: the time of layers begin … end-1 for a batch, shared by a number of devices with their all-reduce.
        links: the time of features and errors across a cut behind each layer.
    """

    @functools.cache
    def best(end: int, count: int) -> tuple[float, tuple[Replicated, ...]]:
        found: tuple[float, tuple[Replicated, ...]] = stage(0, end, count), (Replicated(0, end, count),)
        for cut in range(1, end):
            for last in range(1, count):
                time, before = best(cut, count - last)
                slowest = max(time, links[cut - 1], stage(cut, end, last))
                if slowest < found[0] and not math.isclose(slowest, found[0]):
                    found = slowest, (*before, Replicated(cut, end, last))
        return found

    return best(len(layers), devices)[1]
