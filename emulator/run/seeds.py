"""The same run with several seeds: what each is called, and the means of what they reach, with standard errors."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..common import InputError, Mean
from ..config import log_place
from .results import Results

if TYPE_CHECKING:
    from ..config import Config

_FILES = "out", "checkpoint"
"""Keys that name a file of the run, of which each seed has its own."""


@dataclasses.dataclass(frozen=True)
class SeedRuns:
    """The results of runs that differ only in their seeds, in the order of these."""

    results: tuple[Results, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds."""
        return tuple(int(run.config["seed"]) for run in self.results)

    @property
    def test_accuracy(self) -> Mean | None:
        """The mean test accuracy after the last epoch, as a share; None without a test."""
        accuracies = [run.test_accuracy for run in self.results]
        known = [accuracy for accuracy in accuracies if accuracy is not None]
        return Mean.over(known) if len(known) == len(accuracies) else None

    @property
    def train_loss(self) -> Mean:
        """The mean loss in the last epoch."""
        return self.curve("train_loss")[-1]

    def curve(self, column: str) -> list[Mean]:
        """Return the means of a column of the history, such as "test_accuracy", by epoch."""
        return [Mean.over(list(map(float, values))) for values in zip(*self._columns(column), strict=True)]

    def _columns(self, column: str) -> Sequence[Any]:
        return [run.history[column] for run in self.results]

    def __repr__(self) -> str:
        accuracy = self.test_accuracy
        told = "" if accuracy is None else f", test accuracy {accuracy.times(100).shown(2)} %"
        return f"<Runs of seeds {', '.join(map(str, self.seeds))}{told}, train loss {self.train_loss.shown(4)}>"


def seed_settings(config: Config, count: int) -> list[dict[str, Any]]:
    """Return the settings of each of `count` seeds from the configured one on, in which it differs from `config`.

    Files have the seed before their suffix: run.h5 becomes run-seed1.h5.

    Raises:
        InputError: `count` is below 1, a seed would reach 2^63, or the run resumes from a checkpoint.
    """
    if count < 1:
        raise InputError(f"`seeds` = {count}: should be 1 or more")
    if config.resume is not None:
        raise InputError(
            f"`resume` = {config.resume!r}: goes on with one run, of one seed; leave `seeds` out, or begin anew without"
            " `resume`"
        )
    if config.seed + count > 1 << 63:
        raise InputError(f"`seeds` = {count}: from `seed` = {config.seed} on there are not as many below 2^63")
    return [_settings(config, seed) for seed in range(config.seed, config.seed + count)]


def _settings(config: Config, seed: int) -> dict[str, Any]:
    settings: dict[str, Any] = {"seed": seed}
    for key in _FILES:
        path = getattr(config, key)
        if path is not None:
            settings[key] = of_seed(path, seed)
    if config.log is not None:
        kind, place = log_place(config.log)
        settings["log"] = f"{kind}:{of_seed(place, seed)}"
    return settings


def of_seed(path: str, seed: int) -> str:
    """Return the name of a seed's own file."""
    whole = pathlib.Path(path)
    return str(whole.with_name(f"{whole.stem}-seed{seed}{whole.suffix}"))
