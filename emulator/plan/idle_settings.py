"""Settings that were given and change nothing, as in a run without replicas what only replicas would do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config import Config
    from .plan import ChainPlan

_MOMENTUM, _ADAM = ("momentum",), ("beta1", "beta2", "epsilon")
_NOT_OF: Mapping[str, tuple[str, ...]] = {"sgd": _ADAM, "nesterov": _ADAM, "adam": _MOMENTUM, "adamw": _MOMENTUM}
"""By optimizer, the keys that only others read."""


def idle_settings(plan: ChainPlan) -> tuple[str, ...]:
    """Return a line for each setting of a plan that was given and has no effect, with what would give it one."""
    return tuple(f"`{key}` = {said}: has no effect {why}" for key, said, why in _idle(plan))


def _idle(plan: ChainPlan) -> Iterator[tuple[str, object, str]]:
    config, of = plan.config, plan.data_parallel
    given = config.model_fields_set
    alone = "without replicas; add `replicas`, such as 2"
    if plan.has_idle_codec:
        yield "compress", of.codec, alone
    if of.replicas == 1 and "exchange" in given:
        yield "exchange", config.exchange, alone
    yield from ((key, getattr(config, key), why) for key, why in _of_rates(config) if key in given)


def _of_rates(config: Config) -> Iterator[tuple[str, str]]:
    for key in _NOT_OF[config.optimizer]:
        yield key, f"with `optimizer` = {config.optimizer!r}"
    if config.lr_schedule != "step":
        yield "lr_decay", "without `lr_schedule` = 'step'"
    if not config.learning_rate_steps:
        yield "learning_rate_factor", "without `learning_rate_steps`"
