"""`tests/attack/numbers`: absurd numbers for a few commands, and that it finds what may not
happen.
"""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from .conftest import Load


@pytest.fixture
def numbers(load: Load, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The script as a module, which imports nothing ahead."""
    module = load("numbers")
    monkeypatch.setattr(module, "_import_all", lambda: None)
    return module


def test_commands_end_as_they_may(
    numbers: types.ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--only", "pipeline --schedule interleaved", "--numbers", "1000000000,nan"]
    assert numbers.main(words) == 0
    [said] = capsys.readouterr().out.splitlines()
    assert "refused" in said and "ok" in said


def wait(_: Sequence[str]) -> None:
    time.sleep(60)


def warn(_: Sequence[str]) -> None:
    print("emuchain: warning: this takes about 2 years", flush=True)
    time.sleep(60)


def eat(_: Sequence[str]) -> None:
    held = bytearray(3 * 2**30)
    for place in range(0, len(held), 4096):
        held[place] = 1
    time.sleep(60)


def trip(_: Sequence[str]) -> None:
    print("emuchain: internal error: KeyError")
    sys.exit(1)


def refuse(_: Sequence[str]) -> None:
    print("emuchain: error: no")
    sys.exit(2)


def refuse_at_length(_: Sequence[str]) -> None:
    print("emuchain: error: no\nemuchain: error: and no")
    sys.exit(2)


@pytest.mark.parametrize(
    ("command", "how"),
    [
        (wait, "over 10 s"),
        (warn, "goes on as said"),
        (eat, "over 2 GB"),
        (trip, "internal error"),
        (refuse, "refused"),
        (refuse_at_length, "several lines"),
    ],
)
def test_what_may_not_happen_is_found(
    numbers: types.ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    command: Callable[[Sequence[str]], None],
    how: str,
) -> None:
    monkeypatch.setattr("emuchain.emulator.commands.cli.main", command)
    monkeypatch.setattr(numbers, "SECONDS", 10 if command is eat else 1)
    assert numbers.attempt(("plan",)).how == how


def test_a_command_does_not_answer_for_the_memory_of_its_parent(
    numbers: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = np.ones(64 * 2**20, np.uint8)
    monkeypatch.setattr("emuchain.emulator.commands.cli.main", refuse)
    monkeypatch.setattr(numbers, "MOST_BYTES", held.nbytes // 2)
    assert numbers.attempt(("plan",)).how == "refused"


def test_each_flag_gets_each_number(numbers: types.ModuleType) -> None:
    found = list(numbers.cases(("7", "8"), "pipeline --schedule 1f1b-so"))
    assert all(case.count("--stages") == 1 for case in found)
    flags = numbers.flags_of(("pipeline",))
    assert {"--micro-batches", "--rows", "--warm-up"} <= set(flags) and "--plot" not in flags
    assert len(found) == 2 * len(flags)


@pytest.mark.parametrize(
    "only", ["order-20000.csv --forward", "columns-500000", "launch -n 100000"]
)
def test_files_of_absurd_sizes(
    numbers: types.ModuleType, capsys: pytest.CaptureFixture[str], only: str
) -> None:
    assert numbers.main(["--only", only]) == 0
    assert "1 commands: 1 " in capsys.readouterr().out
