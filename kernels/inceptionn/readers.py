"""A long buffer of INCEPTIONN's format is read by four readers at once (see `inceptionn.py`).

Where a burst begins is known when the tags of the one before are. From address to tags to length to address: a reader
waits for most of its time, and four wait no longer than one. No mark says where bursts begin. But a reader that begins
anywhere is soon in step: it takes payloads for tags until it happens to end where a burst does, and from there on it
ends where each does. Whether it is in step the reader before finds out when it comes there, and it counts the bursts up
to there, which tell where values belong. So the first reader decompresses its quarter, while two others only count
theirs; then three decompress what is left. If one was not in step, the first goes on alone.
"""

from __future__ import annotations

from typing import Any

from ..jit.compiled import compiled
from .burst import decompress as read_on
from .burst import end_of, unpack
from .format import BURST, LANE_BYTES, LONGEST, TAG_BYTES

WARM_UP, WARM_UP_WITH_PAYLOADS = 256, 16
"""Bursts that a reader takes to be in step, all and those with payloads. Of the longest every 34th byte begins one, so
it may take many. Among zeros nothing puts it in step if it began at an odd place, and bursts are at even ones."""
LEAST_BYTES = 4 * 2 * WARM_UP * LONGEST
"""Half of each reader's part is enough for that."""

_OUT = BURST * LANE_BYTES


@compiled
def decompress(source: Any, end: Any, bursts: Any, out: Any, reached: Any) -> None:
    """As `inceptionn_burst.decompress`."""
    if reached[0] == 0 and end >= LEAST_BYTES:
        by_four(source, end, bursts, out, reached)
    read_on(source, end, bursts, out, reached)


@compiled
def by_four(source: Any, end: Any, bursts: Any, out: Any, reached: Any) -> None:
    """Decompress from the beginning, until the last of four readers is through, or has no neighbour any more.

    Only the first quarter if they are not in step, or if there are more bursts than there should be.
    """
    apart = end // 8 * 2  # most bursts have even lengths
    begin_1, begin_2 = _in_step(source + apart, apart // 2), _in_step(source + 2 * apart, apart // 2)
    begin_3 = _in_step(source + 3 * apart, apart // 2)

    place = out.ctypes.data
    at_0, at_1, at_2, last, done = source, begin_1, begin_2, source, 0
    while at_0 < begin_1 and done < bursts and at_1 < begin_2 and at_2 < begin_3:
        last = at_0
        at_0, at_1, at_2 = unpack(at_0, place + _OUT * done), end_of(at_1), end_of(at_2)
        done += 1
    at_1, count_1 = _count(at_1, begin_2, done)
    at_2, count_2 = _count(at_2, begin_3, done)
    reached[0], reached[1], reached[2] = at_0 - source, done, last - source
    read_on(source, begin_1 - source, bursts, out, reached)
    count_0 = reached[1]
    before = count_0 + count_1 + count_2
    if source + reached[0] != begin_1 or at_1 != begin_2 or at_2 != begin_3 or before >= bursts:
        return

    out_1, out_2, out_3 = place + _OUT * count_0, place + _OUT * (count_0 + count_1), place + _OUT * before
    at_1, at_2, at_3, step = begin_1, begin_2, begin_3, 0
    while step < min(count_1, count_2, bursts - before) and at_3 < source + end:
        last, to = at_3, _OUT * step
        at_1, at_2, at_3 = unpack(at_1, out_1 + to), unpack(at_2, out_2 + to), unpack(at_3, out_3 + to)
        step += 1
    reached[0], reached[1] = at_1 - source, count_0 + step
    read_on(source, begin_2 - source, bursts, out, reached)
    reached[0], reached[1] = at_2 - source, count_0 + count_1 + step
    read_on(source, begin_3 - source, bursts, out, reached)
    reached[0], reached[1], reached[2] = at_3 - source, before + step, last - source


@compiled
def _in_step(at: Any, most: Any) -> Any:
    """Where a reader that begins somewhere is likely to be in step, at most so many bytes on, and a burst."""
    end, bursts, with_payloads = at + most, 0, 0
    while at < end and (bursts < WARM_UP or with_payloads < WARM_UP_WITH_PAYLOADS):
        before, at = at, end_of(at)
        bursts += 1
        with_payloads += at - before > TAG_BYTES
    return at


@compiled
def _count(at: Any, end: Any, count: Any) -> Any:
    while at < end:
        at = end_of(at)
        count += 1
    return at, count
