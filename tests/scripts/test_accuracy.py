"""`scripts/accuracy`: docs/accuracy.md has the tables that it makes, of what was measured."""

from typing import Any

import pytest

from emuchain.papers import load_claims


def test_the_page_is_what_the_script_makes(load: Any) -> None:
    script = load("accuracy")
    text = script.PAGE.read_text(encoding="utf-8")
    assert script.made(text) == text, "run scripts/accuracy --write"


def test_it_prints_what_it_writes(load: Any, run_script: Any, tmp_path: Any) -> None:
    printed = run_script("accuracy", cwd=tmp_path).stdout
    text = load("accuracy").PAGE.read_text(encoding="utf-8")
    assert printed.count("\n\n") == 2
    assert all(block.strip() in text for block in printed.split("\n\n"))


def test_a_page_without_a_place_for_a_table_is_refused(load: Any) -> None:
    script = load("accuracy")
    with pytest.raises(AssertionError, match="summary"):
        script.made("<!-- engines -->\n\n<!-- end -->\n")


def test_estimates_without_a_design_do_not_know_it(load: Any) -> None:
    """The other U280 has 28 % of the board's DSPs, room for 514 multipliers: 2 x 514 x 250 MHz, and
    what the others reach of that, 0.863.
    """
    script = load("accuracy")
    fullest = script.measured()[0]
    alone = script.of_others(fullest)
    assert (fullest.board, alone.multipliers, alone.clock_mhz) == (
        "U280",
        514,
        pytest.approx(250, rel=1e-3),
    )
    assert alone.gflops == pytest.approx(2 * 514 * 0.250 * 0.8632, rel=1e-3)
    assert script.of_dsps(fullest) == pytest.approx(2 * 7683 / 5 * 0.236 * 0.8632, rel=1e-3)
    assert not script.ranged(fullest, alone).holds
    assert script.of_null(fullest) == pytest.approx(2 * 9024 * 0.2)


def test_errors_are_those_of_each_figure(load: Any) -> None:
    script = load("accuracy")
    claim = load_claims("hardware")["hardware-stream-2-fpgas"]
    assert script.errors([claim], {claim.id: 133.26}) == pytest.approx(
        [133.26 / 131.399 - 1] * 2 + [133.26 / 135.694 - 1, 133.26 / 135.698 - 1]
    )
    assert script.errors([claim], {}) == []
    assert script.spread([0.01, -0.03, 0.02]) == ("2.0 %", "-3.0 %")
    assert script.spread([]) == ("unknown", "unknown")
