"""What tests of the benchmarks share: running commands, reading their page, and looking at
processes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from emuchain.benchmarks.frame import is_installed
from emuchain.emulator.commands.cli import main

README = (Path(__file__).parents[2] / "benchmarks" / "README.md").read_text(encoding="utf-8")

NEEDS_TORCH = pytest.mark.skipif(
    not is_installed("torch"), reason="PyTorch, the peer, is not installed"
)


def run_main(*arguments: str) -> int:
    """Run `emuchain bench` in this process; return its status."""
    with pytest.raises(SystemExit) as ended:
        main(["bench", *arguments])
    return int(ended.value.code or 0)


def keys_of(heading: str) -> set[str]:
    """The keys that benchmarks/README.md explains in the first column of the table with that
    heading.
    """
    rows = re.search(
        rf"^\| {re.escape(heading)} \| meaning \|\n\|---\|---\|\n((?:\|.*\n?)+)",
        README,
        re.MULTILINE,
    )
    assert rows is not None
    return {
        key for row in rows[1].splitlines() for key in re.findall(r"`(\w+)`", row.split(" | ")[0])
    }


def is_there(pid: int) -> bool:
    """Whether a process still runs."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds; fail after two minutes."""
    give_up = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)
