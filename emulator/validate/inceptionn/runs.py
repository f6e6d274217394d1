"""What training runs gave that take too long for a measure: claims/inceptionn-runs.json, which a script writes.

{"runs": [{
  "network": "hdc", "codec": "inceptionn:-10", "on": "gradients", "seed": 1, "workers": 4,
  "test_accuracy": [0.91, 0.93],                          by epoch, 0 to 1
  "largest_gradient": 0.31,                               of all epochs, absolute; null if not looked at
  "stages": [{"stage": "early", "widths": [0.92, 0.065, 0.015, 0.0],
              "edges": [-1.0, 0.0, 1.0], "counts": [5, 7]}]
}]}

`codec` is spelt as for `--compress`; `on` says what it is done to. `widths` are the shares of values of 0, 8, 16 and 32
bits (empty if the codec is another), `edges` and `counts` a histogram of the gradients (empty if not taken).
"""

from __future__ import annotations

import functools
import json
import pathlib
from typing import Annotated, Literal

import pydantic

from ...errors import InputError
from ...validation import Model
from ...validation import validate as checked
from ..measure import NoEvidence

Share = Annotated[float, pydantic.Field(ge=0, le=1)]
Target = Literal["gradients", "weights", "both"]


class Stage(Model):
    """The gradients at one time of a run: `early`, `middle` or `final`."""

    stage: Literal["early", "middle", "final"]
    widths: list[Share] = pydantic.Field(default_factory=list)
    edges: list[float] = pydantic.Field(default_factory=list)
    counts: list[int] = pydantic.Field(default_factory=list)


class Run(Model):
    """A training run."""

    network: str
    codec: str
    on: Target = "gradients"
    seed: int
    workers: int = 4
    test_accuracy: Annotated[list[Share], pydantic.Field(min_length=1)]
    largest_gradient: float | None = None
    stages: list[Stage] = pydantic.Field(default_factory=list)


class Runs(Model):
    """All runs."""

    runs: list[Run]


FILE = pathlib.Path(__file__).parents[2] / "claims" / "inceptionn-runs.json"


def read_runs(path: pathlib.Path) -> list[Run]:
    """The runs of a file.

    Raises:
        InputError: it cannot be read, or is of another form.
    """
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a file of runs: {error}") from None
    if not isinstance(said, dict):
        raise InputError(f"{path}: not a file of runs: must be an object with `runs`")
    return checked(Runs, said, str(path)).runs


@functools.cache
def all_runs() -> list[Run]:
    """The runs that come with emuchain; none if there is no such file."""
    return read_runs(FILE) if FILE.exists() else []


def runs_of(network: str, codec: str, on: Target = "gradients") -> list[Run]:
    """The runs of a network with a codec, all seeds.

    Raises:
        NoEvidence: there are none.
    """
    found = [run for run in all_runs() if (run.network, run.codec, run.on) == (network, codec, on)]
    if not found:
        raise NoEvidence(f"no measured runs of {network}, {codec} on {on} (claims/{FILE.name})")
    return found
