"""The classes of BaPipe's rows: predictions notice planted faults and depend on no fitted constant;
fitted rows do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import pytest

from emuchain.papers import Class, constants_of, load_claims
from emuchain.papers.bapipe import explorer, gpus, largest, layers, speedups
from emuchain.papers.constants import Constant, in_force

from .rows import Rows

pytestmark = pytest.mark.sampled(4)

CLAIMS = load_claims("bapipe")
CONSTANTS = constants_of("bapipe")
FITTED = [constant for constant in CONSTANTS if constant.fitted_to]
Fault = Callable[[pytest.MonkeyPatch], None]


def of_layers(**changes: int) -> Fault:
    """Layers of the networks on GPUs with other figures, as shares in percent."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        layers_of = gpus.layers_of

        def changed(network: str) -> tuple[gpus.ChainLayer, ...]:
            return tuple(
                dataclasses.replace(
                    layer,
                    **{
                        key: getattr(layer, key) * percent // 100
                        for key, percent in changes.items()
                    },
                )
                for layer in layers_of(network)
            )

        patch.setattr(gpus, "layers_of", changed)

    return plant


def one_batch_kept(patch: pytest.MonkeyPatch) -> None:
    """Every schedule keeps the features of one micro-batch."""
    patch.setattr(largest, "kept_batches", lambda schedule, stages: (1,) * stages)


def all_bytes_stashed(patch: pytest.MonkeyPatch) -> None:
    """PipeDream keeps gradients and optimiser state by version, too."""
    layer_bytes = largest.layer_bytes

    def stashed(layer: gpus.ChainLayer, batches: int, weight_copies: int = 1) -> float:
        return layer_bytes(layer, batches) + (weight_copies - 1) * layer_bytes(layer, 0)

    patch.setattr(largest, "layer_bytes", stashed)


def quick_memory(patch: pytest.MonkeyPatch) -> None:
    """DDR that is never a limit."""
    patch.setattr(explorer, "DDR_GBYTES_PER_S", 4000)


FAULTS: dict[Fault, str] = {
    of_layers(sent_bytes=0): (
        "abs-speedup t3-max-dp t3-max-pipe t3-bapipe-order t3-dp-best-resnet t3-schedule-choice"
        " t3-vgg16-4-pipedream-b32 t3-vgg16-4-pipedream-b64 t3-vgg16-4-gpipe t3-vgg16-4-bapipe"
        " t3-vgg16-8-pipedream-b32 t3-vgg16-8-pipedream-b64 t3-vgg16-8-gpipe t3-vgg16-8-bapipe"
        ""
        " t3-resnet50-8-gpipe t3-resnet50-8-bapipe"
        " t3-gnmt8-4-pipedream t3-gnmt8-4-bapipe"
    ),
    one_batch_kept: "t5-bapipe-2 t5-bapipe-4 t5-schedule",
    all_bytes_stashed: "t5-pipedream-2 t5-pipedream-4 t5-pipedream-8 t5-pipedream-flat t5-order",
    quick_memory: "t6-trend fpga-limit",
}
"""A fault, and the predictions that must notice it."""


ROWS = Rows("bapipe", CLAIMS, (explorer, gpus, largest, layers, speedups))
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


@pytest.mark.slow
@pytest.mark.parametrize("constant", FITTED, ids=lambda constant: constant.name)
def test_predictions_do_not_hang_on_fitted_constants(constant: Constant) -> None:
    """No verdict changes within what the fitted figure allows the constant to be."""
    names = run_rows(Class.PREDICTION)
    before = measured(names)
    for value in (min(constant.values), max(constant.values)):
        with in_force({constant.key: value}):
            after = measured(names)
        assert [name for name in names if before[name].verdict is not after[name].verdict] == [], (
            value
        )


def test_fitted_rows_hang_on_constants() -> None:
    names = run_rows(Class.FITTED)
    assert ROWS.moved_by(CONSTANTS, names) == set(names)


def test_rows_that_were_used_to_fit_are_fitted() -> None:
    used = named("t3-vgg16-4-dp-b32 t5-dp-1 t5-gpipe-2 t6-4vcu118 t6-2plus2 t6-4vcu129")
    assert {CLAIMS[name].row_class for name in used} == {Class.FITTED}
    assert all(result.verdict.is_good for result in measured(used).values())


def test_a_row_that_is_said_twice_has_the_verdict_of_the_other() -> None:
    twice = [claim for claim in CLAIMS.values() if claim.same_as]
    found = measured([*(c.id for c in twice), *(c.same_as for c in twice if c.same_as)])
    assert len(twice) > 8
    assert [c.id for c in twice if found[c.id].verdict is not found[str(c.same_as)].verdict] == []
