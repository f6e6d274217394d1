"""The current phase of a long command, as a line on standard error if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..common import one_line


@contextmanager
def phases(first: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner with the phase `first`, and yield a function that names the next; silent without a terminal."""
    if not sys.stderr.isatty():
        yield lambda phase: None
        return
    from rich.console import Console
    from rich.text import Text

    def shown(phase: str) -> Text:
        return Text(f"{one_line(phase)} …")

    with Console(stderr=True).status(shown(first)) as status:
        yield lambda phase: status.update(shown(phase))
