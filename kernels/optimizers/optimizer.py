"""The interface of an optimiser. Each keeps arrays of its own for every parameter, from update to update."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from ..extensions import by_name, registry, spelled, subclasses
from ..jit import Floats


@dataclasses.dataclass(frozen=True)
class Optimizer(abc.ABC):
    """An optimiser, whose fields are the keys of a run's configuration that it reads.

    `learning_rate` is that of the update and `number` counts updates from 1, since the start of training.
    """

    name: ClassVar[str]
    states: ClassVar[tuple[str, ...]]
    """Names of the arrays that it keeps, each of the parameter's size and zero at first."""
    states_beside_lgb: ClassVar[int]
    """How many of them LGB has to hold beside the sum of gradients."""

    learning_rate: float
    weight_decay: float

    @abc.abstractmethod
    def update(self, value: Floats, gradient: Floats, states: Mapping[str, Floats], *, count: int, number: int) -> None:
        """Change a parameter and its `states` in place, from `gradient`, the sum of the gradients of `count` samples.

        The arrays are C-contiguous and of one shape; `gradient` is not changed.

        Raises:
            ValueError: they are not, or `count` or `number` is below 1.
        """

    @property
    def problem(self) -> str | None:
        """What is wrong with its keys together, and what would be right; None if nothing is."""
        return None

    @classmethod
    def settings(cls) -> tuple[str, ...]:
        """Return the keys of a run's configuration that it reads."""
        return tuple(field.name for field in dataclasses.fields(cls))


_OF_EVERY_RUN = ("learning_rate", "momentum", "beta1", "beta2", "epsilon", "weight_decay")
"""The keys of a run's configuration; all others of an optimiser stand behind its name."""


@registry
def optimizers() -> Mapping[str, type[Optimizer]]:
    """Return all optimisers by their names."""
    return by_name(subclasses(__package__, Optimizer))  # type: ignore[type-abstract]


@registry
def parse_optimizer(text: str) -> tuple[type[Optimizer], Mapping[str, Any]]:
    """Return the optimiser that a text names, and keys of its own: of `adam` none, of `ademamix:beta3=0.9999` one.

    Raises:
        ValueError: there is no such optimiser, or it has no such keys.
    """
    return spelled(text, optimizers(), _OF_EVERY_RUN)


def optimizer_kind(text: str) -> type[Optimizer]:
    """Return the optimiser that a text names. Raise ValueError where there is none."""
    return parse_optimizer(text)[0]
