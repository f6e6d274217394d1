"""Counts of verdicts, by what a row's verdict is worth."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

from .claim import Class
from .judge import Verdict
from .run import Result


@dataclasses.dataclass(frozen=True)
class Count:
    """The rows of a class: how many there are, verdicts of those that count, and what is left out.

    `repeated` rows make the claim of another one; of `guessed` ones a guess without the model is good, too.
    """

    rows: int
    verdicts: Counter[Verdict]
    confirmed: int
    guessed: int
    repeated: int

    @property
    def run(self) -> int:
        """Number of rows that were measured and count."""
        return self.verdicts.total()

    @property
    def figures(self) -> int:
        """Number of measured figures, which are within a tolerance or off."""
        return self.verdicts[Verdict.WITHIN] + self.verdicts[Verdict.OFF]


def count(results: Iterable[Result]) -> Count:
    """Count results."""
    results = list(results)
    counted = [result for result in results if result.is_counted]
    return Count(
        len(results),
        Counter(result.verdict for result in counted),
        sum(result.is_confirmed for result in counted),
        sum(result.verdict.is_good and not result.is_confirmed for result in counted),
        sum(result.is_run for result in results) - len(counted),
    )


def by_class(results: Sequence[Result]) -> dict[Class, Count]:
    """Return the counts of each class that has rows."""
    found = {each: count(result for result in results if result.claim.row_class is each) for each in Class}
    return {each: counts for each, counts in found.items() if counts.rows}
