"""The learning rate of each mini-batch, and what of the optimiser's keys does not go together."""

from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.config import Config, check_updates, learning_rate
from emuchain.emulator.device import Rules
from emuchain.kernels.optimizers import optimizers


def rates(epoch_steps: int, **keys: object) -> list[float]:
    """The rates of a whole run."""
    config = Config(learning_rate=0.8, **keys)
    return [learning_rate(config, step, epoch_steps) for step in range(config.epochs * epoch_steps)]


def test_a_constant_rate_is_the_epochs() -> None:
    assert rates(3, epochs=2) == [0.8] * 6
    by_epoch = rates(2, epochs=3, learning_rate_steps=(1, 2), learning_rate_factor=0.25)
    assert by_epoch == pytest.approx([0.8, 0.8, 0.2, 0.2, 0.05, 0.05])


def test_steps_count_mini_batches_whatever_the_epochs() -> None:
    expected = [0.8, 0.8, 0.4, 0.4, 0.2, 0.2]
    assert rates(3, epochs=2, lr_schedule="step", lr_step=2, lr_decay=0.5) == expected
    assert rates(6, epochs=1, lr_schedule="step", lr_step=2, lr_decay=0.5) == expected


def test_a_cosine_ends_near_zero() -> None:
    found = rates(4, epochs=2, lr_schedule="cosine")
    assert found == pytest.approx([0.4 * (1 + math.cos(math.pi * step / 8)) for step in range(8)])
    assert found[0] == 0.8
    assert found[4] == pytest.approx(0.4)


def test_schedules_begin_after_the_warm_up() -> None:
    assert rates(6, lr_warm_up=4)[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8])
    assert rates(6, lr_warm_up=2, lr_schedule="step", lr_step=2) == pytest.approx([0.4, 0.8, 0.8, 0.8, 0.08, 0.08])
    assert rates(6, lr_warm_up=2, lr_schedule="cosine")[2:] == pytest.approx(rates(4, lr_schedule="cosine"))


@pytest.mark.parametrize("schedule", ["constant", "step", "cosine"])
def test_a_warm_up_may_be_longer_than_the_run(schedule: str) -> None:
    keys = {"lr_step": 1} if schedule == "step" else {}
    assert rates(2, epochs=2, lr_warm_up=8, lr_schedule=schedule, **keys) == pytest.approx([0.1, 0.2, 0.3, 0.4])


@given(
    st.sampled_from(["constant", "step", "cosine"]),
    st.integers(0, 12),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(1, 9),
)
def test_rates_rise_and_then_fall(schedule: str, warm_up: int, lr_step: int, epochs: int, epoch_steps: int) -> None:
    keys = {"lr_step": lr_step} if schedule == "step" else {}
    found = rates(epoch_steps, epochs=epochs, lr_schedule=schedule, lr_warm_up=warm_up, **keys)
    assert all(0 < rate <= 0.8 * (1 + 1e-12) for rate in found)
    assert found[warm_up:] == sorted(found[warm_up:], reverse=True)
    assert found[:warm_up] == sorted(found[:warm_up])


def test_other_ranks_have_the_same_rates() -> None:
    config = Config(lr_schedule="cosine", lr_warm_up=3, epochs=2)
    there = pickle.loads(pickle.dumps(config))
    assert type(there) is not Config
    for step in range(10):
        assert learning_rate(there, step, 5) == learning_rate(config, step, 5)


@pytest.mark.parametrize("optimizer", optimizers())
def test_rules_keep_what_is_counted(optimizer: str) -> None:
    rule = Rules(Config(optimizer=optimizer, lr_warm_up=10), 2, 3)(1)
    moments = ("first_moment", "second_moment")
    assert rule.states == {"adam": moments, "adamw": moments}.get(optimizer, ("velocity",))
    assert rule.optimizer.learning_rate == pytest.approx(0.01 * 8 / 10)
    assert rule.number == 8
    assert optimizers()[optimizer].states_beside_lgb == {"sgd": 0, "nesterov": 1, "adam": 2, "adamw": 2}[optimizer]


def test_what_goes_together() -> None:
    check_updates(Config())
    check_updates(Config(momentum=0))
    check_updates(Config(optimizer="adam", momentum=0, lr_schedule="step", lr_step=3))
    check_updates(Config(learning_rate_steps=(1,), lr_warm_up=3))
    with pytest.raises(InputError, match="`lr_step` = 3: has no effect with `lr_schedule` = 'cosine'"):
        check_updates(Config(lr_schedule="cosine", lr_step=3))
