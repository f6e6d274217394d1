"""Mini-batches put together from the shares of replicas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.config import settings_config
from emuchain.emulator.device import Rules, Tally
from emuchain.emulator.run.results.steps import (
    StepReports,
    StepResult,
    StepShares,
    StepTable,
    mini_batches,
)
from emuchain.launch import SingleProcess

SIZES = [7, 7, 4]


def share(step: int, replica: int, samples: int, epoch: int = 0) -> StepResult:
    tally = Tally(samples, loss=samples * (1.5 + step + 0.1 * replica), correct=replica)
    return StepResult(epoch, step, tally, 1000 * step + replica, 0.5 / (1 + step), replica)


SHARES = [
    share(step, replica, (3, size - 3)[replica])
    for step, size in enumerate(SIZES)
    for replica in range(2)
]


def test_shares_add_up_in_the_order_of_replicas() -> None:
    found = mini_batches(reversed(SHARES))
    assert [(of.epoch, of.step, of.tally.samples, of.tally.correct) for of in found] == [
        (0, 0, 7, 1),
        (0, 1, 7, 1),
        (0, 2, 4, 1),
    ]
    assert [of.virtual_time_ps for of in found] == [1, 1001, 2001]  # the last replica's
    assert [of.tally.loss for of in found] == [
        SHARES[i].tally.loss + SHARES[i + 1].tally.loss for i in (0, 2, 4)
    ]


@given(st.permutations(SHARES))
def test_whole_mini_batches_come_in_order_whatever_comes_first(shares: list[StepResult]) -> None:
    of, found = StepShares(SIZES), list[StepResult]()
    for each in shares:
        found += of.add(each)
    assert found == mini_batches(SHARES)
    assert of.end_epoch(0) == 3


def test_an_epoch_that_ends_before_its_last_shares_came() -> None:
    of = StepShares(SIZES)
    found = [step for each in SHARES[:3] for step in of.add(each)]
    assert [each.step for each in found] == [0]
    assert of.end_epoch(0) == 1
    assert [*of.add(SHARES[3])] == []  # too late: the epoch's table has it
    following = [share(step, 0, SIZES[step], epoch=1) for step in range(3)]
    assert [each.step for late in following for each in of.add(late)] == [0, 1, 2]
    assert of.end_epoch(1) == 3


def test_tables_compare_by_value() -> None:
    steps = mini_batches(SHARES)
    table = StepTable.of(steps)
    assert len(table) == 3
    assert table.loss.tolist() == [step.tally.mean_loss for step in steps]
    assert table == StepTable.of(steps)
    assert table != StepTable.of(steps[:2])
    assert table != "table"
    assert len(StepTable()) == 0


def test_reports_keep_and_send_what_they_took() -> None:
    ranks, sent = SingleProcess(), list[StepResult]()
    ranks.on_object = sent.append
    rules = Rules(settings_config({"learning_rate": 0.5, "lr_warm_up": 10}), 1, 6)
    reports = StepReports(ranks, rules, first=2, from_ps=100)
    reports.of(0)(0, Tally(3, 1.5), 10)
    reports.of(1)(0, Tally(2, 0.5), 20)
    assert sent == reports.shares
    assert [(each.epoch, each.step, each.replica) for each in sent] == [(1, 2, 0), (1, 2, 1)]
    assert [(each.virtual_time_ps, each.learning_rate) for each in sent] == [
        (110, 0.45),
        (120, 0.45),
    ]
    with pytest.raises(
        InputError,
        match="`learning_rate` = 0.5: training diverged.* epoch 2, step 4; .* such as 0.05",
    ):
        reports.of(0)(1, Tally(1, float(np.inf)), 30)
