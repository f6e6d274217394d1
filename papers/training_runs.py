"""Means over the seeds of training runs, with their standard errors: a difference counts that exceeds both."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import statistics
from collections.abc import Sequence
from typing import TypeVar

from ..emulator.common import InputError, Model, read_text, validate


@dataclasses.dataclass(frozen=True)
class Mean:
    """A mean over seeds, and its standard error; infinite with one seed, so that no difference counts."""

    value: float
    error: float

    @classmethod
    def over(cls, values: Sequence[float]) -> Mean:
        """Return the mean of values, one for each seed."""
        error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
        return cls(statistics.mean(values), error)

    def differs(self, other: Mean) -> bool:
        """Return whether the difference exceeds both standard errors."""
        return abs(self.value - other.value) > max(self.error, other.error)

    def shown(self, digits: int) -> str:
        """Return the mean as text, with `digits` decimals."""
        error = f"± {self.error:.{digits}f}" if self.error < math.inf else "(one seed)"
        return f"{self.value:.{digits}f} {error}"

    def __str__(self) -> str:
        return self.shown(1)


RunsT = TypeVar("RunsT", bound=Model)


def read_run_file(path: pathlib.Path, model: type[RunsT]) -> RunsT:
    """Return a file of runs.

    Raises:
        InputError: the file cannot be read, or has another form.
    """
    try:
        said = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a file of runs: {error}") from None
    if not isinstance(said, dict):
        raise InputError(f"{path}: not a file of runs: must be an object with `runs`")
    return validate(model, said, str(path))
