"""A paper's claims, as data: PAPER/claims.toml; what a measure of one returns; files of runs that some are measured on.

[[claim]]
id = "fpdeep-t6-vgg16-gops"
where = "Table 6"
kind = "value"
class = "fitted"                           # what its verdict is worth: see `Class`
quantity = "performance per FPGA"
value = 1197                               # as published
unit = "GOPS"
setting = "FPDeep, VGG-16, 15 FPGAs"
measure = "gops('vgg16')"                  # a formula (run.py); or MEASURES of the paper's files have the id
how = "mean of 15"                         # the note of a formula of constants alone
expect = { near = 1197, tolerance = 0.05 } # of the measure; or `not_run`: why there is none
null = 1200                                # what a guess without the model gives, where one is known
same_as = "fpdeep-..."                     # the same claim, or the order of which this is a place: counted once
explanation = "..."                        # why our value differs, if it does
missed = { undecidable = "the clock" }     # what a verdict that is not good comes from: see `Missed`
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import pathlib
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

import pydantic

from ..emulator.common import InputError, Model, did_you_mean, read_text, read_toml, validate
from ..emulator.common import validate as checked

_FOLDER = pathlib.Path(__file__).parent

Value = Any
"""A number, a string, a boolean, or a list of these."""


class Expect(Model):
    """The expected value of a measure: one key besides `tolerance` and `points`. It applies to each number of a list.

    `tolerance` is a share of `near`; `points`, which takes precedence, is in the unit of the value.
    """

    near: Value = None
    tolerance: Annotated[float, pydantic.Field(gt=0)] = 0.10
    points: Annotated[float | None, pydantic.Field(gt=0)] = None
    equals: Value = None
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    between: Value = None

    @pydantic.model_validator(mode="after")
    def _one(self) -> Expect:
        if len(self.said) != 1:
            raise ValueError("must have exactly one of near, equals, at_least, at_most, above, below, between")
        return self

    @property
    def said(self) -> dict[str, Value]:
        """The key that is set, with its value."""
        return {key: value for key, value in self if key not in ("tolerance", "points") and value is not None}


class Missed(Model):
    """What keeps a row from being confirmed: one key, which says what.

    `mendable`: what would have to be modelled, measured or trained. `inconsistent`: two places of the paper, or of what
    it names, that exclude each other. `undecidable`: what the paper leaves out.
    """

    mendable: str | None = None
    inconsistent: Annotated[list[str] | None, pydantic.Field(min_length=2, max_length=2)] = None
    undecidable: str | None = None

    @pydantic.model_validator(mode="after")
    def _one(self) -> Missed:
        if sum(value is not None for _, value in self) != 1:
            raise ValueError("must have exactly one of mendable, inconsistent, undecidable")
        return self

    @property
    def kind(self) -> str:
        """The key that is set."""
        return next(key for key, value in self if value is not None)

    @property
    def text(self) -> str:
        """The kind and what it says, as text."""
        said = " against ".join(self.inconsistent) if self.inconsistent else self.mendable or self.undecidable
        return f"{self.kind}: {said}"


class Class(enum.Enum):
    """What a row's verdict is worth: whether it could have come out otherwise, and what it rests on."""

    PREDICTION = "prediction"
    """Could have come out otherwise; no constant in it was set by it or by its like, and none decides its verdict."""
    FITTED = "fitted"
    """Hangs on a constant or a choice that was set by it or by its like, or that turns it within a plausible range."""
    IDENTITY = "identity"
    """Follows from a formula alone."""
    ECHO = "echo"
    """A setting or a quotation that is read back."""
    STRUCTURE = "structure"
    """The emulator was built so."""


class Claim(Model):
    """One statement of a paper, with the expected value of its measure, or the reason why it has none.

    `null` is what a guess gives that knows nothing of the model: where it is good, too, the verdict shows nothing.
    `same_as` names the row that makes the same claim, or the order in which this one is a place.
    """

    id: str
    where: str
    kind: Literal["value", "inequality", "ordering", "trend", "structure", "formula"]
    row_class: Annotated[Class, pydantic.Field(alias="class", strict=False)]
    quantity: str
    value: Value
    unit: str = ""
    setting: str = ""
    measure: str | None = None
    how: str = ""
    expect: Expect | None = None
    not_run: str | None = None
    null: Value = None
    same_as: str | None = None
    explanation: str | None = None
    missed: Missed | None = None

    @pydantic.model_validator(mode="after")
    def _run_or_not(self) -> Claim:
        if (self.expect is None) == (self.not_run is None):
            raise ValueError(f"{self.id}: must have either `expect` or `not_run`")
        if (self.measure and self.not_run) or (self.how and not self.measure):
            raise ValueError(f"{self.id}: `measure` stands with `expect`, and `how` with `measure`")
        if self.missed and not (self.expect and self.explanation):
            raise ValueError(f"{self.id}: `missed` stands with `expect` and `explanation`")
        return self


class _Claims(Model):
    claim: list[Claim]

    @pydantic.model_validator(mode="after")
    def _once(self) -> _Claims:
        counts = Counter(claim.id for claim in self.claim)
        for name, count in counts.items():
            if count > 1:
                raise ValueError(f"{name}: the id of {count} claims")
        for claim in self.claim:
            if claim.same_as is not None and claim.same_as not in counts.keys() - {claim.id}:
                raise ValueError(f"{claim.id}: `same_as` = {claim.same_as!r} is no other claim's id")
        return self


def papers() -> list[str]:
    """Return the names of the papers whose claims come with emuchain."""
    return sorted(path.parent.name for path in _FOLDER.glob("*/claims.toml"))


@functools.cache
def load_claims(paper: str) -> dict[str, Claim]:
    """Return a paper's claims by their ids.

    Raises:
        InputError: there is no such paper.
    """
    if paper not in papers():
        raise InputError(f"`paper` = {paper!r}: {did_you_mean(paper, papers())}known: {', '.join(papers())}")
    path = _FOLDER / paper / "claims.toml"
    claims = checked(_Claims, read_toml(path), str(path)).claim
    return {claim.id: claim for claim in claims}


@dataclasses.dataclass(frozen=True)
class Measured:
    """A measured value, with a short note on how it was measured or on its context."""

    ours: Value
    how: str = ""


Measure = Callable[[], Measured]


class NoEvidence(Exception):
    """Raised where a claim cannot be measured; `str(error)` says what is missing."""


RunsT = TypeVar("RunsT", bound=Model)


def read_run_file(path: pathlib.Path, model: type[RunsT]) -> RunsT:
    """Return a file of runs.

    Raises:
        InputError: the file cannot be read, or has another form.
    """
    try:
        said = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a file of runs: {error}") from None
    if not isinstance(said, dict):
        raise InputError(f"{path}: not a file of runs: must be an object with `runs`")
    return validate(model, said, str(path))
