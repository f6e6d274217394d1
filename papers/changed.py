"""A paper's claims with other values of its constants, beside those with the defaults: which verdicts change."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from ..emulator.common import InputError, did_you_mean
from ..launch import SingleProcess, WorkerLost, in_parallel, usable_cores
from .claim import Claim, load_claims
from .constants import Constant
from .run import Result, validate
from .sensitivity import Announce, constants_of

_FURTHEST = 100
"""How many times a value may be below the least plausible one, or above the greatest."""


@dataclasses.dataclass(frozen=True)
class ChangedResults:
    """The results of claims with the constants' defaults, and with other values, by key; both in the claims' order."""

    changes: Mapping[str, float]
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
    paper: str, claims: Sequence[Claim], changes: Mapping[str, float], announce: Announce, jobs: int | None = None
) -> ChangedResults:
    """Measure claims with a paper's constants as they are, and with other values.

    Args:
        paper: its name.
        claims: the claims.
        changes: values by the constants' keys, as `parse_changes` returns them.
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


def _results(task: tuple[str, tuple[str, ...], dict[str, float]]) -> list[Result]:
    """Return the results of claims with other values of constants."""
    paper, names, changes = task
    known = load_claims(paper)
    try:
        return list(validate(paper, [known[name] for name in names], changes))
    except (InputError, ArithmeticError, ValueError) as error:
        if not changes:
            raise
        given = " ".join(f"--set {key}={value:g}" for key, value in changes.items())
        raise InputError(f"{given}: a claim cannot be measured with it: {error}") from None


def parse_changes(paper: str, texts: Sequence[str]) -> dict[str, float]:
    """Return values by the keys of a paper's constants, from texts such as `board.dsp_share=0.85` or `dsp_share=0.85`.

    Raises:
        InputError: a text has another form, its constant is unknown or given twice, or the value is no number that it
            can have.
    """
    constants = constants_of(paper)
    known = {**{constant.name: constant for constant in constants}, **{c.key: c for c in constants}}
    changes: dict[str, float] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise InputError(
                f"--set {text}: expected CONSTANT=VALUE, such as {constants[0].name}={constants[0].default}"
            )
        constant = known.get(name)
        if constant is None:
            said = ", ".join(constant.key for constant in constants)
            raise InputError(
                f"--set {text}: {paper} has no constant `{name}`; {did_you_mean(name, known)}its constants: {said}"
            )
        if constant.key in changes:
            raise InputError(f"--set {text}: `{constant.key}` is given twice")
        changes[constant.key] = _value(text, constant, value)
    return changes


def _value(text: str, constant: Constant, value: str) -> float:
    """Return the value of a constant.

    Raises:
        InputError: it is no number, or far from the plausible ones.
    """
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    low, high = min(constant.values), max(constant.values)
    if not low / _FURTHEST <= number <= high * _FURTHEST:
        raise InputError(
            f"--set {text}: `{constant.key}` should be a number from {low / _FURTHEST:g} to {high * _FURTHEST:g};"
            f" plausible are {low:g} to {high:g} ({constant.why})"
        )
    return int(number) if number.is_integer() else number
