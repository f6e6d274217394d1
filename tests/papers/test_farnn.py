"""FARNN's claims: all are there, the document has current values, and measures agree with what is
done by hand.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from emuchain.emulator.cluster import Gpu, load_cluster
from emuchain.emulator.timing.pair import Cell
from emuchain.papers import (
    Class,
    Result,
    constants_of,
    draw_pictures,
    load_claims,
    tables,
    validate,
)
from emuchain.papers.commands import validate as command
from emuchain.papers.constants import in_force, in_use
from emuchain.papers.deepbench.model import RecurrentLayer, step_us
from emuchain.papers.farnn import applications, equations, runs, synthetic
from emuchain.papers.farnn.applications import PCIE_GBPS
from emuchain.papers.farnn.runs import RECURRENT_US
from emuchain.papers.tables import by_class, markdown_tables

ROOT = Path(__file__).resolve().parents[2]
CLAIMS, CONSTANTS = load_claims("farnn"), constants_of("farnn")


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return list(validate("farnn", CLAIMS.values()))


def test_the_document_has_current_values(results: list[Result]) -> None:
    lines = (ROOT / "docs" / "validation-farnn.md").read_text(encoding="utf-8").splitlines()
    equal = [
        name for name, claim in CLAIMS.items() if (claim.measure or "").startswith("equations.")
    ]
    rounding = tuple(f"| {name} |" for name in equal)  # last digits depend on the machine's sums
    rows = [row for row in markdown_tables(results) if not row.startswith(rounding)]
    assert [row for row in rows if row not in lines] == []
    text = " ".join(" ".join(lines).split())
    assert f"{tables.headline(results)} {tables.others(results)}" in text[: text.index("## ")], (
        "the answer comes first"
    )
    assert all(re.search(rf"\b{name}\b", text) for name in CLAIMS)
    found = by_class(results)[Class.PREDICTION]
    tour = " ".join((ROOT / "docs" / "tour.md").read_text(encoding="utf-8").split())
    assert f"of FARNN's {found.confirmed} of {found.run} (" in tour


def test_tolerances_are_those_that_were_set() -> None:
    """3 points for utilisation, 20 % for similar sizes, else 10 % at most."""
    for name, claim in CLAIMS.items():
        if claim.expect is None or "near" not in claim.expect.said:
            continue
        if name.startswith("farnn-fig9-util-"):
            assert claim.expect.points == 3
        elif name == "farnn-gru-lstm-size":
            assert claim.expect.tolerance == 0.20
        else:
            assert claim.expect.points is None and claim.expect.tolerance <= 0.10, name


def test_at_most_four_constants_are_fitted() -> None:
    fitted = [constant for constant in CONSTANTS if constant.fitted_to]
    assert len(fitted) == len({constant.fitted_to for constant in fitted}) == 4
    for constant in CONSTANTS:
        assert constant.default in constant.values == tuple(sorted(set(constant.values)))
        assert in_use(constant) == constant.default
        with in_force({constant.key: constant.values[0]}):
            assert in_use(constant) == constant.values[0]


def test_defaults_are_those_of_the_clusters() -> None:
    for name in ("farnn-9p", "farnn-13p-gru", "p100", "v100"):
        found = runs.cluster(name)
        with in_force({constant.key: constant.default for constant in CONSTANTS}):
            same = runs.cluster(name)
        assert same.boards == found.boards and same.link == found.link
    shipped = load_cluster("v100").board(0)
    scaled = runs.cluster("v100").board(0)
    assert isinstance(shipped, Gpu) and isinstance(scaled, Gpu)
    assert scaled.persistent_gbytes_per_s == pytest.approx(
        shipped.persistent_gbytes_per_s, rel=0.002
    )
    assert scaled.recurrent_ps == pytest.approx(shipped.recurrent_ps, rel=0.002)


def test_the_published_arithmetic() -> None:
    """By hand: 36.3 us a phase, 658 GB/s, and five layers of LSTM-1024 with 1,600 steps."""
    products = 4 * 5 * 2 * 4 * 1024**2 * 1600 / (0.9 * 9.3e12)
    standard = 2 * 5 * 1600 * 36.3e-6 + products
    persistent = 2 * 5 * 1600 * 4 * 4 * 1024**2 / 658e9 + products
    updates = 5 * 20 * 2 * 4 * (1024**2 + 1024) / 732e9
    workload = runs.synthetic(Cell.LSTM)
    assert runs.standard_ps(workload) / 1e12 == pytest.approx(standard + updates, rel=1e-5)
    assert runs.persistent_ps(workload) / 1e12 == pytest.approx(persistent + updates, rel=1e-5)


def test_a_constant_reaches_the_runs() -> None:
    before = synthetic.speed_up("13P", 1600)
    with in_force({RECURRENT_US.key: 2 * RECURRENT_US.default}):
        assert synthetic.speed_up("13P", 1600) > 1.9 * before
    halved = applications.halved_ps(runs.synthetic(Cell.LSTM), "farnn-9p")
    with in_force({PCIE_GBPS.key: PCIE_GBPS.default / 2}):
        assert runs.time_ps(runs.synthetic(Cell.LSTM), "farnn-9p") == halved


def test_equations_notice_a_wrong_gate() -> None:
    """Two gates exchanged, or an error of c that is forgotten."""
    arrays = equations.given(1)
    theirs = equations.published(arrays)
    rows = np.arange(16).reshape(4, 4)[[1, 0, 2, 3]].ravel()
    exchanged = equations.computed({**arrays, "w": arrays["w"][rows].copy()})
    assert np.abs(exchanged["c"] - theirs["c"]).max() > 1e-2
    forgotten = equations.computed({**arrays, "dc": np.zeros_like(arrays["dc"])})
    assert np.abs(forgotten["dc0"] - theirs["dc0"]).max() > 1e-2


def test_padding_by_order_statistics() -> None:
    """The largest of two and of four values spread normally are 0.564 and 1.029 deviations above
    the mean.
    """
    draws = np.random.default_rng(1).normal(size=(200_000, 4))
    two, four = draws[:, :2].max(1).mean(), draws.max(1).mean()
    assert runs.PADDING[2] - 1 == pytest.approx((runs.PADDING[4] - 1) * two / four, abs=0.002)


def test_shares_of_rnnt() -> None:
    speed_up = applications.encoder_speed_up("9P")
    assert applications.total_reduction("9P") == pytest.approx(65 * (1 - 1 / speed_up))


def test_on_the_screen_and_as_json() -> None:
    printed = CliRunner().invoke(command, ["farnn", "--only", "fig9-farnn"])
    assert printed.exit_code == 0
    assert printed.stdout.startswith(
        "predictions: 1 of 1 confirmed (1 of 1 figures are within tolerance)\n"
    )
    [row] = json.loads(
        CliRunner().invoke(command, ["farnn", "--only", "fig9-util-b1", "--json"]).stdout
    )
    assert (row["class"], row["verdict"]) == ("fitted", "within")


def test_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = draw_pictures("farnn", tmp_path / "new", None)
    names = ["fig2", *(f"fig{number}" for number in range(6, 15))]
    assert [path.name for path in drawn] == [f"{name}.png" for name in names]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    assert len({path.read_bytes() for path in drawn}) == len(names)


def test_what_batches_require_of_a_phase() -> None:
    """RNN-T's rows, 23 % longer at batch 4 and 27 % at 8; Fig. 9, at most 12 % at 4, which the
    explanation says.
    """

    def gains(growth: float) -> tuple[float, float, float]:
        with in_force({RECURRENT_US.key: growth * RECURRENT_US.default}):
            workload = runs.synthetic(Cell.LSTM, batch=4)
            fig_9 = runs.standard_ps(workload) / runs.time_ps(workload, "farnn-9p")
            return (
                fig_9,
                applications.encoder_speed_up("9P", 4),
                applications.encoder_speed_up("13P", 8),
            )

    assert gains(1.115)[0] < 1 < gains(1.125)[0]
    assert gains(1.22)[1] < 1 < gains(1.235)[1]
    assert gains(1.26)[2] < 1 < gains(1.275)[2]


def test_phases_of_deepbench_by_hand() -> None:
    """LSTM-1024 has two products of one wave each; beyond its phases the form is the same."""
    workload = runs.synthetic(Cell.LSTM, batch=2, layers=1)
    layer = RecurrentLayer(Cell.LSTM, 1024, 2, 1)
    both_us = sum(step_us("p100", "float", layer, backward=backward) for backward in (False, True))
    steps_ps = runs.deepbench_ps(workload) - runs.standard_ps(workload)
    assert steps_ps / 1e6 / runs.STEPS == pytest.approx(
        both_us - 2 * RECURRENT_US.default, rel=1e-5
    )
