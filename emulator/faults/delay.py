"""What faults do to the time of rows on one engine, memory port or data path."""

from __future__ import annotations

import dataclasses
import fractions
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..common import InputError
from .span import Span
from .streams import Purpose, stream

_MOST_PS = 1 << 62


@dataclasses.dataclass(frozen=True)
class Loss:
    """Packets of rows that are lost with the probability `rate`: each takes its time again, after `timeout_ps`.

    `place` is (seed, fault, sending board, data path), on which draws depend.
    """

    rate: float
    row_packets: int
    timeout_ps: int
    place: tuple[int, int, int, int]

    def lost(self, sample: int, rows: int) -> NDArray[np.int64]:
        """Return for each row of a sample how many packets are lost, those sent again among them."""
        seed, fault, board, part = self.place
        drawn = stream(seed, Purpose.LOSS, fault, board, part, sample)
        return drawn.negative_binomial(self.row_packets, 1 - self.rate, rows)

    def added_ps(self, row_ps: int, lost: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what a row of `row_ps` takes longer for its lost packets, in ps.

        Raises:
            InputError: longer than a clock can hold.
        """
        check_time(float(row_ps + self.timeout_ps) * float(lost.max(initial=0)))
        return -(-row_ps * lost // self.row_packets) + lost * self.timeout_ps


@dataclasses.dataclass(frozen=True)
class Delay:
    """One fault of a resource: inside its span, rows take `factor` times as long and arrive `latency_ps` later."""

    span: Span
    factor: fractions.Fraction
    latency_ps: int = 0
    loss: Loss | None = None


def slowed_ps(delays: Sequence[Delay], takes_ps: int) -> int:
    """Return a time in ps, as slowed down by all of these.

    Raises:
        InputError: it is longer than a clock can hold.
    """
    slow_ps = math.ceil(math.prod((delay.factor for delay in delays), start=takes_ps))
    check_time(slow_ps)
    return slow_ps


def check_time(time_ps: float) -> None:
    """Check that a clock can hold a time.

    Raises:
        InputError: it cannot.
    """
    if time_ps > _MOST_PS:
        raise InputError("`faults`: virtual time runs past 53 days; should be smaller factors, latencies or losses")


def ends_of(delays: Sequence[Delay]) -> list[int]:
    """Return the times in ps at which a span of time begins or ends, in ascending order."""
    bounds = {bound for delay in delays for bound in delay.span.bounds_ps if bound}
    return sorted(bounds)
