"""Sensitivity: which rows change with a constant or a choice, and which verdicts change within its plausible range.

Only predictions and fitted rows are measured: all others do not depend on constants, or could not fail. Tables
show them, and blind predictions, for screens, Markdown and JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..emulator.common import InputError, plural
from ..kernels import modules
from ..launch import SingleProcess, WorkerLost, in_parallel, usable_cores
from .claim import Claim, Class, Value, load_claims
from .constants import Choice, Constant, Freedom, in_force, reading
from .run import Verdict, validate
from .tables import markdown

Row = tuple[Verdict, Value]
Announce = Callable[[int, int], contextlib.AbstractContextManager[Callable[[], None]]]


@dataclasses.dataclass(frozen=True)
class Sensitivity:
    """What a constant or a choice does to the rows of a paper.

    `verdicts` has, for each row whose measure changes, its verdict at each of the values, in their order.
    """

    constant: Freedom
    verdicts: Mapping[str, tuple[Verdict, ...]]

    @property
    def hanging(self) -> list[str]:
        """The rows whose measure changes with it."""
        return list(self.verdicts)

    @property
    def turning(self) -> dict[str, tuple[Verdict, ...]]:
        """The rows whose verdict is not the same at all values."""
        return {name: verdicts for name, verdicts in self.verdicts.items() if len(set(verdicts)) > 1}


@dataclasses.dataclass(frozen=True)
class Blind:
    """A figure that was predicted from another network's row, and the guess without the emulator."""

    fitted_to: str
    dsp_share: float
    network: str
    figure: str
    published: float
    predicted: float
    guess: float

    @property
    def deviation(self) -> float:
        """The prediction's, as a share."""
        return self.predicted / self.published - 1

    @property
    def guess_deviation(self) -> float:
        """The guess's, as a share."""
        return self.guess / self.published - 1


def blind_predictions(paper: str) -> list[Blind]:
    """Return a paper's blind predictions, if it has any: those of a file with `blind_predictions`."""
    topics = [topic for topic in modules(f"{__package__}.{paper}") if hasattr(topic, "blind_predictions")]
    return [blind for topic in topics for blind in topic.blind_predictions()]


def constants_of(paper: str) -> Sequence[Constant]:
    """Return the constants of a paper: `CONSTANTS` of its file constants.py."""
    constants: Sequence[Constant] = importlib.import_module(f"{__package__}.{paper}.constants").CONSTANTS
    return constants


def freedoms_of(paper: str) -> Sequence[Freedom]:
    """Return the degrees of freedom of a paper: its constants, then its choices, `CHOICES` of its file constants.py."""
    choices: Sequence[Choice] = getattr(importlib.import_module(f"{__package__}.{paper}.constants"), "CHOICES", ())
    return (*constants_of(paper), *choices)


def sensitivities(
    paper: str, claims: Sequence[Claim], announce: Announce, jobs: int | None = None
) -> list[Sensitivity]:
    """Measure a paper's predictions and fitted rows over the range of each of its constants and choices.

    Args:
        paper: its name.
        claims: the rows to measure; others than predictions and fitted ones are left out.
        announce: what reports progress.
        jobs: number of processes; by default one for each core.

    Raises:
        InputError: a process died.
    """
    of_interest = (Class.PREDICTION, Class.FITTED)
    names = [claim.id for claim in claims if claim.expect and claim.row_class in of_interest]
    freedoms, workers = {freedom.key: freedom for freedom in freedoms_of(paper)}, jobs or usable_cores()
    try:
        with announce(len(names) + sum(len(freedom.values) for freedom in freedoms.values()), 0) as advance:
            read: list[list[str]] = [[] for _ in names]
            for place, keys in in_parallel(SingleProcess(), workers, _keys_read, [(paper, name) for name in names]):
                read[place] = keys
                advance()
            readers = {key: tuple(n for n, keys in zip(names, read, strict=True) if key in keys) for key in freedoms}
            tasks = [(paper, readers[key], key, value) for key, freedom in freedoms.items() for value in freedom.values]
            rows: list[dict[str, Row]] = [{} for _ in tasks]
            for place, measured_rows in in_parallel(SingleProcess(), workers, _rows, tasks):
                rows[place] = measured_rows
                advance()
    except WorkerLost as error:
        raise InputError(str(error)) from None
    measured = iter(rows)
    return [_sensitivity(freedom, [next(measured) for _ in freedom.values]) for freedom in freedoms.values()]


def _keys_read(task: tuple[str, str]) -> list[str]:
    """Return the keys of the constants and choices that a row's measure reads; others cannot change it."""
    paper, name = task
    with reading() as is_read:
        list(validate(paper, [load_claims(paper)[name]]))
    return [freedom.key for freedom in freedoms_of(paper) if is_read(freedom)]


def _rows(task: tuple[str, tuple[str, ...], str, object]) -> dict[str, Row]:
    """Return the verdicts and measures of rows with a value of a constant or a choice."""
    paper, names, key, value = task
    known = load_claims(paper)
    with in_force({key: value}):
        return {result.claim.id: (result.verdict, result.ours) for result in validate(paper, [known[n] for n in names])}


def _sensitivity(freedom: Freedom, rows: Sequence[Mapping[str, Row]]) -> Sensitivity:
    hanging = [name for name in rows[0] if any(row[name][1] != rows[0][name][1] for row in rows)]
    return Sensitivity(freedom, {name: tuple(row[name][0] for row in rows) for name in hanging})


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
