"""Spans of a run, of samples, of virtual time, or of both; without bounds a span is the whole run.

Samples are those that a chain takes in, counted from 0 at the start of training. A row is inside a span of time if its
start is.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated

from annotated_types import Ge, Le

from ..common import FINITE, NotNegative

Microseconds = Annotated[float, FINITE, Ge(0), Le(1e12)]
"""A virtual time, or a duration."""


def picoseconds(time_us: float) -> int:
    """Return a time in ps."""
    return round(time_us * 1_000_000)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Span:
    """A span of a run: from a sample or a time on, up to another one, which is no longer in it.

    Raises:
        ValueError: it ends before it begins.
    """

    from_sample: NotNegative = 0
    to_sample: NotNegative | None = None
    from_us: Microseconds = 0.0
    to_us: Microseconds | None = None

    def __post_init__(self) -> None:
        if self.to_sample is not None and self.to_sample <= self.from_sample:
            raise ValueError(f"`to_sample` = {self.to_sample}: should be after `from_sample` = {self.from_sample}")
        if self.to_us is not None and self.to_us <= self.from_us:
            raise ValueError(f"`to_us` = {self.to_us:g}: should be after `from_us` = {self.from_us:g}")

    @property
    def bounds_ps(self) -> tuple[int, int | None]:
        """The span of time in ps: its begin, and its end, if it has one."""
        return picoseconds(self.from_us), None if self.to_us is None else picoseconds(self.to_us)

    def has_sample(self, sample: int) -> bool:
        """Return whether a sample is inside."""
        return self.from_sample <= sample and (self.to_sample is None or sample < self.to_sample)

    def has_time(self, time_ps: int) -> bool:
        """Return whether a time in ps is inside."""
        begin_ps, end_ps = self.bounds_ps
        return begin_ps <= time_ps and (end_ps is None or time_ps < end_ps)

    @property
    def when(self) -> str:
        """Its samples and times, as text."""
        words = []
        if self.from_sample or self.to_sample is not None:
            last = "on" if self.to_sample is None else f"to {self.to_sample - 1}"
            words.append(f"samples {self.from_sample} {last}")
        if self.from_us or self.to_us is not None:
            end = "on" if self.to_us is None else f"to {self.to_us:g} us"
            words.append(f"{self.from_us:g} us {end}")
        return ", ".join(words) or "the whole run"
