"""The roofs of a plan's rate as functions of its constants: of what a sample takes, the part of each constant.

On a fixed plan an engine's time is inverse to its clock, that of a link's direction to the bandwidth, that of a memory
port to the memory's. So the rate with other constants is 1 / max_r (t_r / f_r) over all loads r with the time t_r and
the factor f_r of their constant; 4,000 draws of the factors take milliseconds. The few loads that follow from several
constants are sums: steps of recurrent layers cut over devices, which wait for links, and exchanges of gradients, which
are linear near the constants as they are.

Draws of uncertain constants are the same in every process: one factor for a constant, by its range. A factor is
log-normal, with the range's ends as 5th and 95th percentiles: constants scatter by shares of themselves, and a
calibration's range is such an interval of their logarithms. So where one constant limits, the range of the answer is
that of the constant. Of n draws, each n-th of the distribution has one (a Latin hypercube), which leaves little to
chance. The order of a constant's draws follows from its key alone: plans with other constants, in other processes, meet
the same draws.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import statistics
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..cluster import BANDWIDTH, CLOCK, LATENCY, MEMORY, Cluster, ConstantRange, varied
from ..mapping import DataPath
from ..network import Phase
from .bottleneck import EngineLoad, engine_loads, link_loads, loads_of, memory_loads
from .timing import Timing, lockstep

Floats: TypeAlias = NDArray[np.float64]

DRAWS, TIMING_DRAWS = 4000, 40
"""Draws of rates on a fixed plan, and of timings, which cost 1,000 times as much."""
LOWEST, HIGHEST = 5, 95
"""Percentiles that a range of answers, and one of constants, has as its ends."""

_SLOWING = ("_ns", "_us")
"""How keys of times end, which slow what they are in; all others speed it up."""


@functools.cache
def _ordered(count: int) -> Floats:
    """Return ascending normal deviates, one of each `count`-th of the distribution; the 95th percentile is 1."""
    normal = statistics.NormalDist()
    one = normal.inv_cdf(HIGHEST / 100)
    return np.array([normal.inv_cdf((place + 0.5) / count) / one for place in range(count)])


@functools.cache
def _deviates(key: str, count: int) -> Floats:
    """Return the deviates of a constant's draws."""
    return np.random.Generator(np.random.PCG64(zlib.crc32(key.encode()))).permutation(_ordered(count))


def middle(entry: ConstantRange) -> float:
    """Return the factor in the middle of a range, half of whose draws are larger."""
    return math.sqrt(entry.low * entry.high)


def factors(entry: ConstantRange, count: int = DRAWS) -> Floats:
    """Return a constant's factors, one of each draw."""
    if entry.is_exact:
        return np.ones(count)
    half = math.log(entry.high / entry.low) / 2
    return middle(entry) * np.exp(half * _deviates(entry.key, count))


def slows(key: str) -> bool:
    """Return whether more of a constant makes answers slower: it is a time."""
    return key.endswith(_SLOWING)


Speed = tuple[ConstantRange, ...]
"""Constants whose product is the speed of something; of none it has no range."""
Parts = Mapping[Speed, float]
"""The parts of a load's time in ps, by what they follow."""


@dataclasses.dataclass(frozen=True)
class Roofs:
    """The loads of a plan that may be the slowest for some constants: a row each, by the speeds in `speeds`.

    `replicas` chains take samples at the same time.
    """

    speeds: tuple[Speed, ...]
    rows_ps: tuple[tuple[float, ...], ...]
    replicas: float = 1

    @classmethod
    def of(cls, loads: Iterable[Parts], replicas: float = 1) -> Roofs:
        """Return the roofs of loads, without those that never exceed another."""
        rows = list(loads)
        speeds = tuple(dict.fromkeys(speed for parts in rows for speed in parts))
        whole = {tuple(float(parts.get(speed, 0)) for speed in speeds) for parts in rows}
        highest = sorted(whole, reverse=True)
        kept: list[tuple[float, ...]] = []
        for row in highest:  # what exceeds a row in all parts comes before it
            if not any(all(a >= b for a, b in zip(other, row, strict=True)) for other in kept):
                kept.append(row)
        return cls(speeds, tuple(kept), replicas)

    @classmethod
    def of_text(cls, text: str) -> Roofs:
        """Return the roofs that `text` was made of.

        Raises:
            ValueError: it was made of none.
        """
        try:
            speeds, rows_ps, replicas = json.loads(text)
            made = (tuple(ConstantRange(*entry) for entry in speed) for speed in speeds)
            return cls(tuple(made), tuple(map(tuple, rows_ps)), replicas)
        except (TypeError, RecursionError) as error:
            raise ValueError(str(error)) from None

    @property
    def text(self) -> str:
        """The roofs as one line of JSON, as files keep them."""
        speeds = [[dataclasses.astuple(entry) for entry in speed] for speed in self.speeds]
        return json.dumps([speeds, self.rows_ps, self.replicas], separators=(",", ":"))

    def at_rate(self, rate: float) -> Roofs:
        """Return roofs under which the rate is this with the constants as they are, and follows them as here."""
        return dataclasses.replace(self, replicas=rate * float(self.period_ps({})[0]) / 1e12)

    @property
    def constants(self) -> tuple[ConstantRange, ...]:
        """The constants that are not exact, each range once."""
        return tuple(dict.fromkeys(entry for speed in self.speeds for entry in speed if not entry.is_exact))

    def period_ps(self, given: Mapping[ConstantRange, Floats], count: int = 1) -> Floats:
        """Return the time between two samples of a replica, in each of `count` draws of the factors of constants."""
        times = np.zeros((len(self.rows_ps), count))
        for column, speed in zip(np.array(self.rows_ps).T, self.speeds, strict=True):
            slowed = np.ones(count)
            for entry in speed:
                if entry in given:
                    slowed = slowed * (given[entry] if slows(entry.key) else 1 / given[entry])
            times += column[:, None] * slowed
        return times.max(axis=0)

    def rates(self, given: Mapping[ConstantRange, Floats] | None = None, count: int = DRAWS) -> Floats:
        """Return the rate in samples per second in each draw: of those `given`, or else of all constants' own."""
        drawn = {entry: factors(entry, count) for entry in self.constants} if given is None else given
        return self.replicas * 1e12 / self.period_ps(drawn, count)


def load_parts(timing: Timing) -> Iterator[Parts]:
    """Yield the parts of all loads of a chain: engines, links and memory ports."""
    cluster = timing.cluster
    waits = _waits(timing)
    for load in engine_loads(timing):
        clock = tuple(cluster.range_of(key, load.device) for key in CLOCK)
        by_link = waits.get((load.part.layer.index, load.phase), ())
        if not by_link:
            yield {clock: load.sample_ps}
        yield from (_stepping(load, clock, cluster, ways, max(by_link)) for ways in by_link)
    for link in link_loads(timing):
        yield {(cluster.range_of(BANDWIDTH),): link.sample_ps}
    for port in memory_loads(timing):
        yield {(cluster.range_of(MEMORY, port.device),): port.sample_ps}


def _stepping(
    load: EngineLoad, clock: Speed, cluster: Cluster, wait: tuple[int, int], longest: tuple[int, int]
) -> Parts:
    """Return the parts of a recurrent layer's engine, each of whose rows waits for links."""
    (takes_ps, latency_ps), rows = wait, load.engine.rows
    return {
        clock: rows * (load.engine.row_ps - longest[0]),
        (cluster.range_of(BANDWIDTH),): rows * (takes_ps - latency_ps),
        (cluster.range_of(LATENCY),): rows * latency_ps,
    }


def _waits(timing: Timing) -> dict[tuple[int, Phase], tuple[tuple[int, int], ...]]:
    """Return for FP and EB of recurrent layers on several devices how long a row waits for links, each way alone."""
    found: dict[tuple[int, Phase], tuple[tuple[int, int], ...]] = {}
    for layer in timing.mapping.network.layers:
        if not layer.operation.recurs:
            continue
        holders = [
            d for d, held in enumerate(timing.mapping.devices) if any(p.layer.index == layer.index for p in held)
        ]
        links, states = holders[:-1], layer.makes.number
        if not links:
            continue
        latency_ps = sum(timing.cluster.link_at(link).latency_ps for link in links)

        def sweep_ps(path: DataPath, links: Sequence[int] = links, states: int = states) -> int:
            return sum(timing.hop_ps(link, path, states) for link in links)

        gathers = (sweep_ps(path) for path in (DataPath.PARTIAL_ACTIVATIONS, DataPath.STATES))
        forward, backward, _ = Phase
        found[layer.index, forward] = tuple((gather_ps, latency_ps) for gather_ps in gathers)
        if not layer.has_eb:
            continue
        errors_ps = sweep_ps(DataPath.INPUT_ERRORS) + sweep_ps(DataPath.STATE_ERRORS)
        found[layer.index, backward] = ((errors_ps, 2 * latency_ps),)
    return found


def with_constants(timing: Timing, cluster: Cluster) -> Timing:
    """Return the timing of the same mapping and engines with a cluster's constants (`cluster.varied`)."""
    engines = tuple(
        tuple(
            dataclasses.replace(
                held,
                **{
                    name: dataclasses.replace(
                        engine, wait_ps=0, row_ps=(engine.row_ps - engine.wait_ps) * now // before
                    )
                    for name in ("fp", "eb", "pg")
                    if (engine := getattr(held, name)) is not None
                },
            )
            for held in of_device
        )
        for device, of_device in enumerate(timing.engines)
        for before, now in [(timing.cluster.board(device).period_ps, cluster.board(device).period_ps)]
    )
    other = dataclasses.replace(timing, cluster=cluster, engines=engines)
    other = dataclasses.replace(other, engines=lockstep(timing.mapping, cluster, engines, other.hop_ps))
    return dataclasses.replace(other, interval_ps=max(1, *(load.sample_ps for load in loads_of(other))))


def varied_timing(timing: Timing, given: Mapping[ConstantRange, float]) -> Timing:
    """Return the timing of the same mapping and engines with factors of some constants."""
    return with_constants(timing, varied(timing.cluster, lambda entry: given.get(entry, 1.0)))
