"""Training whose loss is no longer finite: one line that names the setting that is the cause."""

from __future__ import annotations

from typing import Any

import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.config import settings_config
from emuchain.emulator.device import Rules, Tally
from emuchain.emulator.run.results.steps import StepReports
from emuchain.launch import SingleProcess


@pytest.mark.parametrize(
    ("rate", "decay", "blamed", "proposed"),
    [
        (10.0, 0.0, "`learning_rate` = 10", "such as 0.01"),
        (10.0, 0.0005, "`learning_rate` = 10", "such as 0.01"),
        (1e10, 0.0005, "`learning_rate` = 1e+10", "such as 0.01"),
        (1.0, 0.0, "`learning_rate` = 1", "such as 0.1"),
        (0.01, 1e30, "`weight_decay` = 1e+30", "such as 10"),
        (0.01, 150.0, "`weight_decay` = 150", "such as 10"),
    ],
)
def test_the_cause_is_named(
    one_line: Any, rate: float, decay: float, blamed: str, proposed: str
) -> None:
    with pytest.raises(InputError) as error:
        rules = Rules(settings_config({"learning_rate": rate, "weight_decay": decay}), 0, 3)
        StepReports(SingleProcess(), rules).of(0)(1, Tally(4, float("nan"), 0), 0)
    line = one_line(error)
    assert line.startswith(f"{blamed}: training diverged") and line.endswith(proposed)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("learning_rate", 1e300, "should be less than or equal to 1e+38"),
        ("learning_rate", 1e-320, "should be greater than or equal to 1e-37"),
        ("learning_rate", -0.0, "should be greater than or equal to 1e-37"),
        ("learning_rate", float("inf"), "should be a finite number"),
        ("lr_schedule", "steps:at=1,factor=1e300", "should be less than or equal to 1e+38"),
        ("lr_schedule", "step:every=1,factor=1e-320", "should be greater than or equal to 1e-37"),
        ("weight_decay", 1e300, "should be less than or equal to 1e+38"),
        ("weight_decay", float("nan"), "should be a finite number"),
        ("epsilon", 1e300, "should be less than or equal to 1e+38"),
        ("epsilon", 1e-320, "should be greater than or equal to 1e-30"),
        ("momentum", 1e300, "should be less than 1"),
    ],
)
def test_what_single_precision_cannot_hold_is_refused(
    one_line: Any, key: str, value: float, message: str
) -> None:
    with pytest.raises(InputError) as error:
        settings_config({key: value})
    line = one_line(error)
    assert line.startswith(f"settings: `{key}` = ") and line.endswith(message)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "learning_rate",
            1e30,
            "`learning_rate` = 1e+30: training diverged, the test loss is nan after epoch 1",
        ),
        (
            "weight_decay",
            1e38,
            "`weight_decay` = 1e+38: training diverged, the test loss is nan after epoch 1",
        ),
    ],
)
def test_the_last_update_counts(
    tmp_path: Any, one_line: Any, key: str, value: float, message: str
) -> None:
    """One mini-batch, whose loss was found before the update."""
    out = tmp_path / "run.h5"
    with pytest.raises(InputError) as error:
        emuchain.train(
            "quick-cifar", samples=16, batch=16, test_samples=4, out=str(out), **{key: value}
        )
    assert one_line(error).startswith(message)
    assert not out.exists()


def test_no_decay_may_have_a_sign() -> None:
    runs = [
        emuchain.train("quick-cifar", samples=16, batch=16, test_samples=4, weight_decay=decay)
        for decay in (0.0, -0.0)
    ]
    first, second = (run.history["test_loss"][-1] for run in runs)
    assert first == second
