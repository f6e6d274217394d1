"""The description of `[uncertainty]`, as in the files of clusters and boards (`uncertainty.py`)."""

from __future__ import annotations

import datetime
from typing import Annotated

import pydantic

from ..common import Model, PositiveFinite
from .uncertainty import RangeClass


class RangeDescription(Model):
    """An entry of `[uncertainty]`."""

    low: PositiveFinite | None = None
    high: PositiveFinite | None = None
    kind: Annotated[RangeClass, pydantic.Field(alias="class")] = "measured"
    source: Annotated[str, pydantic.Field(alias="from")] = ""
    date: datetime.date | str | None = None

    @pydantic.model_validator(mode="after")
    def _has_range(self) -> RangeDescription:
        if (self.low is None) != (self.high is None):
            raise ValueError("`low` and `high` belong together; one of them is missing")
        if self.low is None and self.kind == "measured":
            raise ValueError("class 'measured' needs `low` and `high`")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"`low` = {self.low:g} is above `high` = {self.high:g}")
        return self
