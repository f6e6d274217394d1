"""A paper's claims with other values of its constants, beside those with the defaults: which verdicts change.

Tables show these, for screens, Markdown and JSON.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..emulator.common import InputError, did_you_mean, plural
from ..launch import SingleProcess, WorkerLost, in_parallel, usable_cores
from .claim import Claim, load_claims
from .constants import Choice, Freedom
from .run import Result, validate
from .sensitivity import Announce, freedoms_of
from .tables import as_json, markdown, markdown_tables, value_text

_FURTHEST = 100
"""How many times a value may be below the least plausible one, or above the greatest."""


@dataclasses.dataclass(frozen=True)
class ChangedResults:
    """The results of claims with the defaults, and with other values, by key; both in the claims' order."""

    changes: Mapping[str, object]
    before: Sequence[Result]
    after: Sequence[Result]

    @property
    def turning(self) -> list[tuple[Result, Result]]:
        """The results of claims whose verdict is another one, before and after."""
        pairs = zip(self.before, self.after, strict=True)
        return [(before, after) for before, after in pairs if before.verdict is not after.verdict]

    @property
    def hanging(self) -> int:
        """Number of claims whose measure is another one."""
        return sum(before.ours != after.ours for before, after in zip(self.before, self.after, strict=True))


def changed_results(
    paper: str, claims: Sequence[Claim], changes: Mapping[str, object], announce: Announce, jobs: int | None = None
) -> ChangedResults:
    """Measure claims with a paper's constants and choices as they are, and with other values.

    Args:
        paper: its name.
        claims: the claims.
        changes: values by the keys, as `parse_changes` returns them.
        announce: what reports progress.
        jobs: number of processes; by default one for each core.

    Raises:
        InputError: a process died, or a claim cannot be measured with a value.
    """
    names = tuple(claim.id for claim in claims)
    tasks = [(paper, names, {}), (paper, names, dict(changes))]
    measured: dict[int, list[Result]] = {}
    try:
        with announce(len(tasks), 0) as advance:
            for place, results in in_parallel(SingleProcess(), jobs or usable_cores(), _results, tasks):
                measured[place] = results
                advance()
    except WorkerLost as error:
        raise InputError(str(error)) from None
    return ChangedResults(dict(changes), measured[0], measured[1])


def _results(task: tuple[str, tuple[str, ...], dict[str, object]]) -> list[Result]:
    """Return the results of claims with other values of constants."""
    paper, names, changes = task
    known = load_claims(paper)
    try:
        return list(validate(paper, [known[name] for name in names], changes))
    except (InputError, ArithmeticError, ValueError) as error:
        if not changes:
            raise
        known_freedoms = {freedom.key: freedom for freedom in freedoms_of(paper)}
        given = " ".join(f"--set {key}={known_freedoms[key].text(value)}" for key, value in changes.items())
        raise InputError(f"{given}: a claim cannot be measured with it: {error}") from None


def parse_changes(paper: str, texts: Sequence[str]) -> dict[str, object]:
    """Return values by the keys of a paper's constants and choices, from texts.

    Such as `board.dsp_share=0.85`, `dsp_share=0.85`, or `blocking=at-once`.

    Raises:
        InputError: a text has another form, its constant is unknown or given twice, or the value is none that it can
            have.
    """
    freedoms = freedoms_of(paper)
    known = {**{freedom.name: freedom for freedom in freedoms}, **{freedom.key: freedom for freedom in freedoms}}
    changes: dict[str, object] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            first = freedoms[0]
            raise InputError(f"--set {text}: expected CONSTANT=VALUE, such as {first.name}={first.text(first.default)}")
        freedom = known.get(name)
        if freedom is None:
            said = ", ".join(freedom.key for freedom in freedoms)
            raise InputError(
                f"--set {text}: {paper} has no constant `{name}`; {did_you_mean(name, known)}its constants: {said}"
            )
        if freedom.key in changes:
            raise InputError(f"--set {text}: `{freedom.key}` is given twice")
        changes[freedom.key] = _value(text, freedom, value)
    return changes


def _value(text: str, freedom: Freedom, value: str) -> object:
    """Return the value of a constant, or what a choice's alternative puts in force.

    Raises:
        InputError: it is no number, or far from the plausible ones; or no alternative.
    """
    if isinstance(freedom, Choice):
        if value not in freedom.alternatives:
            raise InputError(f"--set {text}: `{freedom.key}` should be {freedom.span} ({freedom.why})")
        return freedom.alternatives[value]
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    low, high = min(freedom.values), max(freedom.values)
    if not low / _FURTHEST <= number <= high * _FURTHEST:
        raise InputError(
            f"--set {text}: `{freedom.key}` should be a number from {low / _FURTHEST:g} to {high * _FURTHEST:g};"
            f" plausible are {freedom.span} ({freedom.why})"
        )
    return int(number) if number.is_integer() else number


TURNED_COLUMNS = ("claim", "class", "verdict by default", "verdict now", "ours by default", "ours now")
CHANGE_COLUMNS = ("constant", "default", "now", "plausible")
_MOST_NAMED = 3


def changes_text(changes: Mapping[str, object], freedoms: Sequence[Freedom]) -> str:
    """Return changed constants and choices as text: `board.dsp_share = 0.85`."""
    by_key = {freedom.key: freedom for freedom in freedoms}
    return ", ".join(f"{key} = {by_key[key].text(value)}" for key, value in changes.items())


def answer(changed: ChangedResults, freedoms: Sequence[Freedom]) -> list[str]:
    """Return which verdicts change, as lines: how many, those that are confirmed now, and those no longer."""
    run = sum(result.is_run for result in changed.after)
    turning = changed.turning
    lines = [
        f"{len(turning)} of {plural(run, 'verdict')} change{'s' * (len(turning) == 1)} with"
        f" {changes_text(changed.changes, freedoms)}; {plural(changed.hanging, 'measure')}"
        f" differ{'s' * (changed.hanging == 1)} from those with the defaults"
    ]
    now = [after.claim.id for _, after in turning if after.verdict.is_good]
    no_longer = [after.claim.id for _, after in turning if not after.verdict.is_good]
    lines += [f"good now: {_named(now)}"] if now else []
    lines += [f"no longer good: {_named(no_longer)}"] if no_longer else []
    return lines + [
        f"{freedom.key} = {freedom.text(changed.changes[freedom.key])} is outside what is plausible, {freedom.span}"
        for freedom in _of_changes(changed, freedoms)
        if not _is_plausible(freedom, changed.changes[freedom.key])
    ]


def _named(ids: Sequence[str]) -> str:
    return ", ".join(ids[:_MOST_NAMED]) + (f" and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else "")


def change_rows(changed: ChangedResults, freedoms: Sequence[Freedom]) -> list[list[str]]:
    """Return a row for each changed constant or choice, under `CHANGE_COLUMNS`."""
    return [
        [freedom.key, freedom.text(freedom.default), freedom.text(changed.changes[freedom.key]), freedom.span]
        for freedom in _of_changes(changed, freedoms)
    ]


def turned_rows(changed: ChangedResults) -> list[list[str]]:
    """Return a row for each verdict that changes, under `TURNED_COLUMNS`."""
    return [
        [
            after.claim.id,
            after.claim.row_class.value,
            before.verdict.value,
            after.verdict.value,
            value_text(before.ours),
            value_text(after.ours),
        ]
        for before, after in changed.turning
    ]


def changed_markdown(changed: ChangedResults, freedoms: Sequence[Freedom]) -> list[str]:
    """Return lines of Markdown: the answer, what changes, and all tables with these values."""
    lines = [f"{line}." for line in answer(changed, freedoms)]
    lines += ["", *markdown(CHANGE_COLUMNS, change_rows(changed, freedoms))]
    if changed.turning:
        lines += ["", *markdown(TURNED_COLUMNS, turned_rows(changed))]
    return [*lines, "", f"With {changes_text(changed.changes, freedoms)}:", "", *markdown_tables(changed.after)]


def changed_as_json(changed: ChangedResults, freedoms: Sequence[Freedom]) -> dict[str, Any]:
    """Return changed constants, the verdicts that change, and all claims with these values, as JSON's values."""
    by_key = {freedom.key: freedom for freedom in freedoms}
    return {
        "changes": {key: _as_json(by_key[key], value) for key, value in changed.changes.items()},
        "turning": [
            {
                "id": after.claim.id,
                "class": after.claim.row_class.value,
                "default_verdict": before.verdict.value,
                "verdict": after.verdict.value,
                "default_ours": before.ours,
                "ours": after.ours,
            }
            for before, after in changed.turning
        ],
        "claims": [as_json(result) for result in changed.after],
    }


def _of_changes(changed: ChangedResults, freedoms: Sequence[Freedom]) -> Iterator[Freedom]:
    return (freedom for freedom in freedoms if freedom.key in changed.changes)


def _as_json(freedom: Freedom, value: object) -> object:
    return freedom.text(value) if isinstance(freedom, Choice) else value


def _is_plausible(freedom: Freedom, value: object) -> bool:
    if isinstance(freedom, Choice):
        return True
    assert isinstance(value, (int, float))
    return min(freedom.values) <= value <= max(freedom.values)
