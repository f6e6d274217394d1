"""Which points of a large space are tried for its front: those that NSGA-II (Deb et al., 2002)
draws, as Optuna has it.

A generation is asked for as a whole, and told as a whole, so the points do not depend on how many
are computed at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...common import InputError
from .pareto import Objective
from .space import Space

_GENERATION = 50
_MOST_STALE = 20
"""Generations one after another without a point that is not yet tried, after which a search
ends.
"""

Rows = Sequence[Mapping[str, Any] | None]


class Trials:
    """A search of a space, of at most `count` points; the same seed tries the same points.

    Raises:
        InputError: Optuna is missing.
    """

    def __init__(
        self, space: Space, objectives: Sequence[Objective], count: int, seed: int
    ) -> None:
        try:
            import optuna
        except ImportError:
            raise InputError(
                f"`trials` = {count}: needs Optuna: pip install 'emuchain[search]'"
            ) from None
        self._optuna, self._space, self._objectives = optuna, space, objectives
        self._count, self._tried = count, set[int]()
        self._asked: list[tuple[Any, int]] = []
        """Trials of the generation that is not yet told, each with the place of its point."""
        self._stale = 0
        self._choices = {}
        for key in space.varied:
            numbers = range(len(space.values[key]))
            self._choices[key] = optuna.distributions.CategoricalDistribution([*numbers])
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            self._study = optuna.create_study(
                directions=["minimize"] * len(objectives),
                sampler=optuna.samplers.NSGAIISampler(population_size=_GENERATION, seed=seed),
            )
        finally:
            optuna.logging.set_verbosity(verbosity)

    def next(self, rows: Rows) -> list[int]:
        """Return the places of the points to be computed next; none once the search has ended.

        Args:
            rows: by place the row of each point that is computed: of all that were returned before.
        """
        while True:
            self._tell(rows)
            if len(self._tried) == self._count or self._stale == _MOST_STALE:
                return []
            self._ask()
            missing = [place for _, place in self._asked if rows[place] is None]
            if missing:
                return [*dict.fromkeys(missing)]

    def _ask(self) -> None:
        """Ask for a generation, of which no more points are tried than may be."""
        before = len(self._tried)
        for _ in range(_GENERATION):
            trial = self._study.ask(self._choices)
            place = self._space.place(trial.params)
            if len(self._tried) < self._count:
                self._tried.add(place)
            if place in self._tried:
                self._asked.append((trial, place))
        self._stale = self._stale + 1 if len(self._tried) == before else 0

    def _tell(self, rows: Rows) -> None:
        """Tell the figures of a generation; a point that would not be of a front fails."""
        for trial, place in self._asked:
            row = rows[place]
            assert row is not None
            costs = None if row["error"] or not row["fits"] else self._costs(row)
            if costs is None:
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            else:
                self._study.tell(trial, costs)
        self._asked = []

    def _costs(self, row: Mapping[str, Any]) -> list[float] | None:
        costs = []
        for objective in self._objectives:
            value = objective.value(row)
            if value is None:
                return None
            costs.append(-value if objective.is_best_high else value)
        return costs
