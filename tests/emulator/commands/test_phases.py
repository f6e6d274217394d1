"""Progress of a command that takes long: on a terminal, and nowhere else."""

import pytest

from emuchain.emulator.commands.output import phases


def test_silent_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with phases("mapping") as show:
        show("simulating")
    assert capsys.readouterr() == ("", "")


def test_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with phases("mapping 1,024 devices") as show:
        show("simulating 100 images")
    said = capsys.readouterr()
    assert said.out == ""
    assert "simulating 100 images" in said.err
