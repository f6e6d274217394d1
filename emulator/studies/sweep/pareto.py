"""The front of a sweep: the points of which none is better in one objective without being worse in
another.

Rates and energies are those of rows, boards those of all replicas; memory is what the fullest board
keeps, on chip and off chip. A price is the sum over the boards of what their files say, and a point
with a board of unknown price or power has none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...common import InputError, did_you_mean
from ...timing import Floats
from .space import Point

Row: TypeAlias = Mapping[str, Any]
_POWER, _PRICE = "board.power_w", "board.price"


@dataclasses.dataclass(frozen=True)
class Objective:
    """A figure that should be as high, or as low, as it can: its name, its head in a table, its
    value in a row, None where that is unknown, and what would make it known.
    """

    name: str
    head: str
    value: Callable[[Row], float | None]
    is_best_high: bool = False
    remedy: str = ""


def _joules(row: Row) -> float | None:
    return None if row["images_per_j"] is None else 1 / row["images_per_j"]


OBJECTIVES: Mapping[str, Objective] = {
    objective.name: objective
    for objective in (
        Objective("rate", "samples/s", lambda row: row["images_per_s"], is_best_high=True),
        Objective("boards", "boards", lambda row: row["boards"]),
        Objective("memory", "MiB of\na board", lambda row: row["memory_mib"]),
        Objective("joules", "J of\na sample", _joules, remedy=_POWER),
        Objective("price", "price", lambda row: row["price"], remedy=_PRICE),
    )
}
"""By name, as `--pareto` takes them."""


def objectives_of(names: Sequence[str], blame: str = "pareto") -> tuple[Objective, ...]:
    """Return objectives by their names.

    Raises:
        InputError: one is unknown, there are none, or one is there twice.
    """
    for name in names:
        if name not in OBJECTIVES:
            hint = did_you_mean(name, OBJECTIVES)
            raise InputError(f"`{blame}` = {name!r}: {hint}must be of {', '.join(OBJECTIVES)}")
    if not names or len({*names}) < len(names):
        raise InputError(f"`{blame}` = {','.join(names)!r}: must have objectives, each once")
    return tuple(OBJECTIVES[name] for name in names)


@dataclasses.dataclass(frozen=True)
class Front:
    """The rows of a front, in the order of the first objective, the best first.

    `ranges` has for each row the 5th and the 95th percentile of objectives that have a range.
    `tried` points of `points` have a place for their data and figures for all objectives; the space
    has `whole` points.
    """

    objectives: tuple[Objective, ...]
    rows: list[dict[str, Any]]
    ranges: list[dict[str, tuple[float, float]]]
    tried: int
    points: int
    whole: int

    def to_dict(self) -> dict[str, Any]:
        """Return it with the names of JSON."""
        rows = []
        for row, ranges in zip(self.rows, self.ranges, strict=True):
            values = {one.name: one.value(row) for one in self.objectives}
            rows.append({"objectives": values, "ranges": ranges, "row": row})
        names = [one.name for one in self.objectives]
        counts = {"tried": self.tried, "points": self.points, "space": self.whole}
        return {"objectives": names, **counts, "rows": rows}


def front_places(costs: Floats) -> list[int]:
    """Return which of some points (point, objective) no other one dominates, in the order of their
    costs: it is no more in any objective, and less in one.
    """
    # In ascending order, a point can only be dominated by one before it, and by one of the front.
    order = np.lexsort(costs.T[::-1])
    places: list[int] = []
    front = np.empty((0, costs.shape[1]))
    for place in map(int, order):
        cost = costs[place]
        below = (front <= cost).all(axis=1) & (front < cost).any(axis=1)
        if not below.any():
            places.append(place)
            front = np.vstack([front, cost])
    return places


def find_front(
    objectives: Sequence[Objective], points: Sequence[Point], rows: Sequence[dict[str, Any]]
) -> Front:
    """Return the front of points, each with its row.

    Raises:
        InputError: no point has figures for all objectives.
    """
    fitting = [place for place, row in enumerate(rows) if row["error"] is None and row["fits"]]
    for objective in objectives:
        if fitting and all(objective.value(rows[place]) is None for place in fitting):
            raise InputError(_unknown(objective, points[fitting[0]]))
    costs, known = [], []
    for place in fitting:
        values = [one.value(rows[place]) for one in objectives]
        if None not in values:
            known.append(place)
            costs.append(
                [
                    -value if one.is_best_high else value
                    for one, value in zip(objectives, values, strict=True)
                    if value is not None
                ]
            )
    chosen = []
    if known:
        chosen = [known[place] for place in front_places(np.array(costs, np.float64))]
    ranges = [_ranges(objectives, points[place], rows[place]) for place in chosen]
    counts = len(known), len(rows), len(rows)
    return Front(tuple(objectives), [rows[place] for place in chosen], ranges, *counts)


def _unknown(objective: Objective, point: Point) -> str:
    """Return why no point has a figure for an objective."""
    if not objective.remedy:
        return f"`pareto`: no point has a figure for {objective.name}"
    board = point.cluster.board(0).name if point.cluster else ""
    return (
        f"`pareto`: {objective.name} needs `{objective.remedy}`, which {board} does not have; give"
        f" it in the board's file, or as --{objective.remedy}"
    )


def _ranges(
    objectives: Sequence[Objective], point: Point, row: Row
) -> dict[str, tuple[float, float]]:
    """Return the ranges of a row's objectives, of those that have one."""
    ranges = {}
    for objective in objectives:
        value = objective.value(row)
        if objective.name == "rate" and row.get("range_low") is not None:
            ranges["rate"] = (row["range_low"], row["range_high"])
        elif objective.remedy and value is not None:
            low, high = _of_boards(point, objective.remedy)
            if low < high:
                ranges[objective.name] = (value * low, value * high)
    return ranges


def _of_boards(point: Point, key: str) -> tuple[float, float]:
    """Return the range of a sum over a point's boards, as multiples of it."""
    cluster, count = point.cluster, point.keys["devices"]
    assert cluster is not None
    total = low = high = 0.0
    for device in range(count):
        value = getattr(cluster.board(device), key.removeprefix("board."))
        entry = cluster.range_of(key, device)
        total += value
        low, high = low + entry.low * value, high + entry.high * value
    return low / total, high / total
