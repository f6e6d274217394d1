"""What a paper claims, as data: claims/PAPER.toml.

[[claim]]
id = "fpdeep-t6-vgg16-gops"
where = "Table 6"
kind = "value"
quantity = "performance per FPGA"
value = 1197                               # as published
unit = "GOPS"
setting = "FPDeep, VGG-16, 15 FPGAs"
expect = { near = 1197, tolerance = 0.05 } # of the measure; or `not_run` says why there is none
explanation = "..."                        # why ours differs, if it does
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import Annotated, Any, Literal

import pydantic

from ...common import shipped as shelf
from ...common.errors import InputError
from ...inputs.validation import Model, read_toml
from ...inputs.validation import validate as checked

Value = Any
"""A number, a word, a boolean, or a list of such."""


class Expect(Model):
    """What a measure is to be; one of the keys but `tolerance` and `points`. Of a list of numbers, each is to be so.

    `tolerance` is a share of what is near; `points`, which goes before it, is in the unit of the value.
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
            raise ValueError("must say one of near, equals, at_least, at_most, above, below, between")
        return self

    @property
    def said(self) -> dict[str, Value]:
        """The key and its value."""
        return {key: value for key, value in self if key not in ("tolerance", "points") and value is not None}


class Claim(Model):
    """One statement of a paper, and what is expected of its measure, or why it has none."""

    id: str
    where: str
    kind: Literal["value", "inequality", "ordering", "trend", "structure", "formula"]
    quantity: str
    value: Value
    unit: str = ""
    setting: str = ""
    expect: Expect | None = None
    not_run: str | None = None
    explanation: str | None = None

    @pydantic.model_validator(mode="after")
    def _run_or_not(self) -> Claim:
        if (self.expect is None) == (self.not_run is None):
            raise ValueError(f"{self.id}: must have either `expect` or `not_run`")
        return self


class _Claims(Model):
    claim: list[Claim]

    @pydantic.model_validator(mode="after")
    def _once(self) -> _Claims:
        counts = Counter(claim.id for claim in self.claim)
        for name, count in counts.items():
            if count > 1:
                raise ValueError(f"{name}: stands here {count} times")
        return self


def papers() -> list[str]:
    """The papers whose claims come with emuchain."""
    return shelf.names("studies/validate/claims")


@functools.cache
def load_claims(paper: str) -> dict[str, Claim]:
    """A paper's claims by their ids.

    Raises:
        InputError: no such paper.
    """
    if paper not in papers():
        raise InputError(f"`paper` = {paper!r}: known: {', '.join(papers())}")
    path = shelf.find("paper", paper, "studies/validate/claims")
    claims = checked(_Claims, read_toml(path), str(path)).claim
    return {claim.id: claim for claim in claims}
