"""Counts by class: duplicates are counted once, and what a guess would give confirms nothing."""

from __future__ import annotations

from typing import Any

import pytest

from emuchain.papers import Claim, Class, Result, Verdict, load_claims, papers, tables
from emuchain.papers.tables import by_class


def result(name: str, verdict: Verdict, row_class: str = "prediction", **more: Any) -> Result:
    keys = {
        "id": name,
        "where": "",
        "kind": "value",
        "class": row_class,
        "quantity": "",
        "value": 1,
    }
    guess = more.pop("guess_is_good", None)
    claim = Claim.model_validate({**keys, "not_run": "why", **more})
    return Result(claim, 1, "", None, verdict, guess)


RESULTS = [
    result("a", Verdict.WITHIN),
    result("b", Verdict.OFF),
    result("c", Verdict.HOLDS),
    result("d", Verdict.HOLDS, same_as="c"),
    result("e", Verdict.WITHIN, guess_is_good=True),
    result("f", Verdict.WITHIN, guess_is_good=False),
    result("g", Verdict.NOT_RUN),
    result("h", Verdict.FAILS),
    result("i", Verdict.HOLDS, "echo"),
    result("j", Verdict.FAILS, "identity"),
]


def test_headline_is_of_predictions() -> None:
    assert (
        tables.headline(RESULTS)
        == "predictions: 3 of 6 confirmed (3 of 4 figures are within tolerance, 1 of 2 statements"
        " hold; 1 of them no better than a guess)"
    )
    assert tables.others(RESULTS) == "other classes: identity 0 of 1, echo 1 of 1; 1 not run"
    assert (
        tables.headline(RESULTS[:2])
        == "predictions: 1 of 2 confirmed (1 of 2 figures are within tolerance)"
    )
    assert tables.headline(RESULTS[2:3]) == "predictions: 1 of 1 confirmed (1 of 1 statements hold)"
    assert tables.headline(RESULTS[8:]) == "predictions: none of these rows"


def test_counts_by_class() -> None:
    found = by_class(RESULTS)[Class.PREDICTION]
    assert (found.rows, found.run, found.confirmed, found.guessed, found.repeated) == (
        8,
        6,
        3,
        1,
        1,
    )
    assert tables.class_rows(RESULTS)[-1] == ["all", "10", "8", "3", "1", "2", "2", "1", "1"]


@pytest.mark.parametrize("same_as", ["fpdeep-nowhere", "fpdeep-symbols"])
def test_a_repeated_claim_names_another(same_as: str) -> None:
    from emuchain.papers.claim import _Claims

    claim = load_claims("fpdeep")["fpdeep-symbols"].model_dump(by_alias=True, mode="json")
    with pytest.raises(ValueError, match="is no other claim's id"):
        _Claims.model_validate({"claim": [{**claim, "same_as": same_as}]})


@pytest.mark.parametrize("paper", papers())
def test_rows_that_repeat_name_one_that_does_not(paper: str) -> None:
    claims = load_claims(paper)
    assert all(claims[claim.same_as].same_as is None for claim in claims.values() if claim.same_as)


def missed(name: str, verdict: Verdict, **kind: Any) -> Result:
    keys = {"expect": {"near": 1}, "not_run": None, "explanation": "Ours is less."}
    return result(name, verdict, **keys, missed=kind)


def test_missed_rows_say_what_they_come_from() -> None:
    rows = [
        missed("a", Verdict.OFF, mendable="a model of hosts"),
        missed("b", Verdict.FAILS, inconsistent=["Table 1", "Fig. 2"]),
        missed("c", Verdict.OFF, undecidable="the clock"),
        missed("d", Verdict.WITHIN, undecidable="the clock"),
    ]
    assert (
        tables.missed_line(rows) == "missed: 1 mendable, 1 by an inconsistent paper, 1 undecidable"
    )
    assert tables.missed_line(RESULTS) == ""
    assert list(tables.by_explanation(rows, confirmed=False)) == [
        "Ours is less. (mendable: a model of hosts)",
        "Ours is less. (inconsistent: Table 1 against Fig. 2)",
        "Ours is less. (undecidable: the clock)",
    ]
    assert list(tables.by_explanation(rows, confirmed=True)) == ["Ours is less."]
    assert tables.as_json(rows[1])["missed"] == {"inconsistent": ["Table 1", "Fig. 2"]}
    assert tables.as_json(RESULTS[0])["missed"] is None


@pytest.mark.parametrize(
    "kind",
    [{}, {"mendable": "x", "undecidable": "y"}, {"inconsistent": ["one place"]}, {"because": "x"}],
)
def test_a_missed_row_has_one_kind(kind: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="missed"):
        missed("a", Verdict.OFF, **kind)


def test_only_a_row_that_is_run_and_explained_is_missed() -> None:
    with pytest.raises(ValueError, match="`missed` stands with `expect` and `explanation`"):
        result("a", Verdict.NOT_RUN, missed={"undecidable": "the clock"})
