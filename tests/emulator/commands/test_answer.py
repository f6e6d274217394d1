"""The frame of a command: what its function returns is drawn first, then printed, as JSON or as
text.
"""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from emuchain.emulator.commands.frame.command import Answer, FileCommand, json_option, plot_option
from emuchain.emulator.common import InputError, WholeFile

ANSWER = Answer(
    lambda: print("text"), lambda: {"as": "json"}, lambda picture: picture.write(b"drawn")
)


def message(tmp_path: Path, *words: str, returned: Answer | int = ANSWER) -> object:
    """Call a command with a picture and JSON, which returns what is given; return its status."""

    @click.command(cls=FileCommand)
    @plot_option("Draw it.")
    @json_option()
    def tell() -> Answer | int:
        assert not [*tmp_path.glob("*.png")], "drawn once it is computed"
        return returned

    return tell.main([*words], standalone_mode=False)


def test_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert message(tmp_path) == 0
    assert capsys.readouterr().out == "text\n"


def test_json_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert message(tmp_path, "--json", "--plot", str(tmp_path / "x.png")) == 0
    assert json.loads(capsys.readouterr().out) == {"as": "json"}
    assert (tmp_path / "x.png").read_bytes() == b"drawn"


def test_a_status_is_returned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert message(tmp_path, "--json", returned=130) == 130
    assert capsys.readouterr().out == ""


def test_an_answer_has_a_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert message(tmp_path, returned=Answer(ANSWER.show, status=1)) == 1
    assert capsys.readouterr().out == "text\n"


def test_nothing_is_printed_or_left_where_it_cannot_be_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")

    def refuse(picture: WholeFile) -> None:
        raise InputError("no picture")

    with pytest.raises(InputError, match="no picture"):
        message(
            tmp_path,
            "--plot",
            str(tmp_path / "x.png"),
            returned=Answer(ANSWER.show, ANSWER.as_json, refuse),
        )
    assert capsys.readouterr().out == ""
    assert not [*tmp_path.iterdir()]
