"""Outcomes of training runs that take too long for a measure: claims/inceptionn-runs.json.

{"runs": [{
  "network": "hdc", "gradients": "inceptionn:-10", "weights": "none",   codecs, spelt as for `--compress`
  "seed": 1, "workers": 4,
  "epochs": 2,                                             of the schedule; a run with a codec may continue
  "test_accuracy": [0.91, 0.93, 0.94],                     by epoch, 0 to 1; fewer than `epochs` if it diverged
  "widths": [[0.92, 0.065, 0.015, 0.0], ...],              by epoch: shares of values of 0, 8, 16, 32 bits
  "histograms": [[[5, 7, ...], [3, 2, ...]], ...]          by epoch: of gradients, as in comm/exchange/nic.py
}]}

`widths` and `histograms` may be left out. `scripts/gradients` makes such runs.
"""

from __future__ import annotations

import functools
import pathlib
from typing import Annotated

import pydantic

from ....inputs import Model
from ..measure import NoEvidence
from ..run_file import CLAIMS, read_run_file

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
        return self.test_accuracy[self.epochs - 1] if len(self.test_accuracy) >= self.epochs else CHANCE

    @property
    def learns(self) -> bool:
        """Whether the test accuracy is beyond twice that of chance in the end."""
        return len(self.test_accuracy) >= self.epochs and self.test_accuracy[-1] > 2 * CHANCE


class Runs(Model):
    """The runs of a file."""

    runs: list[Run]


FILE = CLAIMS / "inceptionn-runs.json"


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
    found = [run for run in all_runs() if (run.network, run.gradients, run.weights) == wanted]
    if not found:
        raise NoEvidence(f"No runs of {network} (emulator/studies/validate/claims/{FILE.name}).")
    return found


def learning_runs_of(network: str, gradients: str = "none") -> list[Run]:
    """Return the runs of a network with this codec of gradients that learn: their gradients are those of training.

    Raises:
        NoEvidence: there are none.
    """
    found = [run for run in runs_of(network, gradients) if run.learns]
    if not found:
        raise NoEvidence(f"{network} did not learn with {gradients}: no run ends above {200 * CHANCE:g} %.")
    return found
