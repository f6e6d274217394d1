"""Training whose loss is no longer finite: one line that names the setting that is the cause."""

from __future__ import annotations

from typing import Any

import pytest

from emuchain.comm import SingleProcess
from emuchain.emulator.common import InputError
from emuchain.emulator.config import settings_config
from emuchain.emulator.device import Rules, Tally
from emuchain.emulator.run.steps import StepReports


@pytest.mark.parametrize(
    ("rate", "decay", "blamed", "proposed"),
    [
        (10.0, 0.0, "`learning_rate` = 10", "such as 1"),
        (10.0, 0.0005, "`learning_rate` = 10", "such as 1"),
        (1e10, 0.0005, "`learning_rate` = 1e+10", "such as 1e+09"),
        (0.01, 1e300, "`weight_decay` = 1e+300", "such as 10"),
        (0.01, 150.0, "`weight_decay` = 150", "such as 10"),
    ],
)
def test_the_cause_is_named(one_line: Any, rate: float, decay: float, blamed: str, proposed: str) -> None:
    with pytest.raises(InputError) as error:
        rules = Rules(settings_config({"learning_rate": rate, "weight_decay": decay}), 0, 3)
        StepReports(SingleProcess(), rules).of(0)(1, Tally(4, float("nan"), 0), 0)
    line = one_line(error)
    assert line.startswith(f"{blamed}: training diverged") and line.endswith(proposed)
