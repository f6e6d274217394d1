"""Outcomes of training runs that take too long for a measure: runs.json.

{"runs": [{
  "network": "hdc", "gradients": "inceptionn:-10", "weights": "none",   codecs, spelt as for `--compress`
  "seed": 1, "workers": 4,
  "epochs": 2,                                             of the schedule; a run with a codec may continue
  "test_accuracy": [0.91, 0.93, 0.94],                     by epoch, 0 to 1; fewer than `epochs` if it diverged
  "widths": [[0.92, 0.065, 0.015, 0.0], ...],              by epoch: shares of values of 0, 8, 16, 32 bits
  "histograms": [[[5, 7, ...], [3, 2, ...]], ...]          by epoch: of gradients, as in comm/exchange/nic.py
}]}

`widths` and `histograms` may be left out. `scripts/gradients` makes such runs.

Accuracies over seeds: means with standard errors, and what can be distinguished from them. A
difference counts where it exceeds the standard errors of both means. With one seed the standard
error is not known, and taken as infinite: nothing counts.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated

import pydantic

from ...emulator.common import Mean, Model
from ..claim import NoEvidence, read_run_file

Share = Annotated[float, pydantic.Field(ge=0, le=1)]
Widths = Annotated[list[Share], pydantic.Field(min_length=4, max_length=4)]
Count = Annotated[int, pydantic.Field(ge=0)]
Histogram = Annotated[list[list[Count]], pydantic.Field(min_length=2, max_length=2)]

CHANCE = 0.1
"""Accuracy of a run that diverged: both data sets have ten classes."""


class Run(Model):
    """A training run."""

    network: str
    gradients: str = "none"
    weights: str = "none"
    seed: int
    workers: int = 4
    epochs: Annotated[int, pydantic.Field(ge=1)]
    test_accuracy: list[Share]
    widths: list[Widths] = pydantic.Field(default_factory=list)
    histograms: list[Histogram] = pydantic.Field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """Test accuracy at the schedule's end, 0 to 1."""
        return (
            self.test_accuracy[self.epochs - 1]
            if len(self.test_accuracy) >= self.epochs
            else CHANCE
        )

    @property
    def learns(self) -> bool:
        """Whether the test accuracy is beyond twice that of chance in the end."""
        return len(self.test_accuracy) >= self.epochs and self.test_accuracy[-1] > 2 * CHANCE


class Runs(Model):
    """The runs of a file."""

    runs: list[Run]


FILE = pathlib.Path(__file__).parent / "runs.json"


def read_runs(path: pathlib.Path) -> list[Run]:
    """Return the runs of a file.

    Raises:
        InputError: the file cannot be read, or has another form.
    """
    return read_run_file(path, Runs).runs


@functools.cache
def all_runs() -> list[Run]:
    """Return the runs that come with emuchain; none if the file does not exist."""
    return read_runs(FILE) if FILE.exists() else []


def runs_of(network: str, gradients: str = "none", weights: str = "none") -> list[Run]:
    """Return the runs of a network with these codecs, all seeds.

    Raises:
        NoEvidence: there are none.
    """
    wanted = (network, gradients, weights)
    runs = [run for run in all_runs() if (run.network, run.gradients, run.weights) == wanted]
    if not runs:
        raise NoEvidence(f"No runs of {network} (papers/{FILE.parent.name}/{FILE.name}).")
    return runs


def learning_runs_of(network: str, gradients: str = "none") -> list[Run]:
    """Return the runs of a network with this codec of gradients that learn: their gradients are
    those of training.

    Raises:
        NoEvidence: there are none.
    """
    learning = [run for run in runs_of(network, gradients) if run.learns]
    if not learning:
        raise NoEvidence(
            f"{network} did not learn with {gradients}: no run ends above {200 * CHANCE:g} %."
        )
    return learning


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
        """Return whether at most `bound` points are lost; None if the standard errors leave it
        open.
        """
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
    """Return the accuracy that lossy runs lose against plain ones, over the seeds of both, `later`
    epochs later.

    Raises:
        NoEvidence: no seed is in both.
    """
    of_plain = {run.seed: run for run in plain}
    of_lossy = {run.seed: run for run in lossy}
    seeds = of_plain.keys() & of_lossy.keys()
    if not seeds:
        raise NoEvidence(f"No seed of {network} was run with and without a codec.")
    before = Mean.over([_percent(of_plain[seed]) for seed in sorted(seeds)])
    after = Mean.over([_percent(of_lossy[seed], later) for seed in sorted(seeds)])
    return Loss(before.value - after.value, max(before.error, after.error))


def _percent(run: Run, later: int = 0) -> float:
    place = run.epochs - 1 + later
    return 100 * (run.test_accuracy[place] if place < len(run.test_accuracy) else CHANCE)


def decide(losses: Mapping[str, Loss], bound: float, missing: Sequence[str] = ()) -> None:
    """Check that the seeds tell whether each loses at most `bound` points: all surely do, or one
    surely does not.

    `missing` are reasons why others have no evidence; they do not matter where one loses more for
    sure.

    Raises:
        NoEvidence: it is left open.
    """
    sure = [loss.is_surely(bound) for loss in losses.values()]
    if False in sure:
        return
    if missing or not losses:
        raise NoEvidence(" ".join(missing))
    if None in sure:
        raise NoEvidence(
            f"Whether it is more than {bound:g} points is within the seeds' standard errors:"
            f" {shown(losses)}."
        )


def shown(texts: Mapping[str, object]) -> str:
    """Return losses or means as text."""
    return ", ".join(f"{name} {value}" for name, value in texts.items())
