"""Each row of each paper's claims is measured and judged; its class, its measure and its formula go
together.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.common import InputError
from emuchain.papers import Claim, Class, load_claims, papers, validate
from emuchain.papers.bapipe import schedules
from emuchain.papers.claim import Measured
from emuchain.papers.constants import in_force
from emuchain.papers.farnn import applications, runs
from emuchain.papers.run import Formulas, measures

ROOT = Path(__file__).resolve().parents[2]
COUNTS = {
    "accl": 20,
    "bapipe": 131,
    "deepbench": 19,
    "farnn": 150,
    "fpdeep": 221,
    "hardware": 59,
    "inceptionn": 224,
    "zero_bubble": 13,
}
SLOW = re.compile(
    "fpdeep-(fp-num-ce|abs-linear|batch-|unaligned-|latency-|linear-|intro-linear|epochs|partition-poly|idle-)"
)


ROWS = [
    pytest.param(paper, claim, id=name, marks=[pytest.mark.slow] if SLOW.match(name) else [])
    for paper in papers()
    for name, claim in load_claims(paper).items()
    if claim.expect
]


@pytest.fixture(autouse=True)
def _fewer_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Tables I and II of BaPipe."""
    monkeypatch.setattr(schedules, "MICRO_BATCHES", (1, 4, 16))


@pytest.mark.parametrize(("paper", "claim"), ROWS)
def test_rows_are_confirmed_or_explained(paper: str, claim: Claim) -> None:
    [result] = validate(paper, [claim])
    if result.is_run:
        assert result.verdict.is_good or claim.explanation, result
        assert (claim.missed is None) is result.verdict.is_good, (
            "what a missed row comes from is said"
        )
    else:
        assert result.how, "what is missing is said"


def is_of_constants(claim: Claim) -> bool:
    """Whether a row's measure is a formula that calls nothing of its paper."""
    calls = [
        node for node in ast.walk(ast.parse(claim.measure or "f()")) if isinstance(node, ast.Call)
    ]
    return {ast.unparse(call.func) for call in calls} <= {
        "min",
        "max",
        "ceil",
        "floor",
        "sqrt",
        "board",
    }


@pytest.mark.parametrize("paper", papers())
def test_no_prediction_is_a_formula_of_constants(paper: str) -> None:
    of_constants = {
        claim.row_class for claim in load_claims(paper).values() if is_of_constants(claim)
    }
    assert of_constants <= {Class.IDENTITY, Class.ECHO, Class.STRUCTURE}


@pytest.mark.parametrize("paper", papers())
def test_every_claim_has_a_measure_or_a_reason(paper: str) -> None:
    claims = load_claims(paper)
    assert {name for name, claim in claims.items() if claim.expect} == set(measures(paper))
    assert all((claim.expect is None) == bool(claim.not_run) for claim in claims.values())
    text = (ROOT / "papers" / paper / "claims.toml").read_text(encoding="utf-8")
    assert re.findall(r'^id = "(.+)"$', text, re.MULTILINE) == list(claims)
    assert len(claims) == COUNTS[paper]


@pytest.fixture
def formulas() -> Formulas:
    made = Formulas.of_files([runs, applications])
    made.functions["twice"] = lambda value: Measured(2 * value, "twice")  # type: ignore[index]
    return made


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("2 + 3 * 4 ** 2 // 5 % 7 - -1 / 4", 4.25),
        ("[min(3, 2), max(3, 2), ceil(1.2), floor(1.8), sqrt(9)]", [2, 3, 2, 1, 3.0]),
        ("[1 < 2, 1 <= 0, 2 > 1, 1 >= 2, 1 == 1, 1 != 1]", [True, False, True, False, True, False]),
        ("runs.DS2_STEPS", 548),
        ("runs.RNNT['cells'] - runs.PADDING[1]", 2047.0),
        ("board('vcu118', 'dsp') / 2", 3420.0),
        ("100 * applications.ENCODER_SHARE", 65.0),
        ("twice(4)", 8),
    ],
)
def test_formulas_by_hand(formula: str, value: Any, formulas: Formulas) -> None:
    assert formulas.measure(formula).ours == value


def test_a_formula_takes_constants_in_force(formulas: Formulas) -> None:
    with in_force({applications.ENCODER_SHARE.key: 0.5}):
        assert formulas.measure("applications.ENCODER_SHARE").ours == 0.5


@pytest.mark.parametrize(
    "formula",
    [
        *(
            "",
            "1 +",
            "x",
            "1 / 0",
            "9 ** 9 ** 9",
            "'a' * 9",
            "[1] + [2]",
            "twice",
            "twice(4) + 1",
            "min(*runs.CELLS)",
        ),
        *(
            "runs.time_ps",
            "runs.__name__",
            "runs.NONE",
            "nowhere.STEPS",
            "runs.PADDING[3]",
            "runs.STEPS.real",
        ),
        *(
            "__import__('os')",
            "open('/etc/passwd')",
            "(lambda: 1)()",
            "[x for x in [1]]",
            "runs.load_cluster('p100')",
        ),
        *("f'{runs.STEPS}'", "1 if 1 else 2", "(x := 1)", "board(kind='p100', key='dsp')", "None"),
    ],
)
def test_what_is_no_formula_is_refused(formula: str, formulas: Formulas) -> None:
    with pytest.raises(InputError, match="`measure` = "):
        formulas.measure(formula)
