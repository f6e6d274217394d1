"""Signals that ask a run with checkpoints to end: SIGTERM and SIGUSR1, as Slurm sends before it takes a node away.

The run ends at its next checkpoint, whichever rank has got the signal; launchers and Slurm send it to all. A second one
ends it at once, as it would end a run without checkpoints.
"""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class Stopping:
    """Takes these signals inside a `with`, where `wanted`; outside, they do what they did."""

    def __init__(self, *, wanted: bool) -> None:
        self.asked: signal.Signals | None = None
        """The signal that came, if one did."""
        self._wanted, self._before = wanted, dict[signal.Signals, Any]()

    def __enter__(self) -> Stopping:
        if self._wanted:
            self._before = {each: signal.signal(each, self._ask) for each in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._give_back()

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = signal.Signals(number)
        self._give_back()

    def _give_back(self) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)
        self._before = {}
