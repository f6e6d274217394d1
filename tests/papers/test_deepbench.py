"""DeepBench: rows as its README has them, the model by hand, constants by their fit, guesses, and
planted faults.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.timing.pair import Cell
from emuchain.papers import Class, constants_of, draw_pictures, load_claims, tables, validate
from emuchain.papers.constants import in_force
from emuchain.papers.deepbench import model
from emuchain.papers.deepbench.model import EFFICIENCY, LATENCY_US

from .rows import Rows

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = load_claims("deepbench")
ROWS = Rows("deepbench", CLAIMS, (model,))
P100 = model.training("p100")


def test_the_document_has_current_values() -> None:
    lines = (ROOT / "docs" / "validation-deepbench.md").read_text(encoding="utf-8").splitlines()
    results = list(validate("deepbench", CLAIMS.values()))
    assert [row for row in tables.markdown_tables(results) if row not in lines] == []
    text = " ".join(" ".join(lines).split())
    assert f"{tables.headline(results)} {tables.others(results)}" in text[: text.index("## ")], (
        "the answer comes first"
    )


def test_a_row_of_the_readme() -> None:
    """5.56 ms for 25 steps, forward at 10.91 TFLOPS: 8 x 1,024 x 1,024 x 128 operations a step."""
    row = model.rows()["v100-lstm-1024-128"]
    forward = 8 * 1024**2 * 128 / 10.91e6
    assert row.step_us == pytest.approx((forward, 5560 / 25 - forward))
    assert model.rows()["p100-lstm-1536-8"].step_us == (157, 174)


def test_claims_are_those_of_the_table() -> None:
    for name, row in model.rows().items():
        claim = CLAIMS[f"deepbench-{name}"]
        value = claim.value if isinstance(claim.value, list) else [claim.value]
        assert value == [round(time_us, 1) for time_us in row.step_us]
        guess = claim.null if isinstance(claim.null, list) else [claim.null]
        assert guess == [round(time_us, 1) for time_us in model.same_us(row)]


def test_a_row_without_a_time_is_refused() -> None:
    keys = (
        "gpu precision mode cell cells batch steps forward_us backward_us total_ms forward_tflops"
        " source".split()
    )
    fields = dict(
        zip(keys, ["p100", "float", "training", "lstm", "512", "16", "25", *[""] * 5], strict=True)
    )
    with pytest.raises(InputError, match="should have `forward_us`"):
        model._row(fields)


def test_a_product_by_hand() -> None:
    """4,096 outputs in tiles of 128 x 32 take one wave of 32; 1,024 take eight, each in seven parts
    of the depth.
    """
    rate = 9.3e6 / 56 * EFFICIENCY.default
    assert model.product_us("p100", "float", 4096, 16, 1024) == pytest.approx(
        2 * 128 * 32 * 1024 / rate
    )
    assert model.product_us("p100", "float", 1024, 16, 4096) == pytest.approx(
        2 * 128 * 32 * 586 / rate
    )


def test_a_step_by_hand() -> None:
    """GRU-2816 on a V100 is bound by R's traffic: 3 x 2,816 x 2,816 values of two bytes."""
    layer = model.RecurrentLayer(Cell.GRU, 2816, 32, 1500)
    weights, values = 3 * 2816**2 * 2 / 900e3, 12 * 2816 * 32 * 2 / 900e3
    for backward in (False, True):
        ours = model.step_us("v100", "mixed", layer, backward=backward)
        assert ours == pytest.approx(LATENCY_US.default + weights + values)


def test_a_phase_is_constant_within_a_tile() -> None:
    one, most, more = (model.phase_us("p100", "float", 8192, 640, batch) for batch in (1, 32, 33))
    assert one == most < more


def test_constants_are_what_the_p100_fits() -> None:
    """Rows that are added to the P100's change the latency."""
    assert LATENCY_US.default == pytest.approx(model.fitted_latency_us(P100), abs=0.05)
    ends = sorted(model.fitted_latency_us([row]) for row in P100)
    assert LATENCY_US.values == pytest.approx([ends[0], LATENCY_US.default, ends[1]], abs=0.06)
    with in_force({EFFICIENCY.key: 1}):
        sides = 5124, 9124, 2560
        whole = 2 * math.prod(sides) / model.product_us("p100", "float", *sides) / 1e6
    assert EFFICIENCY.default == pytest.approx(8.21 / whole, abs=0.0005)
    assert all(constant.fitted_to for constant in constants_of("deepbench"))


def test_errors_by_hand() -> None:
    assert model.error_factor([2, 50], [1, 100]) == pytest.approx(2)
    one, other = P100
    ratio = one.layer.step_flops / other.layer.step_flops
    assert model.nearest_us(one) == pytest.approx([157 * ratio, 174 * ratio])
    rate = other.layer.step_flops / 157 / 2 + other.layer.step_flops / 174 / 2
    assert model.throughput_us(one) == pytest.approx([one.layer.step_flops / rate] * 2)


def no_latency(patch: pytest.MonkeyPatch) -> None:
    """Steps that do not wait."""
    patch.setattr(
        model, "in_use", lambda constant: 0 if constant is LATENCY_US else constant.default
    )


def idle_multiprocessors(patch: pytest.MonkeyPatch) -> None:
    """Guesses that know twice the time."""
    steps_us = model.steps_us
    patch.setattr(model, "steps_us", lambda row: [2 * time_us for time_us in steps_us(row)])
    patch.setitem(model.MODELS, "model", model.steps_us)  # type: ignore[arg-type]


def fast_board(patch: pytest.MonkeyPatch) -> None:
    """A standard form without its least time."""
    patch.setattr(model, "standard_step_ps", lambda board, work, batch: 1_000_000)


FAULTS: list[tuple[Callable[[pytest.MonkeyPatch], None], str]] = [
    (
        no_latency,
        (
            "v100-lstm-1024-128 titan-xp-lstm-1024-128 titan-x-pascal-lstm-1024-128"
            " titan-x-pascal-gru-2816-32 titan-xp-inference-gru-2560-2"
            " gtx-1080-ti-inference-lstm-256-4"
        ),
    ),
    (idle_multiprocessors, "v100-error"),
    (fast_board, "p100-standard-form"),
]


def test_every_prediction_has_a_planted_fault() -> None:
    planted = [name for _, rows in FAULTS for name in ROWS.named(rows)]
    assert sorted(planted) == sorted(ROWS.of(Class.PREDICTION))


@pytest.mark.parametrize(("fault", "rows"), FAULTS)
def test_rows_notice_faults(fault: Callable[[pytest.MonkeyPatch], None], rows: str) -> None:
    ROWS.check_noticed(fault, rows)


def test_predictions_do_not_turn_with_constants() -> None:
    names = ROWS.of(Class.PREDICTION)
    before = ROWS.measured(names)
    for constant in constants_of("deepbench"):
        for value in constant.values:
            with in_force({constant.key: value}):
                after = ROWS.measured(names)
            assert [
                name for name in names if before[name].verdict is not after[name].verdict
            ] == [], value


def test_sheets_are_those_of_the_boards() -> None:
    from emuchain.emulator.cluster import board_keys

    for name in ("p100", "v100"):
        keys, sheet = board_keys(name), model.DATA_SHEETS[name]
        assert (keys["peak_tflops"], keys["memory_gbytes_per_s"]) == (
            sheet.tflops["float"],
            sheet.memory_gbytes_per_s,
        )


def test_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    [path] = draw_pictures("deepbench", tmp_path / "new", None)
    assert path.name == "steps.png" and path.read_bytes().startswith(b"\x89PNG")
