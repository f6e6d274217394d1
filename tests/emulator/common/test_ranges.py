"""Lists and ranges of values: what they give, and what is wrong with others."""

from __future__ import annotations

import pytest

from emuchain.emulator.common import parse_counts, parse_values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1-4", (1, 2, 3, 4)),
        ("1-64:21", (1, 22, 43, 64)),
        ("1-10:4", (1, 5, 9)),
        ("8,1,2,2", (1, 2, 8)),
        ("2-4,16, 3", (2, 3, 4, 16)),
        ("7", (7,)),
        ("10,2.5", (2.5, 10)),
        ("0.1-0.5:0.1", (0.1, 0.2, 0.3, 0.4, 0.5)),
        ("1-2:0.5", (1.0, 1.5, 2.0)),
        ("1e3,2E-1", (0.2, 1000.0)),
        ("sync,fpdeep", ("sync", "fpdeep")),
        ("none,inceptionn:-10,none", ("none", "inceptionn:-10")),
        ("vc709-10g,my/3-4.toml", ("vc709-10g", "my/3-4.toml")),
        ("false,true", (False, True)),
        ("fp8 x=a:b=1,c=2,fp16, d=1", ("fp8 x=a:b=1,c=2", "fp16", "d=1")),
    ],
)
def test_values(text: str, values: tuple[object, ...]) -> None:
    found = parse_values(text)
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty item"),
        ("1,,2", "empty item"),
        ("4-1", "runs downwards; write 1-4"),
        ("9-1:2", "write 1-9:2"),
        ("1-5:0", "step of 0"),
        ("0.5-2", "needs a step"),
        ("1-", "neither a number nor a range"),
        ("1-2-3", "neither a number nor a range"),
        ("-3", "neither a number nor a range"),
        ("1-4:", "neither a number nor a range"),
        ("1,sync", "mixes the word 'sync' with numbers"),
        ("1-1000000000", "more than 100000 values"),
    ],
)
def test_bad_values(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_values(text)


def test_counts() -> None:
    assert parse_counts("2-64:31,3", "devices") == (2, 3, 33, 64)
    assert parse_counts("1024", "workers", 1024) == (1024,)


@pytest.mark.parametrize(
    "text", ["0", "3-2", "2,,3", "-3", "x", "2-", "1-10000000", "", "٣", "1.5", "true", "0-3"]
)
def test_bad_counts(text: str) -> None:
    with pytest.raises(
        ValueError, match="is not a list of numbers of boards such as 2,4,8 or 2-8 or 2-64:4"
    ):
        parse_counts(text, "boards")


def test_counts_have_a_limit() -> None:
    with pytest.raises(ValueError, match="must be from 1 to 1024 workers"):
        parse_counts("4,1025", "workers", 1024)
