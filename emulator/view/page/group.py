"""Groups of runs that differ only in their seeds: a page shows each as one line, by the means over its seeds."""

from __future__ import annotations

import dataclasses
import itertools
import math
import pathlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...common import InputError, Mean, plural
from .source import Run

NOT_COMPARED = ("out", "progress", "throttle")
"""Keys in which runs may differ without a word."""

_OF_A_SEED = (*NOT_COMPARED, "seed", "checkpoint", "resume", "log", "stall_timeout")
_TEXTS = ("network.toml", "cluster.toml", "faults.json", "mapping")
_NAMED = 20  # missing seeds, at most
_SEED = r"[-_. ]*(?:seed|s)?[-_. ]*{}"


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ only in their seeds, in the order of these, under a common name; often one run alone."""

    name: str
    runs: tuple[Run, ...]

    @property
    def first(self) -> Run:
        """The run of the first seed, which stands for all in what does not depend on seeds."""
        return self.runs[0]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the runs."""
        return tuple(map(seed_of, self.runs))

    @property
    def has_seeds(self) -> bool:
        """Whether there are several."""
        return len(self.runs) > 1

    @property
    def epochs(self) -> int:
        """Number of epochs that all runs have finished."""
        return min(run.results.epochs for run in self.runs)

    def mean(self, figure: Callable[[Run], float]) -> Mean:
        """Return the mean over seeds of a figure of a run."""
        return Mean.over([float(figure(run)) for run in self.runs])

    def curve(self, column: str) -> list[Mean]:
        """Return the means of a column of the history, one for each epoch that all runs have finished."""
        columns = [run.results.history[column] for run in self.runs]
        return [Mean.over([float(values[epoch]) for values in columns]) for epoch in range(self.epochs)]

    def last(self, column: str) -> Mean:
        """Return the mean of a column of the history in the last epoch that all have finished; NaN before the first."""
        return self.mean(lambda run: self.value(run, column))

    def value(self, run: Run, column: str) -> float:
        """Return a run's value in the last epoch that all have finished; NaN before the first."""
        return float(run.results.history[column][self.epochs - 1]) if self.epochs else math.nan

    def rate(self, run: Run) -> float:
        """Return a run's rate on the cluster up to that epoch, in samples/s; NaN before the first."""
        time_s = self.value(run, "virtual_time_ps") * 1e-12
        return int(run.results.config["samples"]) * self.epochs / time_s if time_s else math.nan

    def setting(self, key: str) -> str:
        """Return a key of the configuration as text, or all seeds."""
        if key == "seed" and self.has_seeds:
            return ", ".join(map(str, self.seeds))
        return spelt(self.first.results.config.get(key))


def seed_of(run: Run) -> int:
    """Return a run's seed."""
    return int(run.results.config.get("seed") or 0)


def alone(runs: Sequence[Run]) -> list[Group]:
    """Return a group for each run."""
    return [Group(run.name, (run,)) for run in runs]


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Return runs in groups, in the order of their first runs; a second run of the same seed begins another group."""
    groups: dict[tuple[object, ...], list[Run]] = {}
    times: Counter[tuple[object, ...]] = Counter()
    for run in runs:
        alike = _settings(run)
        seen = (seed_of(run), *alike)
        groups.setdefault((times[seen], *alike), []).append(run)
        times[seen] += 1
    members = [tuple(sorted(group, key=seed_of)) for group in groups.values()]
    names = [_common_name(group) for group in members]
    counts = Counter(names)
    return [
        Group(name if counts[name] == 1 else group[0].name, group) for name, group in zip(names, members, strict=True)
    ]


def check_seeds(groups: Sequence[Group], count: int) -> None:
    """Check that each group has `count` seeds.

    Raises:
        InputError: a group has fewer, of which the missing ones are named, or more.
    """
    for group in groups:
        given = ", ".join(map(str, group.seeds))
        if len(group.seeds) > count:
            raise InputError(f"--seeds {count}: {group.name} has {len(group.seeds)} seeds: {given}; leave some out")
        if len(group.seeds) < count:
            missing = (seed for seed in _expected(groups, group, count) if seed not in group.seeds)
            named = [*map(str, itertools.islice(missing, _NAMED)), *(["…"] if any(True for _ in missing) else [])]
            raise InputError(
                f"--seeds {count}: {group.name} has {plural(len(group.seeds), 'seed')}: {given}; missing:"
                f" {', '.join(named)}"
            )


def _expected(groups: Sequence[Group], group: Group, count: int) -> Sequence[int]:
    """Return the seeds that a group should have: those of other groups, or 1 to `count`, or those from its first on."""
    every = sorted({seed for other in groups for seed in other.seeds})
    if len(every) == count:
        return every
    first = 1 if all(1 <= seed <= count for seed in group.seeds) else group.seeds[0]
    return range(first, first + count)


def _settings(run: Run) -> tuple[object, ...]:
    """Return what is the same in runs that differ only in their seeds."""
    results = run.results
    config = {key: spelt(value) for key, value in results.config.items() if key not in _OF_A_SEED}
    return (*sorted(config.items()), *(results.descriptions.get(name, "") for name in _TEXTS))


def _common_name(runs: Sequence[Run]) -> str:
    """Return what names of runs have in common, without their seeds: `run` of `run-seed1`, `run-seed2`."""
    if len(runs) == 1:
        return runs[0].name
    names = [str(pathlib.Path(run.name).with_suffix("")) if run.name.endswith(".h5") else run.name for run in runs]
    bare = {re.sub(_SEED.format(seed_of(run)) + "$", "", name) for name, run in zip(names, runs, strict=True)}
    common = bare.pop() if len(bare) == 1 else ""
    return common or f"{names[0]} to {names[-1]}"


def spelt(value: Any) -> str:
    """Return a setting as text; a dash where it was left open."""
    if isinstance(value, np.ndarray | tuple):
        value = ", ".join(map(str, value))
    return "–" if value is None or value == "" else f"{value:g}" if isinstance(value, float) else str(value)
