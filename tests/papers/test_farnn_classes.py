"""The classes of FARNN's rows: predictions notice planted faults and depend on no fitted constant;
fitted rows do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import pytest

from emuchain.emulator.timing.pair import devices, tasks
from emuchain.emulator.timing.pair.devices import Pair
from emuchain.papers import Class, constants_of, load_claims
from emuchain.papers.constants import Constant, in_force
from emuchain.papers.farnn import equations, runs
from emuchain.papers.farnn.runs import RECURRENT_US

from .rows import Rows

pytestmark = pytest.mark.sampled(4)

CLAIMS = load_claims("farnn")
CONSTANTS = constants_of("farnn")
FITTED = [constant for constant in CONSTANTS if constant.fitted_to]
Fault = Callable[[pytest.MonkeyPatch], None]


def whole_rounds(patch: pytest.MonkeyPatch) -> None:
    """Rounds that take their outputs one PE after another: half as many PEs."""
    cycles = devices.mvm_cycles
    patch.setattr(
        devices,
        "mvm_cycles",
        lambda outputs, inputs, pes: cycles(outputs, inputs, max(1, pes // 2)),
    )


def slow_phases(patch: pytest.MonkeyPatch) -> None:
    """Phases of cuDNN's standard form that take their least time for each sample."""
    for module in (devices, tasks):
        patch.setattr(
            module,
            "product_ps",
            lambda board, macs: 1 + round(macs / (board.peak_tflops * board.gemm_efficiency)),
        )


def free_weights(patch: pytest.MonkeyPatch) -> None:
    """Weights that take no time to the FPGA."""
    patch.setattr(Pair, "load_ps", lambda self, weights, size=None: 1)


def no_streams(patch: pytest.MonkeyPatch) -> None:
    """Values of steps that leave a link idle and cost no time as transfers."""
    patch.setattr(Pair, "bytes_ps", lambda self, size: 0)


def one_size(patch: pytest.MonkeyPatch) -> None:
    """The persistent form reads as many weights whatever the number of cells."""
    read = devices.persistent_step_ps
    patch.setattr(
        "emuchain.emulator.timing.pair.tasks.persistent_step_ps",
        lambda board, work, batch: read(board, dataclasses.replace(work, cells=1024), batch),
    )


def steps_at_half_rate(patch: pytest.MonkeyPatch) -> None:
    """Steps on the FPGA twice as long, of whatever they are made."""
    on_fpga = tasks.Costs._on_fpga

    def doubled(self: tasks.Costs, *arguments: object) -> tasks.Task:
        task = on_fpga(self, *arguments)  # type: ignore[arg-type]
        return dataclasses.replace(task, duration_ps=2 * task.duration_ps)

    patch.setattr(tasks.Costs, "_on_fpga", doubled)


FAULTS: dict[Fault, str] = {
    whole_rounds: (
        "fig7-order fig8-trend ds2-batch4 best-region energy-ds2 edp-rnnt-b2 energy-large-batch"
    ),
    slow_phases: "fig2-order fig10-allfpga",
    free_weights: "fig9-farnn-3p4 fig9-sub-linear overlap-layers pcie-x8-slow",
    no_streams: "fig10-nooverlap",
    one_size: "fig7-pd-falls",
    steps_at_half_rate: "step-rate step-not-bottleneck",
}
"""A fault, and the predictions that must notice it."""


ROWS = Rows("farnn", CLAIMS, (runs, equations))
run_rows, named, forget, measured = ROWS.of, ROWS.named, ROWS.forget, ROWS.measured


@pytest.fixture(autouse=True)
def _cached_no_longer() -> Iterator[None]:
    yield
    forget()


def test_every_prediction_has_a_planted_fault() -> None:
    planted = [name for rows in FAULTS.values() for name in named(rows)]
    assert sorted(planted) == sorted(run_rows(Class.PREDICTION))


@pytest.mark.parametrize(
    ("fault", "rows"), [pytest.param(*each, id=each[1].split()[0]) for each in FAULTS.items()]
)
def test_predictions_notice_a_fault(
    fault: Fault, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = measured(named(rows))
    fault(monkeypatch)
    broken = measured(named(rows))
    assert [name for name in sound if sound[name].ours == broken[name].ours] == []


@pytest.mark.parametrize("constant", FITTED, ids=lambda constant: constant.name)
def test_predictions_do_not_hang_on_fitted_constants(constant: Constant) -> None:
    """No verdict changes within what the fitted figure allows the constant to be."""
    names = run_rows(Class.PREDICTION)
    before = measured(names)
    for value in constant.values:
        with in_force({constant.key: value}):
            after = measured(names)
        assert [name for name in names if before[name].verdict is not after[name].verdict] == [], (
            value
        )


def test_fitted_rows_hang_on_constants() -> None:
    names = run_rows(Class.FITTED)
    assert ROWS.moved_by(CONSTANTS, names) == set(names)


def test_rows_that_were_used_to_fit_are_fitted() -> None:
    used = named("fig9-util-b1 fig8-length-1600 fig7-lstm-9p fig7-gru-9p")
    assert {CLAIMS[name].row_class for name in used} == {Class.FITTED}
    assert all(result.verdict.is_good for result in measured(used).values())


def test_each_fitted_constant_gives_its_row() -> None:
    """Where the constant moves to the end of its range, the row moves away, and stays within its
    rounding.

    That of a phase's time goes on to the other reading of its row, beyond 36.8 us.
    """
    rows = dict(
        zip(FITTED, named("fig9-util-b1 fig8-length-1600 fig7-lstm-9p fig7-gru-9p"), strict=True)
    )
    for constant, row in rows.items():
        allowed = {"farnn-fig9-util-b1": 3.0, "farnn-fig8-length-1600": 0.05}.get(row, 0.5)
        for value in [
            value for value in constant.values if constant is not RECURRENT_US or value <= 36.8
        ]:
            with in_force({constant.key: value}):
                [found] = measured([row]).values()
            assert abs(found.ours - found.claim.value) <= 1.02 * allowed, (row, value)


def test_a_row_that_is_said_twice_has_the_verdict_of_the_other() -> None:
    twice = [claim for claim in CLAIMS.values() if claim.same_as]
    found = measured([*(c.id for c in twice), *(c.same_as for c in twice if c.same_as)])
    assert len(twice) >= 5
    assert [c.id for c in twice if found[c.id].verdict is not found[str(c.same_as)].verdict] == []
