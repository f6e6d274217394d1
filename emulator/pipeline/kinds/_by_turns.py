"""What the kinds of 1F1B have in common: warm-up forwards, and then B and F by turns."""

from __future__ import annotations

from collections.abc import Callable

from ...schedule import Schedule, warm_up
from ..formulas import one_by_one
from ..machine import Machine
from ..shape import ClosedForm, PipelineKind, Shape
from ..warm_ups import warm_ups


def by_turns(
    name: str,
    summary: str,
    machine: Machine,
    forwards: str | Callable[[Shape], tuple[int, ...]],
    closed_form: Callable[[Shape], ClosedForm | None] = one_by_one,
) -> PipelineKind:
    """Return the kind of a schedule whose warm-up `forwards` are an expression of N, M and i, or a function."""

    def generate(shape: Shape) -> Schedule:
        assert shape.warm_ups is not None  # PipelineKind.schedule sets them
        return warm_up(name, shape.epoch, shape.warm_ups)

    def of_expression(shape: Shape) -> tuple[int, ...]:
        return warm_ups(str(forwards), shape.devices, shape.micro_batches)

    return PipelineKind(
        name, summary, machine, generate, closed_form, forwards if callable(forwards) else of_expression
    )
