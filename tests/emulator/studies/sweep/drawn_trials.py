"""A stand-in for what is used of Optuna: its public interface to ask and tell, with a plain search
behind it, which checks how it is used.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple


class TrialState(enum.Enum):
    FAIL = 3


class CategoricalDistribution(NamedTuple):
    choices: Sequence[Any]


class NSGAIISampler(NamedTuple):
    population_size: int
    seed: int


class Trial(NamedTuple):
    number: int
    params: Mapping[str, Any]


class Study:
    """Draws points at random, and half of their values from the best that it was told of."""

    def __init__(self, directions: Sequence[str], sampler: NSGAIISampler) -> None:
        assert {*directions} == {"minimize"}
        self._count, self._size = len(directions), sampler.population_size
        self._draws = random.Random(sampler.seed)
        self._open: set[int] = set()
        self._number = 0
        self._told: list[tuple[float, Mapping[str, Any]]] = []

    def ask(self, fixed_distributions: Mapping[str, CategoricalDistribution]) -> Trial:
        assert self._number % self._size or not self._open, "a generation is told as a whole"
        best = sorted(self._told, key=lambda told: told[0])[: self._size]
        params = {}
        for key, distribution in fixed_distributions.items():
            drawn = self._draws.choice(distribution.choices)
            parent = self._draws.choice(best)[1][key] if best else drawn
            params[key] = self._draws.choice([drawn, parent])
        self._open.add(self._number)
        self._number += 1
        return Trial(self._number - 1, params)

    def tell(
        self, trial: Trial, values: Sequence[float] | None = None, state: TrialState | None = None
    ) -> None:
        self._open.remove(trial.number)
        if state is TrialState.FAIL:
            assert values is None
            return
        assert values is not None and len(values) == self._count
        self._told.append((sum(values), trial.params))


def stand_in() -> Any:
    """Return the stand-in, for `sys.modules`."""
    levels = [20]
    return SimpleNamespace(
        distributions=SimpleNamespace(CategoricalDistribution=CategoricalDistribution),
        samplers=SimpleNamespace(NSGAIISampler=NSGAIISampler),
        trial=SimpleNamespace(TrialState=TrialState),
        logging=SimpleNamespace(
            ERROR=40, get_verbosity=lambda: levels[-1], set_verbosity=levels.append, levels=levels
        ),
        create_study=Study,
    )
