"""`--throttle wall`: a link's bandwidth and latency enforced in real time, on the sender's side.

A message occupies its direction of the link for bytes on the wire / bandwidth, after the messages before it, and is
delivered when the latency has passed too. So a run on real machines is slowed by the modelled links, where those are
slower than the real ones.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable


class Gate:
    """One direction of one link; messages leave in order, each when it is due. A pump of the host."""

    def __init__(self, bandwidth_mbps: int, latency_ps: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._seconds_per_byte = 8e-6 / bandwidth_mbps
        self._latency_s = latency_ps * 1e-12
        self._clock = clock
        self._free_s = 0.0
        self._held: collections.deque[tuple[float, Callable[[], None]]] = collections.deque()

    def pass_through(self, wire_bytes: int, deliver: Callable[[], None]) -> None:
        """Call `deliver` when `wire_bytes`, headers included, have crossed the link."""
        self.hold(wire_bytes * self._seconds_per_byte, deliver)

    def hold(self, occupied_s: float, deliver: Callable[[], None]) -> None:
        """Call `deliver` when the link has been occupied for `occupied_s`, and the latency has passed."""
        self._free_s = max(self._free_s, self._clock()) + occupied_s
        self._held.append((self._free_s + self._latency_s, deliver))

    def poll(self) -> bool:
        """Deliver the messages that are due; return whether there were any."""
        moved = False
        while self._held and self._held[0][0] <= self._clock():
            self._held.popleft()[1]()
            moved = True
        return moved

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held."""
        return not self._held
