"""The range of an answer: between what rates it lies in nine of ten cases, given the ranges of the constants.

The plan is fixed: cut, placement and multipliers are what users build. Steady rates are drawn from the roofs of the
plan (`timing/roofs.py`). What is not steady of a run on a chain, filling and draining, is taken to be proportional to
the first sample's way through it, which is timed once for each constant, a little slower: it follows them smoothly.
Boards that take actions as a whole, and pairs, have no such roofs: a mini-batch of theirs is timed in 40 draws.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from ...comm import Interconnect
from ..cluster import BANDWIDTH, CLOCK, LATENCY, MEMORY, Cluster, ConstantRange, varied
from ..faults import Faults
from ..plan import ChainPlan, PairPlan, PlannedStages, exchange_times, fill_ps, make_pair_plan
from ..timing import (
    DRAWS,
    HIGHEST,
    LOWEST,
    TIMING_DRAWS,
    Floats,
    Parts,
    Roofs,
    Speed,
    Timing,
    factors,
    load_parts,
    middle,
    slows,
    varied_timing,
)
from .simulate import PairSimulation, Simulation, simulate

Given: TypeAlias = Mapping[ConstantRange, float]
_STEP = 1 / 64
"""Share by which an exchange's constants are made slower to see what part of its time follows them."""
_DIGITS = 12
"""Digits of ranges: those beyond may differ between machines."""


@dataclasses.dataclass(frozen=True)
class AnswerRange:
    """The range of a rate, from its 5th to its 95th percentile.

    `classes` are those of the constants that are uncertain, and `share_of_width` says how much narrower the range is
    where one of them is exact, in the middle of its own range; both by key. With `by_timing`, each draw is timed.
    """

    low: float
    high: float
    draws: int
    classes: dict[str, str]
    share_of_width: dict[str, float]
    by_timing: bool = False

    @property
    def first(self) -> tuple[str, float] | None:
        """The constant to measure first, and its share of the width; None where none is uncertain."""
        return max(self.share_of_width.items(), key=lambda share: share[1], default=None)

    def times(self, rate: float) -> AnswerRange:
        """Return the range of a rate, where this is that of its multiples."""
        low, high = (rate if end == 1 else _rounded(end * rate) for end in (self.low, self.high))
        return dataclasses.replace(self, low=low, high=high)

    @property
    def reversed(self) -> AnswerRange:
        """The range with its ends reversed, as times have them that are shown in place of rates."""
        return dataclasses.replace(self, low=self.high, high=self.low)

    def to_dict(self) -> dict[str, Any]:
        """Return `range`, `classes` and `share_of_width`, as JSON has them."""
        said = {"low": self.low, "high": self.high, "percentiles": [LOWEST, HIGHEST], "draws": self.draws}
        return {"range": said, "classes": self.classes, "share_of_width": self.share_of_width}


def roofs_of(plan: ChainPlan) -> Roofs:
    """Return the roofs of a plan's rate: engines, links, memory ports and exchanges of gradients."""
    latency: list[Parts] = [{(plan.cluster.range_of(LATENCY),): 0.0}] * (
        plan.stage_count > 1
    )  # of what fills, in no steady load
    return Roofs.of([*load_parts(plan.timing), *_exchange_parts(plan), *latency], plan.data_parallel.replicas)


def slope_roofs(plan: ChainPlan | PairPlan) -> Roofs:
    """Return one roof in place of many: the time of a mini-batch whose actions or tasks are timed, by its slopes.

    A time that is the longest of several ways is close to linear in the constants near the middle of their ranges, and
    a slope costs one timing, where a draw would, too.
    """
    if isinstance(plan, PairPlan):
        constants, on_cluster = _acting_in_pairs(plan), _pair_times(plan)
    else:
        constants, on_cluster = _acting(plan), _action_times(plan)
    cluster = plan.cluster

    def time_ps(given: Given) -> float:
        return on_cluster(varied(cluster, lambda entry: given.get(entry, 1.0)))

    by_constant = by_slopes(constants, time_ps)
    parts: dict[tuple[ConstantRange, ...], float] = {
        (entry,): slope_ps / middle(entry) if slows(entry.key) else slope_ps * middle(entry)
        for entry, slope_ps in by_constant.slopes_ps.items()
    }
    parts[()] = by_constant.middle_ps - sum(by_constant.slopes_ps.values())
    return Roofs.of([parts])


def rate_range(plan: ChainPlan, rate: float | None = None) -> AnswerRange:
    """Return the range of a plan's steady rate; of `rate`, which is taken to follow it, if that is given."""
    if not plan.times_rows:
        return _timed(plan.cluster, _acting(plan), _action_times(plan)).times(1.0 if rate is None else rate)
    roofs = roofs_of(plan)
    return steady_range(roofs).times(float(roofs.rates({}, 1)[0]) if rate is None else rate)


def run_range(simulation: Simulation | PairSimulation) -> AnswerRange:
    """Return the range of a run's rate, filling and draining included."""
    plan, rate = simulation.plan, simulation.images_per_s
    if isinstance(plan, PairPlan):
        return pair_range(plan).times(rate)
    if not plan.times_rows:
        return rate_range(plan, rate)
    assert isinstance(simulation, Simulation)
    roofs = roofs_of(plan)
    steady = steady_range(roofs)
    if not roofs.constants:
        return steady.times(rate)
    samples = simulation.samples * len(simulation.epoch_ends_ps) / plan.data_parallel.replicas
    rest_ps = max(0.0, simulation.virtual_time_ps - samples * float(roofs.period_ps({})[0]))
    drawn = {entry: factors(entry) for entry in roofs.constants}
    filling = by_slopes(drawn, lambda given: fill_ps(varied_timing(plan.timing, given)))
    fills = filling.times_ps(drawn) / max(1, plan.steady.fill_ps)
    times = samples * roofs.period_ps(drawn, DRAWS) + rest_ps * fills
    low, high = np.percentile(simulation.virtual_time_ps / times, [LOWEST, HIGHEST])
    return dataclasses.replace(steady, low=float(low), high=float(high)).times(rate)


def by_slopes(constants: Iterable[ConstantRange], time_ps: Callable[[Given], float]) -> Slopes:
    """Return a time as a function of constants, by its slopes where all are in the middle of their ranges."""
    middles = {entry: middle(entry) for entry in constants if not entry.is_exact}
    middle_ps, slopes = time_ps(middles), {}
    for entry, at in middles.items():
        slower = {**middles, entry: at * ((1 + _STEP) if slows(entry.key) else 1 / (1 + _STEP))}
        slopes[entry] = (time_ps(slower) - middle_ps) / _STEP
    return Slopes(middle_ps, slopes)


@dataclasses.dataclass(frozen=True)
class Slopes:
    """A time in ps where all constants are in the middle of their ranges, and how much longer for each share slower."""

    middle_ps: float
    slopes_ps: Mapping[ConstantRange, float]

    def times_ps(self, drawn: Mapping[ConstantRange, Floats]) -> Floats:
        """Return the time in each draw of the factors of all constants."""
        times = np.full(DRAWS, float(self.middle_ps))
        for entry, slope_ps in self.slopes_ps.items():
            faster = drawn[entry] / middle(entry)
            times += slope_ps * ((faster if slows(entry.key) else 1 / faster) - 1)
        return times


def pair_range(plan: PairPlan) -> AnswerRange:
    """Return the range of the rate of a GPU, alone or with an FPGA, in multiples of its rate."""
    return _timed(plan.cluster, _acting_in_pairs(plan), _pair_times(plan))


def _pair_times(plan: PairPlan) -> Callable[[Cluster], float]:
    """Return what times a mini-batch of a pair, on a cluster with other constants."""

    def time_ps(cluster: Cluster) -> float:
        return make_pair_plan(plan.config, network=plan.network, cluster=cluster).times.mini_batch_ps

    return time_ps


def _acting(plan: ChainPlan) -> tuple[ConstantRange, ...]:
    """Return the constants that times of boards follow that take actions as a whole; measured layers follow none."""
    cluster, measured = plan.cluster, isinstance(plan.stages, PlannedStages) and plan.stages.profile is not None
    of_boards = () if measured else (*CLOCK, MEMORY)
    entries = [cluster.range_of(key, device) for device in range(plan.devices) for key in of_boards]
    entries += [cluster.range_of(key) for key in (BANDWIDTH, LATENCY) if plan.devices > 1]
    return tuple(dict.fromkeys(entries))


_OF_PAIRS = (
    *("board.clock_mhz", "board.efficiency", "board.peak_tflops", "board.gemm_efficiency", "board.memory_gbytes_per_s"),
    *("board.recurrent_us", "board.persistent_gbytes_per_s", "board.persistent_gru_gbytes_per_s"),
)


def _acting_in_pairs(plan: PairPlan) -> tuple[ConstantRange, ...]:
    cluster, boards = plan.cluster, plan.cluster.boards[: plan.devices]
    entries = [
        cluster.range_of(key, device)
        for device, board in enumerate(boards)
        for key in _OF_PAIRS
        if (key in CLOCK) != hasattr(board, "peak_tflops")
    ]
    entries += [cluster.range_of(key) for key in (BANDWIDTH, LATENCY)] if plan.devices > 1 else []
    return tuple(dict.fromkeys(entries))


def _classes(constants: Iterable[ConstantRange]) -> dict[str, str]:
    return {entry.key: entry.kind for entry in constants if not entry.is_exact}


def steady_range(roofs: Roofs) -> AnswerRange:
    """Return the range of a steady rate in multiples of it."""
    nominal = float(roofs.rates({}, 1)[0])
    return drawn_range(roofs.constants, lambda drawn: roofs.rates(drawn) / nominal)


def drawn_range(
    constants: Iterable[ConstantRange], rates_of: Callable[[Mapping[ConstantRange, Floats]], Floats]
) -> AnswerRange:
    """Return the range of what `rates_of` returns for the draws of the factors of some constants."""
    drawn = {entry: factors(entry) for entry in constants if not entry.is_exact}

    def ends(given: Mapping[ConstantRange, Floats]) -> tuple[float, float]:
        low, high = np.percentile(rates_of(given), [LOWEST, HIGHEST])
        return float(low), float(high)

    low, high = ends(drawn)
    shares = {}
    for key in dict.fromkeys(entry.key for entry in drawn):
        fixed = {entry: np.full(DRAWS, middle(entry)) if entry.key == key else of for entry, of in drawn.items()}
        least, most = ends(fixed)
        shares[key] = _rounded(min(1.0, max(0.0, 1 - (most - least) / (high - low)))) if high > low else 0.0
    return AnswerRange(low, high, DRAWS, _classes(drawn), shares)


def _timed(cluster: Cluster, constants: Iterable[ConstantRange], time_ps: Callable[[Cluster], float]) -> AnswerRange:
    """Return the range of a rate in multiples of it, each draw of which is timed on a cluster with other constants."""
    drawn = {entry: factors(entry, TIMING_DRAWS) for entry in constants if not entry.is_exact}
    if not drawn:
        return AnswerRange(1.0, 1.0, TIMING_DRAWS, {}, {}, by_timing=True)

    def at(given: Given) -> float:
        return time_ps(varied(cluster, lambda entry: given.get(entry, 1.0)))

    nominal = at({})
    low, high = np.percentile([nominal / at(each) for each in _draws(drawn)], [LOWEST, HIGHEST])
    middles = {entry: middle(entry) for entry in drawn}
    widths = {}
    for key in dict.fromkeys(entry.key for entry in drawn):
        lows, highs = ({e: getattr(e, end) for e in drawn if e.key == key} for end in ("low", "high"))
        widths[key] = abs(nominal / at({**middles, **lows}) - nominal / at({**middles, **highs}))
    whole = sum(widths.values()) or 1.0
    shares = {key: _rounded(width / whole) for key, width in widths.items()}
    return AnswerRange(float(low), float(high), TIMING_DRAWS, _classes(drawn), shares, by_timing=True)


def _action_times(plan: ChainPlan) -> Callable[[Cluster], float]:
    """Return what times a mini-batch of boards that take actions as a whole, on a cluster with other constants."""
    alone = plan.with_faults(Faults()).with_epochs(1)

    def time_ps(cluster: Cluster) -> float:
        assert isinstance(alone.stages, PlannedStages)
        timed = _stages_on(alone.stages, cluster)
        timing = Timing.of_stages(alone.mapping, cluster, timed)
        return simulate(dataclasses.replace(alone, cluster=cluster, timing=timing), alone.config.batch).virtual_time_ps

    return time_ps


def _stages_on(stages: PlannedStages, cluster: Cluster) -> PlannedStages:
    """Return stages on the boards of a cluster with other constants."""
    boards = tuple(
        # a board of a stage may have another memory than its cluster's, where memory is ignored
        dataclasses.replace(board, on_chip_memory_bytes=own.on_chip_memory_bytes)  # type: ignore[type-var]  # all kinds are dataclasses
        for board, own in zip(map(cluster.board, range(len(stages.boards))), stages.boards, strict=True)
    )
    return dataclasses.replace(stages, boards=boards)


def _draws(drawn: Mapping[ConstantRange, Floats]) -> Iterator[dict[ConstantRange, float]]:
    """Yield the factors of each draw."""
    for place in range(TIMING_DRAWS):
        yield {entry: float(of[place]) for entry, of in drawn.items()}


def _exchange_parts(plan: ChainPlan) -> Iterator[Parts]:
    """Yield for each device the parts of its exchange's time for a sample, which is linear near the constants."""
    exact_ps = exchange_times(plan.timing, plan.data_parallel)
    if not exact_ps:
        return
    cluster, over = plan.cluster, plan.interconnect
    parts: list[dict[Speed, float]] = [{} for _ in exact_ps]
    rest = [float(time_ps) for time_ps in exact_ps]
    for speed, slower, by in _slower(cluster, over):
        timing = dataclasses.replace(
            plan.timing, cluster=dataclasses.replace(plan.timing.cluster, own_interconnect=slower)
        )
        for device, time_ps in enumerate(exchange_times(timing, plan.data_parallel)):
            part = (time_ps - exact_ps[device]) / by
            parts[device][speed] = parts[device].get(speed, 0.0) + part / plan.batch
            rest[device] -= part
    for device, of_device in enumerate(parts):
        yield {**of_device, (): max(0.0, rest[device]) / plan.batch}


def _slower(cluster: Cluster, over: Interconnect) -> Iterator[tuple[Speed, Interconnect, float]]:
    """Yield the constants of an interconnect, it with one of them slower, and by what share."""
    table = cluster.own_interconnect is not None
    mbps = round(over.bandwidth_mbps / (1 + _STEP))
    slower = dataclasses.replace(over, bandwidth_mbps=mbps)
    if mbps < over.bandwidth_mbps:
        key = "network.bandwidth_gbps" if table else BANDWIDTH
        yield (cluster.range_of(key),), slower, over.bandwidth_mbps / mbps - 1
    for field, key in (
        ("latency_ps", "network.latency_us" if table else LATENCY),
        ("packet_stack_ps", "network.packet_stack_ns"),
    ):
        yield from _longer(over, field, (cluster.range_of(key),))
    own_sums = table and over.sum_ps_per_kbyte
    sums = (cluster.range_of("network.sum_gbytes_per_s"),) if own_sums else tuple(map(cluster.range_of, CLOCK))
    yield from _longer(over, "sum_ps_per_kbyte", sums)


def _longer(over: Interconnect, field: str, speed: Speed) -> Iterator[tuple[Speed, Interconnect, float]]:
    value = getattr(over, field)
    if value:
        longer = value + max(1, round(value * _STEP))
        yield speed, dataclasses.replace(over, **{field: longer}), longer / value - 1


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
