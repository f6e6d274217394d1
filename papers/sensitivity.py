"""Sensitivity: which rows change with a constant or a choice, and which verdicts change within its plausible range.

Only predictions and fitted rows are measured: all others do not depend on constants, or could not fail.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence

from ..emulator.common import InputError
from ..kernels import modules
from ..launch import SingleProcess, WorkerLost, in_parallel, usable_cores
from .claim import Claim, Class, Value, load_claims
from .constants import Choice, Constant, Freedom, in_force, reading
from .run import Verdict, validate

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
