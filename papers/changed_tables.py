"""Tables of verdicts that change with other values of constants, for screens, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..emulator.common import plural
from .changed import ChangedResults
from .constants import Choice, Freedom
from .tables import as_json, markdown, markdown_tables, value_text

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
