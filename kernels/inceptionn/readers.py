"""Four readers at once for a long buffer in INCEPTIONN's format (see `inceptionn.py`).

The beginning of a burst depends on the tags of the one before: from address to tags to length to address. So a reader
waits for most of its time, and four wait no longer than one. Nothing marks where bursts begin. But a reader that starts
anywhere is soon in step: it mistakes payloads for tags until it happens to end where a burst does, and from there on it
ends where each does. The reader before it checks this when it arrives there, and counts the bursts up to there, which
give the positions of values. So the first reader decompresses its quarter, while two others only count theirs; then
three decompress the rest. If one was not in step, the first goes on alone.
"""

from __future__ import annotations

from typing import Any

from ..jit import compiled
from .burst import decompress as read_on
from .burst import end_of, unpack
from .format import BURST, LANE_BYTES, LONGEST, TAG_BYTES

WARM_UP, WARM_UP_WITH_PAYLOADS = 256, 16
"""Bursts after which a reader counts as in step: all, and those with payloads. Bursts of the greatest length begin only
every 34 bytes, so it may take many. Among zeros, whose bursts are at even places, a reader that starts at an odd one
never gets in step."""
LEAST_BYTES = 4 * 2 * WARM_UP * LONGEST
"""Bytes from which four readers are used: half of each one's part is then enough to get in step."""

_OUT = BURST * LANE_BYTES


@compiled
def decompress(source: Any, end: Any, bursts: Any, out: Any, reached: Any) -> None:
    """Decompress as `burst.decompress` does; begin a long buffer with four readers."""
    if reached[0] == 0 and end >= LEAST_BYTES:
        by_four(source, end, bursts, out, reached)
    read_on(source, end, bursts, out, reached)


@compiled
def by_four(source: Any, end: Any, bursts: Any, out: Any, reached: Any) -> None:
    """Decompress from the beginning until the last of four readers is at the end, or another has finished its part.

    Decompress only the first quarter if they are not in step, or if there are more bursts than expected.
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
    """Return where a reader from `at` on is likely to be in step, at most `most` bytes and a burst further on."""
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
