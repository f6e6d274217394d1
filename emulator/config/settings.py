"""The values of a configuration, for ranks that do not read it themselves (`config.py` does), and their meaning.

The learning rate of a mini-batch is a pure function
of its number, so that all ranks and replicas have the same.
"""

from __future__ import annotations

import math
import types
from typing import Any

from ...kernels.optimizers import Optimizer, parse_optimizer
from ..common import InputError

Keys = Any
"""A `Config`, or the `Settings` that other ranks get of it; its attributes are the keys."""


class Settings(types.SimpleNamespace):
    """The configuration's keys as attributes."""

    def rate_in(self: Any, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        return self.learning_rate * self.learning_rate_factor ** sum(epoch >= step for step in self.learning_rate_steps)


def optimizer_of(config: Keys, learning_rate: float) -> Optimizer:
    """Return the optimiser of a configuration, with its keys and a learning rate."""
    kind, own = parse_optimizer(config.optimizer)
    of_run = {key: getattr(config, key) for key in kind.settings() if hasattr(config, key)}
    return kind(**{**of_run, **own, "learning_rate": learning_rate})


def learning_rate(config: Keys, step: int, epoch_steps: int) -> float:
    """Return the learning rate of a mini-batch.

    It first rises in equal parts over `lr_warm_up` mini-batches. From there on, `step` multiplies it by `lr_decay`
    after every `lr_step` mini-batches, and `cosine` takes it along half a cosine to 0 at the end of training.

    Args:
        config: the run's configuration.
        step: number of the mini-batch since the start of training, from 0.
        epoch_steps: mini-batches of an epoch.
    """
    rate: float = config.rate_in(step // epoch_steps)
    after = step - config.lr_warm_up
    if after < 0:
        return rate * (step + 1) / config.lr_warm_up
    if config.lr_schedule == "step" and config.lr_step is not None:
        return rate * config.lr_decay ** (after // config.lr_step)
    if config.lr_schedule == "cosine":
        return rate * (1 + math.cos(math.pi * after / (config.epochs * epoch_steps - config.lr_warm_up))) / 2
    return rate


def check_updates(config: Keys) -> None:
    """Check that what a configuration says of the optimiser and its learning rate goes together.

    Raises:
        InputError: it does not.
    """
    problem = optimizer_of(config, config.learning_rate).problem
    if problem is not None:
        raise InputError(problem)
    if config.lr_schedule == "step" and config.lr_step is None:
        raise InputError(
            "`lr_schedule` = 'step': needs `lr_step`, the mini-batches after which the learning rate is multiplied by"
            " `lr_decay`, such as 1000"
        )
    if config.lr_schedule != "step" and config.lr_step is not None:
        raise InputError(
            f"`lr_step` = {config.lr_step}: has no effect with `lr_schedule` = {config.lr_schedule!r}; leave it out,"
            " or set `lr_schedule` = 'step'"
        )
    if config.lr_schedule != "constant" and config.learning_rate_steps:
        raise InputError(
            f"`lr_schedule` = {config.lr_schedule!r}: cannot be combined with `learning_rate_steps`, which is a"
            " schedule by epochs; leave one of them out"
        )
