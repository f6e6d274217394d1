"""Lines of text: wrapped to the screen, with numbers as people read them."""

from __future__ import annotations

import re
import textwrap

from ..common import format_time_ps
from .terminal import screen_width

_INDENT = "  "
_WHOLE = re.compile(
    r"(?:\S+ (?:images/s|samples/s|GOPS(?: and \S+ GOPS/J)?); )?memory ignored, \S+ MiB too much"
    r"|\d (?:[munp]?s|min|h|[KMGT]i?B|B|%|images/s|samples/s|Gb/s|of)\b"
)
"""What is not broken at a blank: a rate with its note, and a number with its unit."""
_NO_BREAK = "\N{NO-BREAK SPACE}"


def say(text: str) -> None:
    """Print a line; where it is wider than the screen, it goes on below, indented."""
    print("\n".join(wrapped(text, screen_width())))


def wrapped(text: str, width: int) -> list[str]:
    """Return the lines of `text`, none wider than `width` unless a word is."""
    whole = _WHOLE.sub(lambda found: found[0].replace(" ", _NO_BREAK), text)
    lines = textwrap.wrap(whole, width, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines]


def time_and_ps(time_ps: int) -> str:
    """Return a time as readable text, and to the picosecond."""
    return f"{format_time_ps(time_ps)} ({time_ps:,} ps)"


def ignored(missing_bytes: int) -> str:
    """Return what follows a rate that ignores missing memory, with a semicolon; empty where none is missing."""
    return f"; memory ignored, {mebibytes(missing_bytes)} too much" if missing_bytes else ""


def mebibytes(count: int) -> str:
    """Return a number of bytes as text in MiB, to three digits."""
    size = count / 2**20
    return f"{size:,.0f} MiB" if size >= 100 else f"{size:.3g} MiB"
