"""The learning rate of each mini-batch, and what of the optimiser's keys does not go together."""

from __future__ import annotations

import math
import pickle
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.config import (
    FORMER,
    Config,
    check_updates,
    learning_rate,
    of_today,
    parse_changes,
    parse_rates,
    settings_config,
)
from emuchain.emulator.device import Rules
from emuchain.kernels.optimizers import optimizers


def rates(epoch_steps: int, **keys: object) -> list[float]:
    """The rates of a whole run."""
    config = Config(learning_rate=0.8, **keys)
    return [learning_rate(config, step, epoch_steps) for step in range(config.epochs * epoch_steps)]


def test_a_constant_rate_is_the_epochs() -> None:
    assert rates(3, epochs=2) == [0.8] * 6
    by_epoch = rates(2, epochs=3, lr_schedule="steps:at=1,2,factor=0.25")
    assert by_epoch == pytest.approx([0.8, 0.8, 0.2, 0.2, 0.05, 0.05])


def test_steps_count_mini_batches_whatever_the_epochs() -> None:
    expected = [0.8, 0.8, 0.4, 0.4, 0.2, 0.2]
    assert rates(3, epochs=2, lr_schedule="step:every=2,factor=0.5") == expected
    assert rates(6, epochs=1, lr_schedule="step:every=2,factor=0.5") == expected


def test_a_cosine_ends_near_zero() -> None:
    found = rates(4, epochs=2, lr_schedule="cosine")
    assert found == pytest.approx([0.4 * (1 + math.cos(math.pi * step / 8)) for step in range(8)])
    assert found[0] == 0.8
    assert found[4] == pytest.approx(0.4)


def test_schedules_begin_after_the_warm_up() -> None:
    assert rates(6, lr_warm_up=4)[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8])
    assert rates(6, lr_warm_up=2, lr_schedule="step:every=2") == pytest.approx(
        [0.4, 0.8, 0.8, 0.8, 0.08, 0.08]
    )
    assert rates(6, lr_warm_up=2, lr_schedule="cosine")[2:] == pytest.approx(
        rates(4, lr_schedule="cosine")
    )


@pytest.mark.parametrize("schedule", ["constant", "step:every=1", "cosine"])
@pytest.mark.parametrize("warm_up", [4, 8])
def test_a_warm_up_may_be_as_long_as_the_run(schedule: str, warm_up: int) -> None:
    expected = [0.8 * step / warm_up for step in (1, 2, 3, 4)]
    assert rates(2, epochs=2, lr_warm_up=warm_up, lr_schedule=schedule) == pytest.approx(expected)


@given(
    st.one_of(
        st.sampled_from(["constant", "cosine"]),
        st.integers(1, 5).map(lambda every: f"step:every={every}"),
    ),
    st.integers(0, 12),
    st.integers(1, 4),
    st.integers(1, 9),
)
def test_rates_rise_and_then_fall(
    schedule: str, warm_up: int, epochs: int, epoch_steps: int
) -> None:
    found = rates(epoch_steps, epochs=epochs, lr_schedule=schedule, lr_warm_up=warm_up)
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
    assert (
        optimizers()[optimizer].states_beside_lgb
        == {"sgd": 0, "nesterov": 1, "adam": 2, "adamw": 2}[optimizer]
    )


def test_what_goes_together() -> None:
    check_updates(Config())
    check_updates(Config(momentum=0))
    check_updates(Config(optimizer="adam", momentum=0, lr_schedule="step:every=3"))
    check_updates(Config(lr_schedule="steps:at=1", lr_warm_up=3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("linear", "known: constant, step, steps, cosine"),
        ("step", "`step` needs `every`: write `step:every=...`"),
        ("step:every=0", "`every` = 0: should be at least 1"),
        ("step:every=1.5", "`every` of `step:every=1.5` should be a whole number"),
        ("step:every=3,factor=1.5", "`factor` = 1.5: should be less than or equal to 1"),
        ("step:every=3,factor=1e-320", "should be greater than or equal to 1e-37"),
        (
            "step:every=3,factor=nan",
            "`factor` of `step:every=3,factor=nan` should be a finite number",
        ),
        ("steps", "`steps` needs `at`: write `steps:at=...`"),
        ("steps:at=0,1", "should be whole numbers above 0, such as 4x6 or 10,20"),
        ("steps:at=1,x", "should be whole numbers above 0, such as 4x6 or 10,20"),
        ("steps:at=1,factor=0", "should be greater than or equal to 1e-37"),
        ("steps:at=1,factor=1e300", "should be less than or equal to 1e+38"),
        ("cosine:every=1", "'every=1' of `cosine:every=1` is too much; write `cosine`"),
        ("constant:", "is too much; write `constant`"),
    ],
)
def test_wrong_schedules(text: str, message: str) -> None:
    with pytest.raises(
        InputError, match=f"^settings: `lr_schedule` = '{text}': .*{re.escape(message)}"
    ):
        settings_config({"lr_schedule": text})


@pytest.mark.parametrize(
    "text", ["constant", "cosine", "step:every=5,factor=0.1", "steps:at=1,20,factor=0.25"]
)
def test_schedules_are_spelt_with_all_keys(text: str) -> None:
    assert str(parse_rates(text)) == text
    short = text.removesuffix(",factor=0.1")
    assert settings_config({"lr_schedule": short}).model_dump()["lr_schedule"] == text


FORMERLY: dict[str, Any] = {
    **{"batch": 8, "lr_schedule": "constant", "lr_step": None, "lr_decay": 0.1},
    **{"learning_rate_steps": [], "learning_rate_factor": 0.1},
}


@pytest.mark.parametrize(
    ("changed", "schedule"),
    [
        ({}, "constant"),
        ({"lr_schedule": "cosine"}, "cosine"),
        ({"lr_schedule": "step", "lr_step": 3, "lr_decay": 0.5}, "step:every=3,factor=0.5"),
        ({"learning_rate_steps": np.array([1, 2])}, "steps:at=1,2,factor=0.1"),
        (
            {"learning_rate_steps": (4,), "learning_rate_factor": 2.0, "lr_step": ""},
            "steps:at=4,factor=2.0",
        ),
    ],
)
def test_files_of_earlier_versions_keep_their_rates(changed: dict[str, Any], schedule: str) -> None:
    today = of_today({**FORMERLY, **changed})
    assert today == {"batch": 8, "lr_schedule": schedule}
    assert of_today(today) == today
    settings_config(today)


@pytest.mark.parametrize(
    "changed",
    [
        {"lr_schedule": "step"},
        {"lr_schedule": "step", "lr_step": 0},
        {"learning_rate_steps": 5},
        {"learning_rate_steps": [1], "learning_rate_factor": math.inf},
        {"learning_rate_steps": [math.inf]},
        {"learning_rate_steps": [1], "learning_rate_factor": None},
    ],
)
def test_damaged_rates_of_earlier_versions(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="damaged|should be"):
        of_today({**FORMERLY, **changed})


@pytest.mark.parametrize("key", FORMER)
def test_a_former_key_is_refused_with_todays(key: str) -> None:
    with pytest.raises(InputError, match=f"unknown key `{key}` = 1; did you mean `lr_schedule`"):
        settings_config({key: 1})
    with pytest.raises(InputError, match=f"unknown key `{key}`; did you mean `lr_schedule`"):
        parse_changes([f"{key}=1"])
