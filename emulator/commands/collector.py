"""Python's garbage collector: paused while a command is imported, which creates objects but no garbage."""

from __future__ import annotations

import gc

_USUAL = gc.get_threshold()
_MORE_THAN_IMPORTS_CREATE = 200_000


def pause() -> None:
    """Let the collector wait."""
    gc.set_threshold(_MORE_THAN_IMPORTS_CREATE)


def resume() -> None:
    """Let it collect as usual, without looking again at what was imported."""
    gc.freeze()
    gc.set_threshold(*_USUAL)
