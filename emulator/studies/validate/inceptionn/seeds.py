"""Accuracies over seeds: means with standard errors, and what can be told from them.

A difference counts where it exceeds the standard errors of both means. With one seed the standard error is not known,
and taken as infinite: nothing counts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from ..mean import Mean
from ..measure import NoEvidence
from .runs import CHANCE, Run, runs_of


@dataclasses.dataclass(frozen=True)
class Loss:
    """By how many points one mean is below another, and the larger of both standard errors."""

    points: float
    error: float

    @property
    def counts(self) -> bool:
        """Whether accuracy is lost, beyond both standard errors."""
        return self.points > self.error

    def is_surely(self, bound: float) -> bool | None:
        """Return whether at most `bound` points are lost; None if the standard errors leave it open."""
        return self.points < bound if abs(self.points - bound) > self.error else None

    def __str__(self) -> str:
        return str(Mean(round(self.points, 1) + 0.0, self.error))  # no -0.0


def accuracy(network: str, gradients: str = "none", weights: str = "none", later: int = 0) -> Mean:
    """Return the test accuracy in percent, `later` epochs after the schedule's end.

    Raises:
        NoEvidence: there are no such runs.
    """
    return Mean.over([_percent(run, later) for run in runs_of(network, gradients, weights)])


def lost(network: str, plain: Sequence[Run], lossy: Sequence[Run], later: int = 0) -> Loss:
    """Return the accuracy that lossy runs lose against plain ones, over the seeds of both, `later` epochs later.

    Raises:
        NoEvidence: no seed is in both.
    """
    of_plain, of_lossy = ({run.seed: run for run in runs} for runs in (plain, lossy))
    seeds = of_plain.keys() & of_lossy.keys()
    if not seeds:
        raise NoEvidence(f"No seed of {network} was run with and without a codec.")
    before = Mean.over([_percent(of_plain[seed]) for seed in sorted(seeds)])
    after = Mean.over([_percent(of_lossy[seed], later) for seed in sorted(seeds)])
    return Loss(before.value - after.value, max(before.error, after.error))


def _percent(run: Run, later: int = 0) -> float:
    place = run.epochs - 1 + later
    return 100 * (run.test_accuracy[place] if place < len(run.test_accuracy) else CHANCE)


def decide(found: Mapping[str, Loss], bound: float, missing: Sequence[str] = ()) -> None:
    """Check that the seeds tell whether each loses at most `bound` points: all surely do, or one surely does not.

    `missing` are reasons why others have no evidence; they do not matter where one loses more for sure.

    Raises:
        NoEvidence: it is left open.
    """
    sure = [loss.is_surely(bound) for loss in found.values()]
    if False in sure:
        return
    if missing or not found:
        raise NoEvidence(" ".join(missing))
    if None in sure:
        raise NoEvidence(
            f"Whether it is more than {bound:g} points is within the seeds' standard errors: {shown(found)}."
        )


def shown(found: Mapping[str, object]) -> str:
    """Return losses or means as text."""
    return ", ".join(f"{name} {value}" for name, value in found.items())
