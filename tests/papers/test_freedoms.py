"""Degrees of freedom: no row whose verdict turns within a plausible range is a prediction, in any
paper.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import pytest

from emuchain.papers import Class, freedoms_of, load_claims, papers, sensitivities
from emuchain.papers.constants import Constant, Freedom, chosen, in_force
from emuchain.papers.fpdeep import evidence as fpdeep
from emuchain.papers.fpdeep.evidence import CONV2, FC_BOARD
from emuchain.papers.inceptionn import evidence
from emuchain.papers.inceptionn.evidence import ROUNDS

from .test_sensitivity import silent

SLOW = ("bapipe", "fpdeep")


def at_the_ends(paper: str) -> list[Freedom]:
    """Return a paper's freedoms, of constants the ends of their ranges and the default alone."""
    return [
        dataclasses.replace(
            freedom, values=tuple(sorted({freedom.values[0], freedom.default, freedom.values[-1]}))
        )
        if isinstance(freedom, Constant)
        else freedom
        for freedom in freedoms_of(paper)
    ]


@pytest.mark.parametrize(
    "paper",
    [pytest.param(paper, marks=[pytest.mark.slow] if paper in SLOW else []) for paper in papers()],
)
@pytest.mark.parametrize(
    "freedoms", [at_the_ends, pytest.param(freedoms_of, marks=pytest.mark.exhaustive)]
)
def test_no_prediction_turns_within_a_plausible_range(
    paper: str, freedoms: Callable[[str], Sequence[Freedom]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emuchain.papers.sensitivity.freedoms_of", freedoms)
    predictions = [
        claim for claim in load_claims(paper).values() if claim.row_class is Class.PREDICTION
    ]
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


def cut_of_conv2(devices: int) -> object:
    return next(
        layer.operation.cut
        for layer in fpdeep.network("alexnet", devices).layers
        if layer.name == "conv2"
    )


def test_conv2_by_outputs_where_its_inputs_are_few_for_the_boards() -> None:
    assert (cut_of_conv2(60), cut_of_conv2(15)) == (None, None)
    with in_force({CONV2.key: CONV2.alternatives["by-outputs"]}):
        assert (cut_of_conv2(60), cut_of_conv2(15)) == ("OCP", None)


def layers_of_last_board(devices: int) -> list[str]:
    return [part.layer.name for part in fpdeep.mapping("vgg16", devices).devices[-1]]


def test_a_board_of_fully_connected_layers_takes_convolutions_in_turn() -> None:
    """Not with 15 FPGAs, of which 14 work solely on convolutions (section 6.3.1)."""
    alone = ["fc6", "fc7", "fc8"]
    assert (layers_of_last_board(15), layers_of_last_board(30)) == (alone, alone)
    slowest_ps = fpdeep.bottleneck("vgg16", 30).times_ps["engines"]
    with in_force({FC_BOARD.key: FC_BOARD.alternatives["shared"]}):
        assert layers_of_last_board(15) == alone
        assert layers_of_last_board(30)[-4:] == ["conv5_3", *alone]
        assert fpdeep.bottleneck("vgg16", 30).times_ps["engines"] < slowest_ps
