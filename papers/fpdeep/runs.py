"""Outcomes of training runs that take too long for a measure: runs.json.

{"runs": [{
  "network": "vgg16-cifar", "schedule": "fpdeep",          `sync` gives the weights of centralised SGD
  "seed": 1, "devices": 8, "batch": 128, "samples": 16000, "epochs": 4, "learning_rate": 0.02, "memory": "fpdeep",
  "old_weights": 16,                                       samples of a mini-batch that use weights an update old
  "test_accuracy": [0.15, 0.29, 0.35, 0.39],               by epoch, 0 to 1
  "train_loss": [2.24, 1.95, 1.78, 1.58],
  "virtual_time_ps": [1157320167250, ...]                  at each epoch's end
}]}

`scripts/convergence` makes such runs, `scripts/evidence --fpdeep` collects them.

Convergence with slightly unaligned weights (FPDeep, sections 4.4 and 6.4, Fig. 16), from training
runs (runs.py).
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import pydantic

from ...emulator.common import Mean, Model
from ..claim import Measured, NoEvidence, read_run_file

FILE = pathlib.Path(__file__).parent / "runs.json"
SCHEDULES = ("sync", "fpdeep")
SETTINGS = ("network", "devices", "batch", "samples", "epochs", "learning_rate", "memory")
"""Of runs that are compared with one another these are the same."""
OLD_SHARE = 5 / 1000
"""Samples of a mini-batch that use old weights (section 4.4: 5 of 1K, on 100 FPGAs)."""

Share = Annotated[float, pydantic.Field(ge=0, le=1)]
Count = Annotated[int, pydantic.Field(ge=1)]
Some = pydantic.Field(min_length=1)


class Run(Model):
    """A training run."""

    network: str
    schedule: Literal["sync", "fpdeep"]
    seed: int
    devices: Count
    batch: Count
    samples: Count
    epochs: Count
    learning_rate: Annotated[float, pydantic.Field(gt=0)]
    memory: Literal["modelled", "fpdeep"]
    old_weights: Annotated[int, pydantic.Field(ge=0)]
    test_accuracy: Annotated[list[Share], Some]
    train_loss: Annotated[list[float], Some]
    virtual_time_ps: Annotated[list[int], Some]

    @pydantic.model_validator(mode="after")
    def _complete(self) -> Run:
        if (
            not len(self.test_accuracy)
            == len(self.train_loss)
            == len(self.virtual_time_ps)
            == self.epochs
        ):
            raise ValueError(f"must have figures of {self.epochs} epochs")
        return self


class _Runs(Model):
    runs: list[Run]


def read_runs(path: pathlib.Path) -> list[Run]:
    """Return the runs of a file.

    Raises:
        InputError: the file cannot be read, or has another form.
    """
    return read_run_file(path, _Runs).runs


@functools.cache
def all_runs() -> list[Run]:
    """Return the runs that come with emuchain; none if the file does not exist."""
    return read_runs(FILE) if FILE.exists() else []


@dataclasses.dataclass(frozen=True)
class Comparison:
    """`fpdeep` against `sync` after the last epoch: runs that differ by schedule and seed alone,
    over common seeds.
    """

    network: str
    batch: int
    old_weights: int
    sync_percent: Mean
    fpdeep_percent: Mean
    apart_points: Mean
    """Accuracy of `fpdeep` less that of `sync`, seed by seed: both have the same first weights and
    order of samples.
    """
    seeds: int

    @property
    def is_slight(self) -> bool:
        """Return whether as few of a mini-batch's samples use old weights as in the paper."""
        return self.old_weights <= OLD_SHARE * self.batch

    @property
    def differs(self) -> bool:
        """Return whether the seeds' differences exceed their standard error."""
        return self.apart_points.differs(Mean(0, 0))

    def __str__(self) -> str:
        return (
            f"{self.network}, {self.old_weights} of {self.batch}: {self.fpdeep_percent.shown(2)} %"
            f" against {self.sync_percent.shown(2)} % ({self.apart_points.value:+.2f} ±"
            f" {self.apart_points.error:.2f} points, {self.seeds} seeds)"
        )


def by_settings(runs: Iterable[Run]) -> list[dict[str, dict[int, Run]]]:
    """Return runs that differ by schedule and seed alone: for each settings by schedule and
    seed.
    """
    groups: dict[tuple[object, ...], dict[str, dict[int, Run]]] = {}
    for run in runs:
        settings = tuple(getattr(run, name) for name in SETTINGS)
        groups.setdefault(settings, {schedule: {} for schedule in SCHEDULES})[run.schedule][
            run.seed
        ] = run
    return list(groups.values())


def seed_pairs(by_schedule: Mapping[str, Mapping[int, Run]]) -> list[tuple[Run, Run]]:
    """Return the runs of `sync` and `fpdeep` with the same seed, for each seed of both."""
    sync, fpdeep = (by_schedule[schedule] for schedule in SCHEDULES)
    return [(sync[seed], fpdeep[seed]) for seed in sorted(sync.keys() & fpdeep.keys())]


def apart_points(pairs: Iterable[tuple[Run, Run]], epoch: int = -1) -> list[float]:
    """Return the accuracy of `fpdeep` less that of `sync` after an epoch, the last by default, of
    each seed.
    """
    return [
        100 * (fpdeep.test_accuracy[epoch] - sync.test_accuracy[epoch]) for sync, fpdeep in pairs
    ]


def _last_percent(runs: Iterable[Run]) -> Mean:
    return Mean.over([100 * run.test_accuracy[-1] for run in runs])


def comparisons(runs: Iterable[Run]) -> list[Comparison]:
    """Return a comparison for each settings of which two seeds at least ran on both schedules.

    Raises:
        NoEvidence: there are none.
    """
    compared = []
    for pairs in map(seed_pairs, by_settings(runs)):
        if len(pairs) < 2:
            continue
        sync, fpdeep = map(_last_percent, zip(*pairs, strict=True))
        _, late = pairs[0]
        settings = late.network, late.batch, late.old_weights
        compared.append(
            Comparison(*settings, sync, fpdeep, Mean.over(apart_points(pairs)), len(pairs))
        )
    if not compared:
        raise NoEvidence(f"No network was trained with two seeds on both schedules ({FILE.name}).")
    return compared


def unaligned() -> Measured:
    """Count the networks that differ where as few samples use old weights as in the paper."""
    compared = comparisons(all_runs())
    slight = [comparison for comparison in compared if comparison.is_slight]
    if not slight:
        raise NoEvidence(
            f"No network was trained with at most 5 of 1,000 samples on old weights ({FILE.name})."
        )
    others = [comparison for comparison in compared if not comparison.is_slight]
    how = f"networks that differ by more than the standard error: {'; '.join(map(str, slight))}"
    if others:
        how += f"; with more old weights: {'; '.join(map(str, others))}"
    return Measured(sum(comparison.differs for comparison in slight), how)
