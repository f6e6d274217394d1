"""Tables: as wide as the screen, in parts if need be; names are never cut, and lines have no blanks
at their ends.
"""

from __future__ import annotations

import importlib

import pytest

from emuchain.emulator.view import most_loaded, table

NAMES = ["conv2_2[106:128] ICP", "conv1_1[0:64] OCP,\nconv1_2[0:33] ICP"]


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_a_table_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    table(
        "Boards",
        ["device", "slices", "busy share"],
        [["0", NAMES[0], "1.0 %"], ["10", NAMES[1], "99 %"]],
        names=("slices",),
    )
    assert lines_of(capsys) == [
        "",
        "Boards",
        "device  slices                busy share",
        "────────────────────────────────────────",
        "     0  conv2_2[106:128] ICP       1.0 %",
        "    10  conv1_1[0:64] OCP,          99 %",
        "        conv1_2[0:33] ICP",
    ]


def test_columns_without_room_follow_in_a_second_table(capsys: pytest.CaptureFixture[str]) -> None:
    columns = ["device", *(f"column{i}" for i in range(12))]
    table("Wide", columns, [["7", *(f"value-{i:02}" for i in range(12))]])
    lines = lines_of(capsys)
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line.startswith("Wide")] == ["Wide", "Wide (continued)"]
    rows = [line.split() for line in lines if "value-" in line]
    assert [row[0] for row in rows] == ["7", "7"]
    assert [cell for row in rows for cell in row[1:]] == [f"value-{i:02}" for i in range(12)]


def test_words_wrap_where_they_must_and_names_do_not(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [["conv2_2[106:128] ICP", "a " * 60 + "end"]]
    table("Words", ["name", "words"], rows, left=("words",), names=("name",))
    lines = lines_of(capsys)
    assert max(map(len, lines)) == 80
    assert "conv2_2[106:128] ICP  a a" in lines[4]
    assert lines[-1].endswith("end")


def test_what_looks_like_markup_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    table("[bold]", ["[a]"], [["[/red]"]])
    assert lines_of(capsys)[1::3] == ["[bold]", "[/red]"]


def test_rows_that_are_aligned_alike(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those beyond the ones that rich draws look as if it had drawn them."""
    rows = [[f"layer{number}", f"{number:,}", "a word" * (number % 2)] for number in range(1200)]
    for most in (1000, 2000):
        monkeypatch.setattr(
            importlib.import_module("emuchain.emulator.view.tables"), "_MOST_DRAWN", most
        )
        table("Layers", ["name", "number", "more"], rows, names=["name", "more"])
    first, second = (capsys.readouterr().out[1:] + "\n").split("\n\n")[:2]
    assert first == second and len(first.splitlines()) == 1203


def test_titles_and_lines_wrap(capsys: pytest.CaptureFixture[str]) -> None:
    table("word " * 30, ["a"], [["1"]])
    assert max(map(len, lines_of(capsys))) <= 80


def test_the_most_loaded_stay_in_their_order() -> None:
    title, shown = most_loaded("Links", "links", [5, 1, 9, 7, 2, 8, 3], float, full=False)
    assert shown == [5, 9, 7, 8, 3]
    assert title == "Links: 5 of 7 links, the most loaded; --full shows all"
    assert most_loaded("Links", "links", [1, 2, 3, 4, 5, 6], float, full=True) == (
        "Links",
        [1, 2, 3, 4, 5, 6],
    )
    assert most_loaded("Links", "links", [3, 2], float, full=False) == ("Links", [3, 2])
