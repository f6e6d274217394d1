"""The list of all commands, and what is said of names that are none."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from emuchain.emulator.commands.command_line import SECTIONS, commands


def test_each_command_is_in_one_section() -> None:
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(commands.commands)
    lines = CliRunner().invoke(commands, ["--help"], terminal_width=80).output.splitlines()
    for title, names in SECTIONS.items():
        start = lines.index(f"{title}:") + 1
        assert tuple(line.split()[0] for line in lines[start : start + len(names)]) == names


@pytest.mark.parametrize("name", ["compare", "topology", "exchange"])
def test_a_command_of_a_group_says_where_it_is(name: str) -> None:
    outcome = CliRunner().invoke(commands, [name, "quick-cifar"])
    assert outcome.exit_code == 2
    assert f"No such command '{name}'. Did you mean 'study {name}'?" in outcome.output


def test_an_unknown_command() -> None:
    outcome = CliRunner().invoke(commands, ["comparison"])
    assert outcome.exit_code == 2
