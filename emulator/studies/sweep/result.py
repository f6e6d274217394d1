"""The outcome of a sweep: rows, in the order of the points; along one key, the knee, and where the
rate falls.

Of a rate to reach, the point with the fewest boards, replicas included, that reaches it, and its
links.

How sure a choice among points is: they are compared by the same draws of the constants. Ranges that
overlap prove nothing: a constant that is worse than assumed slows all points that it limits. So a
choice counts by the share of draws in which no other point is faster. Rates that differ by less
than a thousandth are equal, as placements are found to that. A gain below one in a hundred is less
than the model's own error.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...common import Figures, plural
from ...config import settings_config
from ...plan import make_plan
from ...run import TIE, AnswerRange, SteadyState, standing, steady_range, steady_state
from ...timing import Floats, Roofs, factors
from .pareto import Front
from .space import Point, Space

LITTLE = 0.5
"""Beyond a knee, each unit brings less than this share of what each up to it brings on average."""
_MOST = 256
"""Points that are compared: those with the highest rates."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """In what share of draws the best point is the best, and the knee the knee.

    `rivals` are points that cannot be distinguished from the best: they win in more than a tenth of
    the draws, or it gains less than a hundredth on them. Points with its rate are none; the best
    has the fewest boards of them.
    """

    best_share: float
    rivals: tuple[dict[str, Any], ...]
    knee_share: float | None = None

    @property
    def is_sure(self) -> bool:
        """Whether the best point is distinguished from all others."""
        return not self.rivals


def drawn_rates(roofs: Sequence[Roofs]) -> Floats:
    """Return the rates of several plans, (plan, draw), in the same draws of all constants."""
    drawn = {entry: factors(entry) for of_plan in roofs for entry in of_plan.constants}
    rates = []
    for plan_roofs in roofs:
        constants = {entry: drawn[entry] for entry in plan_roofs.constants}
        rates.append(plan_roofs.rates(constants))
    return np.stack(rates)


def choose(
    rows: Sequence[dict[str, Any]],
    roofs: Sequence[str | None],
    best: dict[str, Any],
    along: str | None = None,
    series: Sequence[dict[str, Any]] = (),
    knee: dict[str, Any] | None = None,
) -> Choice | None:
    """Return how sure the best of some rows is; None if their rates are not drawn.

    Args:
        rows: the points.
        roofs: what the draws of their rates follow (`Roofs.text`), None of those that have none.
        best: the row that is chosen.
        along: the key of a line of rows.
        series: that line.
        knee: the row of this line at its knee, if it has one.
    """
    known = [
        (row, Roofs.of_text(text))
        for row, text in zip(rows, roofs, strict=True)
        if text is not None
    ]
    known.sort(key=lambda point: -point[0]["images_per_s"])
    kept = known[:_MOST]
    place = next((number for number, (row, _) in enumerate(kept) if row is best), None)
    if place is None:
        return None
    rates = drawn_rates([of_row for _, of_row in kept])
    stands = standing(rates, [row["images_per_s"] for row, _ in kept], place)
    rivals = tuple(kept[number][0] for number in stands.rivals)
    return Choice(stands.best_share, rivals, _knee_share(known, along, series, knee))


def _knee_share(
    known: Sequence[tuple[dict[str, Any], Roofs]],
    along: str | None,
    series: Sequence[dict[str, Any]],
    knee: dict[str, Any] | None,
) -> float | None:
    """Return the share of draws in which a line has its knee at a row; None if it has none, or too
    many rows.
    """
    by_row = {id(row): of_row for row, of_row in known}
    if (
        along is None
        or knee is None
        or len(series) > _MOST
        or any(id(row) not in by_row for row in series)
    ):
        return None
    amounts = np.array([row[along] for row in series], np.float64)
    rates = drawn_rates([by_row[id(row)] for row in series])
    place = next(number for number, row in enumerate(series) if row is knee)
    is_knee = _brings_little(amounts, rates, place)
    for before in range(place):
        is_knee &= ~_brings_little(amounts, rates, before)
    return float(is_knee.mean())


def _brings_little(amounts: Floats, rates: Floats, place: int) -> Any:
    """Return in which draws more than the amount at a place brings little (`result.knee`)."""
    amount, rate = amounts[place], rates[place]
    more = (amounts[place + 1 :] - amount)[:, None]
    return ((rates[place + 1 :] - rate) * amount < LITTLE * rate * more).all(axis=0)


BANDWIDTH = "link.bandwidth_gbps"
DEVICES, REPLICAS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64), (1, 2, 4, 8)
SCHEDULES = "fpdeep", "sync"
"""What is swept for a target if no numbers of boards are given: schedules with old weights and
without, of which replicas of tied weights need the latter.
"""


@dataclasses.dataclass(frozen=True)
class Target:
    """A rate to reach, in samples per second, and the row of the point that was chosen; None if
    none reaches it.

    Of points with as few boards, that with the narrowest links is chosen, then that with the
    highest rate. The busiest of its links carries `demand_gbps` of `link_gbps`; both are None
    without links, and where actions are timed as a whole.
    """

    samples_per_s: float
    row: Mapping[str, Any] | None
    demand_gbps: float | None = None
    link_gbps: float | None = None
    points: int = 0
    """Points of the sweep; those without a row cannot reach the rate, or have more boards."""

    def to_dict(self) -> dict[str, Any]:
        """Return it with the names of JSON."""
        return {**dataclasses.asdict(self), "reached": self.row is not None}


def reaches(row: Mapping[str, Any], samples_per_s: float) -> bool:
    """Return whether a row's point has this rate, with a place for all its data."""
    return row["error"] is None and bool(row["fits"]) and row["images_per_s"] >= samples_per_s


def find_target(
    samples_per_s: float, points: Sequence[Point], rows: Sequence[Mapping[str, Any]]
) -> Target:
    """Return which of some points, each with its row, reaches a rate with the fewest boards."""
    reaching = [place for place, row in enumerate(rows) if reaches(row, samples_per_s)]
    if not reaching:
        return Target(samples_per_s, None)

    def cost(place: int) -> tuple[int, float, float]:
        row = rows[place]
        return row["boards"], row.get(BANDWIDTH, 0), -row["images_per_s"]

    best = min(reaching, key=cost)
    return Target(samples_per_s, rows[best], *_link_of(points[best]))


def _link_of(point: Point) -> tuple[float | None, float | None]:
    """Return what the busiest of a chain's links carries in the steady state, and its bandwidth, in
    Gb/s.
    """
    config = settings_config(point.settings)
    if config.schedule.offload is not None:
        return None, None
    plan = make_plan(config, 1, network=point.network, cluster=point.cluster, timing_only=True)
    if not plan.times_rows:
        return None, None
    state: SteadyState = steady_state(plan)
    if not state.links:
        return None, None
    busiest = max(state.links, key=lambda link: link.share(state.period_ps))
    return busiest.demand(state.period_ps), busiest.capacity


FEWEST = 3
_FALL = 1e-3
"""Share of a rate by which it falls at the least: placements are found to a thousandth."""


@dataclasses.dataclass(frozen=True)
class SweepResult(Figures):
    """The rows of a sweep, which `pandas.DataFrame` takes as they are: keys and figures
    (docs/sweeps.md) by name.

    `noun` is what a sample is called: "image" or "sample". `roofs` are what the draws of each row
    follow, None without ranges. `multipliers` say what the boards multiply with. `target` is the
    point that reaches a given rate, `front` the front of given objectives.
    """

    space: Space
    rows: list[dict[str, Any]]
    noun: str = "image"
    roofs: list[str | None] | None = None
    multipliers: tuple[str, ...] = ()
    target: Target | None = None
    front: Front | None = None

    @functools.cached_property
    def choice(self) -> Choice | None:
        """How sure the best point is; None without ranges, and where points have none."""
        best, series = self.best, self.best_series
        if self.roofs is None or best is None:
            return None
        line = () if series is None else (series.along, series.rows, series.knee)
        return choose(self.rows, self.roofs, best, *line)

    @functools.cached_property
    def best_range(self) -> AnswerRange | None:
        """The range of the best point's rate; None without ranges, and where it has none."""
        if self.roofs is None or self.best is None:
            return None
        text = next(
            text for row, text in zip(self.rows, self.roofs, strict=True) if row is self.best
        )
        return (
            None
            if text is None
            else steady_range(Roofs.of_text(text)).times(self.best["images_per_s"])
        )

    @functools.cached_property
    def series(self) -> list[Series]:
        """The rows by lines of the picture: along one key, all others the same."""
        return series_of(self.rows, self.space)

    @functools.cached_property
    def best(self) -> dict[str, Any] | None:
        """The row with the highest rate, of equal ones that with the fewest boards; None if all
        points fail.

        With ranges, rates are equal that differ by less than a thousandth.
        """
        rows = [row for row in self.rows if row["error"] is None]
        if self.roofs is not None and rows:
            most = max(row["images_per_s"] for row in rows)
            equal = [row for row in rows if row["images_per_s"] > (1 - TIE) * most]
            return min(equal, key=lambda row: (row["boards"], -row["images_per_s"]))
        return max(rows, key=lambda row: (row["images_per_s"], -row["boards"]), default=None)

    @functools.cached_property
    def best_series(self) -> Series | None:
        """The line that holds the best point."""
        return next((series for series in self.series if self.best in series.rows), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the values of each key, the rows, and what they say of the best, the knee, a target
        and a front, as `emuchain sweep --json` has them.
        """
        series, choice, sure = self.best_series, self.choice, self.best_range
        said: dict[str, Any] = {"keys": {key: self._values(key) for key in self.space.values}}
        for name, part in (("target", self.target), ("front", self.front)):
            said |= {} if part is None else {name: part.to_dict()}
        said |= {"best": self.best, "knee": series.knee if series else None}
        said |= {} if sure is None else sure.to_dict()
        if choice is not None:
            shares = {"best": choice.best_share, "knee": choice.knee_share}
            said["confidence"] = {**shares, "not_distinguishable": list(choice.rivals)}
        return {**said, "rows": self.rows}

    def _values(self, key: str) -> list[Any]:
        return [*{row[key]: None for row in self.rows}]

    def __repr__(self) -> str:
        best = self.best
        if best is None:
            summary = "all fail"
        else:
            summary = (
                f"best {best['images_per_s']:.1f} {self.noun}s/s on"
                f" {plural(best['boards'], 'board')}"
            )
        return f"<Sweep of {plural(len(self.rows), 'point')}, {summary}>"


@dataclasses.dataclass(frozen=True)
class Series:
    """Rows along a key, in ascending order, without those that fail; `others` are the other keys
    that vary.
    """

    along: str
    others: dict[str, Any]
    rows: list[dict[str, Any]]

    @property
    def knee(self) -> dict[str, Any] | None:
        """The row after which more of the key brings little; None if there is no such row before
        the last.

        Where the least of the key is the best already, as with latencies, there is none either, but
        for boards.
        """
        place = self._knee
        return None if place is None or self.is_best_at_first else self.rows[place]

    @property
    def is_best_at_first(self) -> bool:
        """Whether more of a key other than the number of boards brings little from its least value
        on.
        """
        return self.along != "devices" and self._knee == 0

    @property
    def _knee(self) -> int | None:
        along = [row[self.along] for row in self.rows]
        return knee(along, [row["images_per_s"] for row in self.rows])

    @property
    def on_chip_from(self) -> Any | None:
        """The value of the key from which on all points have all their data on chip; None if the
        last has not.
        """
        value = None
        for row in reversed(self.rows):
            if not is_on_chip(row):
                break
            value = row[self.along]
        return value

    def falls(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return the rows that are slower than a row with less of the key, each with the fastest
        such row.

        Falls of less than a thousandth do not count.
        """
        falls, best = [], None
        for row in self.rows:
            if best is not None and row["images_per_s"] < (1 - _FALL) * best["images_per_s"]:
                falls.append((row, best))
            elif best is None or row["images_per_s"] > best["images_per_s"]:
                best = row
        return falls


def is_on_chip(row: dict[str, Any]) -> bool:
    """Return whether all data of a point that does not fail are on chip."""
    return bool(row["fits"]) and not row["off_chip_mib"]


def series_of(rows: Sequence[dict[str, Any]], space: Space) -> list[Series]:
    """Return rows by series, in their order; none if no numeric key varies."""
    along = space.along
    if along is None:
        return []
    by_others: dict[tuple[Any, ...], Series] = {}
    for row in rows:
        others = {key: row[key] for key in space.varied if key != along}
        series = by_others.setdefault((*others.values(),), Series(along, others, []))
        if row["error"] is None:
            series.rows.append(row)
    return [series for series in by_others.values() if series.rows]


def knee(amounts: Sequence[float], rates: Sequence[float]) -> int | None:
    """Return the place of the knee: the smallest amount after which more brings little.

    Little means: to none of the larger amounts does the rate rise, for each unit added, by half of
    what each unit up to the knee brings on average. None if that is so only at the end, or if there
    are fewer than three amounts.
    """
    # rate |            .----------     from the knee on, no larger amount gains, for each unit added,
    #      |         .  '               half of what each unit up to the knee has brought: rate / amount,
    #      |      .  ^ knee             the slope of the line from zero to the knee
    #      |   .
    #      +---------------- amount
    if len(amounts) < FEWEST:
        return None
    for place, (amount, rate) in enumerate(zip(amounts[:-1], rates[:-1], strict=True)):
        later = zip(amounts[place + 1 :], rates[place + 1 :], strict=True)
        if all(
            (more_rate - rate) * amount < LITTLE * rate * (more - amount)
            for more, more_rate in later
        ):
            return place
    return None
