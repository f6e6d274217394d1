"""The key `scaling`: whether maps have scales, by the largest numbers of mini-batches before."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...kernels.number import NumberFormat

_DELAYED = re.compile(r"delayed(?::history=([0-9]{1,4}))?")
_USUAL, _MOST = 16, 1024
"""Mini-batches of a history; Transformer Engine's usual one is the longest."""


def history_of(value: object) -> int:
    """Return of how many mini-batches the largest numbers tell scales; 0: there are none.

    Raises:
        ValueError: it is neither `none` nor `delayed`.
    """
    match = _DELAYED.fullmatch(str(value))
    history = 0 if match is None else int(match[1] or _USUAL)
    if (match is None and value != "none") or (match is not None and not 0 < history <= _MOST):
        raise ValueError(
            f"scaling = {value!r}: should be 'none' or 'delayed', also as 'delayed:history=16', of 1"
            f" to {_MOST} mini-batches"
        )
    return history


def scaling_text(history: int) -> str:
    """Return the text of a history."""
    if not history:
        return "none"
    return "delayed" if history == _USUAL else f"delayed:history={history}"


def check_history(history: int, maps: Mapping[str, NumberFormat]) -> None:
    """Check that maps in some formats, by their kind, can have such scales.

    Raises:
        ValueError: blocks have their own.
    """
    if not history:
        return
    given = f"scaling = {scaling_text(history)!r}"
    for kind, number in maps.items():
        if number.block:
            raise ValueError(
                f"{given}: blocks of {kind} in {number.name} have scales of their own; should be"
                " formats without blocks, such as 'fp8' or 'int8'"
            )
