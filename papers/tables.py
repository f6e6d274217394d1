"""Tables of results: what was published, ours, verdicts by class, explanations; for screens, Markdown and JSON.

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


COLUMNS = ("claim", "published", "ours", "deviation", "verdict", "class")
CLASS_COLUMNS = (
    *("class", "rows", "run", "within", "off", "holds", "does not hold"),
    *("no better than a guess", "duplicate"),
)


def headline(results: Sequence[Result]) -> str:
    """Return how many predictions are confirmed, as a line."""
    found = by_class(results).get(Class.PREDICTION)
    if found is None or not found.run:
        return "predictions: none of these rows"
    said = []
    if found.figures:
        said.append(f"{found.verdicts[Verdict.WITHIN]} of {found.figures} figures are within tolerance")
    if found.run > found.figures:
        said.append(f"{found.verdicts[Verdict.HOLDS]} of {found.run - found.figures} statements hold")
    guessed = f"; {found.guessed} of them no better than a guess" if found.guessed else ""
    return f"predictions: {found.confirmed} of {found.run} confirmed ({', '.join(said)}{guessed})"


def others(results: Sequence[Result]) -> str:
    """Return what was confirmed of the other classes, which could hardly fail, and what was not run, as a line."""
    found = by_class(results)
    counts = [(each.value, of) for each, of in found.items() if each is not Class.PREDICTION and of.run]
    said = [f"{name} {of.confirmed} of {of.run}" for name, of in counts]
    left_out = sum(not result.is_run for result in results)
    return f"other classes: {', '.join(said) or 'none'}; {left_out} not run"


def class_rows(results: Sequence[Result]) -> list[list[str]]:
    """Return the rows of the table by class, under `CLASS_COLUMNS`, with the sum of all as the last one."""
    found = {each.value: of for each, of in by_class(results).items()}
    return [_class_row(name, of) for name, of in {**found, "all": count(results)}.items()]


def _class_row(name: str, of: Count) -> list[str]:
    verdicts = (Verdict.WITHIN, Verdict.OFF, Verdict.HOLDS, Verdict.FAILS)
    counts = (of.rows, of.run, *(of.verdicts[verdict] for verdict in verdicts), of.guessed, of.repeated)
    return [name, *map(str, counts)]


def by_explanation(results: Sequence[Result], *, confirmed: bool) -> dict[str, list[Result]]:
    """Group claims by explanation: those that were not confirmed, or confirmed ones that still have an explanation."""
    found: dict[str, list[Result]] = {}
    for result in results:
        if result.is_run and result.verdict.is_good is confirmed:
            found.setdefault(result.claim.explanation or "not explained", []).append(result)
    if confirmed:
        found.pop("not explained", None)
    return found


def by_reason(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Group the claims that were not run by reason."""
    found: dict[str, list[Result]] = {}
    for result in results:
        if not result.is_run:
            found.setdefault(result.how, []).append(result)
    return found


def cells(result: Result) -> list[str]:
    claim = result.claim
    deviation = "" if result.deviation is None else f"{100 * result.deviation:+.1f} %"
    return [
        claim.id,
        f"{_shown(claim.value)} {claim.unit}".strip(),
        _shown(result.ours),
        deviation,
        result.verdict.value + (", no better than a guess" if result.verdict.is_good and result.guess_is_good else ""),
        claim.row_class.value,
    ]


def _shown(value: Any) -> str:
    """Format a figure to four significant digits, a list with commas."""
    if isinstance(value, (list, tuple)):
        return ", ".join(f"[{_shown(each)}]" if isinstance(each, list) else _shown(each) for each in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def markdown_tables(results: Sequence[Result]) -> list[str]:
    """Return lines of Markdown: the claims that were run, explanations, and the reasons for claims not run."""
    lines = markdown([*COLUMNS, "how"], [[*cells(result), result.how] for result in results if result.is_run])
    lines += ["", *markdown(CLASS_COLUMNS, class_rows(results)), "", headline(results)]
    groups = {
        "not confirmed": by_explanation(results, confirmed=False),
        "confirmed, but": by_explanation(results, confirmed=True),
        "not run": by_reason(results),
    }
    for title, found in groups.items():
        if found:
            lines += ["", f"| {title} | |", "|---|---|"]
            lines += [f"| {', '.join(each.claim.id for each in of)} | {_escaped(why)} |" for why, of in found.items()]
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
        **claim.model_dump(mode="json", exclude={"expect", "measure", "how"}, by_alias=True),
        "expect": claim.expect.model_dump(mode="json", exclude_none=True) if claim.expect else None,
        "ours": result.ours,
        "how": result.how if claim.expect else None,
        "deviation": result.deviation,
        "verdict": result.verdict.value,
        "guess_is_good": result.guess_is_good,
        "confirmed": result.is_confirmed if result.is_run else None,
    }
