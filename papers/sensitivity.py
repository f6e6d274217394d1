"""Sensitivity: which rows change with a constant or a choice, and which verdicts change within its
plausible range.

Or with values of one's own, for all claims (`changed_results`).

Only predictions and fitted rows are measured: all others do not depend on constants, or could not
fail. Tables show them, and blind predictions, for screens, Markdown and JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ..emulator.common import InputError, did_you_mean, plural
from ..kernels import modules
from ..launch import SingleProcess, WorkerLost, in_parallel, usable_cores
from .claim import Claim, Class, freedoms_of, load_claims
from .constants import Choice, Freedom, reading
from .run import Result, Verdict, validate
from .tables import as_json, markdown, markdown_tables, value_text

_FURTHEST = 100
"""How many times a value may be below the least plausible one, or above the greatest."""
Task = tuple[str, tuple[str, ...], dict[str, object]]
"""A paper, claims of its, and values that are in force."""
TaskT = TypeVar("TaskT")
OutcomeT = TypeVar("OutcomeT")
Announce = Callable[[int, int], contextlib.AbstractContextManager[Callable[[], None]]]


@dataclasses.dataclass(frozen=True)
class Sensitivity:
    """What a constant or a choice does to the rows of a paper.

    `verdicts` has, for each row whose measure changes, its verdict at each of the values, in their
    order.
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
        return {
            name: verdicts for name, verdicts in self.verdicts.items() if len(set(verdicts)) > 1
        }


@dataclasses.dataclass(frozen=True)
class ChangedResults:
    """The results of claims with the defaults, and with other values, by key; both in the claims'
    order.
    """

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
        return sum(
            before.ours != after.ours for before, after in zip(self.before, self.after, strict=True)
        )


@dataclasses.dataclass(frozen=True)
class Blind:
    """A figure that was predicted from another network's row, and the guess without the
    emulator.
    """

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
    """Return a paper's blind predictions, if it has any: those of a file with
    `blind_predictions`.
    """
    topics = [
        topic for topic in modules(f"{__package__}.{paper}") if hasattr(topic, "blind_predictions")
    ]
    return [blind for topic in topics for blind in topic.blind_predictions()]


def sensitivities(
    paper: str, claims: Sequence[Claim], announce: Announce, jobs: int | None = None
) -> list[Sensitivity]:
    """Measure a paper's predictions and fitted rows over the range of each of its constants and
    choices.

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
    freedoms = freedoms_of(paper)
    with announce(len(names) + sum(len(freedom.values) for freedom in freedoms), 0) as advance:
        read = _measured(_keys_read, [(paper, name) for name in names], jobs, advance)
        readers = {}
        for freedom in freedoms:
            readers[freedom.key] = tuple(
                name for name, keys in zip(names, read, strict=True) if freedom.key in keys
            )
        tasks: list[Task] = [
            (paper, readers[freedom.key], {freedom.key: value})
            for freedom in freedoms
            for value in freedom.values
        ]
        measured = iter(_measured(_results, tasks, jobs, advance))
    return [
        # Results come in the order of the tasks: those of a constant follow one another.
        _sensitivity(freedom, list(itertools.islice(measured, len(freedom.values))))
        for freedom in freedoms
    ]


def changed_results(
    paper: str,
    claims: Sequence[Claim],
    changes: Mapping[str, object],
    announce: Announce,
    jobs: int | None = None,
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
    with announce(2, 0) as advance:
        before, after = _measured(
            _results, [(paper, names, {}), (paper, names, dict(changes))], jobs, advance
        )
    return ChangedResults(dict(changes), before, after)


def _measured(
    measure: Callable[[TaskT], OutcomeT],
    tasks: Sequence[TaskT],
    jobs: int | None,
    advance: Callable[[], None],
) -> list[OutcomeT]:
    """Return what a function makes of tasks on several processes, in the tasks' order.

    Raises:
        InputError: a process died.
    """
    outcomes: dict[int, OutcomeT] = {}
    try:
        for place, outcome in in_parallel(SingleProcess(), jobs or usable_cores(), measure, tasks):
            # Tasks finish in any order.
            outcomes[place] = outcome
            advance()
    except WorkerLost as error:
        raise InputError(str(error)) from None
    return [outcomes[place] for place in range(len(tasks))]


def _keys_read(task: tuple[str, str]) -> list[str]:
    """Return the keys of the constants and choices that a row's measure reads; others cannot change
    it.
    """
    paper, name = task
    with reading() as is_read:
        list(validate(paper, [load_claims(paper)[name]]))
    return [freedom.key for freedom in freedoms_of(paper) if is_read(freedom)]


def _results(task: Task) -> list[Result]:
    """Return the results of claims with other values of constants."""
    paper, names, changes = task
    known = load_claims(paper)
    try:
        return list(validate(paper, [known[name] for name in names], changes))
    except (InputError, ArithmeticError, ValueError) as error:
        if not changes:
            raise
        known_freedoms = {freedom.key: freedom for freedom in freedoms_of(paper)}
        given = " ".join(
            f"--set {key}={known_freedoms[key].text(value)}" for key, value in changes.items()
        )
        raise InputError(f"{given}: a claim cannot be measured with it: {error}") from None


def _sensitivity(freedom: Freedom, measured: Sequence[Sequence[Result]]) -> Sensitivity:
    """Return the verdicts of the rows whose measure is not the same with all values of a constant
    or a choice.
    """
    rows = zip(*measured, strict=True)
    verdicts = {}
    for first, *others in rows:
        if any(result.ours != first.ours for result in others):
            verdicts[first.claim.id] = (first.verdict, *(result.verdict for result in others))
    return Sensitivity(freedom, verdicts)


def parse_changes(paper: str, texts: Sequence[str]) -> dict[str, object]:
    """Return values by the keys of a paper's constants and choices, from texts.

    Such as `board.dsp_share=0.85`, `dsp_share=0.85`, or `blocking=at-once`.

    Raises:
        InputError: a text has another form, its constant is unknown or given twice, or the value is
            none that it can have.
    """
    freedoms = freedoms_of(paper)
    known = {freedom.name: freedom for freedom in freedoms}
    known |= {freedom.key: freedom for freedom in freedoms}
    changes: dict[str, object] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            first = freedoms[0]
            raise InputError(
                f"--set {text}: expected CONSTANT=VALUE, such as"
                f" {first.name}={first.text(first.default)}"
            )
        freedom = known.get(name)
        if freedom is None:
            said = ", ".join(freedom.key for freedom in freedoms)
            raise InputError(
                f"--set {text}: {paper} has no constant `{name}`; {did_you_mean(name, known)}its"
                f" constants: {said}"
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
            raise InputError(
                f"--set {text}: `{freedom.key}` should be {freedom.span} ({freedom.why})"
            )
        return freedom.alternatives[value]
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    low, high = min(freedom.values), max(freedom.values)
    # In this form it also refuses NaN, of which every comparison is false.
    if not low / _FURTHEST <= number <= high * _FURTHEST:
        raise InputError(
            f"--set {text}: `{freedom.key}` should be a number from {low / _FURTHEST:g} to"
            f" {high * _FURTHEST:g}; plausible are {freedom.span} ({freedom.why})"
        )
    return int(number) if number.is_integer() else number


CONSTANT_COLUMNS = (
    *("constant or choice", "default", "range", "fitted to"),
    *("claims that depend on it", "verdicts that change"),
)
TURNING_COLUMNS = ("claim", "class", "constant or choice", "verdicts")
BLIND_COLUMNS = (
    "fitted to",
    "DSP share",
    "predicted",
    "published",
    "ours",
    "deviation",
    "deviation of a guess",
)


def headline(rows: Sequence[Sensitivity]) -> str:
    """Return how many claims depend on constants and choices, and how many verdicts change, as a
    line.
    """
    hanging = {name for row in rows for name in row.hanging}
    turning = {name for row in rows for name in row.turning}
    fitted = sum(bool(row.constant.fitted_to) for row in rows)
    choices = sum(isinstance(row.constant, Choice) for row in rows)
    on = plural(len(rows) - choices, "constant") + (
        f" and {plural(choices, 'choice')}" if choices else ""
    )
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
    for verdict, group in itertools.groupby(
        zip(constant.values, verdicts, strict=True), key=lambda pair: pair[1]
    ):
        values = [constant.text(value) for value, _ in group]
        ends = (
            values if isinstance(constant, Choice) or len(values) == 1 else [values[0], values[-1]]
        )
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
    better = sum(
        abs(prediction.deviation) < abs(prediction.guess_deviation) for prediction in predictions
    )
    worst = max(abs(prediction.deviation) for prediction in predictions)
    return (
        f"blind predictions of Table 6 from one network's row: at most {100 * worst:.1f} % off;"
        f" nearer than a guess in {better} of {len(predictions)}"
    )


def sensitivity_markdown(
    rows: Sequence[Sensitivity], claims: Mapping[str, Claim], blind: Sequence[Blind]
) -> list[str]:
    """Return lines of Markdown: constants and choices, verdicts that change, and blind predictions,
    if any.
    """
    lines = [*markdown(CONSTANT_COLUMNS, constant_rows(rows)), "", headline(rows), ""]
    lines += markdown(TURNING_COLUMNS, turning_rows(rows, claims))
    if blind:
        lines += ["", *markdown(BLIND_COLUMNS, blind_rows(blind)), "", blind_headline(blind)]
    return lines


def sensitivity_as_json(rows: Sequence[Sensitivity], blind: Sequence[Blind]) -> dict[str, Any]:
    """Return constants and choices with the verdicts of claims that depend on them, and blind
    predictions, for JSON.
    """
    freedoms: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for row in rows:
        freedoms[isinstance(row.constant, Choice)].append(_as_json(row))
    predictions = [
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
    ]
    return {"constants": freedoms[False], "choices": freedoms[True], "blind": predictions}


def _as_json(row: Sensitivity) -> dict[str, Any]:
    freedom = row.constant
    is_choice = isinstance(freedom, Choice)
    by_claim = {}
    for name, verdicts in row.verdicts.items():
        by_claim[name] = [verdict.value for verdict in verdicts]
    return {
        "key": freedom.key,
        "default": freedom.text(freedom.default) if is_choice else freedom.default,
        "values": [freedom.text(value) if is_choice else value for value in freedom.values],
        "why": freedom.why,
        "fitted_to": freedom.fitted_to,
        "verdicts": by_claim,
        "turning": list(row.turning),
    }


TURNED_COLUMNS = (
    "claim",
    "class",
    "verdict by default",
    "verdict now",
    "ours by default",
    "ours now",
)
CHANGE_COLUMNS = ("constant", "default", "now", "plausible")
_MOST_NAMED = 3


def changes_text(changes: Mapping[str, object], freedoms: Sequence[Freedom]) -> str:
    """Return changed constants and choices as text: `board.dsp_share = 0.85`."""
    by_key = {freedom.key: freedom for freedom in freedoms}
    return ", ".join(f"{key} = {by_key[key].text(value)}" for key, value in changes.items())


def changed_answer(changed: ChangedResults, freedoms: Sequence[Freedom]) -> list[str]:
    """Return which verdicts change, as lines: how many, those that are confirmed now, and those no
    longer.
    """
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
        f"{freedom.key} = {freedom.text(changed.changes[freedom.key])} is outside what is"
        f" plausible, {freedom.span}"
        for freedom in _of_changes(changed, freedoms)
        if not _is_plausible(freedom, changed.changes[freedom.key])
    ]


def _named(ids: Sequence[str]) -> str:
    return ", ".join(ids[:_MOST_NAMED]) + (
        f" and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else ""
    )


def change_rows(changed: ChangedResults, freedoms: Sequence[Freedom]) -> list[list[str]]:
    """Return a row for each changed constant or choice, under `CHANGE_COLUMNS`."""
    return [
        [
            freedom.key,
            freedom.text(freedom.default),
            freedom.text(changed.changes[freedom.key]),
            freedom.span,
        ]
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
    lines = [f"{line}." for line in changed_answer(changed, freedoms)]
    lines += ["", *markdown(CHANGE_COLUMNS, change_rows(changed, freedoms))]
    if changed.turning:
        lines += ["", *markdown(TURNED_COLUMNS, turned_rows(changed))]
    return [
        *lines,
        "",
        f"With {changes_text(changed.changes, freedoms)}:",
        "",
        *markdown_tables(changed.after),
    ]


def changed_as_json(changed: ChangedResults, freedoms: Sequence[Freedom]) -> dict[str, Any]:
    """Return changed constants, the verdicts that change, and all claims with these values, as
    JSON's values.
    """
    by_key = {freedom.key: freedom for freedom in freedoms}
    changes = {key: _value_as_json(by_key[key], value) for key, value in changed.changes.items()}
    turning = [
        {
            "id": after.claim.id,
            "class": after.claim.row_class.value,
            "default_verdict": before.verdict.value,
            "verdict": after.verdict.value,
            "default_ours": before.ours,
            "ours": after.ours,
        }
        for before, after in changed.turning
    ]
    return {"changes": changes, "turning": turning, "claims": list(map(as_json, changed.after))}


def _of_changes(changed: ChangedResults, freedoms: Sequence[Freedom]) -> Iterator[Freedom]:
    return (freedom for freedom in freedoms if freedom.key in changed.changes)


def _value_as_json(freedom: Freedom, value: object) -> object:
    return freedom.text(value) if isinstance(freedom, Choice) else value


def _is_plausible(freedom: Freedom, value: object) -> bool:
    if isinstance(freedom, Choice):
        return True
    assert isinstance(value, (int, float))
    return min(freedom.values) <= value <= max(freedom.values)
