"""The closed form of 1F1B without a flush: M micro-batches of several mini-batches take as long as those of one."""

from __future__ import annotations

import dataclasses

from ...schedule import schedules
from ..formulas import one_by_one
from ..shape import ClosedForm, Shape


def unflushed_form(shape: Shape) -> ClosedForm | None:
    """Return the form of `1f1b-sno`, whose order this is but for updates, which take no time here."""
    least = schedules()["1f1b-sno"].warm_ups
    assert least is not None
    return one_by_one(dataclasses.replace(shape, warm_ups=least(shape.devices)))
