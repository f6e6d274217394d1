"""How tests run a command in this process."""

from __future__ import annotations

import pytest

from emuchain.emulator.commands.cli import main


def status_of(*words: str) -> int:
    """Run `emuchain WORDS`; return its exit status."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code if isinstance(ended.value.code, int) else 0
