"""The help of commands that take a configuration: flags in groups, the usual ones first; and the
list of schedules.
"""

import itertools
import re

import pytest
from click.testing import CliRunner

from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.commands.frame.flags import USUAL
from emuchain.emulator.config import GROUPS, RUN_ONLY_KEYS, Config
from emuchain.emulator.schedule import schedules


def lines_of(*arguments: str) -> list[str]:
    result = CliRunner().invoke(commands, arguments, terminal_width=80)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def flags_of(lines: list[str]) -> list[str]:
    spelt = (
        match[1].split(", ")
        for line in lines
        if (match := re.match(r"  (--[\w-]+(?:, --[\w-]+)*)", line))
    )
    return [flag.removeprefix("--").replace("-", "_") for flags in spelt for flag in flags]


def test_each_key_is_in_one_group() -> None:
    keys = list(itertools.chain(*GROUPS.values()))
    assert sorted(keys) == sorted(Config.model_fields)
    assert set(keys) > USUAL
    assert not set(keys) & set(GROUPS), "a table's name is that of no key"


@pytest.mark.parametrize(
    ("command", "without"),
    [("train", ()), ("simulate", RUN_ONLY_KEYS), ("timeline", RUN_ONLY_KEYS)],
)
def test_help_shows_the_usual_flags_and_help_all_every_one(
    command: str, without: tuple[str, ...]
) -> None:
    usual, every = (lines_of(command, flag) for flag in ("--help", "--help-all"))
    keys = set(Config.model_fields) - set(without)
    assert set(flags_of(usual)) & keys == USUAL - set(without)
    assert set(flags_of(every)) >= keys
    titles = [line[:-1] for line in every if line.endswith(":") and not line.startswith(" ")]
    assert titles == [*(f"[{group}]" for group in GROUPS), "Formats of numbers", "This command"]
    assert "--help-all" in " ".join(usual)
    assert len(usual) < len(every) / 2


def test_schedules_are_listed_a_line_each() -> None:
    lines = lines_of("schedule", "--list")
    assert lines[0].startswith(f"{len(schedules())} schedules")
    for kind in schedules().values():
        assert any(line.split()[:1] == [kind.name] for line in lines[3:]), kind.name


@pytest.mark.parametrize("more", ["--csv", "--devices=3", "quick-cifar", "--steps=1"])
def test_the_list_takes_nothing_else(more: str) -> None:
    result = CliRunner().invoke(commands, ["schedule", "--list", more])
    assert result.exit_code == 2
    assert "--list takes nothing else" in result.output
