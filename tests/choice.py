"""Which tests of a whole run a usual one leaves out: of expensive files a sixth runs, another one
for each commit.

    tests/durations.json   what each file's tests took when all ran, in seconds
    tests/full_run         the commit of which all tests passed

A file is whole where it, or the room that it tests, changed since that commit: tests/emulator/rtl
has the tests of emulator/rtl. So a change runs all tests of its room at once. What it breaks
elsewhere, a usual run finds where a file is not expensive, and otherwise with the chance of a
sixth for each test that would; six runs together take 67 % of these. `scripts/test --quick`
takes one in 16. `scripts/test --all` runs everything.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Collection
from pathlib import Path

SHARE = 6
"""One test in as many runs, of expensive files."""

EXPENSIVE_S = 3.0
"""A file whose tests take longer is expensive: these are 7 files of 10, and 97 % of the time."""


class Choice:
    """What is left out, as git and the files in `tests` say; nothing where git cannot tell what
    changed.
    """

    def __init__(self, root: Path, share: int = SHARE) -> None:
        self._share = share
        tests = root / "tests"
        self.durations_s: dict[str, float] = json.loads(
            (tests / "durations.json").read_text(encoding="utf-8")
        )
        self._commit = _git(root, "rev-parse", "HEAD").strip()
        full_run = (tests / "full_run").read_text(encoding="utf-8").strip()
        changed = _git(root, "diff", "--name-only", full_run, "--") if full_run else ""
        self._knows = (
            bool(self._commit and full_run)
            and _git(root, "cat-file", "-t", full_run).strip() == "commit"
        )
        self._changed = frozenset(changed.split())

    def duration_s(self, file: str) -> float:
        """Return what a file's tests take, in seconds; 0 of one that is new."""
        return self.durations_s.get(file, 0.0)

    def leaves_out(self, file: str, name: str) -> bool:
        """Return whether a test, in a file below the checkout, does not run for this commit."""
        if (
            not self._knows
            or self.duration_s(file) < EXPENSIVE_S
            or has_changed(file, self._changed)
        ):
            return False
        drawn = hashlib.sha256(f"{self._commit} {file}::{name}".encode()).digest()
        # Of a digest: a checksum would draw the same sixths from each commit.
        return drawn[0] % self._share != 0


def has_changed(file: str, changed: Collection[str]) -> bool:
    """Return whether a file of tests is among changed ones, or a file in the room that it tests or
    beside it.

    The files of a room are those in the folder that the tests' folder mirrors, and below. Files
    that lie in `tests` itself test no room, but the whole.
    """
    beside = file.rpartition("/")[0]
    room = beside.removeprefix("tests").lstrip("/")
    folders = (f"{beside}/", f"{room}/") if room else ()
    return file in changed or any(path.startswith(folders) for path in changed)


def _git(root: Path, *words: str) -> str:
    """Return what git prints, nothing where it fails or is not there."""
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""
