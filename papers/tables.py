"""Tables of results: what was published, ours, verdicts by class, explanations; for screens,
Markdown and JSON.

Counts of verdicts, by what a row's verdict is worth.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from .claim import Class
from .run import Result, Verdict


@dataclasses.dataclass(frozen=True)
class Count:
    """The rows of a class: how many there are, verdicts of those that count, and what is left out.

    `repeated` rows make the claim of another one; of `guessed` ones a guess without the model is
    good, too.
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
    verdicts = Counter(result.verdict for result in counted)
    confirmed = sum(result.is_confirmed for result in counted)
    guessed = sum(result.verdict.is_good and not result.is_confirmed for result in counted)
    repeated = sum(result.is_run for result in results) - len(counted)
    return Count(len(results), verdicts, confirmed, guessed, repeated)


def by_class(results: Sequence[Result]) -> dict[Class, Count]:
    """Return the counts of each class that has rows."""
    counts_by_class = {}
    for row_class in Class:
        rows = [result for result in results if result.claim.row_class is row_class]
        if rows:
            counts_by_class[row_class] = count(rows)
    return counts_by_class


MISSED = {
    "mendable": "mendable",
    "inconsistent": "by an inconsistent paper",
    "undecidable": "undecidable",
}
"""What kinds of missed rows are called in a count."""
COLUMNS = ("claim", "published", "ours", "deviation", "verdict", "class")
CLASS_COLUMNS = (
    *("class", "rows", "run", "within", "off", "holds", "does not hold"),
    *("no better than a guess", "duplicate"),
)


def headline(results: Sequence[Result]) -> str:
    """Return how many predictions are confirmed, as a line."""
    predictions = by_class(results).get(Class.PREDICTION)
    if predictions is None or not predictions.run:
        return "predictions: none of these rows"
    said = []
    if predictions.figures:
        said.append(
            f"{predictions.verdicts[Verdict.WITHIN]} of {predictions.figures} figures are within"
            " tolerance"
        )
    if predictions.run > predictions.figures:
        said.append(
            f"{predictions.verdicts[Verdict.HOLDS]} of {predictions.run - predictions.figures}"
            " statements hold"
        )
    guessed = (
        f"; {predictions.guessed} of them no better than a guess" if predictions.guessed else ""
    )
    return (
        f"predictions: {predictions.confirmed} of {predictions.run} confirmed"
        f" ({', '.join(said)}{guessed})"
    )


def others(results: Sequence[Result]) -> str:
    """Return what was confirmed of the other classes, which could hardly fail, and what was not
    run, as a line.
    """
    counts_by_class = by_class(results)
    counts = [
        (row_class.value, class_counts)
        for row_class, class_counts in counts_by_class.items()
        if row_class is not Class.PREDICTION and class_counts.run
    ]
    said = [
        f"{name} {class_counts.confirmed} of {class_counts.run}" for name, class_counts in counts
    ]
    left_out = sum(not result.is_run for result in results)
    return f"other classes: {', '.join(said) or 'none'}; {left_out} not run"


def missed_line(results: Iterable[Result]) -> str:
    """Return what the rows that are not good come from, as a line; empty if none says so."""
    counts = Counter(
        result.claim.missed.kind
        for result in results
        if result.is_counted and result.claim.missed and not result.verdict.is_good
    )
    said = ", ".join(f"{counts[kind]} {text}" for kind, text in MISSED.items() if counts[kind])
    return f"missed: {said}" if said else ""


def class_rows(results: Sequence[Result]) -> list[list[str]]:
    """Return the rows of the table by class, under `CLASS_COLUMNS`, with the sum of all as the last
    one.
    """
    counts_by_class = {
        row_class.value: class_counts for row_class, class_counts in by_class(results).items()
    }
    return [
        _class_row(name, class_counts)
        for name, class_counts in {**counts_by_class, "all": count(results)}.items()
    ]


def _class_row(name: str, counted: Count) -> list[str]:
    verdicts = (Verdict.WITHIN, Verdict.OFF, Verdict.HOLDS, Verdict.FAILS)
    counts = (
        counted.rows,
        counted.run,
        *(counted.verdicts[verdict] for verdict in verdicts),
        counted.guessed,
        counted.repeated,
    )
    return [name, *map(str, counts)]


def by_explanation(results: Sequence[Result], *, confirmed: bool) -> dict[str, list[Result]]:
    """Group claims by explanation: those that were not confirmed, or confirmed ones that still have
    an explanation.

    Of those that were not, an explanation ends in what they come from: mendable, inconsistent,
    undecidable.
    """
    groups: dict[str, list[Result]] = {}
    for result in results:
        if result.is_run and result.verdict.is_good is confirmed:
            groups.setdefault(_explanation(result), []).append(result)
    if confirmed:
        groups.pop(_NONE, None)
    return groups


_NONE = "not explained"


def _explanation(result: Result) -> str:
    claim = result.claim
    if result.verdict.is_good or claim.missed is None:
        return claim.explanation or _NONE
    return f"{claim.explanation} ({claim.missed.text})"


def by_reason(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Group the claims that were not run by reason."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        if not result.is_run:
            groups.setdefault(result.how, []).append(result)
    return groups


def cells(result: Result) -> list[str]:
    claim = result.claim
    deviation = "" if result.deviation is None else f"{100 * result.deviation:+.1f} %"
    return [
        claim.id,
        f"{value_text(claim.value)} {claim.unit}".strip(),
        value_text(result.ours),
        deviation,
        result.verdict.value
        + (", no better than a guess" if result.verdict.is_good and result.guess_is_good else ""),
        claim.row_class.value,
    ]


def value_text(value: Any) -> str:
    """Format a figure to four significant digits, a list with commas."""
    if isinstance(value, (list, tuple)):
        return ", ".join(
            f"[{value_text(part)}]" if isinstance(part, list) else value_text(part)
            for part in value
        )
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def markdown_tables(results: Sequence[Result]) -> list[str]:
    """Return lines of Markdown: the claims that were run, explanations, and the reasons for claims
    not run.
    """
    lines = markdown(
        [*COLUMNS, "how"], [[*cells(result), result.how] for result in results if result.is_run]
    )
    lines += ["", *markdown(CLASS_COLUMNS, class_rows(results)), "", headline(results)]
    missed = missed_line(results)
    lines += ["", missed] if missed else []
    groups = {
        "not confirmed": by_explanation(results, confirmed=False),
        "confirmed, but": by_explanation(results, confirmed=True),
        "not run": by_reason(results),
    }
    for title, groups_by_reason in groups.items():
        if groups_by_reason:
            lines += ["", f"| {title} | |", "|---|---|"]
            for why, alike in groups_by_reason.items():
                names = ", ".join(result.claim.id for result in alike)
                lines.append(f"| {names} | {_escaped(why)} |")
    return lines


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return lines + [f"| {' | '.join(map(_escaped, row))} |" for row in rows]


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def as_json(result: Result) -> dict[str, Any]:
    claim = result.claim
    return {
        **claim.model_dump(
            mode="json", exclude={"expect", "measure", "how", "missed"}, by_alias=True
        ),
        "missed": claim.missed.model_dump(mode="json", exclude_none=True) if claim.missed else None,
        "expect": claim.expect.model_dump(mode="json", exclude_none=True) if claim.expect else None,
        "ours": result.ours,
        "how": result.how if claim.expect else None,
        "deviation": result.deviation,
        "verdict": result.verdict.value,
        "guess_is_good": result.guess_is_good,
        "confirmed": result.is_confirmed if result.is_run else None,
    }
