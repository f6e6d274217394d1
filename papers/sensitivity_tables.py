"""Tables of sensitivities and of blind predictions, for screens, Markdown and JSON."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ..emulator.common import plural
from .claim import Claim
from .constants import Choice, Freedom
from .run import Verdict
from .sensitivity import Blind, Sensitivity
from .tables import markdown

CONSTANT_COLUMNS = (
    *("constant or choice", "default", "range", "fitted to"),
    *("claims that depend on it", "verdicts that change"),
)
TURNING_COLUMNS = ("claim", "class", "constant or choice", "verdicts")
BLIND_COLUMNS = ("fitted to", "DSP share", "predicted", "published", "ours", "deviation", "deviation of a guess")


def headline(rows: Sequence[Sensitivity]) -> str:
    """Return how many claims depend on constants and choices, and how many verdicts change, as a line."""
    hanging = {name for row in rows for name in row.hanging}
    turning = {name for row in rows for name in row.turning}
    fitted = sum(bool(row.constant.fitted_to) for row in rows)
    choices = sum(isinstance(row.constant, Choice) for row in rows)
    on = plural(len(rows) - choices, "constant") + (f" and {plural(choices, 'choice')}" if choices else "")
    return (
        f"{plural(len(hanging), 'claim')} depend{'s' * (len(hanging) == 1)} on {on},"
        f" of which {fitted} {'was' if fitted == 1 else 'were'} fitted;"
        f" {plural(len(turning), 'verdict')} change{'s' * (len(turning) == 1)} within their ranges"
    )


def constant_rows(rows: Sequence[Sensitivity]) -> list[list[str]]:
    """Return a row for each constant and each choice, under `CONSTANT_COLUMNS`."""
    return [
        [
            row.constant.name,
            row.constant.text(row.constant.default),
            row.constant.span,
            row.constant.fitted_to or "-",
            str(len(row.hanging)),
            str(len(row.turning)),
        ]
        for row in rows
    ]


def turning_rows(rows: Sequence[Sensitivity], claims: Mapping[str, Claim]) -> list[list[str]]:
    """Return a row for each verdict that changes, under `TURNING_COLUMNS`."""
    return [
        [name, claims[name].row_class.value, row.constant.name, _ranges(row.constant, verdicts)]
        for row in rows
        for name, verdicts in row.turning.items()
    ]


def _ranges(constant: Freedom, verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts with the values at which they hold: within 0.82 to 0.84, off 0.85."""
    between = " or " if isinstance(constant, Choice) else " to "
    said = []
    for verdict, group in itertools.groupby(zip(constant.values, verdicts, strict=True), key=lambda pair: pair[1]):
        values = [constant.text(value) for value, _ in group]
        ends = values if isinstance(constant, Choice) or len(values) == 1 else [values[0], values[-1]]
        said.append(f"{verdict.value} {between.join(ends)}")
    return ", ".join(said)


def blind_rows(predictions: Sequence[Blind]) -> list[list[str]]:
    """Return a row for each blind prediction, under `BLIND_COLUMNS`."""
    return [
        [
            prediction.fitted_to,
            f"{prediction.dsp_share:.3f}",
            f"{prediction.network} {prediction.figure}",
            f"{prediction.published:g}",
            f"{prediction.predicted:.4g}",
            f"{100 * prediction.deviation:+.1f} %",
            f"{100 * prediction.guess_deviation:+.1f} %",
        ]
        for prediction in predictions
    ]


def blind_headline(predictions: Sequence[Blind]) -> str:
    """Return how the blind predictions compare with guesses, as a line."""
    better = sum(abs(prediction.deviation) < abs(prediction.guess_deviation) for prediction in predictions)
    worst = max(abs(prediction.deviation) for prediction in predictions)
    return (
        f"blind predictions of Table 6 from one network's row: at most {100 * worst:.1f} % off;"
        f" nearer than a guess in {better} of {len(predictions)}"
    )


def sensitivity_markdown(rows: Sequence[Sensitivity], claims: Mapping[str, Claim], blind: Sequence[Blind]) -> list[str]:
    """Return lines of Markdown: constants and choices, verdicts that change, and blind predictions, if any."""
    lines = [*markdown(CONSTANT_COLUMNS, constant_rows(rows)), "", headline(rows), ""]
    lines += markdown(TURNING_COLUMNS, turning_rows(rows, claims))
    if blind:
        lines += ["", *markdown(BLIND_COLUMNS, blind_rows(blind)), "", blind_headline(blind)]
    return lines


def sensitivity_as_json(rows: Sequence[Sensitivity], blind: Sequence[Blind]) -> dict[str, Any]:
    """Return constants and choices with the verdicts of claims that depend on them, and blind predictions, for JSON."""
    return {
        "constants": [_as_json(row) for row in rows if not isinstance(row.constant, Choice)],
        "choices": [_as_json(row) for row in rows if isinstance(row.constant, Choice)],
        "blind": [
            {
                "fitted_to": prediction.fitted_to,
                "dsp_share": prediction.dsp_share,
                "network": prediction.network,
                "figure": prediction.figure,
                "published": prediction.published,
                "predicted": prediction.predicted,
                "guess": prediction.guess,
            }
            for prediction in blind
        ],
    }


def _as_json(row: Sensitivity) -> dict[str, Any]:
    freedom = row.constant
    is_choice = isinstance(freedom, Choice)
    return {
        "key": freedom.key,
        "default": freedom.text(freedom.default) if is_choice else freedom.default,
        "values": [freedom.text(value) if is_choice else value for value in freedom.values],
        "why": freedom.why,
        "fitted_to": freedom.fitted_to,
        "verdicts": {name: [verdict.value for verdict in verdicts] for name, verdicts in row.verdicts.items()},
        "turning": list(row.turning),
    }
