"""The outcome of a sweep: rows, in the order of the points, and what they say."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from ...common import plural
from .series import Series, series_of
from .space import Space


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """The rows of a sweep, which `pandas.DataFrame` takes as they are: keys and figures (docs/sweeps.md) by name.

    `noun` is what a sample is called: "image" or "sample".
    """

    space: Space
    rows: list[dict[str, Any]]
    noun: str = "image"

    @functools.cached_property
    def series(self) -> list[Series]:
        """The rows by lines of the picture: along one key, all others the same."""
        return series_of(self.rows, self.space)

    @functools.cached_property
    def best(self) -> dict[str, Any] | None:
        """The row with the highest rate, of equal ones that with the fewest boards; None if all points fail."""
        found = [row for row in self.rows if row["error"] is None]
        return max(found, key=lambda row: (row["images_per_s"], -row["boards"]), default=None)

    @functools.cached_property
    def best_series(self) -> Series | None:
        """The line that holds the best point."""
        return next((series for series in self.series if self.best in series.rows), None)

    def __repr__(self) -> str:
        best = self.best
        if best is None:
            told = "all fail"
        else:
            told = f"best {best['images_per_s']:.1f} {self.noun}s/s on {plural(best['boards'], 'board')}"
        return f"<Sweep of {plural(len(self.rows), 'point')}, {told}>"
