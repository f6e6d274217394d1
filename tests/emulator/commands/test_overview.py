"""The list of all commands, and their earlier names."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from emuchain.emulator.commands.command_line import RENAMED, SECTIONS, commands


def test_each_command_is_in_one_section() -> None:
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(commands.commands)
    lines = CliRunner().invoke(commands, ["--help"], terminal_width=80).output.splitlines()
    for title, names in SECTIONS.items():
        start = lines.index(f"{title}:") + 1
        assert tuple(line.split()[0] for line in lines[start : start + len(names)]) == names


@pytest.mark.parametrize("name", [name for name in RENAMED if name != "run"])
def test_earlier_names_do_the_same_with_a_note(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["quick-cifar", "--json", *(["--workers", "4"] if name == "exchange" else ["--devices", "2"])]
    said = []
    for words in ([name], [*RENAMED[name]]):
        commands.main([*words, *flags], standalone_mode=False)
        said.append(capsys.readouterr())
    assert said[0].out == said[1].out
    assert said[1].err == ""
    assert said[0].err == f"emuchain: note: `emuchain {name}` is now `emuchain {' '.join(RENAMED[name])}`\n"


def test_an_unknown_command() -> None:
    outcome = CliRunner().invoke(commands, ["comparison"])
    assert outcome.exit_code == 2
