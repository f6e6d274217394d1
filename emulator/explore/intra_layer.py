"""The cut within layers: stages are filled up to a time, which is found by bisection.

With a given time, each device from the first on takes the longest piece that it can do within it and whose message its
link can carry within it. A part of a piece takes no longer, up to roundings and to how its data lie on chip, so that is
the best that can be done.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from .inter_layer import Cut
from .pieces import Pieces

_EXCESS = 1e-4
"""The time found exceeds the least one by less than this share."""


def filled_cut(pieces: Pieces, places: Sequence[int], enough: Cut) -> Cut:
    """Return a cut at some of `places` whose slowest stage and message take no longer than the slowest of `enough`.

    Args:
        pieces: times of stages and links.
        places: places in ascending order; the first and the last one are the ends of the row.
        enough: a cut that fits.
    """
    period_ps = pieces.period_ps(enough.ends)
    assert period_ps is not None
    best, high, low = Cut(enough.ends, period_ps), enough.period_ps, 0
    while high - low > max(1, int(_EXCESS * high)):
        middle = (low + high) // 2
        ends = _filled(pieces, places, middle)
        if ends is None:
            low = middle
            continue
        time = pieces.period_ps(ends)
        assert time is not None
        best, high = Cut(ends, time), middle
    return best


def fits_at_all(pieces: Pieces, places: Sequence[int], within_ps: int) -> Cut | None:
    """Return a cut that takes at most `within_ps`, None if none is found."""
    ends = _filled(pieces, places, within_ps)
    time = None if ends is None else pieces.period_ps(ends)
    return None if ends is None or time is None else Cut(ends, time)


def _filled(pieces: Pieces, places: Sequence[int], time_ps: int) -> tuple[int, ...] | None:
    """Return the ends of stages that are within a time, None if there are none."""
    at, last = 0, len(places) - 1
    ends: list[int] = []
    for device in range(pieces.devices - 1):
        found = _furthest(pieces, places, at, last - (pieces.devices - device - 1), device, time_ps)
        if found is None:
            return None
        at = found
        ends.append(places[at])
    work = pieces.work_ps(places[at], places[last], pieces.devices - 1)
    return (*ends, places[last]) if work is not None and work <= time_ps else None


def _furthest(pieces: Pieces, places: Sequence[int], at: int, most: int, device: int, time_ps: int) -> int | None:
    """Return the last number of a place, up to `most`, at which a stage that begins at `at` can end within a time."""

    def takes_longer(k: int) -> bool:
        work = pieces.work_ps(places[at], places[k], device)
        return work is None or work > time_ps

    def can_end(k: int) -> bool:
        """Whether the link carries the message in the time, and the device can wait for it."""
        message, wait = pieces.link_ps(device, places[k]), pieces.wait_ps(device, places[k])
        work = pieces.work_ps(places[at], places[k], device) if message <= time_ps else None
        return work is not None and work + wait <= time_ps

    choices = range(at + 1, most + 1)
    choices = choices[
        : bisect.bisect_right(choices, time_ps, key=lambda k: pieces.least_ps(places[at], places[k], device))
    ]
    if choices and takes_longer(choices[-1]):
        choices = choices[: bisect.bisect_left(choices, True, key=takes_longer)]
    return next((k for k in reversed(choices) if can_end(k)), None)
