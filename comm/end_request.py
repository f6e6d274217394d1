"""A request to end: SIGTERM or SIGUSR1, as batch systems send them before they end a job.

A run that can save its state takes note of the first one, and asks at its next mini-batch boundary whether there was
one; another signal, or a run that cannot, ends at once. SIGUSR2 is an interrupt, like SIGINT.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

_SIGNALS = signal.SIGTERM, signal.SIGUSR1


class Terminated(BaseException):
    """The run is to end at once: like KeyboardInterrupt, but by one of the signals above."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.line = f"emuchain: ended by {signal.Signals(number).name}"
        self.status = 128 + number


class EndRequest:
    """What this process has been asked to do; `noted` is the number of the signal, 0 if there was none.

    `on_note` is told of it.
    """

    def __init__(self, on_note: Callable[[int], None] = lambda _: None) -> None:
        self.noted = 0
        self._on_note = on_note
        self._can_wait = False

    def listen(self) -> None:
        """Take the signals from now on; for the main thread."""
        for number in _SIGNALS:
            signal.signal(number, self._take)
        signal.signal(signal.SIGUSR2, signal.default_int_handler)  # SIGINT, from launchers that pass that on to nobody

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Take note of the first signal, for a run that asks for it (`Ranks.end_wanted`), and go on."""
        self._can_wait = True
        try:
            yield
        finally:
            self._can_wait = False

    def _take(self, number: int, _: FrameType | None) -> None:
        if not self._can_wait or self.noted:
            raise Terminated(number)
        self.noted = number
        self._on_note(number)
