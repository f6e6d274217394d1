"""Degrees of freedom: no row whose verdict turns within a plausible range is a prediction, in any paper."""

from __future__ import annotations

import pytest

from emuchain.papers import Class, load_claims, papers, sensitivities
from emuchain.papers.constants import chosen, in_force
from emuchain.papers.inceptionn import evidence
from emuchain.papers.inceptionn.constants import ROUNDS

from .test_sensitivity import silent

QUICK = ("farnn", "inceptionn")


@pytest.mark.parametrize(
    "paper", [pytest.param(paper, marks=[] if paper in QUICK else [pytest.mark.slow]) for paper in papers()]
)
def test_no_prediction_turns_within_a_plausible_range(paper: str) -> None:
    predictions = [claim for claim in load_claims(paper).values() if claim.row_class is Class.PREDICTION]
    rows = sensitivities(paper, predictions, silent)
    assert {row.constant.key: list(row.turning) for row in rows if row.turning} == {}


def test_rounds_as_the_paper_prints_them() -> None:
    """Its formula has (p + log p) n beta: 6 messages for 4 workers, where a tree takes 7."""
    seconds = {}
    for name, value in ROUNDS.alternatives.items():
        with in_force({ROUNDS.key: value}):
            assert chosen(ROUNDS) == name
            seconds[name] = evidence.times("resnet50", "WA").communicate
    assert seconds["as-printed"] / seconds["of-tree"] == pytest.approx(6 / 7, rel=1e-3)
    assert seconds["as-printed"] == pytest.approx(52.1, abs=0.1)
