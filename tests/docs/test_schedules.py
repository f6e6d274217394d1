"""docs/schedules.md: its table of numbers, and its pictures, which the commands of the page
draw.
"""

from __future__ import annotations

import json
import re
import shlex
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.commands.cli import main
from emuchain.emulator.schedule import pipelines

from .pages import ROOT, blocks_of, text_of

PAGE = "docs/schedules.md"
_TABLE = re.compile(
    r"^<!-- numbers of emuchain pipeline -->\n\n.*\n.*\n(?P<rows>(?:^\|.*\n?)+)", re.MULTILINE
)
_TIME = re.compile(r"(?P<time>\d+)(?: \(formula: (?P<formula>\d+)\))?")
_VERSION = re.compile(r"Matplotlib v[\d.]+")
_TEXT = re.compile(r"<text [^>]*>([^<]*)</text>")


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run `emuchain pipeline` and return what it printed."""
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", *arguments])
    assert not ended.value.code
    return capsys.readouterr().out


def rows() -> list[list[str]]:
    match = _TABLE.search(text_of(PAGE))
    assert match is not None
    return [
        [cell.strip() for cell in row.strip("|").split(" | ")] for row in match["rows"].splitlines()
    ]


def test_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(rows()) > 10
    for flags, time, bubble, features in rows():
        found: dict[str, Any] = json.loads(
            run(["--schedule", *flags.strip("`").split(), "--json"], capsys)
        )
        expected = _TIME.fullmatch(time)
        assert expected is not None, time
        assert found["time"] == int(expected["time"]), flags
        assert found["formula"] == int(expected["formula"] or expected["time"]), flags
        assert found["formula_holds"] == (expected["formula"] is None), flags
        assert found["bubble"] == float(Fraction(bubble)), flags
        assert found["features"] == [float(each) for each in features.split(",")], flags


def drawing() -> dict[str, list[str]]:
    """The arguments of each command of the page that draws, by the picture's name."""
    lines = [
        line for block in blocks_of(PAGE) for line in block.code.splitlines() if "--plot" in line
    ]
    words = [shlex.split(line)[2:] for line in lines]
    return {Path(each[-1]).stem: each for each in words}


def test_each_schedule_has_a_section_and_a_picture() -> None:
    shown = re.findall(
        r"^### (\S+)\n(?:(?!^#).*\n)*?!\[.*\]\(schedules/(\S+)\.svg\)$", text_of(PAGE), re.MULTILINE
    )
    assert all(section == picture for section, picture in shown)
    assert {section for section, _ in shown} == set(drawing()) == set(pipelines())
    assert {path.stem for path in (ROOT / "docs" / "schedules").iterdir()} == set(drawing())


@pytest.mark.parametrize("name", drawing())
def test_pictures_are_what_the_commands_draw(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To the byte, with the version of matplotlib that drew them; with others, their words and
    numbers.
    """
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs" / "schedules").mkdir(parents=True)
    arguments = drawing()[name]
    assert arguments[1] == name and arguments[-1] == f"docs/schedules/{name}.svg"
    run(arguments, capsys)
    drawn, kept = (
        (folder / arguments[-1]).read_text(encoding="utf-8") for folder in (tmp_path, ROOT)
    )
    assert sorted(_TEXT.findall(drawn)) == sorted(_TEXT.findall(kept))
    if _VERSION.findall(drawn) == _VERSION.findall(kept):
        assert drawn == kept
