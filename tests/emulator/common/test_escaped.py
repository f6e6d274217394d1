"""Text of others: nothing in it is obeyed by a terminal, or computed by a spreadsheet."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.common import InputError, Note, as_cell, escaped, of_cell, one_line


@given(st.text())
def test_printable_text_stays_and_all_else_is_spelled_out(text: str) -> None:
    assert all(each.isprintable() for each in escaped(text).replace("\t", "").split("\n"))
    assert one_line(text).isprintable()
    if text.isprintable():
        assert escaped(text) == one_line(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202eabc", "\\u202eabc"),
        ("\udcff", "\\udcff"),
        ("\r\x00", "\\r\\x00"),
        ("ü 你好 😀", "ü 你好 😀"),
    ],
)
def test_what_a_terminal_obeys(text: str, shown: str) -> None:
    assert escaped(f"{text}\n\t{text}") == f"{shown}\n\t{shown}"
    assert one_line(f"{text}\n\t") == f"{shown}\\n\\t"


LONG = {
    "`batch` = " + "9" * 300 + ": at most 8": (
        "`batch` = 99999999999999999999…99999999 (300 digits): at most 8"
    ),
    f"rank 0: '0F{'9' * 300}' is no action": (
        "rank 0: '0F999999999999999999…99999999 (302 characters)' is no action"
    ),
    "a" * 255 + "/" + "b" * 255 + ": " + "1" * 40: "a" * 255 + "/" + "b" * 255 + ": " + "1" * 40,
}


@pytest.mark.parametrize("said", LONG)
def test_an_error_quotes_the_ends_of_what_is_longer_than_a_name(said: str) -> None:
    assert str(InputError(said)) == str(Note(said)) == LONG[said]


def test_an_error_and_a_note_are_one_line_of_what_can_be_printed() -> None:
    assert str(InputError("a\x1b[31m: no\nsuch file")) == "a\\x1b[31m: no such file"
    assert str(Note("a\x07\nb")) == "a\\x07 b"


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+1+1",
        "-1+1",
        "@SUM(A1)",
        "=cmd|' /C calc'!A0",
        "-",
        "\uff1d1+1",
        "\uff0ba",
        "\uff20a",
    ],
)
def test_formulas_are_text(text: str) -> None:
    assert as_cell(text) == f"'{text}"
    assert of_cell(str(as_cell(text))) == text


@pytest.mark.parametrize("text", ["\t=1", "\r=1", "\n=1"])
def test_what_stands_before_a_formula_is_spelled_out(text: str) -> None:
    assert str(as_cell(text)).startswith("\\")


@pytest.mark.parametrize(
    "value", [-3.5, -1, None, True, "-3.5", "+1e-9", "-inf", "conv1", "", "'quoted'", "a=b"]
)
def test_numbers_and_other_text_stay(value: object) -> None:
    assert as_cell(value) == value


@given(st.text())
def test_no_cell_begins_with_what_a_spreadsheet_computes(text: str) -> None:
    written = io.StringIO()
    csv.writer(written).writerow([as_cell(text)])
    [[cell]] = csv.reader(io.StringIO(written.getvalue())) if text else [[""]]
    assert not cell.startswith(tuple("=+-@\t\r\n")) or float(cell) is not None
    assert of_cell(cell) == one_line(text) or text.startswith("'")
