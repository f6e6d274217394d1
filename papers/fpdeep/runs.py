"""Outcomes of training runs that take too long for a measure: runs.json.

{"runs": [{
  "network": "vgg16-cifar", "schedule": "fpdeep",          `sync` gives the weights of centralised SGD
  "seed": 1, "devices": 8, "batch": 128, "samples": 16000, "epochs": 4, "learning_rate": 0.02, "memory": "ignored",
  "old_weights": 16,                                       samples of a mini-batch that see weights an update late
  "test_accuracy": [0.15, 0.29, 0.35, 0.39],               by epoch, 0 to 1
  "train_loss": [2.24, 1.95, 1.78, 1.58],
  "virtual_time_ps": [1157320167250, ...]                  at each epoch's end
}]}

`scripts/convergence` makes such runs, `scripts/evidence --fpdeep` collects them.

Convergence with slightly unaligned weights (FPDeep, sections 4.4 and 6.4, Fig. 16), from training runs (runs.py).
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterable
from typing import Annotated, Literal

import pydantic

from ...emulator.common import Mean, Model
from ..claim import Measure, Measured, NoEvidence
from ..training_runs import read_run_file

FILE = pathlib.Path(__file__).parent / "runs.json"
SCHEDULES = ("sync", "fpdeep")

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
    memory: Literal["modelled", "ignored"]
    old_weights: Annotated[int, pydantic.Field(ge=0)]
    test_accuracy: Annotated[list[Share], Some]
    train_loss: Annotated[list[float], Some]
    virtual_time_ps: Annotated[list[int], Some]

    @pydantic.model_validator(mode="after")
    def _complete(self) -> Run:
        if not len(self.test_accuracy) == len(self.train_loss) == len(self.virtual_time_ps) == self.epochs:
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


def final_accuracies(runs: Iterable[Run]) -> dict[str, dict[str, Mean]]:
    """Return, by network and schedule, the accuracy in percent after the last epoch over the seeds.

    Networks have both schedules, each with the same seeds, and two of them at least.

    Raises:
        NoEvidence: there is no such network.
    """
    seeds: dict[str, dict[str, dict[int, float]]] = {}
    for run in runs:
        by_seed = seeds.setdefault(run.network, {schedule: {} for schedule in SCHEDULES})
        by_seed[run.schedule][run.seed] = 100 * run.test_accuracy[-1]
    means = {}
    for network, by_schedule in seeds.items():
        both = sorted(set.intersection(*(set(by_seed) for by_seed in by_schedule.values())))
        if len(both) > 1:
            means[network] = {
                name: Mean.over([by_seed[seed] for seed in both]) for name, by_seed in by_schedule.items()
            }
    if not means:
        raise NoEvidence(f"No network was trained with two seeds on both schedules ({FILE.name}).")
    return means


def _unaligned() -> Measured:
    """Count the networks whose accuracies with `fpdeep` and `sync` differ by more than both standard errors."""
    runs, said, differing = all_runs(), [], 0
    for network, means in final_accuracies(runs).items():
        sync, fpdeep = means["sync"], means["fpdeep"]
        seeds = sum(run.network == network and run.schedule == "fpdeep" for run in runs)
        differing += fpdeep.differs(sync)
        apart = f"{fpdeep.value - sync.value:+.2f} points, {seeds} seeds"
        said.append(f"{network} {fpdeep.shown(2)} % against {sync.shown(2)} % ({apart})")
    return Measured(differing, f"networks that differ by more than both standard errors: {'; '.join(said)}")


MEASURES: dict[str, Measure] = {"fpdeep-unaligned-convergence": _unaligned}
