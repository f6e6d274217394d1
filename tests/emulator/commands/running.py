"""How tests run a command in this process."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from emuchain.emulator.commands.cli import main

PIPELINE = [
    *("--schedule gpipe --stages 2 --micro-batches 2".split()),
    *("--forward 1 --backward 1".split()),
]
"""Flags of `emuchain pipeline`."""


def status_of(*words: str) -> int:
    """Run `emuchain WORDS`; return its exit status."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code if isinstance(ended.value.code, int) else 0


def with_network(words: Sequence[str], network: str) -> list[str]:
    """Return a command and its flags with a network in between, which `study topology` takes behind
    both its words.
    """
    names = [word for word in words[:2] if word.isalpha()]
    return [*names, network, *words[len(names) :]]
