"""Which tests a usual run leaves out: a sixth of expensive files runs, all of rooms that
changed.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from .choice import SHARE, Choice, has_changed


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("emulator/rtl/design.py", True),
        ("emulator/rtl/deeper/design.py", True),
        ("tests/emulator/rtl/test_updates.py", True),
        ("tests/emulator/rtl/helpers.py", True),
        ("emulator/run/results.py", False),
        ("emulator/rtl.md", False),
        ("docs/rtl.md", False),
    ],
)
def test_what_a_change_is_of(changed: str, expected: bool) -> None:
    assert has_changed("tests/emulator/rtl/test_updates.py", {changed}) == expected


def test_files_beside_the_rooms() -> None:
    assert has_changed("tests/test_startup.py", {"tests/test_startup.py"})
    assert not has_changed(
        "tests/test_startup.py", {"tests/durations.json", "emulator/run/results.py"}
    )
    assert has_changed("tests/docs/test_commands.py", {"docs/tour.md"})
    assert not has_changed("tests/docs/test_commands.py", {"emulator/run/results.py"})


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with an expensive file of tests and one that is not, all of which passed at its
    first commit.
    """
    (tmp_path / "tests" / "room").mkdir(parents=True)
    (tmp_path / "room").mkdir()
    durations = {"tests/room/test_long.py": 100.0, "tests/room/test_short.py": 1.0}
    (tmp_path / "tests" / "durations.json").write_text(json.dumps(durations))
    (tmp_path / "tests" / "full_run").write_text("")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path, "first")
    (tmp_path / "tests" / "full_run").write_text(git(tmp_path, "rev-parse", "HEAD"))
    return tmp_path


def git(folder: Path, *words: str) -> str:
    """What git prints."""
    author = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    return subprocess.run(
        ["git", *author, *words], cwd=folder, capture_output=True, text=True, check=True
    ).stdout


def commit(folder: Path, message: str) -> None:
    """Commit all that is in a folder."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", message)


LONG = [("tests/room/test_long.py", f"test_{number}") for number in range(120)]


def test_commits_in_a_row_draw_other_tests(checkout: Path) -> None:
    runs: list[set[str]] = []
    for number in range(3 * SHARE):
        commit(checkout, str(number))
        choice = Choice(checkout)
        assert not any(choice.leaves_out("tests/room/test_short.py", name) for _, name in LONG)
        runs.append({name for file, name in LONG if not choice.leaves_out(file, name)})
    assert all(7 <= len(run) <= 40 for run in runs)
    assert len(set().union(*runs)) > 100


def test_a_quick_run_takes_some_of_those(checkout: Path) -> None:
    commit(checkout, "one")
    usual, quick = (
        {name for file, name in LONG if not Choice(checkout, share).leaves_out(file, name)}
        for share in (SHARE, 4 * SHARE)
    )
    assert quick < usual


@pytest.mark.parametrize(
    "path", ["room/code.py", "tests/room/test_long.py", "tests/room/helpers.py"]
)
def test_a_change_runs_the_tests_of_its_room(checkout: Path, path: str) -> None:
    (checkout / path).write_text("changed")
    commit(checkout, "change")
    assert not any(Choice(checkout).leaves_out(*test) for test in LONG)


def test_without_history_all_run(checkout: Path) -> None:
    (checkout / "tests" / "full_run").write_text("0" * 40)
    assert not any(Choice(checkout).leaves_out(*test) for test in LONG)
