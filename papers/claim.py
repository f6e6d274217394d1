"""A paper's constants, tables and claims, as data: PAPER/claims.toml; what a measure returns; files
of runs.

[[constant]]                               # what the paper's text leaves open: see `Constant`
key = "board.dsp_share"
default = 0.833
values = [0.80, 0.833, 0.86]               # plausible ones, with the reason
why = "roughly 80 %"
fitted_to = "the mean of Table 6's GOPS"   # if it was

[[choice]]                                 # the same of what is no number: see `Choice`
key = "network.blocking"
alternatives = { in-turn = true, at-once = false }
why = "Algorithm 1 lists a send and then a receive"

[figures]                                  # published tables that measures take as they are

[[claim]]
id = "fpdeep-t6-vgg16-gops"
where = "Table 6"
kind = "value"
class = "fitted"                           # what its verdict is worth: see `Class`
quantity = "performance per FPGA"
value = 1197                               # as published
unit = "GOPS"
setting = "FPDeep, VGG-16, 15 FPGAs"
measure = "throughput.gops('vgg16')"       # a formula (run.py)
how = "mean of 15"                         # a note on it, where its function has none
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
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar

import pydantic

from ..emulator.common import InputError, Model, did_you_mean, read_text, read_toml, validate
from ..emulator.common import validate as checked
from .constants import Choice, Constant, Freedom

_FOLDER = pathlib.Path(__file__).parent

Value = Any
"""A number, a string, a boolean, or a list of these."""


class Expect(Model):
    """The expected value of a measure: one key besides `tolerance` and `points`. It applies to each
    number of a list.

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
            raise ValueError(
                "must have exactly one of near, equals, at_least, at_most, above, below, between"
            )
        return self

    @property
    def said(self) -> dict[str, Value]:
        """The key that is set, with its value."""
        return {
            key: value
            for key, value in self
            if key not in ("tolerance", "points") and value is not None
        }


class Missed(Model):
    """What keeps a row from being confirmed: one key, which says what.

    `mendable`: what would have to be modelled, measured or trained. `inconsistent`: two places of
    the paper, or of what it names, that exclude each other. `undecidable`: what the paper leaves
    out.
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
        said = (
            " against ".join(self.inconsistent)
            if self.inconsistent
            else self.mendable or self.undecidable
        )
        return f"{self.kind}: {said}"


class Class(enum.Enum):
    """What a row's verdict is worth: whether it could have come out otherwise, and what it rests
    on.
    """

    PREDICTION = "prediction"
    """Could have come out otherwise; no constant in it was set by it or by its like, and none
    decides its verdict.
    """
    FITTED = "fitted"
    """Hangs on a constant or a choice that was set by it or by its like, or that turns it within a
    plausible range.
    """
    IDENTITY = "identity"
    """Follows from a formula alone."""
    ECHO = "echo"
    """A setting or a quotation that is read back."""
    STRUCTURE = "structure"
    """The emulator was built so."""


class Claim(Model):
    """One statement of a paper, with the expected value of its measure, or the reason why it has
    none.

    `null` is what a guess gives that knows nothing of the model: where it is good, too, the verdict
    shows nothing. `same_as` names the row that makes the same claim, or the order in which this one
    is a place.
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


class Picture(Model):
    """Bars, published and ours: for each panel by its label the claims by the names of their
    bars.
    """

    name: str
    panels: dict[str, dict[str, str]]


class _Claims(Model):
    constant: list[Constant] = pydantic.Field(default_factory=list)
    choice: list[Choice] = pydantic.Field(default_factory=list)
    figures: dict[str, Any] = pydantic.Field(default_factory=dict)
    picture: list[Picture] = pydantic.Field(default_factory=list)
    claim: list[Claim]

    @pydantic.model_validator(mode="after")
    def _once(self) -> _Claims:
        counts = Counter(claim.id for claim in self.claim)
        for name, count in counts.items():
            if count > 1:
                raise ValueError(f"{name}: the id of {count} claims")
        for claim in self.claim:
            if claim.same_as is not None and claim.same_as not in counts.keys() - {claim.id}:
                raise ValueError(
                    f"{claim.id}: `same_as` = {claim.same_as!r} is no other claim's id"
                )
        return self


def papers() -> list[str]:
    """Return the names of the papers whose claims come with emuchain."""
    return sorted(path.parent.name for path in _FOLDER.glob("*/claims.toml"))


@functools.cache
def _load(paper: str) -> _Claims:
    """Return a paper's file.

    Raises:
        InputError: there is no such paper.
    """
    if paper not in papers():
        raise InputError(
            f"`paper` = {paper!r}: {did_you_mean(paper, papers())}known: {', '.join(papers())}"
        )
    path = _FOLDER / paper / "claims.toml"
    return checked(_Claims, read_toml(path), str(path))


@functools.cache
def load_claims(paper: str) -> dict[str, Claim]:
    """Return a paper's claims by their ids.

    Raises:
        InputError: there is no such paper.
    """
    return {claim.id: claim for claim in _load(paper).claim}


def constants_of(paper: str) -> Sequence[Constant]:
    """Return the constants of a paper."""
    return _load(paper).constant


def freedoms_of(paper: str) -> Sequence[Freedom]:
    """Return the degrees of freedom of a paper: its constants, then its choices."""
    return (*constants_of(paper), *_load(paper).choice)


def constant(paper: str, key: str) -> Constant:
    """Return a constant of a paper by its key."""
    return next(constant for constant in constants_of(paper) if constant.key == key)


def choice(paper: str, key: str) -> Choice:
    """Return a choice of a paper by its key."""
    return next(choice for choice in _load(paper).choice if choice.key == key)


def pictures_of(paper: str) -> Sequence[Picture]:
    """Return the bars that a paper's file describes."""
    return _load(paper).picture


def figures(paper: str, name: str) -> Any:
    """Return a published table of a paper."""
    return _load(paper).figures[name]


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
