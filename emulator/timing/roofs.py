"""What limits a chain: the time of a sample on every engine, link, memory port and exchange; roofs
of its rate.

Every engine, every direction of a link and every memory port takes a fixed time for each sample.
Samples enter at the rate of the slowest of them, so throughput is the lowest of some roofs: that of
the engines, that of the links (FPDeep, section 6.3.3 and Fig. 15), and that of off-chip memory.
Replicas have another, their exchange of gradients: its time for a mini-batch over the samples. If
the slowest were infinitely fast, the next slowest would set the rate.

As functions of a plan's constants, roofs say of what a sample takes the part of each constant. An
engine's time is inverse to its clock, that of a link's direction to the bandwidth, that of a memory
port to the memory's. So the rate with other constants is 1 / max_r (t_r / f_r) over all loads r
with the time t_r and the factor f_r of their constant; 4,000 draws of the factors take
milliseconds. The few loads that follow from several constants are sums: steps of recurrent layers
cut over devices, which wait for links, and exchanges of gradients, which are linear near the
constants as they are.

Draws of uncertain constants are the same in every process: one factor for a constant, by its range.
A factor is log-normal, with the range's ends as 5th and 95th percentiles: constants scatter by
shares of themselves, and a calibration's range is such an interval of their logarithms. So where
one constant limits, the range of the answer is that of the constant. Of n draws, each n-th of the
distribution has one (a Latin hypercube), which leaves little to chance. The order of a constant's
draws follows from its key alone: plans with other constants, in other processes, meet the same
draws.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import statistics
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..cluster import (
    BANDWIDTH,
    CLOCK,
    LATENCY,
    MEMORY,
    Cluster,
    ConstantRange,
    Engine,
    OnBoard,
    varied,
)
from ..common import gbps
from ..mapping import Slice, SliceEngines, Stream
from ..network import Phase
from .device_clock import engine_name, port_name
from .routes import Hop, hop_name
from .timing import Timing, lockstep, step_waits

Floats: TypeAlias = NDArray[np.float64]

DRAWS, TIMING_DRAWS = 4000, 40
"""Draws of rates on a fixed plan, and of timings, which cost 1,000 times as much."""
LOWEST, HIGHEST = 5, 95
"""Percentiles that a range of answers, and one of constants, has as its ends."""

_SLOWING = ("_ns", "_us")
"""How keys of times end, which slow what they are in; all others speed it up."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Load:
    """What a sample takes of a resource of a chain: its time, and its bytes where it moves any.

    `kind` is "engine", "link", "memory" (a device's port: all that engines read and write off chip)
    or "exchange" (of gradients, averaged over a mini-batch). A link is that of the `device` that
    sends. `capacity` is a link's bandwidth in Gb/s, or a port's in GB/s.
    """

    kind: str
    name: str
    device: int
    sample_ps: int
    sample_bytes: int = 0
    capacity: float = 0.0

    def demand(self, period_ps: float) -> float:
        """Return the bandwidth that samples need which enter every `period_ps`, in the unit of
        `capacity`.
        """
        return (
            gbps(self.sample_bytes, period_ps)
            if self.kind == "link"
            else 1000 * self.sample_bytes / period_ps
        )

    def share(self, period_ps: float) -> float:
        """Return the share of the capacity that samples need which enter every `period_ps`."""
        return self.demand(period_ps) / self.capacity


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineLoad(Load):
    """The load of FP, EB or PG of a slice; its capacity is a multiply-accumulate by each multiplier
    in `cycle_ps`.
    """

    part: Slice
    phase: Phase
    engine: Engine
    cycle_ps: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates of a sample."""
        return {Phase.FP: self.part.macs, Phase.EB: self.part.eb_macs, Phase.PG: self.part.pg_macs}[
            self.phase
        ]

    @property
    def title(self) -> str:
        """Its name without the device."""
        return engine_name(self.phase, self.part)

    def share(self, period_ps: float) -> float:
        """See `Load`."""
        return self.macs / (self.engine.multipliers * (period_ps / self.cycle_ps))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinkLoad(Load):
    """The load of one direction of a link, with the streams that share it; of a switch's, it is a
    part of a port's.
    """

    receiver: int
    streams: tuple[Stream, ...]

    @property
    def hop(self) -> Hop:
        """The board that sends and the one that receives."""
        return self.device, self.receiver


def exchange_name(device: int) -> str:
    """Return the name of a device's exchange with other replicas."""
    return f"exchange of gradients on device {device}"


def engine_loads(timing: Timing) -> tuple[EngineLoad, ...]:
    """Return the loads of all engines, in the order of the chain."""
    return tuple(
        EngineLoad(
            kind="engine",
            name=engine_name(phase, part, device),
            device=device,
            sample_ps=engine.sample_ps,
            part=part,
            phase=phase,
            engine=engine,
            cycle_ps=timing.cluster.board(device).period_ps,
        )
        for device, slices in enumerate(timing.mapping.devices)
        for part, held in zip(slices, timing.engines[device], strict=True)
        for phase, engine in zip(Phase, (held.fp, held.eb, held.pg), strict=True)
        if engine is not None
    )


def link_loads(timing: Timing) -> tuple[LinkLoad, ...]:
    """Return the loads of all links: between neighbours in the order of the chain, to the right,
    then to the left.
    """
    return tuple(_link_load(timing, hop) for hop in timing.routes.carried)


def _link_load(timing: Timing, hop: Hop) -> LinkLoad:
    routes = timing.routes
    link = routes.link_of(hop)
    streams = () if isinstance(link, OnBoard) else routes.streams(hop)
    paths = sorted({stream.path.value for stream in streams})
    return LinkLoad(
        kind="link",
        name=f"{hop_name(hop)} (path{'s' * (len(paths) > 1)} {', '.join(map(str, paths))})",
        device=hop[0],
        sample_ps=routes.sample_ps(hop),
        sample_bytes=sum(stream.sample_bytes for stream in streams),
        capacity=routes.part(hop) * link.bandwidth_gbps,
        receiver=hop[1],
        streams=streams,
    )


def memory_loads(timing: Timing) -> tuple[Load, ...]:
    """Return the loads of the memory ports of all devices that have data off chip, in the order of
    the chain.
    """
    return tuple(
        Load(
            kind="memory",
            name=port_name(device),
            device=device,
            sample_ps=timing.port_sample_ps(device),
            sample_bytes=timing.port_bytes(device),
            capacity=timing.cluster.board(device).off_chip_mbytes_per_s / 1000,
        )
        for device in range(len(timing.mapping.devices))
        if timing.port_bytes(device)
    )


def loads_of(timing: Timing, exchanges: Sequence[Load] = ()) -> tuple[Load, ...]:
    """Return all loads: of engines, links and memory ports, in the order of the chain, and the
    given exchanges.
    """
    return (*engine_loads(timing), *link_loads(timing), *memory_loads(timing), *exchanges)


_KINDS = {"engines": "engine", "links": "link", "exchanges": "exchange", "memory": "memory"}


@dataclasses.dataclass(frozen=True)
class Bottleneck:
    """The slowest load of a chain and the next slowest.

    `ties` counts the other loads that take as long as the slowest; `times_ps` has the longest time
    of "engines", "links", "exchanges" and "memory", 0 where there are none.
    """

    slowest: Load
    behind: Load
    ties: int
    times_ps: Mapping[str, int]


def find_bottleneck(timing: Timing, exchanges: Sequence[Load] = ()) -> Bottleneck:
    """Return the slowest load of a chain and the next slowest, with the exchanges of replicas if
    there are any.

    Equally slow ones are in the order of the chain, engines before links before memory ports.
    """
    loads = sorted(loads_of(timing, exchanges), key=lambda load: -load.sample_ps)
    slowest, behind = loads[:2]  # each slice has FP and PG
    ties = sum(load.sample_ps == slowest.sample_ps for load in loads) - 1
    times_ps = dict.fromkeys(_KINDS, 0)
    for kinds, kind in _KINDS.items():
        times_ps[kinds] = max((load.sample_ps for load in loads if load.kind == kind), default=0)
    return Bottleneck(slowest, behind, ties, times_ps)


@functools.cache
def _ordered(count: int) -> Floats:
    """Return ascending normal deviates, one of each `count`-th of the distribution; the 95th
    percentile is 1.
    """
    normal = statistics.NormalDist()
    one = normal.inv_cdf(HIGHEST / 100)
    return np.array([normal.inv_cdf((place + 0.5) / count) / one for place in range(count)])


@functools.cache
def _deviates(key: str, count: int) -> Floats:
    """Return the deviates of a constant's draws."""
    return np.random.Generator(np.random.PCG64(zlib.crc32(key.encode()))).permutation(
        _ordered(count)
    )


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
    """The loads of a plan that may be the slowest for some constants: a row each, by the speeds in
    `speeds`.

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
        whole = set()
        for parts in rows:
            whole.add(tuple(float(parts.get(speed, 0)) for speed in speeds))
        highest = sorted(whole, reverse=True)
        kept: list[tuple[float, ...]] = []
        for row in highest:  # what exceeds a row in all parts comes before it
            if not any(_exceeds(other, row) for other in kept):
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
            made = (tuple(itertools.starmap(ConstantRange, speed)) for speed in speeds)
            return cls(tuple(made), tuple(map(tuple, rows_ps)), replicas)
        except (TypeError, RecursionError) as error:
            raise ValueError(str(error)) from None

    @property
    def text(self) -> str:
        """The roofs as one line of JSON, as files keep them."""
        speeds = [list(map(dataclasses.astuple, speed)) for speed in self.speeds]
        return json.dumps([speeds, self.rows_ps, self.replicas], separators=(",", ":"))

    def at_rate(self, rate: float) -> Roofs:
        """Return roofs under which the rate is this with the constants as they are, and follows
        them as here.
        """
        return dataclasses.replace(self, replicas=rate * float(self.period_ps({})[0]) / 1e12)

    @property
    def constants(self) -> tuple[ConstantRange, ...]:
        """The constants that are not exact, each range once."""
        return tuple(
            dict.fromkeys(entry for speed in self.speeds for entry in speed if not entry.is_exact)
        )

    def period_ps(self, given: Mapping[ConstantRange, Floats], count: int = 1) -> Floats:
        """Return the time between two samples of a replica, in each of `count` draws of the factors
        of constants.
        """
        times = np.zeros((len(self.rows_ps), count))
        for column, speed in zip(np.array(self.rows_ps).T, self.speeds, strict=True):
            slowed = np.ones(count)
            for entry in speed:
                if entry in given:
                    slowed = slowed * (given[entry] if slows(entry.key) else 1 / given[entry])
            times += column[:, None] * slowed
        return times.max(axis=0)

    def rates(
        self, given: Mapping[ConstantRange, Floats] | None = None, count: int = DRAWS
    ) -> Floats:
        """Return the rate in samples per second in each draw: of those `given`, or else of all
        constants' own.
        """
        drawn = (
            {entry: factors(entry, count) for entry in self.constants} if given is None else given
        )
        return self.replicas * 1e12 / self.period_ps(drawn, count)


def _exceeds(row: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether no part of a row is below that of another."""
    return all(a >= b for a, b in zip(row, other, strict=True))


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
    load: EngineLoad,
    clock: Speed,
    cluster: Cluster,
    wait: tuple[int, int],
    longest: tuple[int, int],
) -> Parts:
    """Return the parts of a recurrent layer's engine, each of whose rows waits for links."""
    (takes_ps, latency_ps), rows = wait, load.engine.rows
    return {
        clock: rows * (load.engine.row_ps - longest[0]),
        (cluster.range_of(BANDWIDTH),): rows * (takes_ps - latency_ps),
        (cluster.range_of(LATENCY),): rows * latency_ps,
    }


def _waits(timing: Timing) -> dict[tuple[int, Phase], tuple[tuple[int, int], ...]]:
    """Return for FP and EB of recurrent layers on several devices how long a row waits for links,
    each way alone.
    """
    waits: dict[tuple[int, Phase], tuple[tuple[int, int], ...]] = {}
    for layer in timing.mapping.network.layers:
        if not layer.operation.recurs:
            continue
        holders = []
        for device, held in enumerate(timing.mapping.devices):
            if any(part.layer.index == layer.index for part in held):
                holders.append(device)
        links = holders[:-1]
        if not links:
            continue
        latency_ps = sum(timing.cluster.link_at(link).latency_ps for link in links)
        gathers_ps, errors_ps = step_waits(layer, links, timing.hop_ps)
        waits[layer.index, Phase.FP] = tuple((gather_ps, latency_ps) for gather_ps in gathers_ps)
        if layer.has_eb:
            waits[layer.index, Phase.EB] = ((errors_ps, 2 * latency_ps),)
    return waits


def _at_period(held: SliceEngines, before_ps: int, now_ps: int) -> SliceEngines:
    """Return the engines of a slice at another clock period, without waits of lockstep."""
    changed = {}
    for name in ("fp", "eb", "pg"):
        engine = getattr(held, name)
        if engine is not None:
            row_ps = (engine.row_ps - engine.wait_ps) * now_ps // before_ps
            changed[name] = dataclasses.replace(engine, wait_ps=0, row_ps=row_ps)
    return dataclasses.replace(held, **changed)


def with_constants(timing: Timing, cluster: Cluster) -> Timing:
    """Return the timing of the same mapping and engines with a cluster's constants
    (`cluster.varied`).
    """
    by_device = []
    for device, of_device in enumerate(timing.engines):
        before, now = timing.cluster.board(device).period_ps, cluster.board(device).period_ps
        by_device.append(tuple(_at_period(held, before, now) for held in of_device))
    engines = tuple(by_device)
    other = dataclasses.replace(timing, cluster=cluster, engines=engines)
    other = dataclasses.replace(
        other, engines=lockstep(timing.mapping, cluster, engines, other.hop_ps)
    )
    return dataclasses.replace(
        other, interval_ps=max(1, *(load.sample_ps for load in loads_of(other)))
    )


def varied_timing(timing: Timing, given: Mapping[ConstantRange, float]) -> Timing:
    """Return the timing of the same mapping and engines with factors of some constants."""
    return with_constants(timing, varied(timing.cluster, given))
