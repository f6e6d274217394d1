"""How sure an exploration is: the range of its winner's rate, and in what share of draws it wins.

Candidates are compared on their own cuts, each name's best, by the same draws. The time of each follows the constants
by its slopes where these are in the middle of their ranges: one timing for each constant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..cluster import ConstantRange
from ..explore import Candidate, Exploration, Question, time_again
from ..run import AnswerRange, by_slopes, drawn_range
from ..timing import factors
from .sweep import standing

Varied: TypeAlias = Callable[[Mapping[ConstantRange, float]], Question]
"""Returns the question on devices and links some of whose constants have factors."""


@dataclasses.dataclass(frozen=True)
class Explored:
    """The range of the winner's rate, in what share of draws it wins, and the names that it cannot be told from."""

    sure: AnswerRange
    best_share: float
    rivals: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return range and confidence as JSON has them."""
        confidence = {"best": self.best_share, "not_distinguishable": list(self.rivals)}
        return {**self.sure.to_dict(), "confidence": confidence}


def explored(
    question: Question, exploration: Exploration, constants: Sequence[ConstantRange], varied: Varied
) -> Explored:
    """Return how sure an exploration is; its question is that of `varied` without factors."""
    best: dict[str, Candidate] = {}
    for candidate in exploration.candidates:
        if candidate.time_ps is not None:
            best.setdefault(candidate.name, candidate)
    drawn = {entry: factors(entry) for entry in constants if not entry.is_exact}
    slopes = [by_slopes(drawn, lambda given, of=of: time_again(varied(given), of)) for of in best.values()]  # type: ignore[misc]  # `of` is bound
    rates = np.stack([1e12 * question.batch / slope.times_ps(drawn) for slope in slopes])
    names = list(best)
    stands = standing(rates, [1 / candidate.time_ps for candidate in best.values() if candidate.time_ps])
    rivals = tuple(names[number] for number in (*stands.ties, *stands.rivals))
    of_winner = drawn_range(drawn, lambda given: 1e12 * question.batch / slopes[0].times_ps(given))
    return Explored(of_winner.times(1.0), stands.best_share, rivals)
