"""The range of an answer: between what rates it lies in nine of ten cases, given the ranges of the
constants.

The plan is fixed: cut, placement and multipliers are what users build. Steady rates are drawn from
the roofs of the plan (`timing/roofs.py`). What is not steady of a run on a chain, filling and
draining, is taken to be proportional to the first sample's way through it, which is timed once for
each constant, a little slower: it follows them smoothly. Boards that take actions as a whole, and
pairs, have no such roofs: a mini-batch of theirs is timed in 40 draws.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...comm import Interconnect
from ..cluster import (
    BANDWIDTH,
    CLOCK,
    LATENCY,
    MEMORY,
    Cluster,
    ConstantRange,
    Factors,
    Gpu,
    varied,
)
from ..common import Figures
from ..explore import Candidate, Exploration, Question, time_again
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

Draws: TypeAlias = Mapping[ConstantRange, Floats]
"""The factors of constants in each draw."""

_STEP = 1 / 64
"""Share by which an exchange's constants are made slower to see what part of its time follows them.
"""
_DIGITS = 12
"""Digits of ranges: those beyond may differ between machines."""


@dataclasses.dataclass(frozen=True)
class AnswerRange(Figures):
    """The range of a rate, from its 5th to its 95th percentile.

    `classes` are those of the constants that are uncertain, and `share_of_width` says how much
    narrower the range is where one of them is exact, in the middle of its own range; both by key.
    With `by_timing`, each draw is timed.
    """

    low: float
    high: float
    draws: int
    classes: dict[str, str]
    share_of_width: dict[str, float]
    by_timing: bool = False

    @property
    def first(self) -> tuple[str, float] | None:
        """The constant to measure first, and its share of the width; None where none is
        uncertain.
        """
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
        said = {
            "low": self.low,
            "high": self.high,
            "percentiles": [LOWEST, HIGHEST],
            "draws": self.draws,
        }
        return {"range": said, "classes": self.classes, "share_of_width": self.share_of_width}


def roofs_of(plan: ChainPlan) -> Roofs:
    """Return the roofs of a plan's rate: engines, links, memory ports and exchanges of
    gradients.
    """
    latency: list[Parts] = [{(plan.cluster.range_of(LATENCY),): 0.0}] * (
        plan.stage_count > 1
    )  # of what fills, in no steady load
    return Roofs.of(
        [*load_parts(plan.timing), *_exchange_parts(plan), *latency], plan.data_parallel.replicas
    )


def slope_roofs(plan: ChainPlan | PairPlan) -> Roofs:
    """Return one roof in place of many: the time of a mini-batch whose actions or tasks are timed,
    by its slopes.

    A time that is the longest of several ways is close to linear in the constants near the middle
    of their ranges, and a slope costs one timing, where a draw would, too.
    """
    by_constant = by_slopes(_acting(plan), _timer(plan))
    parts: dict[tuple[ConstantRange, ...], float] = {
        (entry,): slope_ps / middle(entry) if slows(entry.key) else slope_ps * middle(entry)
        for entry, slope_ps in by_constant.slopes_ps.items()
    }
    parts[()] = by_constant.middle_ps - sum(by_constant.slopes_ps.values())
    return Roofs.of([parts])


def rate_range(plan: ChainPlan | PairPlan, rate: float | None = None) -> AnswerRange:
    """Return the range of a plan's steady rate; of `rate`, which is taken to follow it, if that is
    given.

    Of a pair, and of boards that take actions as a whole, it is that of multiples of the rate where
    none is given.
    """
    if isinstance(plan, PairPlan) or not plan.times_rows:
        return _timed(_acting(plan), _timer(plan)).times(1.0 if rate is None else rate)
    roofs = roofs_of(plan)
    return steady_range(roofs).times(float(roofs.rates({}, 1)[0]) if rate is None else rate)


def run_range(simulation: Simulation | PairSimulation) -> AnswerRange:
    """Return the range of a run's rate, filling and draining included."""
    plan, rate = simulation.plan, simulation.images_per_s
    if isinstance(plan, PairPlan) or not plan.times_rows:
        return rate_range(plan, rate)
    assert isinstance(simulation, Simulation)
    roofs = roofs_of(plan)
    steady = steady_range(roofs)
    if not roofs.constants:
        return steady.times(rate)
    epochs = len(simulation.epoch_ends_ps)
    begins = [0, *(min(phase.epochs, epochs) for phase in plan.phases), epochs]
    times = np.zeros(DRAWS)
    for own, (begin, end) in zip(plan.of_phases, itertools.pairwise(begins), strict=True):
        ends_ps = 0, *simulation.epoch_ends_ps
        times += _drawn_ps(own, simulation.samples * (end - begin), ends_ps[end] - ends_ps[begin])
    low, high = np.percentile(simulation.virtual_time_ps / times, [LOWEST, HIGHEST])
    return dataclasses.replace(steady, low=float(low), high=float(high)).times(rate)


def _drawn_ps(plan: ChainPlan, samples: int, takes_ps: int) -> Floats:
    """Return the time in ps that some samples take in each draw, which nominally is `takes_ps`."""
    roofs, of_chain = roofs_of(plan), samples / plan.data_parallel.replicas
    rest_ps = max(0.0, takes_ps - of_chain * float(roofs.period_ps({})[0]))
    drawn = {entry: factors(entry) for entry in roofs.constants}
    filling = by_slopes(drawn, lambda given: fill_ps(varied_timing(plan.timing, given)))
    fills = filling.times_ps(drawn) / max(1, plan.steady.fill_ps)
    times: Floats = of_chain * roofs.period_ps(drawn, DRAWS) + rest_ps * fills
    return times


def by_slopes(constants: Iterable[ConstantRange], time_ps: Callable[[Factors], float]) -> Slopes:
    """Return a time as a function of constants, by its slopes where all are in the middle of their
    ranges.
    """
    middles = {entry: middle(entry) for entry in constants if not entry.is_exact}
    middle_ps, slopes = time_ps(middles), {}
    for entry, at in middles.items():
        slower = {**middles, entry: at * ((1 + _STEP) if slows(entry.key) else 1 / (1 + _STEP))}
        slopes[entry] = (time_ps(slower) - middle_ps) / _STEP
    return Slopes(middle_ps, slopes)


@dataclasses.dataclass(frozen=True)
class Slopes:
    """A time in ps where all constants are in the middle of their ranges, and how much longer for
    each share slower.
    """

    middle_ps: float
    slopes_ps: Mapping[ConstantRange, float]

    def times_ps(self, drawn: Draws) -> Floats:
        """Return the time in each draw of the factors of all constants."""
        times = np.full(DRAWS, float(self.middle_ps))
        for entry, slope_ps in self.slopes_ps.items():
            faster = drawn[entry] / middle(entry)
            times += slope_ps * ((faster if slows(entry.key) else 1 / faster) - 1)
        return times


_OF_GPUS = (
    *(
        "board.peak_tflops",
        "board.gemm_efficiency",
        "board.memory_gbytes_per_s",
        "board.recurrent_us",
    ),
    *("board.persistent_gbytes_per_s", "board.persistent_gru_gbytes_per_s"),
)


def _acting(plan: ChainPlan | PairPlan) -> tuple[ConstantRange, ...]:
    """Return the constants that times of tasks and of whole actions follow; measured layers follow
    none of boards.
    """
    cluster = plan.cluster

    def keys(device: int) -> tuple[str, ...]:
        if isinstance(plan, PairPlan):
            return _OF_GPUS if isinstance(cluster.board(device), Gpu) else CLOCK
        measured = isinstance(plan.stages, PlannedStages) and plan.stages.profile is not None
        return () if measured else (*CLOCK, MEMORY)

    entries = [
        cluster.range_of(key, device) for device in range(plan.devices) for key in keys(device)
    ]
    entries += [cluster.range_of(key) for key in (BANDWIDTH, LATENCY) if plan.devices > 1]
    return tuple(dict.fromkeys(entries))


def _timer(plan: ChainPlan | PairPlan) -> Callable[[Factors], float]:
    """Return what times a mini-batch of tasks or of whole actions, with factors of constants."""
    if isinstance(plan, PairPlan):

        def of_pair(given: Factors) -> float:
            cluster = varied(plan.cluster, given)
            return make_pair_plan(
                plan.config, network=plan.network, cluster=cluster
            ).times.mini_batch_ps

        return of_pair
    alone, stages = plan.with_faults(Faults()).with_epochs(1), plan.stages
    assert isinstance(stages, PlannedStages)

    def of_actions(given: Factors) -> float:
        cluster = varied(plan.cluster, given)
        boards = tuple(
            # a board of a stage may have another memory than its cluster's, where memory is ignored
            dataclasses.replace(board, on_chip_memory_bytes=own.on_chip_memory_bytes)  # type: ignore[type-var]  # all kinds are dataclasses
            for board, own in zip(
                map(cluster.board, range(len(stages.boards))), stages.boards, strict=True
            )
        )
        timing = Timing.of_stages(
            alone.mapping, cluster, dataclasses.replace(stages, boards=boards)
        )
        return simulate(
            dataclasses.replace(alone, cluster=cluster, timing=timing), alone.config.batch
        ).virtual_time_ps

    return of_actions


def _classes(constants: Iterable[ConstantRange]) -> dict[str, str]:
    return {entry.key: entry.kind for entry in constants if not entry.is_exact}


def steady_range(roofs: Roofs) -> AnswerRange:
    """Return the range of a steady rate in multiples of it."""
    nominal = float(roofs.rates({}, 1)[0])
    return drawn_range(roofs.constants, lambda drawn: roofs.rates(drawn) / nominal)


def drawn_range(
    constants: Iterable[ConstantRange], rates_of: Callable[[Draws], Floats]
) -> AnswerRange:
    """Return the range of what `rates_of` returns for the draws of the factors of some
    constants.
    """
    drawn = {entry: factors(entry) for entry in constants if not entry.is_exact}

    def ends(given: Draws) -> tuple[float, float]:
        low, high = np.percentile(rates_of(given), [LOWEST, HIGHEST])
        return float(low), float(high)

    low, high = ends(drawn)
    shares = {}
    for key in dict.fromkeys(entry.key for entry in drawn):
        fixed = {
            entry: np.full(DRAWS, middle(entry)) if entry.key == key else draws
            for entry, draws in drawn.items()
        }
        least, most = ends(fixed)
        shares[key] = (
            _rounded(min(1.0, max(0.0, 1 - (most - least) / (high - low)))) if high > low else 0.0
        )
    return AnswerRange(low, high, DRAWS, _classes(drawn), shares)


def _timed(constants: Iterable[ConstantRange], time_ps: Callable[[Factors], float]) -> AnswerRange:
    """Return the range of a rate in multiples of it, each draw of which is timed with factors of
    constants.
    """
    drawn = {entry: factors(entry, TIMING_DRAWS) for entry in constants if not entry.is_exact}
    if not drawn:
        return AnswerRange(1.0, 1.0, TIMING_DRAWS, {}, {}, by_timing=True)
    nominal, middles = time_ps({}), {entry: middle(entry) for entry in drawn}
    rates = []
    for place in range(TIMING_DRAWS):
        draw = {entry: float(values[place]) for entry, values in drawn.items()}
        rates.append(nominal / time_ps(draw))
    low, high = np.percentile(rates, [LOWEST, HIGHEST])
    widths = {}
    for key in dict.fromkeys(entry.key for entry in drawn):
        lows = {entry: entry.low for entry in drawn if entry.key == key}
        highs = {entry: entry.high for entry in drawn if entry.key == key}
        widths[key] = abs(
            nominal / time_ps({**middles, **lows}) - nominal / time_ps({**middles, **highs})
        )
    whole = sum(widths.values()) or 1.0
    shares = {key: _rounded(width / whole) for key, width in widths.items()}
    return AnswerRange(
        float(low), float(high), TIMING_DRAWS, _classes(drawn), shares, by_timing=True
    )


TIE, FLOOR, SURE = 1e-3, 0.01, 0.9


@dataclasses.dataclass(frozen=True)
class Standing:
    """How one of several plans stands, by their places: in what share of draws it wins, and which
    it equals.

    `ties` have its rate; `rivals`, which are slower, cannot be distinguished from it: they win in
    more than a tenth of the draws, or it gains less than a hundredth on them.
    """

    best_share: float
    ties: tuple[int, ...]
    rivals: tuple[int, ...]


def standing(rates: Floats, nominal: Sequence[float], place: int = 0) -> Standing:
    """Return how the plan at a place stands.

    Args:
        rates: (plan, draw).
        nominal: the rates with the constants as they are, of which that at `place` is the highest.
        place: the plan that is chosen.
    """
    rate = nominal[place]
    slower = [number for number, other in enumerate(nominal) if other <= (1 - TIE) * rate]
    ties = tuple(
        number for number in range(len(nominal)) if number != place and number not in slower
    )
    if not slower:
        return Standing(1.0, ties, ())
    # Draw by draw: with its constants the other must be faster by more than a thousandth to win it.
    kept_up = rates[slower] * (1 - TIE) <= rates[place]
    rivals = tuple(
        number
        for number, won in zip(slower, kept_up.mean(axis=1), strict=True)
        if won < SURE or rate < (1 + FLOOR) * nominal[number]
    )
    return Standing(float(kept_up.all(axis=0).mean()), ties, rivals)


@dataclasses.dataclass(frozen=True)
class RankedRanges:
    """The ranges of several ways by name, the best first.

    `best_share` is the share of draws in which that wins, and `rivals` are those that it cannot be
    distinguished from.
    """

    ranges: dict[str, AnswerRange]
    best_share: float
    rivals: tuple[str, ...]

    @property
    def best(self) -> AnswerRange:
        """The range of the best way."""
        return next(iter(self.ranges.values()))

    def to_dict(self) -> dict[str, Any]:
        """Return the range of the best way and the confidence, as JSON has them."""
        confidence = {"best": self.best_share, "not_distinguishable": list(self.rivals)}
        return {**self.best.to_dict(), "confidence": confidence}


def ranked_ranges(
    constants: Iterable[ConstantRange],
    rates_of: Mapping[str, Callable[[Draws], Floats]],
    nominal: Sequence[float],
) -> RankedRanges:
    """Return how sure a choice is among ways, the best first, which are compared by the same draws
    of constants.

    Args:
        constants: those that act on any of them.
        rates_of: by name, what returns the rate of a way in each draw.
        nominal: for each way what its rate is in proportion to, with the constants as they are.
    """
    drawn = {entry: factors(entry) for entry in constants if not entry.is_exact}
    stands, names = (
        standing(np.stack([rates(drawn) for rates in rates_of.values()]), nominal),
        [*rates_of],
    )
    ranges = {name: drawn_range(drawn, rates).times(1.0) for name, rates in rates_of.items()}
    return RankedRanges(
        ranges, stands.best_share, tuple(names[place] for place in (*stands.ties, *stands.rivals))
    )


def explored_ranges(
    question: Question,
    exploration: Exploration,
    constants: Iterable[ConstantRange],
    varied_question: Callable[[Factors], Question],
) -> RankedRanges:
    """Return how sure an exploration is: each schedule's best candidate on its own cut, timed by
    slopes of constants.

    `varied_question` is the question with factors of constants.
    """
    best: dict[str, Candidate] = {}
    for candidate in exploration.candidates:
        if candidate.time_ps is not None:
            best.setdefault(candidate.name, candidate)
    uncertain = [entry for entry in constants if not entry.is_exact]

    def rates_of(candidate: Candidate) -> Callable[[Draws], Floats]:
        slopes = by_slopes(uncertain, lambda given: time_again(varied_question(given), candidate))
        return lambda given: 1e12 * question.batch / slopes.times_ps(given)

    nominal = [1 / candidate.time_ps for candidate in best.values() if candidate.time_ps]
    return ranked_ranges(
        uncertain, {name: rates_of(candidate) for name, candidate in best.items()}, nominal
    )


def _exchange_parts(plan: ChainPlan) -> Iterator[Parts]:
    """Yield for each device the parts of its exchange's time for a sample, which is linear near the
    constants.
    """
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
    # What messages cost beside their bytes is of the same measurement, and follows its range.
    dearer = over.cost.times(over.bandwidth_mbps / mbps)
    slower = dataclasses.replace(over, bandwidth_mbps=mbps, cost=dearer)
    if mbps < over.bandwidth_mbps:
        key = "network.bandwidth_gbps" if table else BANDWIDTH
        yield (cluster.range_of(key),), slower, over.bandwidth_mbps / mbps - 1
    for field, key in (
        ("latency_ps", "network.latency_us" if table else LATENCY),
        ("packet_stack_ps", "network.packet_stack_ns"),
    ):
        yield from _longer(over, field, (cluster.range_of(key),))
    own_sums = table and over.sum_ps_per_kbyte
    sums = (
        (cluster.range_of("network.sum_gbytes_per_s"),)
        if own_sums
        else tuple(map(cluster.range_of, CLOCK))
    )
    yield from _longer(over, "sum_ps_per_kbyte", sums)


def _longer(
    over: Interconnect, field: str, speed: Speed
) -> Iterator[tuple[Speed, Interconnect, float]]:
    value = getattr(over, field)
    if value:
        longer = value + max(1, round(value * _STEP))
        yield speed, dataclasses.replace(over, **{field: longer}), longer / value - 1


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
