"""The values of a configuration, for ranks that do not read it (`config.py` does), and their
meaning.
"""

from __future__ import annotations

import types
from typing import Any

from ...kernels.optimizers import Optimizer, parse_optimizer
from ..common import InputError
from .rates import MOST_SINGLE

Keys = Any
"""A `Config`, or the `Settings` that other ranks get of it; its attributes are the keys."""


class Settings(types.SimpleNamespace):
    """The configuration's keys as attributes."""


def optimizer_of(config: Keys, learning_rate: float) -> Optimizer:
    """Return the optimiser of a configuration, with its keys and a learning rate."""
    kind, own = parse_optimizer(config.optimizer)
    of_run = {key: getattr(config, key) for key in kind.settings() if hasattr(config, key)}
    return kind(**{**of_run, **own, "learning_rate": learning_rate})


def learning_rate(config: Keys, step: int, epoch_steps: int) -> float:
    """Return the learning rate of a mini-batch.

    It first rises in equal parts over `lr_warm_up` mini-batches. What becomes of it then is
    `lr_schedule`.

    Args:
        config: the run's configuration.
        step: number of the mini-batch since the start of training, from 0.
        epoch_steps: mini-batches of an epoch.

    Raises:
        InputError: the schedule gives no rate that updates can compute with.
    """
    warm_up, steps = config.lr_warm_up, config.epochs * epoch_steps
    share = config.lr_schedule.relative(
        step // epoch_steps, max(0, step - warm_up), steps - warm_up
    )
    rate: float = config.learning_rate * share
    if not 0 <= rate <= MOST_SINGLE:
        raise InputError(
            f"`lr_schedule` = {str(config.lr_schedule)!r}: gives mini-batch {step + 1} a rate of"
            f" {rate:g}; should be a number, at least 0 and at most {MOST_SINGLE:g}"
        )
    return rate * (step + 1) / warm_up if step < warm_up else rate


def check_updates(config: Keys) -> None:
    """Check that what a configuration says of the optimiser goes together.

    Raises:
        InputError: it does not.
    """
    problem = optimizer_of(config, config.learning_rate).problem
    if problem is not None:
        raise InputError(problem)
