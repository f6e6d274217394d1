"""Values of a JSON text, checked against the form of an example."""

from __future__ import annotations

import math
from typing import Any

import pytest

from emuchain.emulator.run.state.checkpoint_file import checked


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (0, 2**62),
        (-1, -5),
        (0.0, 1),
        (math.nan, math.inf),
        ("", "text"),
        (None, None),
        (None, 3),
        ((0, ""), [1, "a"]),
        ([], ["anything", 1]),
        ({"a": 0}, {"a": 1, "b": "of others"}),
        ({}, {"counted": 1}),
    ],
)
def test_what_has_the_form_is_returned(form: Any, value: Any) -> None:
    assert checked(form, value) is value


@pytest.mark.parametrize(
    ("form", "value", "said"),
    [
        (0, 2**62 + 1, "out of range"),
        (0, -1, "out of range"),
        (0, 1.0, "float, not a number"),
        (0, True, "bool, not a number"),
        (0.0, math.nan, "out of range"),
        (0.0, math.inf, "out of range"),
        (None, "", "str, not a number"),
        ("", 1, "int, not str"),
        ((0, 0), [1], "has 1 values, not 2"),
        ((0,), {"a": 1}, "dict, not list"),
        ({"a": {"b": 0}}, {"a": {"b": ""}}, "b of a of it is str"),
        ({"a": 0}, {"b": 0}, "no 'a'"),
        ({}, {"counted": "x"}, "counted of it is str"),
    ],
)
def test_what_has_not_is_refused(form: Any, value: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        checked(form, value, "it")
