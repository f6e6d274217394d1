"""Cuts: between layers, found exactly, and within them, by filling stages up to a time.

Cuts between layers are found by dynamic programming over (devices used, place): the least maximum with which the first
devices take all before a place. A stage's cost may be any function of its piece. Unlike `mapping.cut_layers`, which
asks for the cost of every piece, it leaves out those whose bounds, which are cheap to know, rule them out; of equally
fast cuts it may find another one.

Within layers, the time up to which stages are filled is found by bisection. With a given time, each device from
the first on takes the longest piece that it can do within it and whose message its link can carry within it. A part of
a piece takes no longer, up to roundings and to how its data lie on chip, so that is the best that can be done.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from .pieces import Pieces

_NEVER = 1 << 100
"""A time in ps longer than that of any stage."""


class Cut(NamedTuple):
    """The places at which stages end, and the time of the slowest one in ps."""

    ends: tuple[int, ...]
    period_ps: int

    @property
    def spans(self) -> Iterator[tuple[int, int]]:
        """The begin and the end of each stage."""
        return itertools.pairwise((0, *self.ends))


def least_cut(
    pieces: Pieces, places: Sequence[int], *, links_count: bool = False, longest_message_ps: int | None = None
) -> Cut | None:
    """Return the cut at some of `places` whose slowest stage is as fast as possible; None if no cut fits.

    Args:
        pieces: times of stages and links.
        places: places in ascending order; the first and the last one are the ends of the row.
        links_count: whether the time of a message counts as that of a stage does.
        longest_message_ps: cuts whose messages take longer are left out.
    """
    bounds = _Bounds(pieces, places)
    most = _NEVER
    first = bounds.cut()
    if first is not None and not links_count and longest_message_ps is None:
        time = pieces.period_ps(first)
        most = _NEVER if time is None else time
    last = len(places) - 1
    best: list[dict[int, tuple[int, int]]] = [{0: (0, 0)}]
    for device in range(pieces.devices):
        least: dict[int, tuple[int, int]] = {}
        ends = [last] if device == pieces.devices - 1 else range(device + 1, last - (pieces.devices - device - 2))
        for k in ends:
            message = pieces.link_ps(device, places[k])
            if longest_message_ps is not None and message > longest_message_ps:
                continue
            counted = message if links_count else 0
            before = {j: max(time, counted) for j, (time, _) in best[device].items() if j < k}
            piece = _fastest(pieces, places, device, k, before, bounds.rest(device + 1, k), most + 1)
            if piece is not None:
                least[k] = piece
        best.append(least)
    if last not in best[-1]:
        return None
    ends, k = [], last
    for device in range(pieces.devices, 0, -1):
        ends.append(places[k])
        k = best[device][k][1]
    return Cut(tuple(reversed(ends)), best[-1][last][0])


def _fastest(
    pieces: Pieces, places: Sequence[int], device: int, k: int, before: Mapping[int, int], rest: int, below: int
) -> tuple[int, int] | None:
    """Return the least maximum of the devices up to one that ends at place k, and the place where this one begins.

    Args:
        pieces: times of stages and links.
        places: all places.
        device: the device.
        k: the number of the place at which it ends.
        before: for each place where it can begin, the least maximum of all before.
        rest: a bound for the devices behind it.
        below: only a maximum below this counts.
    """
    wait, fastest = pieces.wait_ps(device, places[k]), None
    bounds = ((max(time, wait + pieces.least_ps(places[j], places[k], device), rest), j) for j, time in before.items())
    for bound, j in sorted(bounds):
        if bound >= below:
            break
        work = pieces.work_ps(places[j], places[k], device)
        time = None if work is None else max(before[j], work + wait)
        if time is not None and time < below:
            fastest, below = (time, j), time
    return fastest


class _Bounds:
    """The least maximum by the bounds of pieces alone, for the devices from one on and the places from one on."""

    def __init__(self, pieces: Pieces, places: Sequence[int]) -> None:
        last, devices = len(places) - 1, pieces.devices
        self._places, self._devices = places, devices
        self._rest: list[dict[int, tuple[int, int]]] = [{} for _ in range(devices)] + [{last: (0, last)}]
        for device in range(devices - 1, -1, -1):
            behind = self._rest[device + 1]
            for j in range(device, last - (devices - device - 1) + 1) if device else (0,):
                choices = []
                for k in range(j + 1, last + 1):
                    if k in behind:
                        own = pieces.least_ps(places[j], places[k], device)
                        choices.append((max(own, behind[k][0]), k))
                if choices:
                    self._rest[device][j] = min(choices)

    def rest(self, device: int, place: int) -> int:
        """Return a bound for the devices from `device` on, which begin at the place of a number."""
        return self._rest[device].get(place, (_NEVER, 0))[0]

    def cut(self) -> tuple[int, ...] | None:
        """Return the ends of the cut that the bounds alone would take; None if there are too few places."""
        if 0 not in self._rest[0]:
            return None
        ends, k = [], 0
        for device in range(self._devices):
            k = self._rest[device][k][1]
            ends.append(self._places[k])
        return tuple(ends)


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
        end = _furthest(pieces, places, at, last - (pieces.devices - device - 1), device, time_ps)
        if end is None:
            return None
        at = end
        ends.append(places[at])
    work = pieces.work_ps(places[at], places[last], pieces.devices - 1)
    return (*ends, places[last]) if work is not None and work <= time_ps else None


def _furthest(pieces: Pieces, places: Sequence[int], at: int, most: int, device: int, time_ps: int) -> int | None:
    """Return the last number of a place, up to `most`, at which a stage that begins at `at` can end within a time."""

    def takes_longer(k: int) -> bool:
        work = pieces.work_ps(places[at], places[k], device)
        return work is None or work > time_ps

    def can_end(k: int) -> bool:
        """Return whether the link carries the message in the time, and the device can wait for it."""
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
