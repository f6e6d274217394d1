"""How the learning rate falls: the kinds of the key `lr_schedule`, each with its own keys behind
its name.

The learning rate of a mini-batch is a pure function of its number, so that all ranks and replicas
have the same.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from ...kernels import by_name, offered_subclasses, registry, spelled

LEAST_SINGLE, MOST_SINGLE = 1e-37, 1e38
"""Bounds of what updates compute with in single precision: less is 0, and more is infinite."""


@dataclasses.dataclass(frozen=True)
class RateSchedule(abc.ABC):
    """What becomes of the learning rate. Schedules are values: equal if they are spelt alike.

    A subclass that is registered is one more kind: a frozen dataclass whose fields are its keys.
    """

    name: ClassVar[str]
    ends: ClassVar[bool] = False
    """Whether the rates depend on when training ends."""

    @abc.abstractmethod
    def relative(self, epoch: int, after: int, most: int) -> float:
        """Return the rate of a mini-batch as a share of `learning_rate`.

        Args:
            epoch: the epoch that it is in, from 0.
            after: mini-batches between the end of the warm-up and this one; 0 before.
            most: mini-batches between the end of the warm-up and the end of training.
        """

    def __str__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        texts = {
            key: ",".join(map(str, value)) if isinstance(value, tuple) else value
            for key, value in values.items()
        }
        keys = ",".join(f"{key}={text}" for key, text in texts.items())
        return f"{self.name}:{keys}" if keys else self.name


@dataclasses.dataclass(frozen=True)
class Constant(RateSchedule):
    """The same rate to the end."""

    name = "constant"

    def relative(self, epoch: int, after: int, most: int) -> float:
        """See `RateSchedule`."""
        return 1.0


@dataclasses.dataclass(frozen=True)
class Step(RateSchedule):
    """Multiplied by `factor` whenever `every` mini-batches have passed since the warm-up."""

    every: int
    factor: float = 0.1

    name = "step"

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"`every` = {self.every}: should be at least 1")
        _check_factor(self.factor, 1)

    def relative(self, epoch: int, after: int, most: int) -> float:
        """See `RateSchedule`."""
        return float(self.factor ** (after // self.every))


@dataclasses.dataclass(frozen=True)
class Steps(RateSchedule):
    """Multiplied by `factor` after each of the epochs `at`, whose first is 1."""

    at: tuple[int, ...]
    factor: float = 0.1

    name = "steps"

    def __post_init__(self) -> None:
        _check_factor(self.factor, MOST_SINGLE)

    def relative(self, epoch: int, after: int, most: int) -> float:
        """See `RateSchedule`."""
        # Epochs count from 0 here, and from 1 in `at`: after epoch 1 comes the one of number 1.
        return float(self.factor ** sum(epoch >= end for end in self.at))


@dataclasses.dataclass(frozen=True)
class Cosine(RateSchedule):
    """Along half a cosine, to 0 at the end of training."""

    name = "cosine"
    ends = True

    def relative(self, epoch: int, after: int, most: int) -> float:
        """See `RateSchedule`."""
        # Before the end of the warm-up `after` is 0, and `most` may be, too.
        return (1 + math.cos(math.pi * after / most)) / 2 if after else 1.0


@registry
def rate_schedules() -> Mapping[str, type[RateSchedule]]:
    """Return all kinds by their names."""
    own: tuple[type[RateSchedule], ...] = Constant, Step, Steps, Cosine
    return by_name([*own, *offered_subclasses(RateSchedule)])  # type: ignore[type-abstract]


@registry
def parse_rates(text: str) -> RateSchedule:
    """Return the schedule that a text names: `cosine`, or `steps:at=10,20,factor=0.2`.

    Raises:
        ValueError: there is no such schedule, or it has no such keys or values.
    """
    kind, keys = spelled(text, rate_schedules())
    return kind(**keys)


def _check_factor(factor: float, most: float) -> None:
    if not LEAST_SINGLE <= factor <= most:
        bound = (
            f"less than or equal to {most:g}"
            if factor > most
            else f"greater than or equal to {LEAST_SINGLE:g}"
        )
        raise ValueError(f"`factor` = {factor:g}: should be {bound}")


FORMER = dict.fromkeys(
    ("lr_step", "lr_decay", "learning_rate_steps", "learning_rate_factor"), "lr_schedule"
)
"""Keys of earlier versions, with that of today which says the same."""


def of_today(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a file has, results or a checkpoint of any version, as keys of
    today.

    Raises:
        ValueError: those of an earlier version are damaged.
    """
    settings = {key: value for key, value in stored.items() if key not in FORMER}
    try:
        epochs = tuple(map(int, stored.get("learning_rate_steps", ())))
        if stored.get("lr_schedule") == Step.name:
            settings["lr_schedule"] = str(Step(int(stored["lr_step"]), float(stored["lr_decay"])))
        elif epochs:
            settings["lr_schedule"] = str(Steps(epochs, float(stored["learning_rate_factor"])))
    except (TypeError, KeyError, OverflowError) as error:
        raise ValueError(f"its learning rates are damaged: {error}") from None
    return settings
