"""How sure a choice among points is: they are compared by the same draws of the constants.

Ranges that overlap prove nothing: a constant that is worse than assumed slows all points that it limits. So a choice
counts by the share of draws in which no other point is faster. Rates that differ by less than a thousandth are equal,
as placements are found to that. A gain below one in a hundred is less than the model's own error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...timing import Floats, Roofs, factors

TIE, FLOOR, SURE = 1e-3, 0.01, 0.9
LITTLE = 0.5
"""Beyond a knee, each unit brings less than this share of what each up to it brings on average."""
_MOST = 256
"""Points that are compared: those with the highest rates."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """In what share of draws the best point is the best, and the knee the knee.

    `rivals` are points that cannot be told from the best: they win in more than a tenth of the draws, or it gains less
    than a hundredth on them. Points with its rate are none; the best has the fewest boards of them.
    """

    best_share: float
    rivals: tuple[dict[str, Any], ...]
    knee_share: float | None = None

    @property
    def is_sure(self) -> bool:
        """Whether the best point is told from all others."""
        return not self.rivals


def drawn_rates(roofs: Sequence[Roofs]) -> Floats:
    """Return the rates of several plans, (plan, draw), in the same draws of all constants."""
    drawn = {entry: factors(entry) for of_plan in roofs for entry in of_plan.constants}
    return np.stack([of_plan.rates({entry: drawn[entry] for entry in of_plan.constants}) for of_plan in roofs])


@dataclasses.dataclass(frozen=True)
class Standing:
    """How one of several plans stands, by their places: in what share of draws it wins, and which it equals.

    `ties` have its rate; `rivals`, which are slower, cannot be told from it.
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
    ties = tuple(number for number in range(len(nominal)) if number != place and number not in slower)
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
    known = [(row, Roofs.of_text(text)) for row, text in zip(rows, roofs, strict=True) if text is not None]
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
    """Return the share of draws in which a line has its knee at a row; None if it has none, or too many rows."""
    by_row = {id(row): of_row for row, of_row in known}
    if along is None or knee is None or len(series) > _MOST or any(id(row) not in by_row for row in series):
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
