"""Expressions for warm-up forwards."""

from __future__ import annotations

import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.schedule import warm_ups

VALID = {
    "N-i+1": (3, 2, 1),
    "2(N-i)+1": (5, 3, 1),
    "2 (N-i+1)": (6, 4, 2),
    "2N - 2i + 1": (5, 3, 1),
    "(N-i)(N-i)+1": (5, 2, 1),
    "M": (8, 8, 8),
    "min(M, N//i)": (3, 1, 1),
    "max(1, -(-(N-i)*3//2))": (3, 2, 1),
    "min(2, 7)": (2, 2, 2),
}


@pytest.mark.parametrize("expression", VALID)
def test_valid(expression: str) -> None:
    assert warm_ups(expression, 3, 8) == VALID[expression]


@pytest.mark.parametrize(
    "expression",
    [
        *(
            "",
            "x",
            "N-",
            "N**9**9",
            "N/2",
            "1.5",
            "True",
            "N.real",
            "[1]",
            "print(N)",
            "__import__('os')",
            "i if N else 1",
        ),
        *(
            "N//(i-1)",
            "(" * 150,
            "1+" * 300 + "1",
            "'a'*3",
            "lambda: 1",
            "\0",
            "min(N=1)",
            "min(N)",
        ),
    ],
)
def test_invalid(expression: str) -> None:
    with pytest.raises(InputError) as error:
        warm_ups(expression, 3, 8)
    assert str(error.value).startswith("`warm_up` = ") and "\n" not in str(error.value)


def test_less_than_one() -> None:
    with pytest.raises(InputError, match="is 0 at stage 3; must be at least 1"):
        warm_ups("N-i", 3, 8)
