"""Hints for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question about the known name that is closest, with a blank behind it; empty if none is close."""
    close = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean `{close[0]}`? " if close else ""
